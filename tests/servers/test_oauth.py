"""Signing in to a real OAuth-protected MCP server, and staying signed in."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote
from urllib.request import urlopen

import anyio
import pytest
from mcp.server.auth.provider import AccessToken, ProviderTokenVerifier, RefreshToken
from mcp.server.auth.settings import AuthSettings, ClientRegistrationOptions, RevocationOptions
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from pydantic import AnyHttpUrl
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from fingerpost import Router
from fingerpost.errors import ConfigError, ServerUnavailable
from fingerpost.records import LOCAL_NAME, OAuthSpec, ServerSpec, ServerState
from fingerpost.redaction import scrub
from fingerpost.servers import Server, sign_in
from fingerpost.servers.oauth import sign_out
from fingerpost.servers.requests import RequestContext
from fingerpost.testing import MemoryTokens, served, stdio_fault, tool_server
from tests.kit.oauth_authority import OAuthAuthority, serve_accounts
from tests.kit.routers import build_settings
from tests.kit.server_pools import PATIENCE, arguments_of, eventually, open_pool
from tests.requirements import proves


@asynccontextmanager
async def serve_protected(authority: OAuthAuthority) -> AsyncGenerator[str]:
    """A protected MCP server with its own authority; the address of its endpoint."""
    async with served(_nothing) as free:
        base = free  # a port that was free a moment ago
    port = int(base.rpartition(":")[2])
    settings = AuthSettings(
        issuer_url=AnyHttpUrl(base),
        resource_server_url=AnyHttpUrl(f"{base}/mcp"),
        client_registration_options=ClientRegistrationOptions(enabled=True),
        revocation_options=RevocationOptions(enabled=True),
        validate_token_resource=False,
    )
    app = tool_server("locked").server.streamable_http_app(
        auth=settings, auth_server_provider=authority, token_verifier=ProviderTokenVerifier(authority)
    )
    async with served(app, port=port) as address:
        yield f"{address}/mcp"


async def _nothing(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] == "lifespan":
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()


def person(url: str) -> None:
    """A user whose browser follows all redirects, and who agrees to everything."""
    with urlopen(url, timeout=PATIENCE) as page:
        assert page.status == 200


@proves("H13", "F15")
async def test_without_a_sign_in_a_protected_server_is_down_and_no_browser_opens():
    authority = OAuthAuthority()
    async with (
        serve_protected(authority) as url,
        open_pool(Server.http("locked", url), tokens=MemoryTokens()) as servers,
    ):
        status = servers.get_status("locked")
        assert status.state is ServerState.DOWN
        assert "needs signing in (HTTP 401)" in (status.reason or "")
        assert status.hint == "run: fingerpost servers login locked"
    assert authority.clients == {}


@proves("H13")
async def test_after_signing_in_the_server_works_and_the_sign_in_outlives_the_pool():
    authority, tokens = OAuthAuthority(), MemoryTokens()
    async with serve_protected(authority) as url:
        spec = Server.http("locked", url)
        assert await sign_in(spec, tokens, open_browser=person, timeout=PATIENCE)
        for number in range(2):
            async with open_pool(spec, tokens=tokens) as servers:
                result = await servers.call("locked", "echo", {"n": number}, timeout=PATIENCE)
                assert arguments_of(result) == {"n": number}
        assert authority.refreshed == 0


@proves("M2")
async def test_signing_out_forgets_and_revokes_the_tokens():
    authority, tokens = OAuthAuthority(), MemoryTokens()
    async with serve_protected(authority) as url:
        spec = Server.http("locked", url)
        await sign_in(spec, tokens, open_browser=person, timeout=PATIENCE)
        assert await sign_out(spec.name, tokens) == "revoked"
        assert (tokens.entries, authority.access, authority.refresh) == ({}, {}, {})
        assert await sign_out(spec.name, tokens) == "not signed in"
        await sign_in(spec, tokens, open_browser=person, timeout=PATIENCE)
    assert await sign_out(spec.name, tokens) == "not revoked"  # the authority is away
    assert tokens.entries == {}


@proves("H13")
async def test_an_expired_token_is_renewed_before_it_is_used():
    authority, tokens = OAuthAuthority(), MemoryTokens()
    authority.lifetime = -1
    async with serve_protected(authority) as url:
        spec = Server.http("locked", url)
        await sign_in(spec, tokens, open_browser=person, timeout=PATIENCE)
        before = tokens.entries["locked"]
        authority.lifetime = 3600
        async with open_pool(spec, tokens=tokens) as servers:
            await servers.call("locked", "echo", {}, timeout=PATIENCE)
        assert authority.refreshed == 1
        assert tokens.entries["locked"] != before


@proves("H13")
async def test_a_token_refused_in_the_middle_is_renewed_once_for_all_calls():
    authority, tokens = OAuthAuthority(), MemoryTokens()
    async with serve_protected(authority) as url:
        spec = Server.http("locked", url)
        await sign_in(spec, tokens, open_browser=person, timeout=PATIENCE)
        async with open_pool(spec, tokens=tokens) as servers:
            authority.access.clear()
            answers: list[Any] = []

            async def ask(number: int) -> None:
                answers.append(
                    arguments_of(await servers.call("locked", "echo", {"n": number}, timeout=PATIENCE))["n"]
                )

            async with anyio.create_task_group() as tasks:
                for number in range(8):
                    tasks.start_soon(ask, number)
            assert sorted(answers) == list(range(8))
        assert authority.refreshed == 1


@proves("M40")
async def test_a_token_that_another_instance_renewed_is_used():
    authority, tokens = OAuthAuthority(), MemoryTokens()
    async with serve_protected(authority) as url:
        spec = Server.http("locked", url)
        await sign_in(spec, tokens, open_browser=person, timeout=PATIENCE)
        async with open_pool(spec, tokens=tokens) as one, open_pool(spec, tokens=tokens) as other:
            for servers in (one, other):
                await servers.call("locked", "echo", {}, timeout=PATIENCE)
            authority.access.clear()  # the token for renewal is used once
            for servers in (one, other):
                await servers.call("locked", "echo", {}, timeout=PATIENCE)
        assert authority.refreshed == 1


class ReuseDetectingAuthority(OAuthAuthority):
    """Ends the sign-in when a token for renewal comes a second time (RFC 9700, 4.14.2). It takes its time."""

    def __init__(self) -> None:
        super().__init__()
        self.used: set[str] = set()
        self.reused = False

    async def load_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: str
    ) -> RefreshToken | None:
        if refresh_token in self.used:
            self.reused = True
            self.access.clear()
            self.refresh.clear()
        return await super().load_refresh_token(client, refresh_token)

    async def exchange_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: RefreshToken, scopes: list[str]
    ) -> OAuthToken:
        self.used.add(refresh_token.token)
        granted = await super().exchange_refresh_token(client, refresh_token, scopes)
        await anyio.sleep(0.3)
        return granted


@pytest.mark.slow
@proves("M40", "M5")
@pytest.mark.parametrize("way", ["per_user, expired", "shared, expired", "shared, refused"])
async def test_instances_renew_a_token_once_also_at_the_same_moment(way: str, tmp_path: Path) -> None:
    authority = ReuseDetectingAuthority()
    auth: Any = way.partition(",")[0]
    async with serve_accounts(authority) as given:
        spec = replace(given, auth=auth)
        settings = build_settings(tmp_path)
        async with (
            Router([spec], settings=settings) as one,
            Router([spec], settings=settings) as other,
        ):
            authority.lifetime = 1 if "expired" in way else 3600
            await sign_in(spec, one.store.tokens, open_browser=person, timeout=PATIENCE)
            context = RequestContext(user=LOCAL_NAME)

            async def call(router: Router) -> None:
                result = await router.servers.call(
                    "accounts", "get_account", {}, timeout=PATIENCE, context=context
                )
                assert not result.get("isError"), result

            for router in (one, other):
                await call(router)
            if "expired" in way:
                await anyio.sleep(1.1)
            else:
                authority.access.clear()
            authority.lifetime = 3600
            async with anyio.create_task_group() as tasks:
                for router in (one, other):
                    tasks.start_soon(call, router)
            assert not authority.reused
            assert authority.used


@proves("H13")
async def test_when_the_sign_in_is_taken_back_the_reason_asks_for_a_new_one():
    authority, tokens = OAuthAuthority(), MemoryTokens()
    async with serve_protected(authority) as url:
        spec = Server.http("locked", url)
        await sign_in(spec, tokens, open_browser=person, timeout=PATIENCE)
        authority.access.clear()
        authority.refresh.clear()
        async with open_pool(spec, tokens=tokens) as servers:
            await eventually(lambda: servers.get_status("locked").state is ServerState.DOWN)
            assert "needs signing in" in (servers.get_status("locked").reason or "")


@proves("H13")
async def test_a_token_is_never_sent_to_another_address():
    authority, tokens = OAuthAuthority(), MemoryTokens()
    async with serve_protected(authority) as url:
        await sign_in(Server.http("locked", url), tokens, open_browser=person, timeout=PATIENCE)
    seen: list[dict[str, str]] = []

    async def thief(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await _nothing(scope, receive, send)
            return
        seen.append({name.decode(): value.decode() for name, value in scope["headers"]})
        await send({"type": "http.response.start", "status": 401, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async with served(thief) as base, open_pool(Server.http("locked", f"{base}/mcp"), tokens=tokens):
        pass
    assert seen
    assert not any("authorization" in headers for headers in seen)


async def test_a_client_registered_by_hand_is_used():
    authority, tokens = OAuthAuthority(), MemoryTokens()
    async with serve_protected(authority) as url:
        # The authority learns of the client, and of its loopback address, out of band.
        async with served(_nothing) as base:
            port = int(base.rpartition(":")[2])
        authority.clients["by-hand"] = OAuthClientInformationFull.model_validate(
            {
                "client_id": "by-hand",
                "client_secret": "a-secret-of-ours",
                "redirect_uris": [f"http://127.0.0.1:{port}/callback"],
                "token_endpoint_auth_method": "client_secret_post",
            }
        )
        oauth = OAuthSpec(client_id="by-hand", client_secret="a-secret-of-ours", redirect_port=port)
        spec = Server.http("locked", url, oauth=oauth)
        assert await sign_in(spec, tokens, open_browser=person, timeout=PATIENCE)
        assert list(authority.clients) == ["by-hand"]


async def test_a_person_who_says_no_is_reported_and_nothing_is_stored():
    tokens = MemoryTokens()

    def unwilling(url: str) -> None:
        query = url.partition("?")[2]
        redirect = next(part for part in query.split("&") if part.startswith("redirect_uri="))
        address = unquote(redirect.removeprefix("redirect_uri="))
        with urlopen(f"{address}?error=access_denied&error_description=not+today", timeout=PATIENCE):
            pass

    async with serve_protected(OAuthAuthority()) as url:
        with pytest.raises(ServerUnavailable, match="not today"):
            await sign_in(Server.http("locked", url), tokens, open_browser=unwilling, timeout=PATIENCE)
    assert tokens.entries == {}


async def test_a_sign_in_without_a_person_ends_at_its_timeout():
    async with serve_protected(OAuthAuthority()) as url:
        with pytest.raises(ServerUnavailable, match="was not finished within"):
            await sign_in(
                Server.http("locked", url), MemoryTokens(), open_browser=lambda url: None, timeout=0.7
            )


async def test_a_server_that_asks_for_nothing_is_reported_as_such():
    async with served(tool_server("open").server.streamable_http_app()) as base:
        spec = Server.http("open", f"{base}/mcp")
        assert not await sign_in(spec, MemoryTokens(), open_browser=person, timeout=PATIENCE)


async def test_only_servers_at_an_address_are_signed_in_to():
    with pytest.raises(ConfigError, match="only HTTP servers need signing in"):
        await sign_in(stdio_fault("none"), MemoryTokens(), open_browser=person)


async def test_a_damaged_sign_in_counts_as_none():
    tokens = MemoryTokens()
    await tokens.put("locked", json.dumps({"odd": 1}).encode())
    async with (
        serve_protected(OAuthAuthority()) as url,
        open_pool(Server.http("locked", url), tokens=tokens) as servers,
    ):
        assert "needs signing in" in (servers.get_status("locked").reason or "")


@proves("H13", "F49")
async def test_stored_secrets_are_masked_in_every_text():
    authority, tokens = OAuthAuthority(), MemoryTokens()
    async with serve_protected(authority) as url:
        await sign_in(Server.http("locked", url), tokens, open_browser=person, timeout=PATIENCE)
    (token,) = authority.access
    assert token not in scrub(f"the token is {token}")


class MachineAuthority:
    """An authorization server that gives tokens to clients with a secret, and checks what they send."""

    def __init__(self) -> None:
        self.lifetime = 3600
        self.tokens: set[str] = set()
        self.asked: list[str] = []  # the secret of each request for a token
        self.base = ""

    def build_app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/.well-known/oauth-authorization-server", self._describe),
                Route("/token", self._give_token, methods=["POST"]),
            ]
        )

    async def _describe(self, _: Request) -> JSONResponse:
        return JSONResponse(
            {
                "issuer": f"{self.base}/",
                "authorization_endpoint": f"{self.base}/authorize",
                "token_endpoint": f"{self.base}/token",
                "response_types_supported": ["code"],
                "grant_types_supported": ["client_credentials"],
            }
        )

    async def _give_token(self, request: Request) -> JSONResponse:
        form = await request.form()
        assert form["grant_type"] == "client_credentials"
        assert str(form["resource"]).endswith("/mcp")
        given = b64decode(request.headers["authorization"].removeprefix("Basic ")).decode()
        self.asked.append(given)
        if given != "robot:s3cret-of-the-robot":
            return JSONResponse({"error": "invalid_client"}, 401)
        token = f"machine-token-{len(self.asked)}"
        self.tokens.add(token)
        return JSONResponse({"access_token": token, "token_type": "Bearer", "expires_in": self.lifetime})

    async def verify_token(self, token: str) -> AccessToken | None:
        return AccessToken(token=token, client_id="robot", scopes=[]) if token in self.tokens else None


@asynccontextmanager
async def serve_for_machines(authority: MachineAuthority) -> AsyncGenerator[str]:
    async with served(authority.build_app()) as authority.base, served(_nothing) as free:
        pass
    ports = [int(base.rpartition(":")[2]) for base in (authority.base, free)]
    settings = AuthSettings(
        issuer_url=AnyHttpUrl(authority.base),
        resource_server_url=AnyHttpUrl(f"{free}/mcp"),
        validate_token_resource=False,
    )
    app = tool_server("locked").server.streamable_http_app(auth=settings, token_verifier=authority)
    async with served(authority.build_app(), port=ports[0]), served(app, port=ports[1]) as address:
        yield f"{address}/mcp"


def machine(url: str, authority: MachineAuthority, secret: str = "s3cret-of-the-robot") -> ServerSpec:
    oauth = OAuthSpec(
        client_id="robot", client_secret=secret, grant="client_credentials", issuer=f"{authority.base}/"
    )
    return Server.http("locked", url, oauth=oauth)


@proves("M4")
async def test_a_client_signs_in_by_itself_and_gets_its_next_token_when_one_expires():
    authority, tokens = MachineAuthority(), MemoryTokens()
    async with serve_for_machines(authority) as url:
        spec = machine(url, authority)
        for number in range(2):
            async with open_pool(spec, tokens=tokens) as servers:
                result = await servers.call("locked", "echo", {"n": number}, timeout=PATIENCE)
                assert arguments_of(result) == {"n": number}
        assert len(authority.asked) == 1
        assert b"s3cret-of-the-robot" not in tokens.entries["locked"]
        authority.tokens.clear()  # as if it had expired
        async with open_pool(spec, tokens=tokens) as servers:
            await servers.call("locked", "echo", {}, timeout=PATIENCE)
        assert len(authority.asked) == 2


@proves("M4")
async def test_a_client_that_is_refused_and_another_authority_are_explained():
    authority, tokens = MachineAuthority(), MemoryTokens()
    async with serve_for_machines(authority) as url:
        async with open_pool(machine(url, authority, "wrong"), tokens=tokens) as servers:
            status = servers.get_status("locked")
        assert "the client of locked could not sign in" in (status.reason or "")
        assert "client_secret" in (status.hint or "")
        authority.asked.clear()
        spec = machine(url, authority)
        assert spec.oauth is not None
        spec = replace(spec, oauth=replace(spec.oauth, issuer="https://other.example.org"))
        async with open_pool(spec, tokens=tokens) as servers:
            assert "issuer" in (servers.get_status("locked").reason or "")
        assert authority.asked == []  # the secret was not sent to it

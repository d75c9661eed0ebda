"""Callers' tokens are exchanged at their authorization server for tokens of a server (RFC 8693)."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import anyio
import httpx2
import jwt
import mcp_types as types
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.auth.provider import AccessToken
from mcp.server.auth.settings import AuthSettings
from pydantic import AnyHttpUrl
from starlette.responses import JSONResponse

from fingerpost.records import OAuthSpec, ServerSpec
from fingerpost.servers import Server
from fingerpost.testing import ToolServer, served
from tests.kit.api import open_served_api
from tests.kit.gateways import open_gateway
from tests.kit.oauth_authority import TOOL
from tests.kit.token_issuer import AUDIENCE, TokenIssuer, authority, public_pem
from tests.requirements import proves

LEDGER = "https://ledger.example/mcp"  # the audience of the server's tokens


@dataclass
class Ledger:
    """A server that takes tokens of the issuer with its own audience, and tells whose they are."""

    issuer: TokenIssuer
    tokens: set[str] = field(default_factory=set[str])  # all that it ever got
    revoked: set[str] = field(default_factory=set[str])

    async def verify_token(self, token: str) -> AccessToken | None:
        self.tokens.add(token)
        try:
            claims = jwt.decode(token, public_pem(1), ["RS256"], audience=LEDGER, issuer=self.issuer.issuer)
        except jwt.PyJWTError:
            return None
        if token in self.revoked:
            return None
        return AccessToken(token=token, client_id=claims["sub"], scopes=claims["scope"].split())

    async def tell(self, _: str, __: dict[str, Any]) -> str:
        token = get_access_token()
        return "no token" if token is None else f"{token.client_id} {' '.join(token.scopes)}"


@asynccontextmanager
async def serve_ledger(issuer: TokenIssuer, **oauth: Any) -> AsyncGenerator[tuple[Ledger, ServerSpec]]:
    ledger = Ledger(issuer)
    settings = AuthSettings(
        issuer_url=AnyHttpUrl(issuer.issuer), resource_server_url=None, validate_token_resource=False
    )
    app = ToolServer("ledger", [TOOL], call=ledger.tell).server.streamable_http_app(
        auth=settings, token_verifier=ledger
    )
    async with served(app) as address:
        name, secret = issuer.client
        how: dict[str, Any] = {
            "client_id": name,
            "client_secret": secret,
            "issuer": issuer.issuer,
            "audience": LEDGER,
        }
        how["scopes"] = ("read",)
        spec = Server.http("ledger", f"{address}/mcp", trust_hints=True)
        spec = replace(spec, auth="exchange", oauth=OAuthSpec(**how | oauth))
        yield ledger, spec


@asynccontextmanager
async def open_ledger(folder: Path, **oauth: Any) -> AsyncGenerator[tuple[TokenIssuer, Ledger, str]]:
    """The issuer, the server, and the address of a gateway in front of it that takes tokens of the issuer."""
    async with authority() as issuer, serve_ledger(issuer, **oauth) as (ledger, spec):
        sign_in = {"issuer": issuer.issuer, "audience": AUDIENCE}
        gateway = {"mode": "all", "sign_in": sign_in, "require_key": True}
        async with open_gateway(spec, folder=folder, gateway=gateway) as address:
            yield issuer, ledger, address


async def call(address: str, token: str) -> dict[str, Any]:
    headers = {"authorization": f"Bearer {token}"}
    async with httpx2.AsyncClient(base_url=address, headers=headers, timeout=30) as client:
        answer = await client.post("/api/call", json={"tool": "ledger/get_account", "arguments": {}})
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.slow
@proves("M20")
async def test_each_caller_acts_with_the_own_exchanged_token(tmp_path: Path) -> None:
    async with open_ledger(tmp_path) as (issuer, ledger, address):
        anna, ben = issuer.token(sub="anna"), issuer.token(sub="ben")
        seen: dict[str, set[str]] = {"anna": set(), "ben": set()}

        async def call_often(name: str, token: str) -> None:
            for _ in range(5):
                seen[name].add((await call(address, token))["content"])

        async with anyio.create_task_group() as tasks:
            for _ in range(4):
                tasks.start_soon(call_often, "anna", anna)
                tasks.start_soon(call_often, "ben", ben)
        assert seen == {"anna": {"anna read"}, "ben": {"ben read"}}
        assert issuer.asked["/token"] == 2  # one for each, also for the first calls at once
        assert len(ledger.tokens) == 2
        assert ledger.tokens.isdisjoint({anna, ben})


@pytest.mark.slow
@proves("M20")
@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_mcp_clients_of_both_revisions_bring_their_token(mode: Any, tmp_path: Path) -> None:
    async with open_ledger(tmp_path) as (issuer, _, address):
        headers = {"authorization": f"Bearer {issuer.token(sub='anna')}"}
        async with httpx2.AsyncClient(headers=headers, timeout=30) as http:
            transport = streamable_http_client(f"{address}/mcp", http_client=http)
            async with Client(transport, mode=mode) as client:
                result = await client.call_tool("ledger__get_account", {})
        assert isinstance(result.content[0], types.TextContent)
        assert result.content[0].text == "anna read"


@pytest.mark.slow
@proves("M20")
async def test_tokens_are_exchanged_again_before_they_expire_and_when_the_server_refuses_them(
    tmp_path: Path,
) -> None:
    async with open_ledger(tmp_path) as (issuer, ledger, address):
        anna = issuer.token(sub="anna")
        issuer.lifetime = 0
        assert (await call(address, anna))["success"]
        before = issuer.asked["/token"]
        issuer.lifetime = 300
        assert (await call(address, anna))["success"]
        assert (await call(address, anna))["success"]
        assert issuer.asked["/token"] == before + 1
        ledger.revoked |= ledger.tokens
        refused = await call(address, anna)
        assert "the server does not accept the exchanged one" in refused["detail"]
        assert (await call(address, anna))["content"] == "anna read"


@pytest.mark.slow
@proves("M20")
@pytest.mark.parametrize(
    ("answer", "detail", "advice"),
    [
        (
            {"error": "invalid_grant", "error_description": "too old"},
            "invalid_grant: too old",
            "sign in again",
        ),
        ({"error": "invalid_target"}, "invalid_target", "checks the oauth entry"),
        ({"error": "access_denied"}, "access_denied", "checks the oauth entry"),
        (None, "cannot be exchanged", "checks the oauth entry"),
        ("own", "the caller's own token", "checks the oauth entry"),
        ("https://other.example", "for another audience", "checks the oauth entry"),
        ([LEDGER, AUDIENCE], "still has the audience of the caller's own", "checks the oauth entry"),
        ("down", "failed", "try again"),
    ],
)
async def test_a_failed_exchange_says_what_to_do_and_sends_nothing(
    answer: Any, detail: str, advice: str, tmp_path: Path
) -> None:
    async with open_ledger(tmp_path) as (issuer, ledger, address):
        anna = issuer.token(sub="anna")
        assert (await call(address, anna))["success"]  # so that the tool is listed
        ben = issuer.token(sub="ben")
        before = set(ledger.tokens)
        if answer == "own":
            own = {"access_token": ben, "token_type": "Bearer", "expires_in": 300}
            issuer.answers["/token"] = JSONResponse(own)
        elif answer == "down":
            issuer.answers["/token"] = JSONResponse({}, status_code=503)
        elif isinstance(answer, str | list):  # a token with this audience
            made = {"access_token": issuer.token(sub="ben", aud=answer), "token_type": "Bearer"}
            issuer.answers["/token"] = JSONResponse(made)
        else:
            issuer.answers["/token"] = JSONResponse(answer or [], status_code=400 if answer else 200)
        refused = await call(address, ben)
        assert refused["success"] is False
        assert detail in refused["detail"]
        assert advice in f"{refused['detail']} {refused['advice']}"
        assert ben not in str(refused)
        assert ledger.tokens == before


@proves("M20")
async def test_without_a_named_audience_only_a_token_that_still_fits_the_gateway_is_refused(
    tmp_path: Path,
) -> None:
    """Authorization servers may name the audience of a resource as they like."""
    async with open_ledger(tmp_path, audience=None) as (issuer, ledger, address):

        async def call_with(audience: Any) -> dict[str, Any]:
            token = issuer.token(sub="ben", aud=audience, scope="read")
            issuer.answers["/token"] = JSONResponse({"access_token": token, "token_type": "Bearer"})
            return await call(address, issuer.token(sub="ben", jti=str(audience)))

        assert (await call_with(LEDGER))["content"] == "ben read"
        sent = set(ledger.tokens)
        refused = await call_with([LEDGER, AUDIENCE])
        assert "still has the audience of the caller's own" in refused["detail"]
        assert ledger.tokens == sent


@proves("M20")
async def test_a_caller_without_a_token_is_told_to_bring_one(tmp_path: Path) -> None:
    async with (
        authority() as issuer,
        serve_ledger(issuer, token_endpoint=f"{issuer.base}/token") as (_, spec),
        open_served_api(tmp_path, spec) as api,
    ):
        key = await api.key("dana")
        body: dict[str, Any] = {"tool": "ledger/get_account", "arguments": {}}
        own = {**key, "authorization": f"Bearer {issuer.token(sub='dana')}"}
        assert (await api.post("/api/call", body, headers=own)).json()["content"] == "dana read"
        refused = (await api.post("/api/call", body, headers=key)).json()
        assert f"ledger needs your own token of {issuer.issuer}" in refused["detail"]
        assert "Authorization: Bearer" in refused["advice"]

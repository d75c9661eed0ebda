"""Signing in to servers that redirect elsewhere, and at authorities that must not be used."""

from __future__ import annotations

import json
import socket
from asyncio.selector_events import BaseSelectorEventLoop
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from fingerpost.errors import ServerUnavailable
from fingerpost.records import OAuthSpec
from fingerpost.servers import Server, sign_in
from fingerpost.testing import MemoryTokens, served
from tests.kit.oauth_authority import OAuthAuthority
from tests.kit.server_pools import PATIENCE, open_pool
from tests.kit.tables import table
from tests.requirements import proves
from tests.servers.test_oauth import person, serve_protected

METADATA = "http://169.254.169.254/prm"


@dataclass
class HostileAuthority:
    """A server and its authority in one, which say what a test has them say, and remember what was asked."""

    base: str = ""
    challenge: str | None = None  # where its metadata are, if not where they are
    authorities: list[str] = field(default_factory=list[str])
    metadata: dict[str, Any] = field(default_factory=dict[str, Any])  # None: left out
    answers: dict[str, Response] = field(default_factory=dict[str, Response])
    asked: list[str] = field(default_factory=list[str])

    async def answer(self, request: Request) -> Response:
        path = request.url.path
        self.asked.append(path)
        if path in self.answers:
            return self.answers[path]
        if path == "/mcp":
            where = self.challenge or f"{self.base}/.well-known/oauth-protected-resource"
            return Response(
                status_code=401, headers={"www-authenticate": f'Bearer resource_metadata="{where}"'}
            )
        if path == "/.well-known/oauth-protected-resource":
            named = self.authorities or [self.base]
            return JSONResponse({"resource": f"{self.base}/mcp", "authorization_servers": named})
        if path == "/.well-known/oauth-authorization-server":
            return JSONResponse({name: value for name, value in self.describe().items() if value is not None})
        if path == "/register":
            return JSONResponse({**json.loads(await request.body()), "client_id": "c"}, status_code=201)
        return Response(status_code=404)

    def describe(self) -> dict[str, Any]:
        return {
            "issuer": self.base,
            "authorization_endpoint": f"{self.base}/authorize",
            "token_endpoint": f"{self.base}/token",
            "registration_endpoint": f"{self.base}/register",
            "code_challenge_methods_supported": ["S256"],
            **self.metadata,
        }


@asynccontextmanager
async def hostile() -> AsyncGenerator[HostileAuthority]:
    made = HostileAuthority()
    app = Starlette(routes=[Route("/{path:path}", made.answer, methods=["GET", "POST"])])
    async with served(app) as made.base:
        yield made


async def refusal(server: HostileAuthority, oauth: OAuthSpec | None = None) -> str:
    """Why the sign-in failed, no browser having been opened, nothing registered and nothing kept."""
    tokens, opened = MemoryTokens(), list[str]()
    spec = Server.http("odd", f"{server.base}/mcp", oauth=oauth)
    with pytest.raises(ServerUnavailable) as raised:
        await sign_in(spec, tokens, open_browser=opened.append, timeout=PATIENCE)
    assert (opened, tokens.entries) == ([], {})
    assert "/register" not in server.asked
    return str(raised.value)


@proves("H13")
@pytest.mark.parametrize("address", [METADATA, "http://[::ffff:169.254.169.254]/prm", "file:///etc/passwd"])
async def test_a_refusal_that_points_elsewhere_is_not_followed(address: str) -> None:
    async with hostile() as server:
        server.challenge = address
        error_text = await refusal(server)
        assert server.asked == ["/mcp"]
    assert error_text.startswith("signing in to odd failed: it pointed to ")
    assert "169.254.169.254" in error_text or "/etc/passwd" in error_text or "a9fe" in error_text
    assert "was not followed" in error_text


@proves("H13")
@pytest.mark.parametrize(
    "authority", ["http://169.254.169.254/", "https://169.254.169.254", "http://10.0.0.1"]
)
async def test_an_authority_in_an_odd_place_is_not_asked(authority: str) -> None:
    async with hostile() as server:
        server.authorities = [authority]
        error_text = await refusal(server)
    assert f"{authority.rstrip('/')}/.well-known/oauth-authorization-server" in error_text
    assert "was not followed" in error_text


@proves("H13")
@table("registered", [False, True])
@table(
    ("endpoint", "address"),
    [
        ("authorization_endpoint", "http://phish.example/login"),
        ("authorization_endpoint", METADATA),
        ("token_endpoint", "http://10.0.0.1/token"),
        ("token_endpoint", "https://169.254.169.254/token"),
        ("registration_endpoint", METADATA),
    ],
)
async def test_no_endpoint_in_an_odd_place_is_used(endpoint: str, address: str, registered: bool) -> None:
    async with hostile() as server:
        server.metadata = {endpoint: address}
        error_text = await refusal(server, OAuthSpec(client_id="by-hand") if registered else None)
    assert f"it pointed to {address} " in error_text
    assert "was not followed" in error_text


# A cloud's metadata service outside of the link-local ranges, by other protocols' addresses, and by name.
CREDENTIALS = (
    "https://[fd00:ec2::254]/x",
    "https://[fe80::1]/x",
    "https://[64:ff9b::a9fe:a9fe]/x",
    "https://[2002:a9fe:a9fe::1]/x",
    "https://100.100.100.200/x",
    "https://metadata.google.internal/x",
    "https://id.example/x",  # a name that stands for such an address
)
LOOKED_UP = ("metadata.google.internal", "id.example")


@pytest.fixture
def connection_hosts(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Names stand for 169.254.169.254 here; the hosts that connections were tried to."""
    tried = list[str]()
    really = socket.getaddrinfo

    def look_up(host: Any, *args: Any, **named: Any) -> Any:
        name = host.decode() if isinstance(host, bytes) else host
        return really("169.254.169.254" if name in LOOKED_UP else host, *args, **named)

    connect = BaseSelectorEventLoop.sock_connect

    async def sock_connect(self: Any, sock: Any, address: Any) -> None:
        tried.append(address[0])
        await connect(self, sock, address)

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    monkeypatch.setattr(BaseSelectorEventLoop, "sock_connect", sock_connect)
    yield tried


@proves("H13", "X14")
@pytest.mark.parametrize("address", CREDENTIALS)
@pytest.mark.parametrize(
    "place", ["resource metadata", "authority", "token_endpoint", "registration_endpoint"]
)
async def test_no_sign_in_leads_to_where_clouds_keep_credentials(
    address: str, place: str, connection_hosts: list[str]
) -> None:
    async with hostile() as server:
        if place == "resource metadata":
            server.challenge = address
        elif place == "authority":
            server.authorities = [address]
        else:
            server.metadata = {place: address}
        error_text = await refusal(server)
    assert "was not followed: link-local and metadata addresses" in error_text
    assert set(connection_hosts) <= {"127.0.0.1"}


@proves("H13", "X14")
@pytest.mark.parametrize("address", CREDENTIALS)
async def test_no_token_is_renewed_where_clouds_keep_credentials(
    address: str, connection_hosts: list[str]
) -> None:
    authority, tokens = OAuthAuthority(), MemoryTokens()
    authority.lifetime = -1  # to be renewed at once
    async with serve_protected(authority) as url:
        spec = Server.http("locked", url)
        await sign_in(spec, tokens, open_browser=person, timeout=PATIENCE)
        kept = json.loads(tokens.entries["locked"])
        kept["authority"]["token_endpoint"] = address
        await tokens.put("locked", json.dumps(kept).encode())
        async with open_pool(spec, tokens=tokens) as servers:
            assert "needs signing in (HTTP 401)" in (servers.get_status("locked").reason or "")
    assert set(connection_hosts) <= {"127.0.0.1"}


@proves("H13", "X14")
async def test_a_sign_in_at_such_an_address_is_refused_unless_it_is_allowed() -> None:
    spec = Server.http("cloud", "http://169.254.169.254/mcp")
    with pytest.raises(ServerUnavailable, match="link-local"):
        await sign_in(spec, MemoryTokens(), open_browser=approve_at_once, timeout=PATIENCE)


def approve_at_once(url: str) -> None:
    """A browser that comes straight back, as from an authority that asks nothing."""
    query = parse_qs(urlsplit(url).query)
    person(f"{query['redirect_uri'][0]}?code=c0de&state={query['state'][0]}")


@proves("H13")
async def test_a_redirect_elsewhere_never_carries_a_code() -> None:
    async with hostile() as server, hostile() as thief:
        server.answers["/token"] = RedirectResponse(f"{thief.base}/token", status_code=307)
        spec = Server.http("odd", f"{server.base}/mcp")
        with pytest.raises(ServerUnavailable, match="not followed"):
            await sign_in(spec, MemoryTokens(), open_browser=approve_at_once, timeout=PATIENCE)
        assert "/token" in server.asked
        assert thief.asked == []


@proves("H13")
@table("registered", [False, True])
@table("methods", [None, [], ["plain"], ["s256"]])
async def test_without_pkce_a_sign_in_is_refused(methods: list[str] | None, registered: bool) -> None:
    async with hostile() as server:
        server.metadata = {"code_challenge_methods_supported": methods}
        error_text = await refusal(server, OAuthSpec(client_id="by-hand") if registered else None)
    assert "does not say that it supports PKCE by S256" in error_text
    assert ("plain" in error_text) == (methods == ["plain"])


@proves("H13")
async def test_a_kept_sign_in_is_not_renewed_where_none_would_lead_today() -> None:
    authority, tokens = OAuthAuthority(), MemoryTokens()
    authority.lifetime = -1  # to be renewed at once
    async with serve_protected(authority) as url, hostile() as thief:
        spec = Server.http("locked", url)
        await sign_in(spec, tokens, open_browser=person, timeout=PATIENCE)
        kept = json.loads(tokens.entries["locked"])
        # Not loopback by its name, so not to be followed; a client that follows it reaches the attacker.
        kept["authority"]["token_endpoint"] = f"{thief.base.replace('127.0.0.1', '0.0.0.0')}/token"
        await tokens.put("locked", json.dumps(kept).encode())
        async with open_pool(spec, tokens=tokens) as servers:
            assert "needs signing in (HTTP 401)" in (servers.get_status("locked").reason or "")
        assert thief.asked == []

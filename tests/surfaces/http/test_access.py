"""The gate at a real port: keys over HTTP, and a real client that signs in on its own."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import jwt
import pytest
from mcp.server.auth.provider import AuthorizationCode
from mcp.server.auth.routes import create_auth_routes
from mcp.server.auth.settings import ClientRegistrationOptions
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from pydantic import AnyHttpUrl
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from fingerpost.events import AccessRefused, MemorySink
from fingerpost.servers import Server, sign_in
from fingerpost.settings.model import GatewaySettings, ProfileSettings
from fingerpost.store import Store
from fingerpost.surfaces.gateway.app import GatewayApp
from fingerpost.surfaces.http.authenticator import build_authenticator
from fingerpost.surfaces.http.server import get_address, listen_at
from fingerpost.testing import MemoryTokens, served
from tests.kit.gateway_client import modern, modern_headers
from tests.kit.gateways import run_app
from tests.kit.oauth_authority import OAuthAuthority
from tests.kit.server_pools import PATIENCE, open_pool
from tests.kit.small_gateway import SmallMethods
from tests.kit.stores import place_empty_store
from tests.kit.token_issuer import rsa_jwk, rsa_key
from tests.requirements import proves
from tests.servers.test_oauth import person

ACCEPT = {"content-type": "application/json", "accept": "application/json, text/event-stream"}


@asynccontextmanager
async def open_guarded_gateway(
    store: Store, events: MemorySink, **settings: Any
) -> AsyncGenerator[tuple[str, SmallMethods]]:
    """The wire with the real gate; `audience` in `sign_in` may name the port as `{bound}`."""
    listening = listen_at("127.0.0.1", 0)
    bound = get_address(listening)
    chosen = GatewaySettings.model_validate_json(json.dumps(settings).replace("{bound}", bound))
    profiles = {"support": ProfileSettings()}
    gate = build_authenticator(chosen, keys=store.keys, events=events, bound=bound, profiles=profiles)
    methods = SmallMethods()
    app = GatewayApp(methods, gate, chosen, events, profiles=profiles)
    with listening:
        async with app, run_app(app, listening):
            yield f"http://{bound}", methods


@proves("G10", "G11")
async def test_over_http_a_key_opens_what_it_may_and_nothing_else(tmp_path: Path) -> None:
    events = MemorySink()
    async with (
        Store.open(place_empty_store(tmp_path)) as store,
        open_guarded_gateway(store, events, require_key=True) as (base, methods),
        aiohttp.ClientSession() as http,
    ):
        _, key = await store.keys.add("laptop")
        _, narrow = await store.keys.add("support", profiles=("support",))

        async def ask(path: str = "/mcp", **headers: str) -> tuple[int, Any, str]:
            sent = {
                **ACCEPT,
                **modern_headers("tools/list"),
                **{k.replace("_", "-"): v for k, v in headers.items()},
            }
            async with http.post(base + path, json=modern("tools/list"), headers=sent) as reply:
                return reply.status, await reply.json(), reply.headers.get("www-authenticate", "")

        status, body, challenge = await ask()
        assert (status, challenge) == (401, 'Bearer realm="fingerpost"')
        assert "X-API-Key" in body["error"]["message"]
        status, body, _ = await ask(authorization=f"Bearer {key}")
        assert status == 200
        assert body["result"]["tools"]
        assert methods.requests[-1].principal.name == "laptop"
        assert (await ask(x_api_key=narrow))[0] == 403
        assert (await ask("/mcp/p/support", x_api_key=narrow))[0] == 200
        assert (await ask(x_api_key=key, host="evil.example"))[0] == 403
        assert (await ask(x_api_key=key, origin="https://evil.example"))[0] == 403
        tried = [(await ask(x_api_key="fp_guess"))[0] for _ in range(22)]
        assert tried == [401] * 20 + [429] * 2
        assert (await ask(x_api_key=key))[0] == 200
        refused = [event for event in events.events if isinstance(event, AccessRefused)]
        assert 20 <= len(refused) <= 25
        assert all(key not in str(event) for event in refused)


class SigningAuthority(OAuthAuthority):
    """Its tokens are signed, and for what was asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.issuer = ""
        self.asked_for: list[str | None] = []

    async def exchange_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: AuthorizationCode
    ) -> OAuthToken:
        self.asked_for.append(authorization_code.resource)
        claims = {
            "iss": self.issuer,
            "aud": authorization_code.resource,
            "sub": "dana",
            "client_id": client.client_id,
            "exp": time.time() + 300,
            "scope": " ".join(authorization_code.scopes),
        }
        token = jwt.encode(claims, rsa_key(1), algorithm="RS256", headers={"kid": "one", "typ": "at+jwt"})
        return OAuthToken(access_token=token, expires_in=300, scope=" ".join(authorization_code.scopes))


@asynccontextmanager
async def serve_signing_authority() -> AsyncGenerator[SigningAuthority]:
    """The library's authorization server, with our keys beside it."""
    made = SigningAuthority()
    routes: list[Route] = []

    async def keys(request: Request) -> Response:
        return JSONResponse({"keys": [rsa_jwk(1, "one")]})

    app = Starlette(routes=routes)
    async with served(app) as base:
        made.issuer = f"{base}/"  # as the library writes it
        options = ClientRegistrationOptions(
            enabled=True, valid_scopes=["tools.use"], default_scopes=["tools.use"]
        )
        for route in create_auth_routes(made, AnyHttpUrl(base), client_registration_options=options):
            app.router.routes.append(route)
        app.router.routes.append(Route("/keys", keys))
        yield made


@proves("G10")
@pytest.mark.parametrize("path", ["/mcp", "/mcp/all", "/mcp/p/support"])
async def test_a_real_client_is_turned_away_signs_in_and_is_let_in(tmp_path: Path, path: str) -> None:
    events, tokens = MemorySink(), MemoryTokens()
    async with (
        serve_signing_authority() as authority,
        Store.open(place_empty_store(tmp_path)) as store,
        open_guarded_gateway(
            store,
            events,
            require_key=True,
            sign_in={
                "issuer": authority.issuer,
                "audience": "http://{bound}/mcp",
                "jwks_url": f"{authority.issuer}keys",
                "scopes": ["tools.use"],
            },
        ) as (base, methods),
    ):
        spec = Server.http("gateway", f"{base}{path}")
        assert await sign_in(spec, tokens, open_browser=person, timeout=PATIENCE)
        async with open_pool(spec, tokens=tokens) as servers:
            result = await servers.call("gateway", "echo", {"text": "hello"}, timeout=PATIENCE)
        assert "hello" in str(result)
        assert authority.asked_for == [
            f"{base}{path}"
        ]  # the address it calls, as a strict client would have it
        (client_id,) = authority.clients
        principals = {(request.principal.kind, request.principal.name) for request in methods.requests}
        assert principals == {("token", f"token:dana@{client_id}")}

"""Each endpoint is a resource of its own: what its document names, and what tokens for it open."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import Any

import pytest

from fingerpost.events import MemorySink
from fingerpost.records import Principal
from fingerpost.settings.model import GatewaySettings
from fingerpost.surfaces.http.access import AccessDenial, Endpoint
from fingerpost.surfaces.http.authenticator import HttpAuthenticator, build_authenticator
from tests.kit.token_issuer import AUDIENCE, TokenIssuer, authority
from tests.requirements import proves
from tests.surfaces.http.test_tokens import NoKeys

BASE = "https://tools.example"
HOST = {"host": "tools.example"}
WELL_KNOWN = "/.well-known/oauth-protected-resource"
ENDPOINTS = {
    path: Endpoint(path=path, profile=path.removeprefix("/mcp/p/") if "/p/" in path else None)
    for path in ("/mcp", "/mcp/route", "/mcp/all", "/mcp/p/daily", "/mcp/p/other")
}


@pytest.fixture
async def issuer() -> AsyncIterator[TokenIssuer]:
    async with authority() as made:
        yield made


def gate_of(
    issuer: TokenIssuer,
    audience: str,
    *,
    public_url: str | None = BASE,
    profiles: Iterable[str] = ("daily", "other"),
) -> HttpAuthenticator:
    sign_in = issuer.settings(audience=audience)
    settings = GatewaySettings(
        host="0.0.0.0", public_url=public_url, sign_in=sign_in, allowed_hosts=("tools.example",)
    )
    return build_authenticator(
        settings, keys=NoKeys(), events=MemorySink(), bound="0.0.0.0:8642", profiles=profiles
    )


async def opens(gate: HttpAuthenticator, issuer: TokenIssuer, **claims: Any) -> set[str]:
    """The endpoints a token of these claims opens."""
    headers = {**HOST, "authorization": f"Bearer {issuer.token(**claims)}"}
    answers = {path: await gate.authenticate(headers, endpoint) for path, endpoint in ENDPOINTS.items()}
    return {path for path, answer in answers.items() if isinstance(answer, Principal)}


@proves("G10")
@pytest.mark.parametrize("public_url", [BASE, f"{BASE}/", None])
async def test_every_document_names_the_endpoint_it_was_asked_for(
    issuer: TokenIssuer, public_url: str | None
) -> None:
    gate = gate_of(issuer, AUDIENCE, public_url=public_url)
    named = {path: document["resource"] for path, document in gate.get_public_documents().items()}
    assert named == {
        WELL_KNOWN: AUDIENCE,
        **{f"{WELL_KNOWN}{path}": f"{BASE}{path}" for path in ENDPOINTS},
    }
    for path, endpoint in ENDPOINTS.items():
        refused = await gate.authenticate(HOST, endpoint)
        assert isinstance(refused, AccessDenial)
        challenge = dict(refused.headers)["www-authenticate"]
        assert f'resource_metadata="{BASE}{WELL_KNOWN}{path}"' in challenge


@proves("G10")
async def test_behind_a_path_of_the_proxy_the_documents_name_addresses_with_it(issuer: TokenIssuer) -> None:
    gate = gate_of(issuer, f"{BASE}/fp/mcp", public_url=f"{BASE}/fp")
    documents = gate.get_public_documents()
    for path in ENDPOINTS:
        for asked in (f"{WELL_KNOWN}{path}", f"{WELL_KNOWN}/fp{path}"):
            assert documents[asked]["resource"] == f"{BASE}/fp{path}"


@proves("G10")
async def test_a_token_for_any_endpoint_is_taken_and_one_for_a_profile_opens_that_alone(
    issuer: TokenIssuer,
) -> None:
    gate = gate_of(issuer, AUDIENCE)
    for path in ("/mcp", "/mcp/route", "/mcp/all"):
        assert await opens(gate, issuer, aud=f"{BASE}{path}") == {*ENDPOINTS}
    daily = f"{BASE}/mcp/p/daily"
    assert await opens(gate, issuer, aud=daily) == {"/mcp/p/daily"}
    assert await opens(gate, issuer, aud=[daily, "account"]) == {"/mcp/p/daily"}
    assert await opens(gate, issuer, aud=[daily, AUDIENCE]) == {*ENDPOINTS}
    both = [daily, f"{BASE}/mcp/p/other"]
    assert await opens(gate, issuer, aud=both) == {"/mcp/p/daily", "/mcp/p/other"}
    assert await opens(gate, issuer, aud=both, scope="fingerpost:profile:daily") == {"/mcp/p/daily"}
    # What neither leaves is nothing, not everything.
    assert await opens(gate, issuer, aud=daily, scope="fingerpost:profile:other") == set()


@proves("G10")
@pytest.mark.parametrize(
    "audience",
    [
        BASE,
        f"{BASE}/",
        f"{BASE}/mcp/",
        f"{BASE}/mcp/none",
        f"{BASE}/mcp/p/none",
        f"{BASE}/api",
        "http://tools.example/mcp/all",
        "https://other.example/mcp/all",
    ],
)
async def test_a_token_for_anything_else_is_not_taken(issuer: TokenIssuer, audience: str) -> None:
    assert await opens(gate_of(issuer, AUDIENCE), issuer, aud=audience) == set()


@proves("G10")
@pytest.mark.parametrize(
    ("audience", "named"),
    [
        ("fingerpost", None),  # no address: each document names its endpoint's own
        (BASE, BASE),
        ("https://api.example/tools", "https://api.example/tools"),
        ("https://other.example/mcp", "https://other.example/mcp"),  # of another gateway than public_url's
    ],
)
async def test_an_audience_agreed_on_with_the_issuer_is_the_only_one(
    issuer: TokenIssuer, audience: str, named: str | None
) -> None:
    gate = gate_of(issuer, audience)
    documents = gate.get_public_documents()
    for path in ENDPOINTS:
        assert documents[f"{WELL_KNOWN}{path}"]["resource"] == (named or f"{BASE}{path}")
        assert await opens(gate, issuer, aud=f"{BASE}{path}") == set()
    assert await opens(gate, issuer, aud=audience) == {*ENDPOINTS}


@proves("G10")
async def test_profiles_that_come_and_go_are_endpoints_while_they_are_there(issuer: TokenIssuer) -> None:
    profiles = ["daily"]
    gate = gate_of(issuer, AUDIENCE, profiles=profiles)
    assert await opens(gate, issuer, aud=f"{BASE}/mcp/p/other") == set()
    profiles.append("other")
    assert await opens(gate, issuer, aud=f"{BASE}/mcp/p/other") == {"/mcp/p/other"}

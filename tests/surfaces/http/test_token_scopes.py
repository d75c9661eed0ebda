"""What narrows a token narrows it however it is written, or the token is refused."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import jwt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fingerpost.events import AccessRefused, MemorySink
from fingerpost.records import ALL_RIGHTS, Principal, Right
from fingerpost.surfaces.http.access import AccessDenial
from fingerpost.surfaces.http.tokens import MAX_SCOPES, InvalidClaims, build_principal, get_scopes
from tests.kit.token_issuer import TokenIssuer, authority, rsa_key
from tests.requirements import proves
from tests.surfaces.http.test_tokens import HOST, MCP, gate_of

BOUND = "fingerpost:server:r"
OTHERS = [f"s{number}" for number in range(200)]


@pytest.fixture
async def issuer() -> AsyncIterator[TokenIssuer]:
    async with authority() as made:
        yield made


async def authenticate(
    issuer: TokenIssuer, events: MemorySink, claims: dict[str, Any]
) -> Principal | AccessDenial:
    merged_claims = {**issuer.claims(), **claims}  # null is said here, not left out
    token = jwt.encode(merged_claims, rsa_key(1), algorithm="RS256", headers={"kid": "one"})
    return await gate_of(issuer.settings(), events).authenticate(
        {**HOST, "authorization": f"Bearer {token}"}, MCP
    )


@proves("G10")
@pytest.mark.parametrize(
    "claims",
    [
        {"scope": BOUND},
        {"scope": " ".join([*OTHERS, BOUND])},
        {"scp": [*OTHERS, BOUND]},
        {"scope": None, "scp": BOUND},
        {"scope": "openid", "scp": BOUND},
        {"scope": ["openid", BOUND], "scp": []},
        {"scope": BOUND, "scp": "openid https://fingerpost:8642/tools"},  # a host and its port
    ],
)
async def test_a_bound_holds_wherever_it_stands(issuer: TokenIssuer, claims: dict[str, Any]) -> None:
    who = await authenticate(issuer, MemorySink(), claims)
    assert isinstance(who, Principal)
    assert who.scope.servers == ("r",)


@proves("G10")
@pytest.mark.parametrize(
    ("claims", "reason"),
    [
        ({"scope": {BOUND: True}}, "neither a text nor a list of texts"),
        ({"scope": [[BOUND]]}, "neither a text nor a list of texts"),
        ({"scope": "openid", "scp": [BOUND, 7]}, "neither a text nor a list of texts"),
        ({"scope": True}, "neither a text nor a list of texts"),
        ({"scope": f"openid,{BOUND}"}, "is not one we know"),
        ({"scope": ["openid", f"openid {BOUND}"]}, "is not one we know"),
        ({"scope": BOUND.upper()}, "is not one we know"),
        ({"scope": f"https://tools.example/{BOUND}"}, "is not one we know"),
        ({"scope": f"server:{BOUND}"}, "is not one we know"),
        ({"scope": ["s"] * MAX_SCOPES, "scp": BOUND}, "more than 1000 scopes"),
    ],
)
async def test_what_cannot_be_read_whole_is_refused_with_the_reason(
    issuer: TokenIssuer, claims: dict[str, Any], reason: str
) -> None:
    events = MemorySink()
    answer = await authenticate(issuer, events, claims)
    assert isinstance(answer, AccessDenial)
    assert (answer.status, reason in answer.message) == (403, True)
    [listed] = [event for event in events.events if isinstance(event, AccessRefused)]
    assert reason in listed.reason


_WORDS = st.sampled_from([BOUND, "openid", "a:b", "fingerpost", "", " ", ",", f",{BOUND}", f"{BOUND} x"])
_TEXTS = st.one_of(_WORDS, st.text(max_size=8), st.lists(_WORDS, max_size=4).map(" ".join))
_VALUES: st.SearchStrategy[Any] = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), _TEXTS),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(_TEXTS, inner, max_size=3)),
    max_leaves=8,
)


@proves("G10")
@given(scope=_VALUES, scp=_VALUES)
def test_whatever_the_claims_are_a_bound_in_them_is_never_lost(scope: Any, scp: Any) -> None:
    claims = {"sub": "dana", "scope": scope, "scp": scp}
    try:
        who = build_principal(claims, get_scopes(claims))
    except InvalidClaims:
        return
    assert bool(who.scope.servers) == (BOUND in json.dumps(claims))


ROLES = {"gate-admins": "admin", "night shift": "operator", "reviewers": "approver"}


@proves("M31")
@pytest.mark.parametrize(
    ("settings", "claims", "rights"),
    [
        ({}, {"groups": ["gate-admins"]}, "use"),  # without a claim in the settings, none counts
        ({"roles_claim": "groups"}, {"groups": ["gate-admins"]}, "*"),
        ({"roles_claim": "groups"}, {"groups": "night shift"}, "use watch manage"),
        (
            {"roles_claim": "realm_access.roles"},
            {"realm_access": {"roles": ["night shift", "reviewers", "x"]}},
            "use watch confirm approve manage",
        ),
        ({"roles_claim": "https://id.example/roles"}, {"https://id.example/roles": ["reviewers"]},
         "use watch confirm approve"),
        ({"roles_claim": "groups"}, {"groups": ["others"], "scope": "fingerpost:may:watch"}, "use watch"),
        ({"roles_claim": "groups", "default_roles": []}, {"groups": ["others"]}, None),
        ({"roles_claim": "groups", "default_roles": []}, {}, None),
        ({"roles_claim": "groups"}, {"groups": {"gate-admins": True}}, None),
        ({"roles_claim": "groups"}, {"groups": ["gate-admins", 1]}, None),
    ],
)  # fmt: skip
async def test_a_claim_gives_roles(
    issuer: TokenIssuer, settings: dict[str, Any], claims: dict[str, Any], rights: str | None
) -> None:
    gate = gate_of(issuer.settings(roles=ROLES, **settings), MemorySink())
    headers = {**HOST, "authorization": f"Bearer {issuer.token(**claims)}"}
    who = await gate.authenticate(headers, MCP)
    if rights is None:
        assert isinstance(who, AccessDenial)
        assert who.status == 403
    else:
        assert isinstance(who, Principal)
        assert who.rights == (ALL_RIGHTS if rights == "*" else tuple(map(Right, rights.split())))

"""Signed tokens at the gate: a real issuer over HTTP, real RSA and elliptic-curve keys."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from collections.abc import AsyncIterator
from datetime import datetime
from typing import Any

import jwt
import pytest
from starlette.responses import JSONResponse, RedirectResponse, Response

from fingerpost.errors import ConfigError
from fingerpost.events import MemorySink
from fingerpost.records import Effect, Principal, Scope
from fingerpost.settings.model import GatewaySettings, SignInSettings
from fingerpost.store.credentials import ApiKey
from fingerpost.surfaces.http.access import AccessDenial, Endpoint
from fingerpost.surfaces.http.authenticator import HttpAuthenticator, build_authenticator
from fingerpost.surfaces.http.credentials import (
    CredentialVerdict,
    InsufficientCredential,
    KnownCredential,
    UndecidedCredential,
    UnknownCredential,
)
from fingerpost.surfaces.http.tokens import LEEWAY_SECONDS, TokenCheck
from tests.kit.clock import Clock
from tests.kit.tables import table
from tests.kit.token_issuer import (
    AUDIENCE,
    TokenIssuer,
    authority,
    ec_jwk,
    ec_key,
    public_pem,
    rsa_jwk,
    rsa_key,
)
from tests.requirements import proves

MCP = Endpoint(path="/mcp", mode="auto")
HOST = {"host": "tools.example"}


class NoKeys:
    """A key book without keys: this gateway is for tokens alone."""

    async def find(self, key: str, *, now: datetime | None = None) -> ApiKey | None:
        return None

    def note_use(self, key_id: str, at: datetime) -> None: ...


@pytest.fixture
async def issuer() -> AsyncIterator[TokenIssuer]:
    async with authority() as made:
        yield made


def gate_of(sign_in: SignInSettings, events: MemorySink | None = None) -> HttpAuthenticator:
    settings = GatewaySettings(host="0.0.0.0", public_url="https://tools.example", sign_in=sign_in)
    return build_authenticator(
        settings, keys=NoKeys(), events=events or MemorySink(), bound="0.0.0.0:8642", profiles=["daily"]
    )


async def check(issuer: TokenIssuer, token: str, **settings: Any) -> CredentialVerdict:
    return await TokenCheck(issuer.settings(**settings)).check_credential(token)


@pytest.mark.slow
@proves("G10")
async def test_a_token_of_the_issuer_lets_its_holder_in(issuer: TokenIssuer) -> None:
    gate = gate_of(issuer.settings())
    admitted = await gate.authenticate(
        {**HOST, "authorization": f"Bearer {issuer.token(client_id='ide')}"}, MCP
    )
    assert admitted == Principal(name="token:dana@ide", kind="token", user="token:dana")


@proves("G10")
async def test_scopes_of_a_token_bound_what_its_holder_may_touch(issuer: TokenIssuer) -> None:
    scope = (
        "openid fingerpost:server:git fingerpost:tool:files/* fingerpost:effect:read fingerpost:profile:daily"
    )
    for token in (issuer.token(scope=scope), issuer.token(scp=scope.split())):
        verdict = await check(issuer, token)
        expected = Scope(servers=("git",), tools=("files/*",), effects=(Effect.READ,))
        assert verdict == KnownCredential(
            Principal(name="token:dana", kind="token", scope=expected, profiles=("daily",))
        )
    header = {**HOST, "authorization": f"Bearer {issuer.token(scope='fingerpost:profile:daily')}"}
    gate = gate_of(issuer.settings())
    daily = Endpoint(path="/mcp/p/daily", mode="all", profile="daily")
    assert isinstance(await gate.authenticate(header, daily), Principal)
    refused = await gate.authenticate(header, MCP)
    assert isinstance(refused, AccessDenial)
    assert refused.status == 403


@proves("G10")
@pytest.mark.parametrize(
    "scope", ["fingerpost:effect:reed", "fingerpost:servers:git", "fingerpost:server:", "fingerpost:"]
)
async def test_a_bound_we_cannot_read_is_not_taken_for_none(issuer: TokenIssuer, scope: str) -> None:
    assert isinstance(await check(issuer, issuer.token(scope=scope)), InsufficientCredential)


@proves("G10")
async def test_a_token_without_the_scope_we_ask_for_is_told_which(issuer: TokenIssuer) -> None:
    gate = gate_of(issuer.settings(scopes=("tools.use",)))
    answer = await gate.authenticate({**HOST, "authorization": f"Bearer {issuer.token(scope='other')}"}, MCP)
    assert isinstance(answer, AccessDenial)
    assert answer.status == 403
    challenge = dict(answer.headers)["www-authenticate"]
    assert 'error="insufficient_scope", scope="tools.use"' in challenge
    assert isinstance(
        await check(issuer, issuer.token(scope="a tools.use"), scopes=("tools.use",)), KnownCredential
    )


@proves("G10")
@pytest.mark.parametrize(
    "claims",
    [
        {"aud": "https://tools.example/mcp/"},
        {"aud": "https://tools.example"},
        {"aud": "https://other.example/mcp"},
        {"aud": ["https://other.example/mcp"]},
        {"aud": None},
        {"aud": []},
        {"iss": "https://evil.example"},
        {"iss": None},
        {"exp": 1000},
        {"exp": None},
        {"exp": 10**400},
        {"exp": float("inf")},
        {"exp": float("nan")},
        {"nbf": time.time() + 3600},
        {"sub": None},
    ],
)
async def test_a_token_for_another_audience_or_time_is_refused(
    issuer: TokenIssuer, claims: dict[str, Any]
) -> None:
    assert isinstance(await check(issuer, issuer.token()), KnownCredential)
    assert isinstance(await check(issuer, issuer.token(**claims)), UnknownCredential)


@pytest.mark.parametrize("subject", ["", "  ", "a\nb", "x" * 300])
async def test_a_subject_that_cannot_be_shown_is_refused(issuer: TokenIssuer, subject: str) -> None:
    assert not isinstance(await check(issuer, issuer.token(sub=subject)), KnownCredential)


@proves("G10")
async def test_clocks_may_differ_by_seconds_and_more_than_one_audience_is_fine(issuer: TokenIssuer) -> None:
    assert isinstance(await check(issuer, issuer.token(exp=time.time() - 5)), KnownCredential)
    assert isinstance(await check(issuer, issuer.token(exp=time.time() - 60)), UnknownCredential)
    assert isinstance(await check(issuer, issuer.token(aud=[AUDIENCE, "account"])), KnownCredential)


def forge(header: dict[str, Any], claims: dict[str, Any], signature: bytes = b"") -> str:
    parts = (json.dumps(header).encode(), json.dumps(claims).encode(), signature)
    return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts)


@proves("G10")
async def test_no_signature_and_a_public_key_taken_for_a_secret_are_refused(issuer: TokenIssuer) -> None:
    claims = issuer.claims()
    header = {"alg": "HS256", "typ": "JWT", "kid": "one"}
    body = forge(header, claims).rpartition(".")[0]
    confused = hmac.new(public_pem(1), body.encode(), hashlib.sha256).digest()
    tokens = {
        "none": forge({"alg": "none", "kid": "one"}, claims),
        "None": forge({"alg": "None", "kid": "one"}, claims, b"x"),
        "no algorithm": forge({"kid": "one"}, claims),
        "the public key as a secret": forge(header, claims, confused),
        "another key under the same name": issuer.token(key=rsa_key(2)),
        "another kind of key": issuer.token(key=ec_key(1), algorithm="ES256"),
        "another strength": issuer.token(algorithm="RS512"),
        "not an access token": issuer.token(headers={"kid": "one", "typ": "logout+jwt"}),
        "a critical extension": issuer.token(headers={"kid": "one", "crit": ["x"], "x": 1}),
        "its own key": issuer.token(key=rsa_key(2), headers={"jwk": rsa_jwk(2, None)}),
        "its own key's address": issuer.token(key=rsa_key(2), headers={"jku": "https://evil.example/keys"}),
        "a broken signature": issuer.token()[:-4] + "AAAA",
        "deep": forge({"alg": "RS256"}, claims).replace("ey", base64.b64encode(b"[" * 9000).decode(), 1),
        "words": "not a token",
        "nothing": "",
        "dots": "..",
        "long": "a." * 20_000,
    }
    check = TokenCheck(issuer.settings())
    verdicts = {name: type(await check.check_credential(token)) for name, token in tokens.items()}
    assert verdicts == dict.fromkeys(tokens, UnknownCredential)


@proves("G10")
async def test_a_key_that_is_too_small_or_for_encryption_proves_nothing(issuer: TokenIssuer) -> None:
    with pytest.warns(jwt.InsecureKeyLengthWarning):
        weak = issuer.token(key=rsa_key(9, 1024), headers={"kid": "weak"})
    issuer.keys = [
        rsa_jwk(9, "weak", 1024),
        rsa_jwk(1, "one", use="enc"),
        rsa_jwk(1, "other", alg="PS256"),
        {"kid": "odd"},
        {"kty": "oct", "k": "c2VjcmV0", "kid": "secret"},
    ]
    for token in (weak, *(issuer.token(headers={"kid": kid}) for kid in ("one", "other", "odd", "secret"))):
        assert isinstance(await check(issuer, token), UnknownCredential)


@proves("G10")
async def test_elliptic_curves_and_tokens_that_name_no_key(issuer: TokenIssuer) -> None:
    issuer.keys = [ec_jwk(2, "two"), rsa_jwk(1, "one"), ec_jwk(1, "curve")]
    curve = issuer.token(key=ec_key(1), algorithm="ES256", headers={"kid": "curve"})
    assert isinstance(await check(issuer, curve), KnownCredential)
    assert isinstance(await check(issuer, issuer.token(headers={})), KnownCredential)
    assert isinstance(await check(issuer, issuer.token(key=rsa_key(2), headers={})), UnknownCredential)


@proves("G10")
async def test_new_keys_are_fetched_and_withdrawn_ones_no_longer_believed(issuer: TokenIssuer) -> None:
    clock = Clock()
    check = TokenCheck(issuer.settings(), clock=clock)
    old = issuer.token()
    assert isinstance(await check.check_credential(old), KnownCredential)
    assert check.get_cached(old) is not None
    issuer.keys = [ec_jwk(2, "two")]
    new = issuer.token(key=ec_key(2), algorithm="ES256", headers={"kid": "two"})
    assert isinstance(await check.check_credential(new), UnknownCredential)  # asked a moment ago
    clock.now += 31
    assert isinstance(await check.check_credential(new), KnownCredential)
    assert isinstance(await check.check_credential(old), UnknownCredential)
    clock.now += 31
    assert check.get_cached(old) is None
    assert issuer.asked["/keys"] == 2
    for number in range(20):  # callers cannot make us ask the issuer again and again
        await check.check_credential(issuer.token(headers={"kid": f"made-up-{number}"}))
    assert issuer.asked["/keys"] == 3


@proves("G10")
async def test_wrong_tokens_do_not_lock_out_others_at_the_same_address(issuer: TokenIssuer) -> None:
    """Behind a proxy everybody comes from one address."""
    gate = gate_of(issuer.settings())

    async def status(token: str) -> int:
        headers = {**HOST, "authorization": f"Bearer {token}", "x-forwarded-for": "203.0.113.9"}
        answer = await gate.authenticate(headers, MCP, remote="10.0.0.1")
        return answer.status if isinstance(answer, AccessDenial) else 200

    assert await status(issuer.token()) == 200
    wrong = ["junk", issuer.token(key=rsa_key(2)), issuer.token(headers={"kid": "made-up"})] * 10
    assert [await status(token) for token in wrong] == [401] * 20 + [429] * 10
    assert await status(issuer.token(sub="a newcomer")) == 200
    assert issuer.asked["/keys"] == 1  # and the issuer heard nothing of it all


@proves("G10")
async def test_an_issuer_that_is_gone_costs_nothing_for_an_hour_and_then_tokens_are_refused(
    issuer: TokenIssuer,
) -> None:
    clock = Clock()
    check = TokenCheck(issuer.settings(), clock=clock)
    assert isinstance(await check.check_credential(issuer.token()), KnownCredential)
    issuer.answers["/keys"] = Response(status_code=500)
    clock.now += 3000
    assert isinstance(await check.check_credential(issuer.token()), KnownCredential)
    clock.now += 601
    assert isinstance(await check.check_credential(issuer.token()), UndecidedCredential)
    asked = issuer.asked["/keys"]
    assert isinstance(await check.check_credential(issuer.token()), UndecidedCredential)
    assert issuer.asked["/keys"] == asked  # it is left in peace for some seconds
    del issuer.answers["/keys"]
    clock.now += 6
    assert isinstance(await check.check_credential(issuer.token()), KnownCredential)


@proves("G10")
@pytest.mark.parametrize(
    "answer",
    [
        Response(status_code=500),
        Response(b"<html>", media_type="text/html"),
        JSONResponse({"keys": 7}),
        JSONResponse([]),
        RedirectResponse("https://evil.example/keys"),
        Response(b'{"keys": [' + b" " * 600_000 + b"]}"),
    ],
)
async def test_keys_that_cannot_be_had_are_our_trouble_and_not_a_wrong_token(
    issuer: TokenIssuer, answer: Response
) -> None:
    issuer.answers["/keys"] = answer
    gate = gate_of(issuer.settings())
    refused = await gate.authenticate({**HOST, "authorization": f"Bearer {issuer.token()}"}, MCP)
    assert isinstance(refused, AccessDenial)
    assert refused.status == 503
    assert dict(refused.headers)["retry-after"] == "5"


@proves("G10")
async def test_the_issuers_address_does_not_answer() -> None:
    settings = SignInSettings(issuer="http://127.0.0.1:9", audience=AUDIENCE)
    token = jwt.encode({"iss": "x"}, rsa_key(1), algorithm="RS256")
    assert isinstance(await TokenCheck(settings).check_credential(token), UndecidedCredential)


@proves("G10")
@pytest.mark.parametrize(
    "metadata",
    [{"issuer": "https://evil.example"}, {"jwks_uri": "http://evil.example/keys"}, {"jwks_uri": 7}],
)
async def test_metadata_that_speak_for_another_are_not_believed(
    issuer: TokenIssuer, metadata: dict[str, Any]
) -> None:
    issuer.metadata = metadata
    assert isinstance(await check(issuer, issuer.token()), UndecidedCredential)


@proves("G10")
@pytest.mark.parametrize(
    "where",
    [
        "/.well-known/oauth-authorization-server/tenant",
        "/.well-known/openid-configuration/tenant",
        "/tenant/.well-known/openid-configuration",
    ],
)
async def test_metadata_are_found_wherever_the_standards_put_them(where: str) -> None:
    async with authority("/tenant") as issuer:
        issuer.metadata_path = where
        assert isinstance(await check(issuer, issuer.token()), KnownCredential)
        issuer.metadata_path = "/nowhere"
        assert isinstance(await check(issuer, issuer.token()), UndecidedCredential)
        direct = await check(issuer, issuer.token(), jwks_url=f"{issuer.base}/keys")
        assert isinstance(direct, KnownCredential)


@proves("G10")
async def test_a_client_that_is_turned_away_learns_where_to_sign_in(issuer: TokenIssuer) -> None:
    gate = gate_of(issuer.settings(scopes=("tools.use",)))
    refused = await gate.authenticate(HOST, MCP)
    assert isinstance(refused, AccessDenial)
    assert refused.status == 401
    where = "https://tools.example/.well-known/oauth-protected-resource/mcp"
    assert f'resource_metadata="{where}"' in dict(refused.headers)["www-authenticate"]
    documents = gate.get_public_documents()
    root = "/.well-known/oauth-protected-resource"
    assert set(documents) == {root, *(f"{root}/mcp{end}" for end in ("", "/route", "/all", "/p/daily"))}
    assert documents[f"{root}/mcp"] == {
        "resource": AUDIENCE,
        "authorization_servers": [issuer.issuer],
        "bearer_methods_supported": ["header"],
        "resource_name": "Fingerpost",
        "scopes_supported": ["tools.use"],
    }
    wrong = await gate.authenticate({**HOST, "authorization": "Bearer a.b.c"}, MCP)
    assert isinstance(wrong, AccessDenial)
    assert 'error="invalid_token"' in dict(wrong.headers)["www-authenticate"]


@proves("G10")
async def test_a_good_token_is_not_checked_again_for_each_request_and_ends_on_time(
    issuer: TokenIssuer,
) -> None:
    now = expires = time.time() + 3600
    check = TokenCheck(issuer.settings(), clock=lambda: 0.0, wall_clock=lambda: now)
    token = issuer.token(exp=expires)
    assert isinstance(await check.check_credential(token), KnownCredential)
    assert check.get_cached(token + "x") is None
    now = expires + LEEWAY_SECONDS - 1  # within the leeway
    assert isinstance(check.get_cached(token), KnownCredential)
    now = expires + LEEWAY_SECONDS
    assert check.get_cached(token) is None


@proves("G10")
@table(
    "settings",
    [
        {"algorithms": ("HS256",)},
        {"algorithms": ("RS256", "none")},
        {"algorithms": ()},
        {"issuer": "http://id.example"},
        {"issuer": "id.example"},
        {"jwks_url": "http://id.example/keys"},
    ],
)
def test_settings_that_accept_unsigned_or_weak_tokens_are_refused(settings: dict[str, Any]) -> None:
    given = {"issuer": "https://id.example", "audience": AUDIENCE, **settings}
    with pytest.raises(ConfigError):
        gate_of(SignInSettings.model_validate(given))

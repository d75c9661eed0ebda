"""Single sign-on to the console: at a real OpenID provider, and at one that lies."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from http.cookies import SimpleCookie
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import anyio
import httpx2
import pytest
from starlette.responses import JSONResponse

from fingerpost.records import AccessRole, User, get_sign_in_user
from fingerpost.settings.model import OidcSettings
from fingerpost.surfaces.http.credentials import SignedOnPerson, SignOnFailed
from fingerpost.surfaces.http.tokens import SIGN_ON_SECONDS, SingleSignOn, build_principal
from tests.kit.api import ServedApi, open_served_api
from tests.kit.identity_provider import CLIENT, SECRET, log_in, run_identity_provider
from tests.kit.token_issuer import authority, rsa_key
from tests.requirements import proves

PEOPLE = {
    "anna": {"name": "Anna", "groups": ["platform", "all"]},
    "olaf": {"name": "Olaf", "groups": ["desk"]},
    "eve": {"name": "Eve", "groups": ["all"]},
}
ROLES: dict[str, Any] = {
    "roles_claim": "groups",
    "roles": {"platform": "admin", "desk": "approver"},
    "default_roles": [],
}


@pytest.fixture(scope="module")
def provider() -> Generator[str]:
    with run_identity_provider(PEOPLE) as issuer:
        yield issuer


def build_oidc(issuer: str, **more: Any) -> dict[str, Any]:
    scopes = ["openid", "groups"]
    return {"issuer": issuer, "client_id": CLIENT, "client_secret": SECRET, "scopes": scopes, **ROLES, **more}


@asynccontextmanager
async def open_console_at(folder: Path, issuer: str) -> AsyncGenerator[ServedApi]:
    console = {"oidc": build_oidc(issuer)}
    async with open_served_api(folder, gateway={"require_key": True}, console=console) as api:
        yield api


async def sign_on(api: ServedApi, name: str) -> httpx2.Response:
    begun = await api.post("/api/sign-on")
    assert begun.status_code == 200, begun.text
    return await api.post("/api/sign-on-answers", await log_in(begun.json()["url"], name))


@pytest.mark.process
@proves("M23")
async def test_a_person_signs_on_with_the_roles_of_the_claims_and_signs_out(
    provider: str, tmp_path: Path
) -> None:
    async with open_console_at(tmp_path, provider) as api:
        assert (await api.get("/api/me")).status_code == 401
        assert (await api.get("/api/sign-on")).json() == {"issuer": provider}
        answer = await sign_on(api, "olaf")
        assert answer.status_code == 200, answer.text
        me = answer.json()
        assert (me["name"], me["kind"]) == ("sso:olaf", "token")
        assert me["rights"] == ["use", "watch", "confirm", "approve"]
        cookies = answer.headers.get_list("set-cookie")
        assert all("HttpOnly" in one and "SameSite=Strict" in one for one in cookies)
        assert SimpleCookie("; ".join(cookies))["fingerpost_sign_on"].value == ""

        assert (await api.get("/api/me")).json()["name"] == "sso:olaf"
        refused = await api.post("/api/servers", {})
        assert refused.json()["title"] == "The CSRF token is missing or wrong"
        api.client.headers["x-csrf-token"] = me["csrf"]
        assert (await api.post("/api/servers", {})).json()["title"] == "You may not do this"
        assert me["sign_out_url"].startswith(f"{provider}/session/end?client_id={CLIENT}&")
        assert (await api.client.delete("/api/session")).status_code == 204
        assert (await api.get("/api/me")).status_code == 401

        assert "manage" in (await sign_on(api, "anna")).json()["rights"]


@pytest.mark.process
@proves("M23")
async def test_people_without_a_role_and_answers_of_others_are_refused(provider: str, tmp_path: Path) -> None:
    async with open_console_at(tmp_path, provider) as api:
        refused = await sign_on(api, "eve")
        assert refused.status_code == 403
        assert "no value of the claim groups gives a role" in refused.json()["detail"]

        begun = await api.post("/api/sign-on")
        answer = await log_in(begun.json()["url"], "olaf")
        cookie = SimpleCookie(begun.headers["set-cookie"])["fingerpost_sign_on"]
        forged = [
            {**answer, "state": "sso-other"},
            {**answer, "iss": "https://other.example"},
            {**answer, "code": "other"},
            {"state": answer["state"], "error": "access_denied"},
        ]
        for wrong in forged:
            api.client.cookies.clear()
            api.client.cookies.set("fingerpost_sign_on", cookie.value)
            assert (await api.post("/api/sign-on-answers", wrong)).status_code == 401
        api.client.cookies.clear()  # another browser
        assert (await api.post("/api/sign-on-answers", answer)).status_code == 401
        assert (await api.get("/api/me")).status_code == 401


@pytest.mark.process
@proves("M23")
async def test_roles_are_asked_for_again_and_a_disabled_person_is_refused_at_once(
    provider: str, tmp_path: Path
) -> None:
    console = {"oidc": build_oidc(provider, session_hours=0.001), "session_hours": 700}
    async with open_served_api(tmp_path, gateway={"require_key": True}, console=console) as api:
        answer = await sign_on(api, "olaf")
        cookies = SimpleCookie("; ".join(answer.headers.get_list("set-cookie")))
        assert int(cookies["fingerpost_session"]["max-age"]) <= 4
        token = {"cookie": f"fingerpost_session={cookies['fingerpost_session'].value}"}
        await anyio.sleep(4)
        assert (await api.get("/api/me", headers=token)).status_code == 401  # the cookie was kept for longer

    async with open_console_at(tmp_path, provider) as api:
        assert (await sign_on(api, "olaf")).status_code == 200
        await api.router.store.users.put(User(name="sso:olaf", disabled=True))
        await api.router.refresh_access()
        assert (await api.get("/api/me")).status_code == 403


@pytest.mark.process
@proves("M23")
async def test_sessions_end_when_another_provider_is_set(provider: str, tmp_path: Path) -> None:
    async with open_console_at(tmp_path, provider) as api:
        assert (await sign_on(api, "olaf")).status_code == 200
        cookies = dict(api.client.cookies)
    async with open_console_at(tmp_path, "https://other.example") as api:  # another provider is trusted now
        api.client.cookies.update(cookies)
        assert (await api.get("/api/me")).status_code == 401
    async with open_served_api(tmp_path, gateway={"require_key": True}) as api:  # none
        api.client.cookies.update(cookies)
        assert (await api.get("/api/me")).status_code == 401
        assert (await api.get("/api/sign-on")).json() == {"issuer": None}
        assert (await api.post("/api/sign-on")).status_code == 404


@pytest.mark.slow
@proves("M23")
async def test_wrong_id_tokens_sign_no_one_on() -> None:
    """What a real provider does not do: each token but the last differs from a good one in one point."""
    async with authority() as issuer:
        settings = OidcSettings.model_validate(build_oidc(issuer.issuer, client_secret=None))
        now = time.time()
        sso = SingleSignOn(settings, b"s" * 32, address="http://127.0.0.1:1", clock=lambda: now)

        async def attempt(**claims: Any) -> str:
            """Sign on with an ID token that has these claims. A claim of None is left out."""
            begun = await sso.begin()
            asked = {name: value for name, (value,) in parse_qs(urlsplit(begun.url).query).items()}
            good: dict[str, Any] = {"aud": CLIENT, "nonce": asked["nonce"], "sub": "anna"}
            named: dict[str, Any] = {**good, "groups": ["platform"], **claims}
            token = issuer.token(**named)
            issuer.answers["/token"] = JSONResponse({"id_token": token})
            return (await sso.finish(begun.cookie, {"state": asked["state"], "code": "x"})).subject

        for wrong in (
            {"nonce": "other"},
            {"nonce": None},
            {"aud": "other"},
            {"aud": [CLIENT, "other"]},
            {"azp": "other"},
            {"iss": "https://other.example"},
            {"exp": now - 60},
            {"exp": None},
            {"sub": ""},
            {"sub": None},
            {"key": rsa_key(2)},
            {"key": "k" * 32, "algorithm": "HS256"},
        ):
            with pytest.raises(SignOnFailed, match="not valid"):
                await attempt(**wrong)
        assert await attempt() == "anna"

        late = await sso.begin()
        state = parse_qs(urlsplit(late.url).query)["state"][0]
        now += SIGN_ON_SECONDS
        with pytest.raises(SignOnFailed, match="expired"):
            await sso.finish(late.cookie, {"state": state, "code": "x"})
        issuer.metadata["issuer"] = "https://other.example"
        with pytest.raises(SignOnFailed, match="cannot be reached"):
            await sso.begin()


@proves("M23")
async def test_a_provider_that_names_itself_in_answers_has_to_do_so() -> None:
    """RFC 9207, also for an answer that refuses."""
    async with authority() as issuer:
        settings = OidcSettings.model_validate(build_oidc(issuer.issuer, client_secret=None))
        sso = SingleSignOn(settings, b"s" * 32, address="http://127.0.0.1:1")
        issuer.metadata["authorization_response_iss_parameter_supported"] = True
        begun = await sso.begin()
        asked = {name: value for name, (value,) in parse_qs(urlsplit(begun.url).query).items()}
        token = issuer.token(aud=CLIENT, nonce=asked["nonce"], sub="anna", groups=["platform"])
        issuer.answers["/token"] = JSONResponse({"id_token": token})
        for more in ({"code": "x"}, {"error": "access_denied"}):
            for named in ({}, {"iss": "https://other.example"}):
                with pytest.raises(SignOnFailed, match="another identity provider"):
                    await sso.finish(begun.cookie, {"state": asked["state"], **more, **named})
        answer = {"state": asked["state"], "code": "x", "iss": issuer.issuer}
        assert (await sso.finish(begun.cookie, answer)).subject == "anna"


@proves("M23")
def test_a_person_is_the_one_that_tokens_of_the_same_issuer_name() -> None:
    """So a person who signs on to the console signs in to servers for all own clients."""
    issuer = "https://login.example"
    settings = OidcSettings.model_validate(build_oidc(issuer))
    for sub in ("anna", "anna@example.org"):
        person = SignedOnPerson(issuer=issuer, subject=sub, roles=(AccessRole.USER,))
        same = SingleSignOn(settings, b"s" * 32, address="https://a.example", token_issuer=issuer)
        other = SingleSignOn(
            settings, b"s" * 32, address="https://a.example", token_issuer="https://b.example"
        )
        found, foreign = same.build_principal(person), other.build_principal(person)
        client = build_principal({"sub": sub, "client_id": "editor"}, ())
        assert found is not None
        assert foreign is not None
        assert get_sign_in_user(found.name) == get_sign_in_user(client.name) == f"token:{sub}"
        assert get_sign_in_user(foreign.name) == f"sso:{sub}"

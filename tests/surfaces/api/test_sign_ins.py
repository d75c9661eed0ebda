"""Users with accounts of their own at one server, through one gateway, against a real OAuth server."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest

from fingerpost import Router
from fingerpost.events import AccessChanged
from fingerpost.records import AccessRole
from fingerpost.surfaces.api.sign_ins import MAX_OPEN_OF_USER
from tests.kit.api import PATIENCE_S, ServedApi, open_served_api
from tests.kit.oauth_authority import OAuthAuthority, agree, serve_accounts
from tests.kit.routers import build_settings
from tests.kit.token_issuer import AUDIENCE, authority
from tests.requirements import proves


async def sign_in(api: ServedApi, key: dict[str, str]) -> httpx2.Response:
    begun = await api.post("/api/sign-ins/accounts", headers=key)
    assert begun.status_code == 200, begun.text
    return await api.post("/api/sign-in-answers", await agree(begun.json()["url"]), headers=key)


async def ask_who(api: ServedApi, key: dict[str, str]) -> dict[str, Any]:
    answer = await api.post("/api/call", {"tool": "accounts/get_account", "arguments": {}}, headers=key)
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.slow
@proves("M5")
@pytest.mark.parametrize(
    ("calls", "lifetime"), [(10, 3600), pytest.param(500, 1, marks=pytest.mark.soak)], ids=str
)
async def test_each_user_acts_with_the_own_account(calls: int, lifetime: int, tmp_path: Path) -> None:
    """`calls` of each of two users, interleaved; with a short lifetime tokens are renewed all the time."""
    accounts = OAuthAuthority()
    accounts.lifetime = lifetime
    async with (
        serve_accounts(accounts) as spec,
        open_served_api(tmp_path, spec, api={"per_minute": 100_000}) as api,
    ):
        anna, ben, carl = [await api.key(name) for name in ("anna", "ben", "carl")]
        assert (await sign_in(api, anna)).json() == {"server": "accounts", "signed_in": True}
        (first,) = accounts.clients
        assert (await sign_in(api, ben)).status_code == 200
        second = next(client for client in accounts.clients if client != first)

        seen: dict[str, Counter[str]] = {"anna": Counter(), "ben": Counter()}

        async def call(name: str, key: dict[str, str]) -> None:
            for _ in range(calls // 10):
                seen[name][(await ask_who(api, key))["content"]] += 1

        async with anyio.create_task_group() as tasks:
            for _ in range(10):
                tasks.start_soon(call, "anna", anna)
                tasks.start_soon(call, "ben", ben)
        assert seen == {"anna": Counter({first: calls}), "ben": Counter({second: calls})}
        assert lifetime > 1 or accounts.refreshed > 2

        refused = await ask_who(api, carl)
        assert not refused["success"]
        assert "accounts needs you to sign in with your own account" in refused["detail"]
        listed = (await api.get("/api/sign-ins", headers=carl)).json()
        assert listed == {"items": [{"server": "accounts", "signed_in": False}]}


@pytest.mark.slow
@proves("M5")
async def test_a_sign_in_is_finished_by_the_user_who_began_it_and_once(tmp_path: Path) -> None:
    accounts = OAuthAuthority()
    async with serve_accounts(accounts) as spec, open_served_api(tmp_path, spec) as api:
        anna, eve = [await api.key(name) for name in ("anna", "eve")]
        begun = await api.post("/api/sign-ins/accounts", headers=eve)
        answer = await agree(begun.json()["url"])  # anna was sent eve's link, and agreed
        assert (await api.post("/api/sign-in-answers", answer, headers=anna)).status_code == 404
        assert (await api.post("/api/sign-in-answers", answer, headers=eve)).status_code == 200
        assert (await api.post("/api/sign-in-answers", answer, headers=eve)).status_code == 404
        assert not (await ask_who(api, anna))["success"]


@pytest.mark.slow
@proves("M5", "M32")
async def test_all_keys_of_a_user_use_one_sign_in_which_an_administrator_ends(tmp_path: Path) -> None:
    accounts = OAuthAuthority()
    async with (
        serve_accounts(accounts) as spec,
        open_served_api(tmp_path, spec, gateway={"require_key": True}) as api,
    ):
        root = await api.key("root", roles=(AccessRole.ADMIN,))
        laptop, phone = [await api.key(name, user="dana") for name in ("laptop", "phone")]
        ben = await api.key("ben")
        assert (await sign_in(api, laptop)).status_code == 200
        (account,) = accounts.clients
        assert (await ask_who(api, phone))["content"] == account
        assert not (await ask_who(api, ben))["success"]
        listed = await api.get("/api/users/dana/sign-ins", headers=root)
        assert listed.json() == {"servers": ["accounts"]}

        settings = build_settings(tmp_path, store=api.router.settings.store)
        async with Router(settings=settings) as other:  # where the caller was never seen
            assert other.users.get_user_name("phone") == "dana"

        ended = await api.client.delete("/api/users/dana/sign-ins/accounts", headers=root)
        assert ended.status_code == 204
        assert accounts.refresh == {}
        assert not (await ask_who(api, phone))["success"]
        events = [
            one.event for one in await api.router.store.journal.list_events(kinds=(AccessChanged.kind,))
        ]
        assert [event.summary() for event in events] == [
            "the sign-in of dana to accounts was made by laptop",
            "the sign-in of dana to accounts was removed by root",
        ]


@pytest.mark.slow
@proves("M5", "M40")
async def test_who_has_not_signed_in_is_asked_at_every_instance_and_after_a_restart(tmp_path: Path) -> None:
    """The tools of the server are listed only for users who have signed in."""

    async def call(router: Router, caller: str) -> str:
        outcome = await router.call("accounts/get_account", {}, caller=caller)
        assert not outcome.success
        return str(outcome.content)

    async with serve_accounts(OAuthAuthority()) as spec, open_served_api(tmp_path, spec) as api:
        settings = build_settings(tmp_path, store=api.router.settings.store)
        async with Router([spec], settings=settings) as other:
            await other.connect()
            assert "there is no tool" in await call(other, "carl")
            assert (await sign_in(api, await api.key("anna"))).status_code == 200
            with anyio.fail_after(PATIENCE_S):
                while "sign in with your own account" not in await call(other, "carl"):  # noqa: ASYNC110
                    await anyio.sleep(0.2)
        async with Router([spec], settings=settings) as restarted:
            await restarted.connect()
            assert "sign in with your own account" in await call(restarted, "carl")
            assert (await restarted.call("accounts/get_account", {}, caller="anna")).success


@pytest.mark.slow
@proves("M5")
async def test_people_whose_names_are_addresses_are_told_apart(tmp_path: Path) -> None:
    async with (
        authority() as issuer,
        serve_accounts(OAuthAuthority()) as spec,
        open_served_api(
            tmp_path, spec, gateway={"sign_in": {"issuer": issuer.issuer, "audience": AUDIENCE}}
        ) as api,
    ):
        one, other, none = [
            {"authorization": f"Bearer {issuer.token(sub=subject, client_id='editor')}"}
            for subject in ("anna@one.example", "anna@other.example", "anna")
        ]
        root = await api.key("root", roles=(AccessRole.ADMIN,))
        assert (await sign_in(api, one)).status_code == 200
        assert (await ask_who(api, one))["success"]
        for who in (other, none):
            assert not (await ask_who(api, who))["success"]
        path = "/api/users/token:anna{}/sign-ins"
        found = [
            (await api.get(path.format(rest), headers=root)).json()["servers"]
            for rest in ("@one.example", "@other.example", "")
        ]
        assert found == [["accounts"], [], []]
        users = (await api.get("/api/users", headers=root)).json()["items"]
        assert [user["name"] for user in users] == ["root", "token:anna@one.example"]


@pytest.mark.slow
@proves("M5")
async def test_one_user_cannot_keep_others_from_signing_in(tmp_path: Path) -> None:
    async with (
        serve_accounts(OAuthAuthority()) as spec,
        open_served_api(tmp_path, spec) as api,
    ):
        anna, eve = [await api.key(name) for name in ("anna", "eve")]
        begun = [await api.post("/api/sign-ins/accounts", headers=eve) for _ in range(MAX_OPEN_OF_USER + 1)]
        assert {one.status_code for one in begun} == {200}
        assert (await sign_in(api, anna)).status_code == 200
        first, last = [await agree(one.json()["url"]) for one in (begun[0], begun[-1])]
        assert (await api.post("/api/sign-in-answers", first, headers=eve)).status_code == 404
        assert (await api.post("/api/sign-in-answers", last, headers=eve)).status_code == 200


@pytest.mark.slow
@proves("M5")
async def test_tokens_of_a_user_are_renewed_and_end_with_signing_out(tmp_path: Path) -> None:
    accounts = OAuthAuthority()
    async with serve_accounts(accounts) as spec, open_served_api(tmp_path, spec) as api:
        anna = await api.key("anna")
        accounts.lifetime = -1
        await sign_in(api, anna)
        accounts.lifetime = 3600
        async with anyio.create_task_group() as tasks:  # the token for renewal is used once
            for _ in range(5):
                tasks.start_soon(ask_who, api, anna)
        assert (await ask_who(api, anna))["success"]
        assert (await api.client.delete("/api/sign-ins/accounts", headers=anna)).status_code == 204
        assert accounts.refresh == {}
        assert not (await ask_who(api, anna))["success"]
        assert (await api.client.delete("/api/sign-ins/accounts", headers=anna)).status_code == 404

"""Users, keys, quotas and sign-ins over the API, and what each role may do there."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import AsyncGenerator
from contextlib import closing
from pathlib import Path

import anyio
import httpx2
import pytest

from fingerpost.events import AccessChanged, KeyChanged
from fingerpost.records import AccessRole, Right
from tests.kit.api import ServedApi, open_served_api
from tests.requirements import proves

PATIENCE_S = 30.0
ROLES_WITH = {
    "use": {"user", "approver", "operator", "admin"},
    "watch": {"approver", "operator", "admin"},
    "approve": {"approver", "admin"},
    "manage": {"operator", "admin"},
    "administer": {"admin"},
}
# Each operation that needs a right. The others are open to all callers, who see what is theirs.
OPERATIONS = {
    "use": "ask begin call end finish get_preference give_feedback list_own_limits list_sign_ins route "
    "set_preference",
    "watch": "export_audit get_insight get_server get_settings get_store_status get_tool list_audit "
    "list_evals list_pins list_quotas list_servers list_tools list_usage verify_audit",
    "approve": "approve reject",
    "manage": "accept_instructions accept_pin add_server change_server get_server_entry reconnect_server "
    "remove_server reset_breaker say_tool_reads switch_server switch_tool try_server",
    "administer": "add_key add_quota change_key change_quota change_user end_user_sign_in list_keys "
    "list_user_sign_ins list_users remove_quota remove_user revoke_key",
}


@pytest.mark.slow
@proves("M31")
async def test_what_each_role_may_do_at_each_endpoint(tmp_path: Path) -> None:
    async with open_served_api(tmp_path, gateway={"require_key": True}, api={"per_minute": 100_000}) as api:
        document = (await api.get("/api/openapi.json")).json()
        keys = {role.value: await api.key(role.value, roles=(role,)) for role in AccessRole}
        api.client.headers["content-type"] = "application/json"
        found: dict[str, set[str]] = {right: set() for right in ROLES_WITH}
        wrong: list[str] = []
        for path, methods in document["paths"].items():
            for method, operation in methods.items():
                needed = re.search(r"Needs the right `(\w+)`", operation.get("description", ""))
                if needed is None:
                    continue
                found[needed[1]].add(operation["operationId"])
                url = re.sub(r"\{\w+\}", "nothing", path)
                for role, headers in keys.items():
                    answer = await api.client.request(method.upper(), url, content=b"{}", headers=headers)
                    if (answer.status_code != 403) is not (role in ROLES_WITH[needed[1]]):
                        wrong.append(f"{role} {method} {path}: {answer.status_code}")
        assert not wrong
        assert {right: " ".join(sorted(names)) for right, names in found.items()} == OPERATIONS


@pytest.fixture
async def admin_api(tmp_path: Path) -> AsyncGenerator[ServedApi]:
    """An API whose client is an administrator with a key."""
    async with open_served_api(tmp_path, gateway={"require_key": True}, profiles={"desk": {}}) as api:
        api.client.headers.update(await api.key("root", roles=(AccessRole.ADMIN,)))
        yield api


@pytest.mark.slow
@proves("M32")
async def test_keys_are_made_changed_and_revoked(admin_api: ServedApi) -> None:
    api = admin_api
    made = await api.post("/api/keys", {"name": "laptop", "user": "dana", "roles": ["operator"]})
    assert made.status_code == 201, made.text
    laptop, item = {"x-api-key": made.json()["key"]}, made.json()["item"]
    assert (item["user"], item["rights"], item["valid"]) == ("dana", [], True)
    assert (await api.get("/api/me", headers=laptop)).json()["rights"] == ["use", "watch", "manage"]
    listed = (await api.get("/api/keys")).json()["items"]
    assert [one["name"] for one in listed] == ["laptop", "root"]
    assert not any("digest" in one or "key" in one for one in listed)
    path = f"/api/keys/{item['key_id']}"
    changed = await api.client.put(path, json={"roles": [], "rights": ["watch"], "user": "dana"})
    assert changed.json()["rights"] == ["watch"]
    stored = await api.router.store.keys.find(made.json()["key"])
    assert stored is not None
    assert stored.build_principal().rights == (Right.WATCH,)
    for wrong in ({"name": "a b"}, {"name": "x", "expires": "2020-01-01T00:00:00Z"}, {"name": "laptop"}):
        assert (await api.post("/api/keys", wrong)).status_code == 422, wrong
    assert (await api.client.delete(path)).status_code == 204
    assert (await api.client.delete(path)).status_code == 404
    assert await api.router.store.keys.find(made.json()["key"]) is None
    recorded = await api.router.store.journal.list_events(kinds=(KeyChanged.kind,))
    assert [(one.event.change, one.event.by) for one in recorded if isinstance(one.event, KeyChanged)] == [
        ("made", "root"),
        ("changed", "root"),
        ("revoked", "root"),
    ]


@proves("M32")
async def test_a_disabled_user_is_refused_with_all_keys(admin_api: ServedApi) -> None:
    api = admin_api
    laptop, phone = await api.key("laptop", user="dana"), await api.key("phone", user="dana")
    other = await api.key("other")
    signed_in = await api.post("/api/session", {"key": phone["x-api-key"]})
    cookie = {"cookie": signed_in.headers["set-cookie"].partition(";")[0]}
    users = (await api.get("/api/users")).json()["items"]
    assert [(one["name"], one["keys"]) for one in users] == [
        ("dana", ["laptop", "phone"]),
        ("other", ["other"]),
        ("root", ["root"]),
    ]
    assert (await api.client.put("/api/users/root", json={"disabled": True})).status_code == 422
    assert (await api.client.put("/api/users/dana", json={"disabled": True})).status_code == 200
    statuses = [(await api.get("/api/me", headers=who)).status_code for who in (laptop, phone, other)]
    assert statuses == [403, 403, 200]
    async with httpx2.AsyncClient(base_url=api.address) as browser:
        assert (await browser.get("/api/me", headers=cookie)).status_code == 403
    assert (await api.client.delete("/api/users/dana")).status_code == 204
    assert (await api.client.delete("/api/users/dana")).status_code == 404
    assert (await api.get("/api/me", headers=laptop)).status_code == 200
    assert (await api.get("/api/users/dana/sign-ins")).json() == {"servers": []}
    assert (await api.client.delete("/api/users/dana/sign-ins/nothing")).status_code == 404


@pytest.mark.slow
@proves("M30", "M32")
async def test_quotas_are_added_shown_changed_and_removed(admin_api: ServedApi) -> None:
    api = admin_api
    caller = await api.key("caller")
    assert (await api.post("/api/quotas", {"match": "caller"})).status_code == 422
    made = await api.post("/api/quotas", {"match": "call*", "requests_per_minute": 1})
    assert made.status_code == 201, made.text
    with anyio.fail_after(PATIENCE_S):
        while True:  # the minute of the clock may change
            answer = await api.post("/api/route", {"request": "x"}, headers=caller)
            if answer.status_code == 429:
                break
    [own] = (await api.get("/api/me/quotas", headers=caller)).json()["items"]
    assert (own["name"], own["limit"], own["most"]) == ("caller", "requests_per_minute", 1)
    page = (await api.get("/api/quotas")).json()
    assert [one["match"] for one in page["items"]] == ["call*"]
    assert all(one["name"] == "caller" and one["most"] == 1 for one in page["use"])
    path = f"/api/quotas/{made.json()['quota_id']}"
    assert (await api.client.put(path, json={"match": "other", "running": 2})).status_code == 200
    assert (await api.post("/api/route", {"request": "x"}, headers=caller)).status_code == 200
    unknown = await api.client.put("/api/quotas/nothing", json={"running": 2})
    assert (unknown.status_code, unknown.json()["title"]) == (404, "There is no such quota")
    assert (await api.client.delete(path)).status_code == 204
    assert (await api.get("/api/quotas")).json()["items"] == []
    recorded = await api.router.store.journal.list_events(kinds=(AccessChanged.kind,))
    assert len(recorded) == 3
    assert AccessChanged.audited


@proves("M31")
async def test_limited_keys_administer_nothing_and_keys_from_before_keep_their_rights(
    admin_api: ServedApi,
) -> None:
    api = admin_api
    limited = await api.key("limited", roles=(AccessRole.ADMIN,), profiles=("desk",))
    for path in ("/api/keys", "/api/users", "/api/quotas"):
        assert (await api.get(path, headers=limited)).status_code == 403
    old = await api.key("old", "use", "watch", "manage")
    database = api.router.store.location.url.database
    assert database is not None
    with closing(sqlite3.connect(database)) as connection, connection:
        access = '{"scope":{},"profiles":[],"rights":["use","watch","manage"]}'  # as it was written before
        connection.execute("UPDATE api_keys SET reach = ? WHERE name = 'old'", (access,))
    me = (await api.get("/api/me", headers=old)).json()
    assert me["rights"] == [Right.USE, Right.WATCH, Right.MANAGE]

"""Who comes in to the API, and what each may see and do there."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from fingerpost.records import Scope
from fingerpost.surfaces.api.sessions import SESSION_CACHE_SECONDS, ConsoleSessions
from fingerpost.testing import tool_server
from tests.kit.api import ServedApi, open_served_api, open_stream
from tests.kit.call_recorder import DESTROYS, READS, tool
from tests.requirements import proves

TOOLS = (
    tool("read_file", "Read a text file.", "path", **READS),
    tool("delete_file", "Delete a file for good.", "path", **DESTROYS),
)
COOKIE = "fingerpost_session"


@pytest.fixture
async def api(tmp_path: Path) -> AsyncGenerator[ServedApi]:
    """An API where every caller needs a key."""
    server = tool_server("files", TOOLS)
    profiles = {"desk": {"tools": ["files/read_file"]}, "other": {}}
    async with open_served_api(
        tmp_path, server.spec(), gateway={"require_key": True}, profiles=profiles
    ) as opened:
        yield opened


@proves("I3")
async def test_a_key_without_the_right_gets_403(api: ServedApi) -> None:
    assert (await api.get("/api/me")).status_code == 401
    agent, watcher = await api.key("agent"), await api.key("watcher", "watch")
    pending = await _create_waiting_call(api, agent)
    for path, who in (
        ("/api/route", watcher),
        ("/api/ask", watcher),
        ("/api/call", watcher),
        (f"/api/approvals/{pending}/approve", agent),
        (f"/api/approvals/{pending}/reject", watcher),
    ):
        answer = await api.post(path, {"request": "x"}, headers=who)
        assert (answer.status_code, answer.json()["status"]) == (403, 403), path
        assert "right" in answer.json()["detail"]
    assert (await api.get("/api/audit", headers=agent)).status_code == 403
    assert (await api.get("/api/me", headers={"x-api-key": "fp_wrong"})).status_code == 401


async def _create_waiting_call(keyed: ServedApi, who: dict[str, str], **more: Any) -> str:
    """A call of this caller that waits."""
    call = {"tool": "files/delete_file", "arguments": {"path": "a.txt"}, **more}
    answer = await keyed.post("/api/call", call, headers=who)
    assert answer.status_code == 200, answer.text
    return answer.json()["pending_id"]


@pytest.mark.slow
@proves("I3")
async def test_without_the_right_to_watch_a_caller_sees_its_own_requests_only(api: ServedApi) -> None:
    agent, other = await api.key("agent"), await api.key("other")
    watcher, approver = await api.key("watcher", "watch"), await api.key("approver", "approve")
    theirs = await _create_waiting_call(api, agent)
    own = (await api.get("/api/packets", headers=agent)).json()["items"]
    assert [line["caller"] for line in own] == ["agent"]
    packet = own[0]["packet_id"]
    for path in (
        f"/api/packets/{packet}",
        f"/api/approvals/{theirs}",
        f"/api/events?packet_id={packet}",
    ):
        assert (await api.get(path, headers=other)).status_code == 404, path
    assert (await api.get("/api/events", headers=other)).status_code == 403
    for path in ("/api/packets", "/api/packets?caller=agent", "/api/approvals"):
        assert (await api.get(path, headers=other)).json()["items"] == [], path
    assert (await api.get(f"/api/packets/{packet}", headers=agent)).status_code == 200
    assert (await api.get(f"/api/packets/{packet}", headers=watcher)).status_code == 200
    assert (await api.get(f"/api/packets/{packet}", headers=approver)).status_code == 403
    seen = (await api.get("/api/approvals", headers=approver)).json()["items"]
    assert [(one["pending_id"], one["may_decide"]) for one in seen] == [(theirs, True)]
    mine = (await api.get(f"/api/approvals/{theirs}", headers=agent)).json()
    assert (mine["may_decide"], "approve" in mine["why_not"]) == (False, True)
    async with open_stream(api, "/api/live", headers=other) as stream:
        assert (await stream.next("lines")).data == []
        assert (await stream.next("approvals")).data == {"waiting": 0}


async def test_scopes_and_profiles_of_a_key_hold_here_too(api: ServedApi) -> None:
    reader = await api.key("reader", scope=Scope(tools=("files/read_file",)))
    call = {"tool": "files/delete_file", "arguments": {"path": "a.txt"}}
    assert (await api.post("/api/call", call, headers=reader)).status_code == 404
    routed = (await api.post("/api/route", {"request": "delete the file a.txt"}, headers=reader)).json()
    assert "files/delete_file" not in routed["cards"]
    desk = await api.key("desk-agent", profiles=("desk",))
    assert (await api.get("/api/me", headers=desk)).json()["profiles"] == ["desk"]
    assert (await api.post("/api/call", call, headers=desk)).status_code == 404
    refused = await api.post("/api/call", {**call, "profile": "other"}, headers=desk)
    assert (refused.status_code, "desk" in refused.json()["detail"]) == (403, True)
    both = await api.key("both", profiles=("desk", "other"))
    assert (await api.post("/api/call", call, headers=both)).status_code == 403
    assert (await api.post("/api/call", {**call, "profile": "other"}, headers=both)).status_code == 200


BOUND = {
    "reader": {"effects": ["read"]},
    "weather": {"servers": ["weather"]},
    "quiet": {"policy": [{"tool": "files/read_file", "verdict": "deny"}]},
    "boss": {"users": ["boss"]},
}
RIGHTS = ("watch", "approve", "manage")


@asynccontextmanager
async def _two_servers(folder: Path, **profiles: Any) -> AsyncGenerator[ServedApi]:
    files = tool_server("files", TOOLS)
    weather = tool_server("weather", (tool("forecast", "Tell the weather.", "place", **READS),))
    keyed = {"require_key": True}
    async with open_served_api(
        folder, files.spec(), weather.spec(), gateway=keyed, profiles=profiles
    ) as opened:
        yield opened


async def _keys_of(opened: ServedApi, path: str, who: dict[str, str]) -> list[str]:
    items = (await opened.get(path, headers=who)).json()["items"]
    return sorted(one.get("key") or one.get("pending_id") or one["name"] for one in items)


@pytest.mark.slow
@proves("I3")
async def test_a_key_for_a_profile_decides_and_sees_what_lies_within_it(tmp_path: Path) -> None:
    async with _two_servers(tmp_path, **BOUND) as opened:
        agent = await opened.key("agent")
        waiting = await _create_waiting_call(opened, agent)
        for profiles in (("reader",), ("weather",), ("reader", "weather"), ("boss",)):
            bound = await opened.key("-".join(("for", *profiles)), *RIGHTS, profiles=profiles)
            assert await _keys_of(opened, "/api/approvals", bound) == []
            for word in ("approve", "reject"):
                answer = await opened.post(f"/api/approvals/{waiting}/{word}", headers=bound)
                assert answer.status_code == 404, (profiles, word)
        wide = await opened.key("wide", *RIGHTS, profiles=("weather", "quiet"))
        assert await _keys_of(opened, "/api/approvals", wide) == [waiting]
        assert (await opened.post(f"/api/approvals/{waiting}/approve", headers=wide)).json()["stood"] is True


@proves("I3")
async def test_a_key_for_a_profile_sees_and_manages_what_lies_within_it(tmp_path: Path) -> None:
    async with _two_servers(tmp_path, **BOUND) as opened:
        meteo = await opened.key("meteo", *RIGHTS, profiles=("weather",))
        assert await _keys_of(opened, "/api/servers", meteo) == ["weather"]
        for path in ("/api/tools", "/api/tools?profile=weather", "/api/pins"):
            assert await _keys_of(opened, path, meteo) == ["weather/forecast"], path
        assert (await opened.get("/api/tools?profile=quiet", headers=meteo)).status_code == 404
        for path in ("/api/servers/files/switch", "/api/tools/files/read_file/switch"):
            assert (await opened.post(path, {"on": False}, headers=meteo)).status_code == 404, path
        switched = await opened.post("/api/servers/weather/switch", {"on": True}, headers=meteo)
        assert switched.status_code == 200

        async def states(who: dict[str, str]) -> dict[str, str]:
            items = (await opened.get("/api/tools", headers=who)).json()["items"]
            return {one["key"]: one["state"] for one in items}

        quiet = await opened.key("quiet", "watch", profiles=("quiet",))
        both = await opened.key("both", "watch", profiles=("quiet", "reader"))
        offered = {"files/delete_file": "offered", "weather/forecast": "offered"}
        assert await states(quiet) == {**offered, "files/read_file": "hidden"}
        assert await states(both) == {**offered, "files/read_file": "offered"}


@proves("I3")
async def test_a_key_for_a_profile_that_is_gone_reaches_nothing(tmp_path: Path) -> None:
    async with _two_servers(tmp_path, **BOUND) as opened:
        bound = await opened.key("meteo", *RIGHTS, profiles=("weather",))
        agent = await opened.key("agent")
    async with _two_servers(tmp_path, reader=BOUND["reader"]) as opened:
        waiting = await _create_waiting_call(opened, agent)
        for path in ("/api/approvals", "/api/tools", "/api/servers", "/api/pins", "/api/usage"):
            assert await _keys_of(opened, path, bound) == [], path
        for path in (f"/api/approvals/{waiting}/approve", "/api/servers/weather/switch"):
            body = {"on": False} if path.endswith("switch") else {}
            assert (await opened.post(path, body, headers=bound)).status_code == 404, path


async def test_a_conversation_is_its_callers(api: ServedApi) -> None:
    agent, other = await api.key("agent"), await api.key("other")
    approver = await api.key("approver", "approve")
    first = await _create_waiting_call(api, agent, conversation="c1")
    allowed = await api.post(f"/api/approvals/{first}/approve", {"for_conversation": True}, headers=approver)
    assert allowed.json()["stood"] is True
    call = {"tool": "files/delete_file", "arguments": {"path": "a.txt"}, "conversation": "c1"}
    assert (await api.post("/api/call", call, headers=agent)).json()["success"] is True
    assert (await api.post("/api/call", call, headers=agent)).json()["success"] is True
    assert (await api.post("/api/call", call, headers=other)).json()["pending_id"] is not None


@proves("I5")
async def test_a_session_of_the_console(api: ServedApi) -> None:
    key = await api.key("anna", "use", "watch", "approve")
    wrong = await api.post("/api/session", {"key": "fp_nonsense"})
    assert wrong.status_code == 401
    signed = await api.post("/api/session", {"key": key["x-api-key"]})
    assert signed.status_code == 200
    cookie = signed.headers["set-cookie"]
    for part in ("HttpOnly", "SameSite=Strict", "Path=/", "Max-Age=43200"):
        assert part in cookie
    assert key["x-api-key"] not in cookie
    csrf = signed.json()["csrf"]
    me = (await api.get("/api/me")).json()
    assert (me["name"], me["signed_in"], me["csrf"]) == ("anna", True, csrf)
    for headers in ({}, {"x-csrf-token": "wrong"}):
        refused = await api.post("/api/route", {"request": "x"}, headers=headers)
        assert (refused.status_code, "CSRF" in refused.json()["title"]) == (403, True)
    token = {"x-csrf-token": csrf}
    assert (await api.post("/api/route", {"request": "x"}, headers=token)).status_code == 200
    assert (await api.post("/api/servers/files/reconnect", headers=token)).status_code == 403
    foreign = {"origin": "https://evil.example", **token}
    assert (await api.post("/api/route", {"request": "x"}, headers=foreign)).status_code == 403
    assert (await api.get("/api/me", headers={"origin": "https://evil.example"})).status_code == 403
    gone = await api.client.delete("/api/session", headers=token)
    assert (gone.status_code, "Max-Age=0" in gone.headers["set-cookie"]) == (204, True)
    kept = signed.cookies[COOKIE]
    assert (await api.get("/api/me", headers={"cookie": f"{COOKIE}={kept}"})).status_code == 401


@proves("I5")
async def test_a_revoked_key_ends_its_sessions_within_seconds(api: ServedApi) -> None:
    now = 0.0
    store = api.router.store
    sessions = ConsoleSessions(store, hours=1, clock=lambda: now)
    key, _ = await store.keys.add("anna")
    cookie, opened = await sessions.open_session(key)
    assert await sessions.find_session(cookie) == opened == sessions.get_cached(cookie)
    await store.keys.revoke("anna")
    assert sessions.get_cached(cookie) == opened
    now = SESSION_CACHE_SECONDS
    assert sessions.get_cached(cookie) is None
    assert await sessions.find_session(cookie) is None
    assert await sessions.find_session("x" * 43) is None


async def test_guessing_keys_has_a_bound(api: ServedApi) -> None:
    answers = [await api.post("/api/session", {"key": f"fp_{number}"}) for number in range(22)]
    assert [answer.status_code for answer in answers[-2:]] == [429, 429]
    assert "retry-after" in answers[-1].headers


@proves("I5")
async def test_where_no_key_is_needed_foreign_pages_get_nothing(tmp_path: Path) -> None:
    server = tool_server("files", TOOLS)
    friend = "https://friend.example"
    async with open_served_api(tmp_path, server.spec(), gateway={"allowed_origins": [friend]}) as opened:
        unasked = "/api/session"  # DELETE takes no JSON, which a page would have to ask about first
        for origin in ("https://evil.example", "null", "http://127.0.0.1:1"):
            answer = await opened.get("/api/packets", headers={"origin": origin})
            assert answer.status_code == 403, origin
            assert "access-control-allow-origin" not in answer.headers
            assert (await opened.client.delete(unasked, headers={"origin": origin})).status_code == 403
        rebound = {"host": "evil.example"}
        assert (await opened.get("/api/me", headers=rebound)).status_code == 403
        assert (await opened.get("/api/openapi.json", headers=rebound)).status_code == 403
        embedded = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"}
        assert (await opened.get("/api/packets", headers=embedded)).status_code == 403
        # A page that was allowed may read, and send what it had to ask about; no more than that.
        allowed = await opened.get("/api/packets", headers={"origin": friend})
        assert allowed.headers["access-control-allow-origin"] == friend
        assert "access-control-allow-credentials" not in allowed.headers
        ask = {"request": "read the file a.txt"}
        assert (await opened.post("/api/route", ask, headers={"origin": friend})).status_code == 200
        assert (await opened.client.delete(unasked, headers={"origin": friend})).status_code == 403
        assert (await opened.client.delete(unasked, headers={"origin": opened.address})).status_code == 204
        preflight = {"origin": friend, "access-control-request-method": "POST"}
        answered = await opened.client.options("/api/route", headers=preflight)
        assert answered.status_code == 204 and "PUT" in answered.headers["access-control-allow-methods"]
        preflight["origin"] = "https://evil.example"
        assert (await opened.client.options("/api/route", headers=preflight)).status_code == 403

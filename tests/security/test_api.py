"""/api against callers who want more than they may have."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import anyio
import pytest

from fingerpost.records import Scope
from fingerpost.surfaces.http.authenticator import MAX_FAILURES
from fingerpost.surfaces.http.credentials import KEY_FRESH_S
from fingerpost.testing import tool_server
from tests.kit.api import ServedApi, open_served_api, open_stream
from tests.kit.call_recorder import DESTROYS, READS, tool
from tests.requirements import proves

TOOLS = (
    tool("delete_file", "Delete a file for good.", "path", **DESTROYS),
    tool("read_file", "Read a text file.", "path", **READS),
)
KEYED = {"require_key": True}
CALL = {"tool": "files/delete_file", "arguments": {"path": "a.txt"}}


@proves("I4")
async def test_what_was_approved_for_one_caller_is_not_spent_by_another(tmp_path: Path) -> None:
    server = tool_server("files", TOOLS)
    async with open_served_api(tmp_path, server.spec(), gateway=KEYED) as opened:
        alice, bob = await opened.key("alice"), await opened.key("bob")
        anna = await opened.key("anna", "approve")
        waiting = (await opened.post("/api/call", CALL, headers=alice)).json()["pending_id"]
        await opened.post(f"/api/approvals/{waiting}/approve", headers=anna)
        stolen = (await opened.post("/api/call", CALL, headers=bob)).json()
        assert (stolen["success"], stolen["error"]) == (False, "authorization_required")
        assert (await opened.post("/api/call", CALL, headers=alice)).json()["success"] is True


@pytest.mark.slow
@proves("O7")
async def test_a_stream_ends_with_the_key_that_opened_it(tmp_path: Path) -> None:
    async with open_served_api(tmp_path, gateway=KEYED) as opened:
        key = await opened.key("wendy", "watch")
        signed = await opened.post("/api/session", {"key": key["x-api-key"]})
        session = {"cookie": signed.headers["set-cookie"].partition(";")[0]}
        opened.client.cookies.clear()
        async with (
            open_stream(opened, "/api/live", headers=key) as by_key,
            open_stream(opened, "/api/live", headers=session) as by_session,
        ):
            for listener in (by_key, by_session):
                await listener.next("lines")
            await opened.router.store.keys.revoke("wendy")
            for listener in (by_key, by_session):
                with anyio.fail_after(30), pytest.raises(EOFError):
                    while True:
                        await listener.next()


async def test_one_caller_does_not_take_every_stream(tmp_path: Path) -> None:
    async with open_served_api(tmp_path, gateway=KEYED, api={"streams": 2}) as opened:
        greedy, wendy = await opened.key("greedy", "watch"), await opened.key("wendy", "watch")
        async with open_stream(opened, "/api/live", headers=greedy) as one:
            await one.next("lines")
            assert (await opened.get("/api/live", headers=greedy)).status_code == 503
            async with open_stream(opened, "/api/live", headers=wendy) as other:
                await other.next("lines")


@pytest.mark.parametrize("last", [f"{'0' * 30}{'9' * 30}", "9" * 5000, "9223372036854775808"])
async def test_a_number_no_event_can_have_is_refused(tmp_path: Path, last: str) -> None:
    async with open_served_api(tmp_path) as opened:
        got = await opened.get("/api/events", headers={"last-event-id": last})
        assert got.status_code == 400


async def test_a_number_beyond_the_end_goes_on_from_now(tmp_path: Path) -> None:
    """It is of a store that was replaced: waiting for the new one to come so far would be for ever."""
    server = tool_server("files", TOOLS)
    async with open_served_api(tmp_path, server.spec()) as opened:
        beyond = {"last-event-id": str(2**63 - 1)}
        async with (
            open_stream(opened, "/api/events", headers=beyond) as listener,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(_call_repeatedly, opened)
            assert (await listener.next()).data["kind"]
            tasks.cancel_scope.cancel()


async def _call_repeatedly(opened: ServedApi) -> None:
    while True:
        await opened.post("/api/call", {"tool": "files/read_file", "arguments": {"path": "a"}})
        await anyio.sleep(0.05)


@pytest.mark.slow
@proves("O7", "I4")
async def test_wrong_keys_and_cookies_shut_out_no_caller_with_a_valid_one(tmp_path: Path) -> None:
    """Behind a proxy everybody comes from one address."""
    async with open_served_api(tmp_path, gateway=KEYED) as opened:

        async def sign_in(key: dict[str, str]) -> dict[str, str]:
            signed = await opened.post("/api/session", {"key": key["x-api-key"]})
            opened.client.cookies.clear()
            return {"cookie": signed.headers["set-cookie"].partition(";")[0]}

        async def ask(headers: dict[str, str]) -> int:
            return (await opened.get("/api/me", headers=headers)).status_code

        key = await opened.key("wendy", "watch")
        session = await sign_in(key)
        assert [await ask(one) for one in (key, session)] == [200, 200]
        tries = range(MAX_FAILURES + 2)
        assert {await ask({"cookie": f"fingerpost_session={number:043d}"}) for number in tries} == {401}
        fresh = await sign_in(key)
        statuses = {await ask({"x-api-key": f"fp_{number:032x}_{'a' * 43}"}) for number in tries}
        assert statuses == {401, 429}
        newcomer = await opened.key("bob")
        assert await ask(newcomer) == 200
        await anyio.sleep(KEY_FRESH_S + 0.1)  # what was looked up a moment ago needs no look
        assert [await ask(one) for one in (key, session, fresh)] == [200, 200, 200]


async def test_a_bounded_key_does_not_hear_which_servers_there_are(tmp_path: Path) -> None:
    files, mail = tool_server("files", TOOLS), tool_server("mail", TOOLS)
    async with open_served_api(tmp_path, files.spec(), mail.spec(), gateway=KEYED) as opened:
        bounded = await opened.key("bounded", scope=Scope(servers=("files",)))
        answers: list[Any] = []
        for server in ("mail", "nothing"):
            body = {"request": "Read a text file", "server": server}
            got = await opened.post("/api/route", body, headers=bounded)
            answers.append((got.status_code, got.json()["detail"].replace(server, "")))
        assert answers[0] == answers[1]
        mine = await opened.post(
            "/api/route", {"request": "Read a text file", "server": "files"}, headers=bounded
        )
        assert mine.status_code == 200


@pytest.mark.slow
@pytest.mark.parametrize("gap", [" ", "\t", "\u2003"], ids=["blank", "tab", "wide"])
async def test_a_request_of_blanks_is_read_at_once(tmp_path: Path, gap: str) -> None:
    async with open_served_api(tmp_path, tool_server("files", TOOLS).spec()) as opened:
        await opened.post("/api/route", {"request": "Read a text file"})
        began = time.process_time()
        got = await opened.post("/api/route", {"request": f"read{gap * 99_000}it"})
        assert got.status_code == 200
        assert time.process_time() - began < 5

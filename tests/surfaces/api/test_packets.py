"""Requests over the API: listed, filtered, read, followed."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncGenerator, Generator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from fingerpost.testing import tool_server
from tests.kit.api import ServedApi, open_served_api, open_stream
from tests.kit.call_recorder import READS, tool
from tests.requirements import proves

HOSTILE = "<script>alert(1)</script>\x1b[31m\u202e"


async def _answer(name: str, arguments: dict[str, Any]) -> str:
    return f"{HOSTILE} {arguments.get('path')}"


@pytest.fixture
async def api(tmp_path: Path) -> AsyncGenerator[ServedApi]:
    tools = (tool("read_file", f"Read a text file. {HOSTILE}", "path", **READS),)
    async with open_served_api(tmp_path, tool_server("files", tools, call=_answer).spec()) as made:
        yield made


async def _call(opened: ServedApi, path: str) -> str:
    answer = await opened.post("/api/call", {"tool": "files/read_file", "arguments": {"path": path}})
    assert answer.json()["success"] is True, answer.text
    return answer.json()["call_id"]


@pytest.mark.slow
@proves("I2")
async def test_requests_are_listed_filtered_and_read(api: ServedApi) -> None:
    calls = [await _call(api, f"{number}.txt") for number in range(3)]
    asked = (await api.post("/api/ask", {"request": "Hello there, how are you?"})).json()
    every = (await api.get("/api/packets")).json()
    assert [line["packet_id"] for line in every["items"]] == [asked["packet_id"], *reversed(calls)]
    assert every["next"] is None
    first = (await api.get("/api/packets", params={"limit": 2})).json()
    rest = (await api.get("/api/packets", params={"limit": 9, "before": first["next"]})).json()
    assert [*first["items"], *rest["items"]] == every["items"]
    for params, found in (
        ({"kind": "request"}, [asked["packet_id"]]),
        ({"tool": "files/read_file"}, list(reversed(calls))),
        ({"text": "hello THERE"}, [asked["packet_id"]]),
        ({"caller": "nobody"}, []),
    ):
        page = (await api.get("/api/packets", params=params)).json()
        assert [line["packet_id"] for line in page["items"]] == found, params
    one = (await api.get(f"/api/packets/{asked['packet_id']}")).json()
    assert one["packet"]["content"]["original_prompt"] == "Hello there, how are you?"
    kinds = [event["kind"] for event in one["events"]]
    assert kinds[0] == "packet_received"
    assert kinds[-1] == "route_ended"
    bare = (await api.get(f"/api/packets/{calls[0]}")).json()
    assert (bare["line"]["kind"], bare["packet"]) == ("call", None)


async def test_hostile_text_is_text(api: ServedApi) -> None:
    call = await _call(api, HOSTILE)
    answer = await api.get(f"/api/packets/{call}")
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-content-type-options"] == "nosniff"
    prepared = next(event for event in answer.json()["events"] if event["kind"] == "call_prepared")
    assert prepared["data"]["arguments"] == {"path": HOSTILE}
    routed = (await api.post("/api/route", {"request": f"read the file {HOSTILE}"})).json()
    assert HOSTILE[:8] in routed["cards"]["files/read_file"]["description"]


@pytest.mark.slow
@proves("I2")
async def test_events_go_on_after_a_break_without_loss_or_doubles(api: ServedApi) -> None:
    first = await _call(api, "a.txt")
    async with open_stream(api, f"/api/events?packet_id={first}") as stream:
        received = [await stream.next() for _ in range(2)]
    last = received[-1].id
    assert last is not None
    await _call(api, "b.txt")
    whole = (await api.get(f"/api/packets/{first}")).json()["events"]
    after = {"last-event-id": last}
    async with open_stream(api, f"/api/events?packet_id={first}&after=0", headers=after) as stream:
        received += [await stream.next() for _ in range(len(whole) - 2)]
    assert [frame.data for frame in received] == whole
    assert [int(frame.id or 0) for frame in received] == [event["seq"] for event in whole]
    # All of them, and only of some kinds, those of now included.
    async with open_stream(api, "/api/events?after=0&kinds=call_received&kinds=call_finished") as stream:
        kinds = [(await stream.next()).data["kind"] for _ in range(4)]
        third = await _call(api, "c.txt")
        assert kinds == ["call_received", "call_finished"] * 2
        assert [(await stream.next()).data["packet_id"] for _ in range(2)] == [third, third]
    refused = await api.get("/api/events", headers={"last-event-id": b"\xb2"})
    assert refused.status_code == 400


@pytest.mark.slow
@proves("I2")
async def test_the_live_stream_tells_of_lines_and_of_what_waits(tmp_path: Path) -> None:
    server = tool_server("files", (tool("delete_file", "Delete a file.", "path"),))
    async with open_served_api(tmp_path, server.spec(), operator=True) as opened:
        call = {"tool": "files/delete_file", "arguments": {"path": "a.txt"}}
        old = (await opened.post("/api/call", call)).json()
        async with open_stream(opened, "/api/live") as stream:
            lines = (await stream.next("lines")).data
            assert [line["packet_id"] for line in lines] == [old["call_id"]]
            assert (await stream.next("approvals")).data == {"waiting": 1}
            new = (await opened.post("/api/call", {**call, "arguments": {"path": "b.txt"}})).json()
            received: list[Any] = []
            waiting: list[int] = []
            while not any(line["packet_id"] == new["call_id"] for line in received) or 2 not in waiting:
                frame = await stream.next()
                if frame.event == "lines":
                    received += frame.data
                else:
                    waiting.append(frame.data["waiting"])
            await opened.post(f"/api/approvals/{new['pending_id']}/reject", {"reason": "no"})
            while (await stream.next("approvals")).data != {"waiting": 1}:
                pass


@contextmanager
def _without_tables(folder: Path, *names: str) -> Generator[None]:
    """A database that answers nothing about these for a while."""
    with closing(sqlite3.connect(folder / "store.db", isolation_level=None)) as other:
        for name in names:
            other.execute(f"ALTER TABLE {name} RENAME TO {name}_elsewhere")
        yield
        for name in names:
            other.execute(f"ALTER TABLE {name}_elsewhere RENAME TO {name}")


@proves("F38", "I2")
async def test_the_live_stream_goes_on_when_the_store_is_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server = tool_server("files", (tool("delete_file", "Delete a file.", "path"),))
    async with open_served_api(tmp_path, server.spec()) as opened:
        call = {"tool": "files/delete_file", "arguments": {"path": "a.txt"}}
        await opened.post("/api/call", call)
        async with open_stream(opened, "/api/live") as stream:
            assert (await stream.next("approvals")).data == {"waiting": 1}
            with _without_tables(tmp_path, "journal", "approvals"):
                async with open_stream(opened, "/api/live") as opened_meanwhile:
                    assert await opened_meanwhile.next("lines")
                    caplog.clear()
                    with anyio.fail_after(20):
                        while "approvals" not in caplog.text:  # noqa: ASYNC110 - nothing else tells of it
                            await anyio.sleep(0.01)
            await opened.post("/api/call", {**call, "arguments": {"path": "b.txt"}})
            assert (await stream.next("approvals")).data == {"waiting": 2}
    assert "Traceback" not in caplog.text

"""Very large results: what is done about them while the event loop, and with it every other caller, waits."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, cast

import anyio
import pytest

from fingerpost import Router, Server
from fingerpost.call.digest import escape_invisible
from fingerpost.errors import ResponseTooLarge
from fingerpost.records import ServerSpec, ServerState
from fingerpost.records.json import parse_in_steps
from fingerpost.surfaces.gateway.methods import open_methods
from fingerpost.surfaces.gateway.tool_results import escape_result_text
from fingerpost.surfaces.http.processes import SWITCH_INTERVAL_S
from fingerpost.tasks import run_in_thread
from fingerpost.testing import ScriptedModel, calls
from tests.kit.api import ServedApi, serve_api
from tests.kit.gateway_methods import ALL, ROUTE, RecordingAudience, request
from tests.kit.gateway_methods import SilentClient as Asker
from tests.kit.raw_http import raw_server, with_length
from tests.kit.routers import build_settings
from tests.kit.server_pools import PATIENCE, open_pool
from tests.kit.tables import table
from tests.requirements import proves

MIB = 1024 * 1024
MOST_AT_ONCE = 256 * 1024  # characters or bytes that are looked at in one step on the event loop

# C code that reads or writes what it is given from end to end, by name. Copying (`join`) is not meant.
_READS = frozenset(
    (
        *("search", "match", "fullmatch", "sub", "subn", "findall", "finditer", "split", "splitlines"),
        *("loads", "dumps", "from_json", "scan_once", "encode", "decode", "translate", "lower", "casefold"),
        *("blake2b", "sha256", "update", "compress", "decompress", "count", "to_json", "dump_json"),
    )
)


def _size(value: object) -> int:
    """How much text a value holds, counted no further than needed."""
    size, todo = 0, [value]
    while todo and size <= MOST_AT_ONCE:
        node = todo.pop()
        if isinstance(node, str | bytes):
            size += len(node)
        elif isinstance(node, Mapping):
            size += 16
            todo.extend(cast("Mapping[object, object]", node).values())
        elif isinstance(node, list | tuple):
            size += 16
            todo.extend(cast("list[object]", node))
    return size


@contextmanager
def record_large_reads() -> Generator[list[str]]:
    """Where, in this thread, our code has something large read from end to end by C code."""
    found: list[str] = []

    def look(frame: FrameType, event: str, called: Any) -> None:
        name = getattr(called, "__name__", "")
        if event != "c_call" or name not in _READS:
            return
        if "/web/cycle.py" in frame.f_code.co_filename:
            return  # it reads the headers beside the body
        ours = frame if "/fingerpost/" in frame.f_code.co_filename else frame.f_back
        if ours is None or "/src/fingerpost/" not in ours.f_code.co_filename:
            return
        owner = getattr(called, "__self__", None)
        looked_at = [owner] if isinstance(owner, str | bytes) else list(frame.f_locals.values())
        if any(_size(value) > MOST_AT_ONCE for value in looked_at):
            found.append(f"{name} in {ours.f_code.co_qualname} ({ours.f_code.co_filename.split('/')[-1]})")

    sys.setprofile(look)
    try:
        yield found
    finally:
        sys.setprofile(None)


RESULT: dict[str, Any] = {
    "content": [{"type": "text", "text": "שלום: a=b, null\n" * 30_000}],
    "structuredContent": {"rows": [{"number": n, "name": f"row {n}", "of": None} for n in range(15_000)]},
}

PROGRAM = """
import json, sys
for line in sys.stdin.buffer:
    asked = json.loads(line)
    method = asked.get("method")
    if method == "initialize":
        result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
                  "serverInfo": {"name": "large", "version": "1"}}
    elif method == "tools/list":
        look = {"name": "look", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}}
        result = {"tools": [look, {**look, "name": "echo"}]}
    elif method == "tools/call" and asked["params"]["name"] == "echo":
        result = {"content": [{"type": "text", "text": "here"}]}
    elif method == "tools/call":
        result = json.load(open(sys.argv[1]))
    else:
        continue
    print(json.dumps({"jsonrpc": "2.0", "result": result, "id": asked["id"]}), flush=True)
"""


@asynccontextmanager
async def large_server(way: str, folder: Path) -> AsyncGenerator[ServerSpec]:
    if way == "stdio":
        (folder / "large.py").write_text(PROGRAM)
        (folder / "result.json").write_text(json.dumps(RESULT))
        command = [sys.executable, str(folder / "large.py"), str(folder / "result.json")]
        yield Server.stdio("big", command, era="2025-11-25")  # it does not answer what it does not know
        return

    def answer(reply: bytes) -> list[bytes]:
        body = json.dumps({**json.loads(reply), "result": RESULT}).encode()
        if way == "json":
            return [with_length(body)]
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: %d\r\n\r\n"
        return [head % (len(body) + 8), b"data: ", body, b"\n\n"]

    async with raw_server(answer) as (_, url):
        yield Server.http("big", url, era="2025-11-25")


@asynccontextmanager
async def open_large_api(way: str, folder: Path) -> AsyncGenerator[tuple[ServedApi, str]]:
    script = iter([calls((f"big__{_tool(way)}", {})), "That was long."])
    model = ScriptedModel(lambda _: next(script, '{"approved": true, "confidence": 1}'))
    more: dict[str, Any] = {"policy": [{"verdict": "allow"}]}
    async with (
        large_server(way, folder) as spec,
        Router([spec], settings=build_settings(folder, **more), model=model) as router,
    ):
        await router.connect()
        async with serve_api(router) as opened:
            yield opened, _tool(way)


def _tool(way: str) -> str:
    return "look" if way == "stdio" else "echo"


@pytest.mark.process
@proves("X7")
@pytest.mark.parametrize("way", ["sse", "stdio"])
async def test_a_large_reply_is_not_read_from_end_to_end_on_the_event_loop(tmp_path: Path, way: str) -> None:
    async with large_server(way, tmp_path) as spec, open_pool(spec) as servers:
        with record_large_reads() as found:
            result = await servers.call("big", _tool(way), {}, timeout=PATIENCE)
        assert found == []
        assert result["content"] == RESULT["content"]


@pytest.mark.slow
@proves("X7")
async def test_nothing_large_is_read_from_end_to_end_on_the_event_loop(tmp_path: Path) -> None:
    async with (
        open_large_api("json", tmp_path) as (opened, tool),
        open_methods(opened.router, audience=RecordingAudience()) as methods,
    ):
        call: dict[str, Any] = {"name": f"big__{tool}", "arguments": {}}
        routed: dict[str, Any] = {"name": "call_tool", "arguments": {"name": f"big__{tool}", "arguments": {}}}
        with record_large_reads() as found:
            whole = await methods.answer(request("tools/call", call, at=ALL), Asker())
            narrow = await methods.answer(request("tools/call", routed, at=ROUTE, session="two"), Asker())
            called = await opened.post("/api/call", {"tool": f"big/{tool}", "arguments": {}})
            answer = await opened.router.route("Use the big tool to look at everything")
        assert found == []
        assert "Left out" in str(whole), str(whole)[:500]
        assert "Left out" in str(narrow), str(narrow)[:500]
        assert called.json()["success"] is True and called.json()["metadata"]["result_left_out"] is True
        assert f"Source: big/{tool}" in answer.answer


@pytest.mark.process
@proves("X7")
async def test_a_small_result_does_not_wait_for_work_on_large_ones(tmp_path: Path) -> None:
    """The turn for work on large results is taken until all small calls have been answered."""
    done = threading.Event()
    async with (
        open_large_api("stdio", tmp_path) as (opened, _),
        open_methods(opened.router, audience=RecordingAudience()) as methods,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(run_in_thread, done.wait)
        call: dict[str, Any] = {"name": "big__echo", "arguments": {}}
        routed: dict[str, Any] = {"name": "call_tool", "arguments": call}
        try:
            with anyio.fail_after(PATIENCE):
                whole = await methods.answer(request("tools/call", call, at=ALL), Asker())
                narrow = await methods.answer(request("tools/call", routed, at=ROUTE, session="two"), Asker())
                called = await opened.post("/api/call", {"tool": "big/echo", "arguments": {}})
                prompt = await escape_result_text({"description": "here", "messages": []})
                assert all("here" in str(reply) for reply in (whole, narrow, called.json(), prompt))
        finally:
            done.set()


@proves("X7")
def test_other_threads_run_while_unseen_characters_are_looked_for() -> None:
    turns, stop, usual = 0, threading.Event(), sys.getswitchinterval()

    def take_turns() -> None:
        nonlocal turns
        while not stop.wait(0.001):
            turns += 1

    text = "שלום: a=b\n" * 500_000  # takes 0.1 s at least
    other = threading.Thread(target=take_turns)
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    other.start()
    try:
        before = turns
        same = escape_invisible(text)
        taken = turns - before
    finally:
        stop.set()
        other.join()
        sys.setswitchinterval(usual)
    assert same is text
    assert taken >= 5


@pytest.mark.slow
@table(
    "text",
    [
        json.dumps(RESULT),
        json.dumps(RESULT, indent=1),
        json.dumps([[[[[["x" * 3000, {"a b": [1.5, -2e9, None, True]}] * 9] * 3], {}, [], ""]]]),
        json.dumps({"a": "\ud800" * 2000, "b": {}}),
        "  [" + "1, " * 30_000 + "2 ] ",
        '["a" ' + "1" * 5000,
        '{"a":1,' + " " * 5000,
        "[" + "1," * 3000 + "]",
        "[" * 5000,
        '{"a" 1}' + " " * 5000,
        '{"a":[' + "1," * 3000 + "2]} x",
    ],
)
def test_what_is_parsed_in_steps_is_what_the_standard_library_reads(text: str) -> None:
    try:
        expected: object = json.loads(text)
    except (ValueError, RecursionError) as error:
        with pytest.raises(type(error)):
            parse_in_steps(text)
    else:
        assert parse_in_steps(text) == expected


@pytest.mark.process
@proves("X7", "F6")
async def test_a_reply_too_large_costs_a_program_its_own_call_alone(tmp_path: Path) -> None:
    """Its id comes last, and another call of the same program is answered behind it."""
    async with (
        large_server("stdio", tmp_path) as spec,
        open_pool(spec, response_bytes=MIB) as servers,
        anyio.create_task_group() as tasks,
    ):
        before = servers.get_status("big").since
        received: list[object] = []

        async def echo() -> None:
            received.append(await servers.call("big", "echo", {}, timeout=PATIENCE))

        with pytest.raises(ResponseTooLarge, match=r"1,048,576 bytes") as caught:
            tasks.start_soon(echo)
            await servers.call("big", "look", {}, timeout=PATIENCE)
        assert "limits.response_bytes" in (caught.value.hint or "")
        await echo()
        assert [result["content"][0]["text"] for result in cast("list[Any]", received)] == ["here"] * len(
            received
        )
        assert (servers.get_status("big").state, servers.get_status("big").since) == (
            ServerState.READY,
            before,
        )

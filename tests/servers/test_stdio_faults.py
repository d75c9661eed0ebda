"""Programs that misbehave: each fault costs its own call, and nothing else."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from fingerpost.errors import (
    FingerpostError,
    ResponseTooLarge,
    ServerReplyInvalid,
    ServerUnavailable,
    ToolFailed,
    ToolTimeout,
)
from fingerpost.records import ServerState
from fingerpost.servers import Server
from fingerpost.testing import stdio_fault, tool_server
from tests.kit.server_pools import PATIENCE, arguments_of, eventually, open_pool
from tests.kit.tables import table
from tests.requirements import proves

pytestmark = pytest.mark.process

MEGABYTE = 1024 * 1024
FAR = 600.0  # a deadline no test waits for: whatever fails before it, failed at once


async def _failure(fault: str, *arguments: str, timeout: float = FAR, **limits: Any) -> FingerpostError:
    """The error of one call to a server with this fault; its neighbour must not notice."""
    async with open_pool(
        stdio_fault(fault, *arguments, name="bad"), tool_server("good").spec(), **limits
    ) as servers:
        with anyio.fail_after(PATIENCE), pytest.raises(FingerpostError) as caught:
            await servers.call("bad", "echo", {}, timeout=timeout)
        assert arguments_of(await servers.call("good", "echo", {"a": 1}, timeout=PATIENCE)) == {"a": 1}
    return caught.value


@proves("F1")
async def test_a_crash_in_a_call_is_an_error_at_once_with_the_last_words():
    error = await _failure("crash")
    assert isinstance(error, ServerUnavailable)
    assert "exited with status 3" in str(error)
    assert "fatal: out of ideas" in str(error)
    assert "unknown" in (error.hint or "")


@proves("F1")
async def test_a_dead_server_whose_child_keeps_the_pipes_open_is_noticed():
    error = await _failure("orphaned_pipes")
    assert isinstance(error, ServerUnavailable)
    assert "exited with status 3" in str(error)


DEAF = """
import json, os, sys, time
for line in sys.stdin:
    message = json.loads(line)
    result = {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]}
    if message["method"] == "initialize":
        version = message["params"]["protocolVersion"]
        server = {"name": "deaf", "version": "1"}
        result = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": server}
    if message["method"] == "tools/list":
        os.close(0)
    if "id" in message:
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
    if message["method"] == "tools/list":
        time.sleep(600)
"""


@proves("F1")
async def test_a_server_that_runs_on_and_reads_no_more_fails_its_call_and_is_started_again():
    spec = Server.stdio("deaf", [sys.executable, "-I", "-S", "-c", DEAF], era="2025-11-25")
    async with open_pool(spec) as servers:
        with anyio.fail_after(PATIENCE), pytest.raises(ServerUnavailable, match="closed its standard input"):
            await servers.call("deaf", "echo", {}, timeout=FAR)
        await eventually(lambda: servers.get_status("deaf").state is ServerState.READY)


@proves("F2")
async def test_a_hanging_server_is_told_that_the_caller_gave_up(tmp_path: Path):
    note = tmp_path / "told"
    async with open_pool(stdio_fault("hang", str(note))) as servers:
        with pytest.raises(ToolTimeout):
            await servers.call("hang", "echo", {}, timeout=0.2)
        await eventually(lambda: note.exists() and note.read_text() == "true")
        assert servers.get_status("hang").state is ServerState.READY


@proves("F3")
async def test_output_that_ends_in_the_middle_of_a_reply_is_an_error():
    error = await _failure("half_closed")
    assert isinstance(error, ServerReplyInvalid | ServerUnavailable)


@proves("F4")
async def test_a_drip_ends_at_the_total_deadline():
    assert isinstance(await _failure("drip", timeout=0.5), ToolTimeout)


@proves("F6")
async def test_a_huge_result_is_cut_off_while_reading():
    error = await _failure("huge", response_bytes=MEGABYTE)
    assert isinstance(error, ResponseTooLarge)
    assert "1,048,576 bytes" in str(error)


@proves("F7")
async def test_an_endless_reply_ends_at_the_byte_limit():
    assert isinstance(await _failure("endless", response_bytes=MEGABYTE), ResponseTooLarge)


async def test_a_large_result_within_the_limit_arrives_whole():
    async with open_pool(stdio_fault("huge"), response_bytes=64 * MEGABYTE) as servers:
        result = await servers.call("huge", "echo", {}, timeout=PATIENCE)
    assert len(json.dumps(result)) > 50 * MEGABYTE


@proves("F8", "F9", "F11", "F13", "F14")
@table(
    ("fault", "words"),
    [
        ("bad_json", "is not JSON"),
        ("bad_json_late_id", "is not JSON"),
        ("not_utf8", "is not UTF-8"),
        ("both", "both a result and an error"),
        ("neither", "neither a result nor an error"),
        ("nan", "which JSON cannot represent"),
        ("big_integer", "OversizedInteger"),
        ("deep_result", "nested too deep"),
    ],
)
async def test_a_reply_that_is_not_the_protocol_fails_its_call_at_once(fault: str, words: str):
    error = await _failure(fault)
    assert isinstance(error, ServerReplyInvalid)
    assert words in str(error)


@proves("F14")
async def test_a_result_deeper_than_we_carry_is_refused():
    error = await _failure("deep_result", "150")
    assert isinstance(error, ServerReplyInvalid)
    assert "more than 100 levels" in str(error)


@proves("F10")
@pytest.mark.parametrize("fault", ["wrong_id", "stale_id"])
async def test_wrong_ids_never_deliver_another_callers_result(fault: str):
    async with open_pool(stdio_fault(fault)) as servers:
        outcomes: dict[int, object] = {}

        async def ask(number: int) -> None:
            try:
                outcomes[number] = arguments_of(
                    await servers.call(fault, "echo", {"number": number}, timeout=0.7)
                )
            except ToolTimeout:
                outcomes[number] = "timeout"

        async with anyio.create_task_group() as tasks:
            for number in range(10):
                tasks.start_soon(ask, number)
        allowed = {"timeout"} if fault == "wrong_id" else {"timeout", "own"}
        seen = {"own" if value == {"number": number} else value for number, value in outcomes.items()}
        assert seen <= allowed
        assert "timeout" in seen


@proves("F10")
async def test_a_second_answer_to_the_same_request_is_ignored():
    async with open_pool(stdio_fault("duplicate_id")) as servers:
        for number in range(3):
            result = await servers.call("duplicate_id", "echo", {"n": number}, timeout=PATIENCE)
            assert arguments_of(result) == {"n": number}


@proves("F10")
@pytest.mark.parametrize("fault", ["text_id", "float_id"])
async def test_ids_that_come_back_written_otherwise_are_understood(fault: str):
    async with open_pool(stdio_fault(fault)) as servers:
        assert arguments_of(await servers.call(fault, "echo", {"n": 1}, timeout=PATIENCE)) == {"n": 1}


@proves("F10")
async def test_a_reply_whose_id_is_no_id_costs_that_reply_and_not_the_connection():
    async with open_pool(stdio_fault("odd_id")) as servers:
        before = servers.get_status("odd_id")
        ids: list[Any] = [True, 5.5, {}, []]
        for odd in ids:
            with pytest.raises(ServerReplyInvalid, match="not a JSON-RPC message"):
                await servers.call("odd_id", "echo", {"id": odd}, timeout=PATIENCE)
        assert arguments_of(await servers.call("odd_id", "echo", {"n": 1}, timeout=PATIENCE)) == {"n": 1}
        assert servers.get_status("odd_id") == before


async def test_a_servers_own_error_keeps_its_code_and_words():
    error = await _failure("own_error")
    assert isinstance(error, ToolFailed)
    assert (error.code, str(error)) == (-32000, "the printer is out of paper")


@proves("F27")
@pytest.mark.parametrize(
    ("program", "words"),
    [("while :; do echo Welcome!; sleep 0.1; done", "no answer within 2 s"), ("echo Welcome!", "status 0")],
)
async def test_a_server_that_prints_to_its_standard_output_is_told_so(program: str, words: str):
    async with open_pool(Server.stdio("chatty", ["sh", "-c", program], connect_timeout=2)) as servers:
        servers.start()
        await servers.wait_until_settled(timeout=PATIENCE)
        status = servers.get_status("chatty")
    assert words in (status.reason or "")
    assert "not MCP to its standard output, such as: Welcome!" in (status.reason or "")
    assert "it must log to standard error" in (status.hint or "")


@proves("F27")
@pytest.mark.parametrize("fault", ["junk", "stderr_flood"])
async def test_noise_on_its_streams_does_not_stop_a_server(fault: str):
    async with open_pool(stdio_fault(fault, connect_timeout=60), start=False) as servers:
        for number in range(3):
            result = await servers.call(fault, "echo", {"n": number}, timeout=PATIENCE)
            assert arguments_of(result) == {"n": number}


@proves("H14")
async def test_the_newest_part_of_stderr_is_kept_and_no_more():
    async with open_pool(stdio_fault("stderr_flood", connect_timeout=60), stderr_bytes=1500) as servers:
        tail = servers.get_status("stderr_flood").stderr_tail
        assert tail.endswith("!\n")
        assert 0 < len(tail.encode()) <= 1500


@proves("H14", "F49")
async def test_a_secret_on_stderr_is_masked():
    program = "import sys; sys.stderr.write('using ghp_abcdefghijklmnopqrstuvwxyz0123\\n'); sys.exit(1)"
    async with open_pool(Server.stdio("leaky", [sys.executable, "-c", program])) as servers:
        await eventually(lambda: "using" in servers.get_status("leaky").stderr_tail)
        status = servers.get_status("leaky")
        assert "ghp_" not in status.stderr_tail
        await eventually(lambda: "[redacted]" in (servers.get_status("leaky").reason or ""))


async def test_a_server_that_leaves_unknown_requests_unanswered_still_connects():
    async with open_pool(stdio_fault("ignores_unknown", connect_timeout=8)) as servers:
        assert servers.get_status("ignores_unknown").state is ServerState.READY
        assert servers.get_status("ignores_unknown").protocol == "2025-11-25"


async def test_a_slow_start_is_waited_for():
    async with open_pool(stdio_fault("slow_start", "0.7")) as servers:
        assert servers.get_status("slow_start").state is ServerState.READY


async def test_a_server_that_never_speaks_is_down_with_the_reason():
    async with open_pool(stdio_fault("silent", connect_timeout=0.5)) as servers:
        await eventually(lambda: servers.get_status("silent").state is ServerState.DOWN)
        assert "no answer within 0.5 s" in (servers.get_status("silent").reason or "")

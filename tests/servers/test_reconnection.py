"""What was lost comes back by itself, and what cannot come back is not hammered."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import anyio
import pytest

from fingerpost.errors import ServerUnavailable
from fingerpost.events import MemorySink
from fingerpost.records import ServerState
from fingerpost.servers import Server
from fingerpost.testing import served, stdio_fault, tool_server
from tests.kit.server_pools import (
    PATIENCE,
    arguments_of,
    children_of,
    eventually,
    names,
    open_pool,
    states,
)
from tests.requirements import proves


@pytest.mark.process
@proves("F26", "H9")
async def test_a_killed_program_is_started_again():
    sink = MemorySink()
    async with open_pool(stdio_fault("none", "healed-by-the-pool", name="victim"), sink=sink) as servers:
        (process,) = children_of(os.getpid(), "healed-by-the-pool")
        os.kill(process.pid, signal.SIGKILL)
        await eventually(lambda: states(sink, "victim").count(ServerState.READY) == 2)
        assert ServerState.DOWN in states(sink, "victim")
        result = await servers.call("victim", "echo", {"back": True}, timeout=PATIENCE)
        assert arguments_of(result) == {"back": True}


@pytest.mark.slow
@proves("F26", "H9")
async def test_a_restarted_http_server_is_found_again():
    remote = tool_server("remote")
    sink = MemorySink()
    async with served(remote.server.streamable_http_app()) as base:
        port = int(base.rpartition(":")[2])
        stop_first = anyio.Event()
    async with anyio.create_task_group() as tasks:
        up = anyio.Event()

        async def first_life() -> None:
            async with served(tool_server("remote").server.streamable_http_app(), port=port):
                up.set()
                await stop_first.wait()

        tasks.start_soon(first_life)
        await up.wait()
        spec = Server.http("remote", f"http://127.0.0.1:{port}/mcp", era="2025-11-25")
        async with open_pool(spec, sink=sink) as servers:
            stop_first.set()
            await eventually(lambda: servers.get_status("remote").state is not ServerState.READY)
            second = tool_server("remote", ["echo", "new"])
            async with served(second.server.streamable_http_app(), port=port):
                await eventually(lambda: names(servers, "remote") == ["echo", "new"])
                result = await servers.call("remote", "echo", {"n": 2}, timeout=PATIENCE)
                assert arguments_of(result) == {"n": 2}
        tasks.cancel_scope.cancel()


@pytest.mark.process
@proves("F29", "H9")
async def test_a_crash_loop_is_backed_off(tmp_path: Path):
    starts = tmp_path / "starts"
    async with open_pool(stdio_fault("crash_loop", str(starts)), reconnect_max=60) as servers:
        status = servers.get_status("crash_loop")
        assert "exited with status 1" in (status.reason or "")
        assert "fatal: no licence found" in (status.reason or "")
        assert status.retry_in is not None
        for _ in range(50):  # however often it is requested, it is not started out of turn
            with pytest.raises(ServerUnavailable):
                await servers.call("crash_loop", "echo", {}, timeout=0.05)
        await anyio.sleep(0.5)
        assert len(starts.read_text()) <= 6


@pytest.mark.process
@proves("H9")
async def test_the_reason_tells_when_the_next_attempt_comes(tmp_path: Path):
    async with open_pool(Server.stdio("absent", ["/no/such/program"]), reconnect_max=60) as servers:
        status = servers.get_status("absent")
        assert status.attempts == 1
        assert status.retry_in is not None
        assert 30 <= status.retry_in <= 60
    async with open_pool(Server.stdio("mirror", ["cat"]), reconnect_max=60) as servers:  # no MCP server
        with pytest.raises(ServerUnavailable) as refused:
            await servers.call("mirror", "echo", {}, timeout=PATIENCE)
        assert "the next attempt follows within" in (refused.value.hint or "")


@pytest.mark.process
async def test_the_last_listing_is_kept_while_a_server_is_down():
    async with open_pool(stdio_fault("crash"), reconnect_max=60) as servers:
        with pytest.raises(ServerUnavailable):
            await servers.call("crash", "echo", {}, timeout=PATIENCE)
        assert names(servers, "crash") == ["echo"]

"""The servers people really run, from PyPI and npm, over the transports they offer."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from anyio.abc import Process
from benchmarks.gateway.programs import free_port

from fingerpost.records import ServerState
from fingerpost.servers import Server, ServerPool
from tests.choose.keyless.corpus import definitions
from tests.kit import warm
from tests.kit.programs import program
from tests.kit.server_pools import PATIENCE, eventually, names, open_pool, text_of
from tests.requirements import proves

pytestmark = pytest.mark.process


def check_corpus(servers: ServerPool, *server_names: str) -> None:
    """The corpus of arguments has the schemas that these servers really send."""
    for name in server_names:
        listing = servers.get_listing(name)
        assert listing is not None
        sent = {str(one["name"]): one["inputSchema"] for one in listing.definitions}
        assert sent == {str(one["name"]): one["inputSchema"] for one in definitions("real")[name]}


@proves("H11")
async def test_servers_from_pypi_connect_and_work_over_stdio(tmp_path: Path):
    await anyio.run_process(["git", "init", "-q", str(tmp_path / "repo")])
    commands = {
        "time": [warm.server("mcp-server-time"), "--local-timezone", "Etc/UTC"],
        "git": [warm.server("mcp-server-git"), "--repository", str(tmp_path / "repo")],
        "fetch": [warm.server("mcp-server-fetch")],
        "sqlite": [program("mcp-server-sqlite"), "--db-path", str(tmp_path / "a.db")],
    }
    specs = [Server.stdio(name, command, connect_timeout=PATIENCE) for name, command in commands.items()]
    async with open_pool(*specs) as servers:
        up = {status.name: status.state for status in servers.statuses}
        assert set(up.values()) == {ServerState.READY}, [status.reason for status in servers.statuses]
        assert "fetch" in names(servers, "fetch")
        check_corpus(servers, "time", "git")
        time = await servers.call("time", "get_current_time", {"timezone": "UTC"}, timeout=PATIENCE)
        assert "UTC" in text_of(time)
        status = await servers.call(
            "git", "git_status", {"repo_path": str(tmp_path / "repo")}, timeout=PATIENCE
        )
        assert "No commits yet" in text_of(status)
        made = await servers.call(
            "sqlite", "create_table", {"query": "CREATE TABLE visits (place TEXT)"}, timeout=PATIENCE
        )
        assert "created" in text_of(made)


@proves("H11")
async def test_servers_from_npm_connect_and_work_over_stdio(tmp_path: Path):
    (tmp_path / "note.txt").write_text("found me")
    async with open_pool(
        Server.stdio("everything", [program("mcp-server-everything")]),
        Server.stdio("files", [program("mcp-server-filesystem"), str(tmp_path)]),
        Server.stdio(
            "memory",
            [program("mcp-server-memory")],
            env={"MEMORY_FILE_PATH": str(tmp_path / "memory.json")},
        ),
    ) as servers:
        up = {status.name: status.state for status in servers.statuses}
        assert set(up.values()) == {ServerState.READY}, [status.reason for status in servers.statuses]
        assert "get-sum" in names(servers, "everything")
        check_corpus(servers, "files")
        read = await servers.call(
            "files", "read_text_file", {"path": str(tmp_path / "note.txt")}, timeout=PATIENCE
        )
        assert text_of(read) == "found me"
        graph = await servers.call("memory", "read_graph", {}, timeout=PATIENCE)
        assert "entities" in text_of(graph)


@proves("H11", "F26", "H9")
async def test_a_real_http_server_connects_and_is_found_again_after_kill_9():
    port = free_port()
    spec = Server.http("everything", f"http://127.0.0.1:{port}/mcp")
    async with anyio.create_task_group() as tasks:
        async with _everything("streamableHttp", port) as first, open_pool(spec) as servers:
            result = await servers.call("everything", "echo", {"message": "hello"}, timeout=PATIENCE)
            assert text_of(result) == "Echo: hello"
            first.kill()
            await eventually(lambda: servers.get_status("everything").state is not ServerState.READY)
            async with _everything("streamableHttp", port):
                await eventually(lambda: servers.get_status("everything").state is ServerState.READY)
                result = await servers.call("everything", "echo", {"message": "again"}, timeout=PATIENCE)
                assert text_of(result) == "Echo: again"
        tasks.cancel_scope.cancel()


@proves("H11")
async def test_a_real_server_of_the_old_sse_transport_connects_and_is_missed_when_gone():
    port = free_port()
    spec = Server.sse("everything", f"http://127.0.0.1:{port}/sse")
    async with _everything("sse", port) as process, open_pool(spec) as servers:
        assert servers.get_status("everything").state is ServerState.READY, servers.get_status(
            "everything"
        ).reason
        result = await servers.call("everything", "echo", {"message": "hello"}, timeout=PATIENCE)
        assert text_of(result) == "Echo: hello"
        process.kill()
        await eventually(lambda: servers.get_status("everything").state is not ServerState.READY)


@asynccontextmanager
async def _everything(transport: str, port: int) -> AsyncGenerator[Process]:
    """The npm server listening on `port`."""
    async with await anyio.open_process(
        [program("mcp-server-everything"), transport],
        env={**os.environ, "PORT": str(port)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            with anyio.fail_after(PATIENCE):
                while not _listens(port):  # noqa: ASYNC110 - another process sets no event of ours
                    await anyio.sleep(0.05)
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0

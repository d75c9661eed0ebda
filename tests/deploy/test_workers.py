"""`fingerpost serve --workers N`: processes that share a port, a store and the programs of servers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx2
import pytest

from tests.kit.command_line import CommandLine
from tests.kit.sleepy_server import SleepyServer
from tests.requirements import proves
from tests.surfaces.cli.test_running_gateway import Gateway, build_entry

pytestmark = [pytest.mark.process, pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")]

PATIENCE_S = 90.0
WORKERS = 2


@contextmanager
def start_workers(person: CommandLine) -> Generator[tuple[Gateway, str]]:
    """The command, and its address."""
    process = subprocess.Popen(
        person.command("serve", "--port", "0", "--workers", str(WORKERS), "--json"),
        cwd=person.home,
        env=person.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    lines: list[str] = []
    try:
        while "".join(lines).count("{") == 0 or not _is_json("".join(lines)):
            line = process.stdout.readline()
            assert line, process.communicate(timeout=PATIENCE_S)[1]
            lines.append(line)
        address = json.loads("".join(lines))["address"]
        yield Gateway(process, person.home / "data" / "fingerpost" / "gateways"), address
    finally:
        if process.poll() is None:
            process.terminate()
            process.communicate(timeout=PATIENCE_S)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def ask(address: str, method: str, params: Any, *, session: str | None = None) -> httpx2.Response:
    """One request on a connection of its own: the kernel chooses the worker."""
    headers = {"accept": "application/json, text/event-stream"}
    if session is not None:
        headers["mcp-session-id"] = session
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    return httpx2.post(f"{address}/mcp", json=body, headers=headers, timeout=PATIENCE_S)


def call(address: str, session: str) -> str:
    answer = ask(address, "tools/call", {"name": "sleepy__look", "arguments": {}}, session=session)
    assert answer.status_code == 200, answer.text
    return answer.json()["result"]["content"][0]["text"]


def wait_until(holds: Callable[[], bool]) -> None:
    """Until this holds. A connection may end with the worker that had it."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        with suppress(httpx2.HTTPError):
            if holds():
                return
        assert time.monotonic() < deadline
        time.sleep(0.1)


def wait_until_ready(address: str) -> None:
    """Until every worker says that it is ready."""
    wait_until(lambda: httpx2.get(f"{address}/readyz", timeout=PATIENCE_S).status_code == 200)


@proves("M42")
def test_workers_share_sessions_programs_and_metrics_and_are_restarted() -> None:
    with TemporaryDirectory(prefix="fp-") as folder:  # paths of sockets are short
        person = CommandLine(Path(folder))
        sleepy = SleepyServer(person.home)
        person.has(sleepy.name, **build_entry(sleepy))
        person.writes("fingerpost.toml", "")
        with start_workers(person) as (gateway, address):
            wait_until_ready(address)
            opened = ask(address, "initialize", {"protocolVersion": "2025-11-25", "capabilities": {}})
            session = opened.headers["mcp-session-id"]
            for _ in range(12):
                assert call(address, session) == "found"
            assert sleepy.starts == 1
            wait_until(lambda: count_calls(address) == 12)

            hello = {"secret": gateway.secret, "ask": "status"}
            os.kill(gateway.greet(**hello)["pid"], signal.SIGKILL)  # the worker that has the program
            wait_until_ready(address)
            wait_until(lambda: [call(address, session) for _ in range(4)] == ["found"] * 4)
            assert sleepy.starts <= 1 + WORKERS  # on a slow machine a worker starts its own

            gateway.process.terminate()
            _, said = gateway.process.communicate(timeout=PATIENCE_S)
            assert gateway.process.returncode == 0, said
            assert "ended and is started again" in said


def count_calls(address: str) -> int:
    """The calls that all workers counted, as one of them reports them."""
    text = httpx2.get(f"{address}/metrics", timeout=PATIENCE_S).text
    lines = [line for line in text.splitlines() if line.startswith("fingerpost_calls_total{")]
    return sum(int(float(line.rsplit(" ", 1)[1])) for line in lines)

"""Child processes: what they inherit, and that none outlives us."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import anyio
import anyio.to_thread
import psutil
import pytest

from fingerpost.records import ServerSpec, ServerState
from fingerpost.servers import Server
from fingerpost.servers.process import WatchdogClient
from fingerpost.servers.watchdog import MARK_VARIABLE, read_reports
from fingerpost.testing import stdio_fault
from tests.kit.server_pools import PATIENCE, eventually, is_running, open_pool
from tests.requirements import proves

_PARENT = """
import sys, anyio
from fingerpost.events import MemorySink
from fingerpost.servers import ServerPool
from fingerpost.settings.model import LimitSettings
from fingerpost.testing import stdio_fault

async def main():
    spec = stdio_fault("ignores_sigterm", sys.argv[1])
    async with ServerPool([spec], events=MemorySink(), limits=LimitSettings()) as servers:
        await servers.ensure("ignores_sigterm", timeout=30)
        print("ready", flush=True)
        await anyio.sleep(600)

anyio.run(main)
"""


def _pids(note: Path) -> list[int]:
    return [int(word) for word in note.read_text().split()]


@pytest.mark.process
@proves("F28")
@pytest.mark.parametrize("fault", ["ignores_sigterm", "moves_out"])
async def test_a_child_that_ignores_sigterm_is_gone_with_its_children_when_the_pool_ends(
    tmp_path: Path, fault: str
):
    note = tmp_path / "pids"
    async with open_pool(stdio_fault(fault, str(note))):
        child, grandchild = _pids(note)
        assert is_running(child)
        assert is_running(grandchild)
    await eventually(lambda: not is_running(child) and not is_running(grandchild))


@pytest.mark.process
@proves("F28")
async def test_a_cancelled_pool_leaves_no_child_behind(tmp_path: Path):
    note = tmp_path / "pids"
    with anyio.CancelScope() as scope:
        async with open_pool(stdio_fault("ignores_sigterm", str(note))):
            scope.cancel()
            await anyio.sleep(1)
    await eventually(lambda: not any(is_running(process) for process in _pids(note)))


@pytest.mark.process
@proves("F28")
def test_killing_fingerpost_itself_leaves_no_orphan(tmp_path: Path):
    note = tmp_path / "pids"
    parent = subprocess.Popen([sys.executable, "-c", _PARENT, str(note)], stdout=subprocess.PIPE)
    try:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"ready\n"
        child, grandchild = _pids(note)
        assert is_running(child)
        parent.send_signal(signal.SIGKILL)
        parent.wait(PATIENCE)
        _, alive = psutil.wait_procs(
            [psutil.Process(process) for process in (child, grandchild) if psutil.pid_exists(process)],
            timeout=PATIENCE,
        )
        assert alive == []
        assert not is_running(child)
        assert not is_running(grandchild)
    finally:
        parent.kill()
        parent.wait(PATIENCE)
        assert parent.stdout is not None
        parent.stdout.close()


@pytest.mark.process
@proves("F28")
async def test_a_removed_server_takes_its_process_with_it(tmp_path: Path):
    note = tmp_path / "pids"
    async with open_pool(stdio_fault("ignores_sigterm", str(note))) as servers:
        await servers.remove("ignores_sigterm")
        assert not any(is_running(process) for process in _pids(note))


@pytest.mark.process
async def test_a_child_sees_only_harmless_variables_and_its_own(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SOMEBODY_ELSES_SECRET", "hunter2")
    program = "import os, sys; sys.stderr.write(repr(sorted(os.environ))); sys.exit(1)"
    spec = Server.stdio("nosy", [sys.executable, "-c", program], env={"MINE": "yes"})
    async with open_pool(spec) as servers:
        await eventually(lambda: "MINE" in servers.get_status("nosy").stderr_tail)
        tail = servers.get_status("nosy").stderr_tail
        assert "SOMEBODY_ELSES_SECRET" not in tail
        assert "PATH" in tail


@pytest.mark.process
async def test_a_command_that_may_not_be_run_is_explained(tmp_path: Path):
    program = tmp_path / "server"
    program.write_text("#!/bin/sh\n")
    async with open_pool(Server.stdio("locked", [str(program)])) as servers:
        assert servers.get_status("locked").state is ServerState.DOWN
        assert "no permission to run" in (servers.get_status("locked").reason or "")


@pytest.mark.process
async def test_a_missing_working_directory_is_explained(tmp_path: Path):
    async with open_pool(Server.stdio("lost", [sys.executable], cwd=tmp_path / "nowhere")) as servers:
        assert "nowhere was not found" in (servers.get_status("lost").reason or "")


@pytest.mark.process
def test_the_watchdog_kills_what_is_still_listed():
    stubborn = [sys.executable, "-c", "import time; time.sleep(600)"]
    listed = subprocess.Popen(stubborn, start_new_session=True)
    unlisted = subprocess.Popen(stubborn, start_new_session=True)
    guard = WatchdogClient()
    guard.add_group(listed.pid)
    guard.add_group(unlisted.pid)
    guard.remove_group(unlisted.pid)
    process = guard._process  # pyright: ignore[reportPrivateUsage] - ending it is what this test is about
    assert process is not None
    assert process.stdin is not None
    process.stdin.close()
    process.wait(PATIENCE)
    assert listed.wait(PATIENCE) == -signal.SIGKILL
    assert unlisted.poll() is None
    unlisted.kill()
    unlisted.wait(PATIENCE)


@pytest.mark.process
@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="the system does not show environments")
def test_the_watchdog_kills_what_was_announced_and_never_reported():
    stubborn = [sys.executable, "-c", "import time; time.sleep(600)"]
    guard = WatchdogClient()
    for mark in ("here", "gone"):
        guard.add_mark(mark)
    guard.remove_mark("gone")
    announced, over = (
        subprocess.Popen(stubborn, start_new_session=True, env={**os.environ, MARK_VARIABLE: mark})
        for mark in ("here", "gone")
    )
    process = guard._process  # pyright: ignore[reportPrivateUsage] - as above
    assert process is not None
    assert process.stdin is not None
    process.stdin.close()
    assert announced.wait(PATIENCE) == -signal.SIGKILL
    process.wait(PATIENCE)
    assert over.poll() is None
    over.kill()
    over.wait(PATIENCE)


@pytest.mark.process
def test_a_killed_watchdog_is_replaced_by_one_that_knows_everything():
    guard = WatchdogClient()
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    guard.add_group(child.pid)
    first = guard._process  # pyright: ignore[reportPrivateUsage] - as above
    assert first is not None
    first.kill()
    first.wait(PATIENCE)
    guard.add_group(99_999_999)
    second = guard._process  # pyright: ignore[reportPrivateUsage] - as above
    assert second is not None
    assert second.pid != first.pid
    assert first.stdin is not None
    assert second.stdin is not None
    guard.remove_group(99_999_999)
    second.stdin.close()
    second.wait(PATIENCE)
    assert child.wait(PATIENCE) == -signal.SIGKILL
    first.stdin.close()


def test_the_watchdog_ignores_lines_it_does_not_understand():
    assert read_reports([b"+12\n", b"+x\n", b"\n", b"-12\n", b"+1\n", b"+0\n", b"+34\n", b"?"]) == (
        {34},
        set(),
    )
    assert read_reports([b"?ab\n", b"?cd\n", b"!ab\n", b"?../x\n", b"-cd\n"]) == (set(), {"cd"})


def test_our_own_process_group_is_never_at_risk():
    assert os.getpgrp() not in read_reports([b"+-1\n", b"+0\n", b"+1\n"])[0]


@pytest.mark.process
async def test_a_missing_program_is_named_whatever_the_event_loop_says():
    """uvloop does not say which file it did not find."""

    async def reason(spec: ServerSpec) -> str | None:
        async with open_pool(spec) as servers:
            return servers.get_status(spec.name).reason

    def on_uvloop(spec: ServerSpec) -> str | None:
        return anyio.run(reason, spec, backend_options={"use_uvloop": True})

    missing = await anyio.to_thread.run_sync(on_uvloop, Server.stdio("absent", ["/no/such/program"]))
    assert missing == "absent cannot be started: /no/such/program was not found"
    folder = await anyio.to_thread.run_sync(
        on_uvloop, Server.stdio("lost", [sys.executable], cwd="/no/folder")
    )
    assert folder == "lost cannot be started: the folder /no/folder was not found"

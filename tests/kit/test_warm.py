"""A command forked from a warm process is a command of its own, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import time
from pathlib import Path

import psutil
import pytest

from tests.kit import warm
from tests.kit.programs import PATH, program

pytestmark = pytest.mark.process

PATIENCE = 40.0


def surroundings(home: Path) -> dict[str, str]:
    return {"PATH": PATH, "HOME": str(home), "FINGERPOST_STORE__URL": f"sqlite:///{home}/store.db"}


def run_command(command: list[str], home: Path, *arguments: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [*command, *arguments],
        cwd=home,
        env={**surroundings(home), "COLUMNS": "100"},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("arguments", [["config", "show"], ["nonsense"]], ids=" ".join)
def test_it_says_and_returns_what_the_installed_command_does(tmp_path: Path, arguments: list[str]) -> None:
    (tmp_path / "fingerpost.toml").write_text("[flags]\npins = false\n", encoding="utf-8")
    cold = run_command([program("fingerpost")], tmp_path, *arguments)
    assert run_command(warm.command(), tmp_path, *arguments) == cold
    assert run_command([f"{warm.folder()}/fingerpost"], tmp_path, *arguments) == cold


def start_watcher(home: Path) -> subprocess.Popen[str]:
    """A command that runs until it is stopped, and has begun."""
    (home / "mcp.json").write_text('{"mcpServers": {"x": {"command": "no-such-program"}}}', encoding="utf-8")
    running = subprocess.Popen(
        [*warm.command(), "servers", "--watch", "--servers", "mcp.json"],
        cwd=home,
        env={**surroundings(home), "PYTHONUNBUFFERED": "1", "MARK": str(home)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert running.stdout is not None
    assert "x: idle" in running.stdout.readline()
    return running


def process_of(home: Path) -> psutil.Process | None:
    """The command's own process: the forked one that runs in this folder."""
    launcher = "launch.py"
    for process in psutil.process_iter(["cwd", "cmdline"]):
        if process.info["cwd"] == str(home) and launcher not in " ".join(process.info["cmdline"] or ()):
            return process
    return None


def test_a_signal_reaches_the_command_and_its_exit_code_comes_back(tmp_path: Path) -> None:
    with start_watcher(tmp_path) as running:
        running.send_signal(signal.SIGINT)
        assert running.wait(PATIENCE) == 130


def test_killing_the_launcher_kills_the_command(tmp_path: Path) -> None:
    with start_watcher(tmp_path) as running:
        command = process_of(tmp_path)
        assert command is not None
        running.kill()
        deadline = time.monotonic() + PATIENCE
        while command.is_running() and time.monotonic() < deadline:
            time.sleep(0.02)
        assert not command.is_running()  # reaped too: a zombie would still count as running


def test_a_command_that_dies_of_a_signal_is_seen_to(tmp_path: Path) -> None:
    with start_watcher(tmp_path) as running:
        command = process_of(tmp_path)
        assert command is not None
        command.send_signal(signal.SIGKILL)
        assert running.wait(PATIENCE) == -signal.SIGKILL


def test_the_terminal_it_is_given_is_its_own(tmp_path: Path) -> None:
    own, other = pty.openpty()
    with subprocess.Popen(
        [*warm.command(), "--help"],
        cwd=tmp_path,
        env={**surroundings(tmp_path), "TERM": "xterm-256color"},
        stdin=other,
        stdout=other,
        stderr=other,
    ) as running:
        os.close(other)
        assert running.wait(PATIENCE) == 0
    shown = os.read(own, 65_536)
    os.close(own)
    assert b"\x1b[" in shown  # colours are for terminals alone


def test_a_recorded_server_lists_what_the_real_one_lists_and_lets_it_call(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("Hello", encoding="utf-8")
    client = {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "x", "version": "1"},
    }
    begin = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": client},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/list"},
    ]
    reading = {"name": "read_text_file", "arguments": {"path": str(tmp_path / "a.txt")}}
    call = {"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": reading}

    def ask(server: str, *messages: object) -> dict[int, object]:
        done = subprocess.run(
            [server, str(tmp_path)],
            input="".join(json.dumps(message) + "\n" for message in messages),
            env=surroundings(tmp_path),
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=True,
        )
        return {one["id"]: one for one in map(json.loads, done.stdout.splitlines()) if "id" in one}

    real = ask(program("mcp-server-filesystem"), *begin, call)
    assert "Hello" in json.dumps(real[3])
    recorded = f"{warm.folder()}/mcp-server-filesystem"
    assert ask(recorded, *begin) == {1: real[1], 2: real[2]}  # from the real one, unless a test was earlier
    assert ask(recorded, *begin) == {1: real[1], 2: real[2]}
    assert ask(recorded, *begin, call) == real

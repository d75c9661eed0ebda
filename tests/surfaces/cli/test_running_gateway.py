"""Commands use the connections of a gateway that runs with the same store."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Any

import httpx2
import psutil
import pytest

from fingerpost.surfaces.http.local_callers import MARK
from tests.kit import sleepy_server
from tests.kit.command_line import CommandLine
from tests.kit.sleepy_server import SleepyServer
from tests.requirements import proves

pytestmark = pytest.mark.process

PATIENCE = 60.0  # seconds
REFUSED = "note: the running gateway "


@pytest.fixture
def person() -> Iterator[CommandLine]:
    with TemporaryDirectory(prefix="fp-") as folder:  # paths of sockets are short
        yield CommandLine(Path(folder))


@pytest.fixture
def sleepy(person: CommandLine) -> SleepyServer:
    made = SleepyServer(person.home)
    made.offer("store_word", writes=True, seconds={"type": "number"})
    configure(person, made)
    return made


def configure(person: CommandLine, server: SleepyServer) -> None:
    person.has(server.name, **build_entry(server))


def build_entry(server: SleepyServer) -> dict[str, Any]:
    arguments = ["-I", "-S", sleepy_server.__file__, str(server.folder)]
    return {"command": sys.executable, "args": arguments, "era": "2025-11-25"}


@dataclass
class Gateway:
    """A running gateway, and where commands find it."""

    process: subprocess.Popen[str]
    folder: Path

    @property
    def socket(self) -> Path:
        [path] = self.folder.glob("*.sock")
        return path

    @property
    def secret(self) -> str:
        return self.socket.with_suffix(".key").read_text("ascii")

    def ends(self, number: signal.Signals = signal.SIGTERM) -> str:
        """What it said on standard error."""
        self.process.send_signal(number)
        return self.process.communicate(timeout=PATIENCE)[1]

    def greet(self, **hello: str) -> Any:
        """Its answer to a command that begins so."""
        with socket.socket(socket.AF_UNIX) as command:
            command.settimeout(PATIENCE)
            command.connect(str(self.socket))
            command.sendall(json.dumps(hello).encode() + b"\n")
            with command.makefile("rb") as answers:
                return json.loads(answers.readline())


@contextmanager
def start_gateway(person: CommandLine, *command: str, with_encoder: bool = False) -> Generator[Gateway]:
    build = person.cold_command if with_encoder else person.command  # the encoder is a child of the former
    process = subprocess.Popen(
        build(*(command or ("serve", "--port", "0", "--json"))),
        cwd=person.home,
        env={**person.environment, "FINGERPOST_FLAGS__DENSE_SCORES": str(with_encoder)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        if command:
            hello = {
                "protocolVersion": "2025-11-25",
                "capabilities": {},
                "clientInfo": {"name": "x", "version": "1"},
            }
            process.stdin.write(
                json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}) + "\n"
            )
            process.stdin.flush()
        assert process.stdout.readline(), process.communicate(timeout=PATIENCE)[1]
        yield Gateway(process, person.home / "data" / "fingerpost" / "gateways")
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate(timeout=PATIENCE)


@pytest.mark.parametrize("command", [(), ("stdio",)], ids=["serve", "stdio"])
@proves("S5")
def test_a_command_uses_the_running_server_of_a_gateway_unless_it_is_standalone(
    person: CommandLine, sleepy: SleepyServer, command: tuple[str, ...]
) -> None:
    with start_gateway(person, *command) as gateway:
        done = person.runs("call", "sleepy/store_word", "word=hat", "--yes")
        assert (done.returncode, done.stdout.strip()) == (0, "found"), done.stderr
        assert REFUSED not in done.stderr
        [status] = person.reads("servers", "--connect")
        assert (status["state"], status["tools"], status["product"]) == ("ready", 1, "sleepy 1")
        assert (sleepy.starts, sleepy.calls) == (1, 1)
        assert stat.S_IMODE(gateway.folder.stat().st_mode) == 0o700
        assert {stat.S_IMODE(file.stat().st_mode) for file in gateway.folder.iterdir()} == {0o600}
        done = person.runs("call", "sleepy/store_word", "word=hat", "--yes", "--standalone")
        assert (done.returncode, sleepy.starts, sleepy.calls) == (0, 2, 2)
        [path] = [gateway.socket]
        gateway.ends()
        assert not path.exists()
        assert not path.with_suffix(".key").exists()


@proves("S12")
def test_the_encoder_of_a_gateway_is_a_process_that_may_be_killed_and_ends_with_it(
    person: CommandLine, sleepy: SleepyServer
) -> None:
    def wait_for_encoder(*others: psutil.Process) -> psutil.Process:
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            for child in running.children():
                with suppress(psutil.Error):
                    if child not in others and "model.py" in " ".join(child.cmdline()):
                        return child
            time.sleep(0.05)
        raise TimeoutError

    with start_gateway(person, with_encoder=True) as gateway:
        running = psutil.Process(gateway.process.pid)
        first = wait_for_encoder()  # the gateway warms up
        assert set(first.environ()) <= {"PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "LC_CTYPE"}
        first.kill()
        assert gateway.process.stdout is not None
        address = json.loads("{" + "".join(iter(gateway.process.stdout.readline, "}\n")) + "}")["address"]
        body = {"model": "fingerpost", "messages": [{"role": "user", "content": "is it cold in Oslo?"}]}
        httpx2.post(f"{address}/v1/chat/completions", json=body, timeout=PATIENCE).raise_for_status()
        second = wait_for_encoder(first)
        gateway.ends(signal.SIGKILL)
        second.wait(PATIENCE)


@proves("S5")
def test_a_client_that_closes_stdin_and_sends_sigterm_at_any_time_leaves_nothing_behind(
    person: CommandLine, sleepy: SleepyServer
) -> None:
    with start_gateway(person, "stdio") as gateway:
        path, running = gateway.socket, gateway.process
        assert person.runs("call", "sleepy/store_word", "word=hat", "--yes").returncode == 0
        assert running.stdin is not None
        running.stdin.close()
        running.stdin = None
        until = time.monotonic() + PATIENCE
        while running.poll() is None and time.monotonic() < until:
            running.send_signal(signal.SIGTERM)
            time.sleep(0.01)
        running.communicate(timeout=PATIENCE)
        assert not path.exists()
        assert not (person.home / "store.db-wal").exists()  # the store was closed


@proves("S10")
def test_status_and_logs_show_what_runs_and_what_its_servers_wrote(
    person: CommandLine, sleepy: SleepyServer
) -> None:
    secret = "sk-" + "a1b2c3d4e5" * 3
    complaint = f"import sys; sys.stderr.write('no licence {secret}\\n'); sys.exit(3)"
    person.has("broken", command=sys.executable, args=["-I", "-S", "-c", complaint])
    assert person.reads("status")["gateways"] == []
    with start_gateway(person) as gateway:
        assert person.runs("call", "sleepy/store_word", "word=hat", "--json").returncode == 4
        while "[fingerpost] down" not in (logged := person.runs("logs", "broken").stdout):
            assert gateway.process.poll() is None
        assert len(person.runs("logs", "broken", "-n", "1").stdout.splitlines()) == 1
        status = person.reads("status")
        [running] = status["gateways"]
        assert running["kind"] == "serve"
        assert running["address"].startswith("http://127.0.0.1:")
        states = {one["name"]: one for one in status["servers"]}
        assert (states["sleepy"]["state"], states["sleepy"]["tools"]) == ("ready", 1)
        assert "no licence" in states["broken"]["reason"]
        assert status["approvals"] == 1
        shown = person.runs("status").stdout
        for words in (running["address"], "1 of 2 usable, 1 tool", "1 call waits", status["logs"]):
            assert words in shown, words
    assert "no licence" in logged
    everything = person.runs("logs").stdout
    assert "started, version" in everything
    assert secret not in everything + logged
    files = [file for file in Path(status["logs"]).rglob("*") if file.is_file()]
    assert {file.name for file in files} >= {"broken.log", "fingerpost.log"}
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
    assert person.runs("logs", "nothing").returncode == 2


@proves("S5")
def test_a_write_over_a_gateway_is_asked_about_and_recorded_by_the_command(
    person: CommandLine, sleepy: SleepyServer
) -> None:
    with start_gateway(person):
        waiting = person.runs("call", "sleepy/store_word", "word=hat", "--json")
        assert waiting.returncode == 4
        assert sleepy.calls == 0
        [pending] = person.reads("approvals")
        assert person.runs("approvals", "approve", pending["pending_id"], "--seen").returncode == 0
        done = person.runs("call", "sleepy/store_word", "word=hat")
        assert (done.returncode, done.stdout.strip()) == (0, "found"), done.stderr
        assert (sleepy.starts, sleepy.calls) == (1, 1)
        assert "sleepy/store_word" in person.runs("audit", "show").stdout


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=["killed", "stopped"])
@proves("S5")
def test_a_gateway_that_ends_fails_the_call_it_passed_on_and_leaves_commands_working(
    person: CommandLine, sleepy: SleepyServer, number: signal.Signals
) -> None:
    with start_gateway(person) as gateway:
        arguments = ["call", "sleepy/store_word", "word=hat", "seconds:=50", "--yes"]
        running = subprocess.Popen(
            person.command(*arguments),
            cwd=person.home,
            env=person.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        while sleepy.calls == 0:
            assert running.poll() is None, running.communicate()
        old = gateway.socket
        gateway.ends(number)
        output = "".join(running.communicate(timeout=PATIENCE))
        assert running.returncode == 1
        assert "the gateway whose connection was used has closed it" in output
        assert "unknown" in output
        assert (sleepy.starts, sleepy.calls) == (1, 1)  # not run again
        assert old.exists() is (number is signal.SIGKILL)  # nobody answers there
        done = person.runs("call", "sleepy/store_word", "word=hat", "--yes")
        assert (done.returncode, sleepy.starts, sleepy.calls) == (0, 2, 2)
        assert REFUSED not in done.stderr
        if number is signal.SIGKILL:
            os.utime(old, (0, 0))
    with start_gateway(person) as gateway:
        assert gateway.socket != old  # it was cleared away


@proves("S5")
def test_a_gateway_that_refuses_is_named_and_not_used(person: CommandLine, sleepy: SleepyServer) -> None:
    with start_gateway(person) as gateway:
        secret = gateway.secret
        assert gateway.greet(secret="guessed", server="sleepy") == {"ok": False, "why": "secret"}
        refused = gateway.greet(secret=secret, version="0.0.1", server="sleepy")
        assert (refused["ok"], refused["why"]) == (False, "version")
        known = {"secret": secret, "version": refused["version"]}
        assert gateway.greet(**known, server="other")["why"] == "server"
        assert gateway.greet(**known, server="sleepy", configuration="0")["why"] == "configuration"
        # Another file: the gateway follows changes of its own.
        entry = {**build_entry(sleepy), "env": {"REGION": "north"}}
        other = person.writes("other.json", json.dumps({"mcpServers": {"sleepy": entry}}))
        done = person.runs("call", "sleepy/store_word", "word=hat", "--yes", "--servers", str(other))
        assert f"{REFUSED}has another entry for sleepy: its connection is not used" in done.stderr
        assert (done.returncode, sleepy.starts) == (0, 2)
        gateway.socket.with_suffix(".key").write_text("guessed", "ascii")
        done = person.runs("call", "sleepy/store_word", "word=hat", "--yes")
        assert f"{REFUSED}refused the secret of this command: it is not used" in done.stderr
        assert (done.returncode, sleepy.starts) == (0, 3)
        assert secret not in gateway.ends() + done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells who is at the other end")
@proves("S5", "X2")
def test_a_program_that_fingerpost_started_gets_no_connection_with_the_secret(
    person: CommandLine, sleepy: SleepyServer
) -> None:
    script = """
import json, socket, sys
client = socket.socket(socket.AF_UNIX)
client.connect(sys.argv[1])
client.sendall(json.dumps({"secret": sys.argv[2], "version": "0.0.1"}).encode() + b"\\n")
print(client.makefile().readline())
"""
    with start_gateway(person) as gateway:
        command = [sys.executable, "-I", "-S", "-c", script, str(gateway.socket), gateway.secret]
        answers = [
            subprocess.run(
                command, env=variables, capture_output=True, text=True, timeout=PATIENCE, check=False
            )
            for variables in ({}, {MARK: "cal_1"})
        ]
        assert '"version"' in answers[0].stdout
        assert answers[1].stdout.strip() == ""


@proves("S5")
def test_a_gateway_of_another_version_is_named_and_not_used(
    person: CommandLine, sleepy: SleepyServer
) -> None:
    person.runs("servers")  # known, so that the gateway does not start it
    with start_gateway(person) as gateway:
        path = gateway.socket.with_name(gateway.socket.name.replace("-", "-0"))
        gateway.ends()
    starts = sleepy.starts
    path.with_suffix(".key").write_text("secret of another version", "ascii")
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(path))
        other.listen()
        heard: list[dict[str, Any]] = []

        def answer() -> None:
            connection, _ = other.accept()
            with connection, connection.makefile("rwb") as stream:
                heard.append(json.loads(stream.readline()))
                stream.write(b'{"ok": false, "why": "version", "version": "7.0"}\n')

        thread = Thread(target=answer)
        thread.start()
        done = person.runs("call", "sleepy/store_word", "word=hat", "--yes")
        thread.join(PATIENCE)
    assert f"{REFUSED}is Fingerpost 7.0, and this is {heard[0]['version']}: it is not used" in done.stderr
    assert (done.returncode, sleepy.starts) == (0, starts + 1)


@proves("S5")
def test_an_entry_that_names_a_file_in_the_working_directory_is_another_one_elsewhere(
    person: CommandLine, sleepy: SleepyServer
) -> None:
    arguments = ["-I", "-S", sleepy_server.__file__, sleepy.folder.name]
    person.has(sleepy.name, command=sys.executable, args=arguments, era="2025-11-25")
    there = person.home / "there"
    there.mkdir()
    other = SleepyServer(there)
    other.offer("store_word", writes=True, seconds={"type": "number"})
    with start_gateway(person):
        assert person.runs("call", "sleepy/store_word", "word=hat", "--yes").returncode == 0
        done = subprocess.run(
            person.command("call", "sleepy/store_word", "word=hat", "--yes"),
            cwd=there,
            env=person.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert "has another entry for sleepy" in done.stderr
        assert (sleepy.starts, other.starts) == (1, 1)

"""`fingerpost stdio` as a real process: it ends on request, whatever its client does."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import orjson
import pytest

from tests.kit.command_line import CommandLine, tool
from tests.kit.gateway_client import INITIALIZE, old
from tests.requirements import proves

pytestmark = pytest.mark.process

PATIENCE = 60.0  # seconds


class StdioGateway:
    """The command, spoken to through a pipe or a terminal whose other end stays open to the last."""

    def __init__(self, process: subprocess.Popen[bytes], to: int) -> None:
        self.process = process
        self._to = to

    @property
    def answers(self) -> IO[bytes]:
        assert self.process.stdout is not None
        return self.process.stdout

    def says(self, message: object) -> None:
        os.write(self._to, orjson.dumps(message) + b"\n")

    def ends(self) -> tuple[int, bytes]:
        """Its exit code and what it said on standard error. Raises when it goes on."""
        _, output = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, output


@contextmanager
def start_gateway(folder: Path, *, terminal: bool = False) -> Generator[StdioGateway]:
    """A gateway with one server that has answered a handshake: it reads, and nothing comes."""
    person = CommandLine(folder)
    person.has("one", [tool("look")])
    to, given = pty.openpty() if terminal else reversed(os.pipe())
    process = subprocess.Popen(
        person.command("stdio"),
        cwd=person.home,
        env=person.environment,
        stdin=given,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    os.close(given)
    try:
        running = StdioGateway(process, to)
        running.says(INITIALIZE)
        assert orjson.loads(running.answers.readline())["result"]
        yield running
    finally:
        process.kill()
        process.communicate(timeout=PATIENCE)
        os.close(to)


def _signal(number: signal.Signals) -> Callable[[StdioGateway], None]:
    return lambda running: running.process.send_signal(number)


def _no_longer_read(running: StdioGateway) -> None:
    running.answers.close()
    running.process.stdout = None
    running.says(old("ping"))


@proves("G1")
@pytest.mark.parametrize(
    ("end", "terminal"),
    [
        (_signal(signal.SIGTERM), False),
        (_signal(signal.SIGINT), False),
        (_signal(signal.SIGINT), True),
        (_no_longer_read, False),
    ],
    ids=["SIGTERM", "SIGINT", "Ctrl-C at a terminal", "stdout closed"],
)
def test_it_ends_although_its_client_keeps_the_other_side_open(
    tmp_path: Path, end: Callable[[StdioGateway], None], terminal: bool
) -> None:
    with start_gateway(tmp_path, terminal=terminal) as running:
        end(running)
        assert running.ends() == (0, b"")


@proves("G1")
def test_it_ends_although_its_client_reads_nothing(tmp_path: Path) -> None:
    with start_gateway(tmp_path) as running:
        for number in range(50):  # more answers than a pipe holds
            running.says(old("ping", request_id=f"{number}-{'x' * 4000}"))
        _until(lambda: _unread(running.answers) > 60_000)
        running.process.send_signal(signal.SIGTERM)
        assert running.process.wait(timeout=PATIENCE) == 0


def _unread(pipe: IO[bytes]) -> int:
    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)


def _until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)

"""Programs started for a measurement: their processor time and memory, children included."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

MIB = 2**20

_given_ports: set[int] = set()


def free_port() -> int:
    """A port for a program that cannot be given a socket or say which port it took.

    It is below the ports that connections get, and another one each time: nothing takes it before the program
    does.
    """
    chance = random.SystemRandom()  # `random` itself is seeded alike in all test workers
    while True:
        port = chance.randrange(20_000, 32_000)
        with socket.socket() as taken, contextlib.suppress(OSError):
            taken.bind(("127.0.0.1", port))
            if port not in _given_ports:
                _given_ports.add(port)
                return port


class RunningProgram:
    """One running program, its output in a file."""

    def __init__(
        self,
        command: Sequence[str],
        log: Path,
        *,
        environment: Mapping[str, str] | None = None,
        folder: Path | None = None,
    ) -> None:
        self.log = log
        # A library from a registry has its byte code beside it. A checkout must be allowed to keep its own.
        inherited = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        self.started = time.perf_counter()
        with log.open("ab") as output:
            self._child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**inherited, **(environment or {})},
                cwd=folder,
            )
        self._process = psutil.Process(self._child.pid)

    @property
    def alive(self) -> bool:
        return self._child.poll() is None

    @property
    def pid(self) -> int:
        return self._child.pid

    def cpu_seconds(self) -> float:
        """User and system time of the program and all that it started."""
        total = 0.0
        for process in self._tree():
            with contextlib.suppress(psutil.Error):
                times = process.cpu_times()
                total += times.user + times.system
        return total

    def memory_mib(self) -> float:
        total = 0
        for process in self._tree():
            with contextlib.suppress(psutil.Error):
                total += process.memory_info().rss
        return total / MIB

    def stop(self) -> None:
        """End it, and whatever it leaves behind."""
        tree = self._tree()
        self._child.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._child.wait(10)
        for process in tree:
            with contextlib.suppress(psutil.Error):
                process.kill()
        self._child.wait(5)

    def last_words(self) -> str:
        return self.log.read_text(errors="replace")[-600:]

    def _tree(self) -> list[psutil.Process]:
        with contextlib.suppress(psutil.Error):
            return [self._process, *self._process.children(recursive=True)]
        return []

"""Our side of the watchdog: tells it which process groups live.

One watchdog serves the whole process. It is started before the first stdio
server or command and needs no stopping: it ends when we do.
"""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
from pathlib import Path
from threading import Lock
from typing import IO, cast

_PROGRAM = Path(__file__).with_name("watchdog.py")


class WatchdogClient:
    """Reports process groups to the watchdog. Its calls block for moments: make them off the event loop."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._owner = 0
        self._groups: set[int] = set()
        self._marks: set[str] = set()
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Have a watchdog: what is started before there is one could outlive us."""
        with self._lock:
            self._send(b"")

    def add_mark(self, mark: str) -> None:
        """From now on whatever carries this mark dies with us, also before anybody knows its number."""
        with self._lock:
            self._marks.add(mark)
            self._send(b"?%s\n" % mark.encode())

    def remove_mark(self, mark: str) -> None:
        """Nothing that carries this mark is left."""
        with self._lock:
            self._marks.discard(mark)
            self._send(b"!%s\n" % mark.encode())

    def add_group(self, group: int) -> None:
        """From now on this group dies with us."""
        with self._lock:
            self._groups.add(group)
            self._send(b"+%d\n" % group)

    def remove_group(self, group: int) -> None:
        """This group is gone; its number may be reused by strangers."""
        with self._lock:
            self._groups.discard(group)
            self._send(b"-%d\n" % group)

    def _send(self, line: bytes) -> None:
        # After a fork the pipe is shared with the parent, whose groups are not ours to kill.
        if self._owner != os.getpid():
            self._process = None
        if self._process is not None:
            try:
                cast("IO[bytes]", self._process.stdin).write(line)
            except (BrokenPipeError, ValueError):
                self._process = None  # it was killed, or let go of; the next one hears the whole list
        if self._process is None:
            self._process = self._start()
            self._owner = os.getpid()
            atexit.register(_detach, self._process)
            everything = b"".join(
                [b"+%d\n" % group for group in sorted(self._groups)]
                + [b"?%s\n" % mark.encode() for mark in sorted(self._marks)]
            )
            cast("IO[bytes]", self._process.stdin).write(everything)

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-I", "-S", str(_PROGRAM)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            bufsize=0,
        )


def _detach(process: subprocess.Popen[bytes]) -> None:
    """It outlives us on purpose: nobody is to be warned that it still runs, or that its pipe is open."""
    process.returncode = 0
    cast("IO[bytes]", process.stdin).close()


watchdog_client = WatchdogClient()

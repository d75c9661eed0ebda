"""A command at a real terminal: typed lines, Ctrl-C, and everything that is shown."""

from __future__ import annotations

import codecs
import os
import pty
import re
import select
import signal
import subprocess
import termios
import time
from types import TracebackType
from typing import Self

from tests.kit.command_line import CommandLine

PATIENCE = 50.0  # seconds
_STYLES = re.compile(r"\x1b\[[0-9;]*m")


class Terminal:
    """Runs `fingerpost` with a pseudo-terminal for stdin, stdout and stderr.

    `early` are keys pressed before it begins, `extra` are variables of its environment.
    """

    def __init__(self, person: CommandLine, *arguments: str, early: str = "", **extra: str) -> None:
        self._own, other = pty.openpty()
        self.presses(early)
        self.shown = ""  # since the last `until`
        self.everything = ""  # shown from the start, with its colours
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")  # a sign may arrive in two reads
        self.process = subprocess.Popen(
            person.command(*arguments),
            cwd=person.home,
            env={**person.environment, "TERM": "xterm-256color", "COLUMNS": "120", **extra},
            stdin=other,
            stdout=other,
            stderr=other,
            start_new_session=True,
        )
        os.close(other)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(timeout=PATIENCE)
        os.close(self._own)

    def types(self, line: str) -> None:
        self.presses(f"{line}\n")

    def presses(self, keys: str) -> None:
        """Keys as they are, without Enter."""
        os.write(self._own, keys.encode())

    def disable_line_mode(self) -> None:
        """Several lines may reach the program in one piece, as they do after a line was edited."""
        modes = termios.tcgetattr(self._own)
        modes[3] &= ~termios.ICANON
        termios.tcsetattr(self._own, termios.TCSANOW, modes)

    def presses_control_c_until(self, words: str) -> str:
        """Like a person, more than once: Python misses the one that comes just before it waits for a key."""
        for _ in range(10):
            self.process.send_signal(signal.SIGINT)
            deadline = time.monotonic() + PATIENCE / 10
            while words not in self.shown and time.monotonic() < deadline:
                self._read(0.1)
            if words in self.shown:
                break
        return self.until(words)

    def ends_input(self) -> None:
        os.write(self._own, b"\x04")

    def until(self, words: str) -> str:
        """Everything shown since the last call, up to and with these words, without colours."""
        deadline = time.monotonic() + PATIENCE
        while words not in self.shown:
            assert time.monotonic() < deadline, f"{words!r} was not shown, but:\n{self.shown}"
            if not self._read(0.1) and self.process.poll() is not None:
                assert words in self.shown, f"it ended without {words!r}:\n{self.shown}"
        before, found, self.shown = self.shown.partition(words)
        return _STYLES.sub("", before) + found

    def end(self) -> int:
        """The exit code; what was shown until then is in `shown`."""
        deadline = time.monotonic() + PATIENCE
        while self.process.poll() is None:
            assert time.monotonic() < deadline, f"it does not end:\n{self.shown}"
            self._read(0.1)
        while self._read(0.1):
            pass
        return self.process.returncode

    def _read(self, seconds: float) -> bool:
        ready, _, _ = select.select([self._own], [], [], seconds)
        if not ready:
            return False
        try:
            data = os.read(self._own, 65_536)
        except OSError:  # the other end is closed
            return False
        text = self._decoder.decode(data)
        self.shown += text
        self.everything += text
        return bool(data)

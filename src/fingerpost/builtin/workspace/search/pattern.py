"""Regular expressions, run where they can be stopped.

A pattern can be written so that trying it takes for ever, and Python's `re` cannot be interrupted:
it would hold up the whole program. So patterns run in a small process of their own, which is
killed when its time is over.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from threading import Timer
from types import TracebackType
from typing import IO, Final, Self, cast

from fingerpost.builtin.kit import ToolRefused
from fingerpost.builtin.workspace.search.certain import find_required_text

_WORKER_PROGRAM: Final = Path(__file__).with_name("pattern_worker.py")

# Letters beyond ASCII that are another case of ASCII ones: ſ, İ, ı and the sign for kelvin.
_CASE_VARIANTS: Final = tuple(letter.encode() for letter in "\u017f\u0130\u0131\u212a")


class PatternFinder:
    """Looks for a pattern, line by line. Its process is started for the first text that may have it."""

    def __init__(self, pattern: str, *, match_case: bool, seconds: float) -> None:
        try:
            re.compile(pattern)
        except (re.error, RecursionError, OverflowError) as error:
            message = f"The pattern cannot be read: {error}."
            raise ToolRefused(message, hint="Leave out `regex` to look for the text as it stands.") from None
        text = find_required_text(pattern)
        self._certain = text.encode() if match_case else text.lower().encode()
        self._pattern = pattern
        self._match_case = match_case
        self._seconds = seconds
        self._process: subprocess.Popen[bytes] | None = None
        self._timer: Timer | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._process is not None:
            self._process.kill()
            self._process.communicate()

    def may_match(self, data: bytes) -> bool:
        if not self._certain or data[:2] in (b"\xff\xfe", b"\xfe\xff") or data[:4] == b"\0\0\xfe\xff":
            return True
        if self._match_case:
            return self._certain in data
        if self._certain in data.lower():
            return True
        return not data.isascii() and any(each in data for each in _CASE_VARIANTS)

    def find_lines(self, text: str, limit: int) -> list[int]:
        process = self._process or self._start_worker()
        try:
            _send_text(process, b"%d\n" % limit + text.encode("utf-8", "surrogatepass"))
            answer = cast("IO[bytes]", process.stdout).readline()
        except OSError:
            answer = b""
        if not answer:
            message = f"The pattern takes longer than {self._seconds:g} seconds."
            raise ToolRefused(message, hint="Make it simpler: no repetition inside of a repetition.")
        return [int(number) for number in answer.split()]

    def _start_worker(self) -> subprocess.Popen[bytes]:
        process = self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(_WORKER_PROGRAM)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={},
        )
        self._timer = Timer(self._seconds, process.kill)
        self._timer.start()
        header = b"%d %d\n" % (int(self._seconds) + 1, self._match_case)
        _send_text(process, header + self._pattern.encode("utf-8", "surrogatepass"))
        return process


def _send_text(process: subprocess.Popen[bytes], data: bytes) -> None:
    pipe = cast("IO[bytes]", process.stdin)
    pipe.write(b"%d\n" % len(data) + data)
    pipe.flush()

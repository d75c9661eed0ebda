"""The three streams every program is given, made fit to be used whatever they are.

A shell can leave one out (`>&-`), a locale can lack letters for a tool's name. Neither is
a reason to end a command, so it is dealt with once, before any command begins.
"""

from __future__ import annotations

import io
import os
import sys
from typing import Final, TextIO, cast

STANDARD: Final = 3  # descriptors: stdin, stdout, stderr


def make_usable() -> None:
    """What is missing reads as empty and is written nowhere; letters a stream lacks are written out."""
    _take_places()
    if cast("TextIO | None", sys.stdin) is None:
        sys.stdin = _nowhere("r")
    if cast("TextIO | None", sys.stdout) is None:
        sys.stdout = _nowhere("w")
    if cast("TextIO | None", sys.stderr) is None:
        sys.stderr = _nowhere("w")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def go_nowhere() -> None:
    """What is still to be written to stdout, at the end of the program too, is not."""
    sys.stdout = _nowhere("w")


def be_silent() -> None:
    """The same for stderr."""
    sys.stderr = _nowhere("w")


def _take_places() -> None:
    """Let no other file get the number of a missing stream: what is printed would be written into it."""
    for number in range(STANDARD):
        try:
            os.fstat(number)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(opened, True)  # noqa: FBT003 - its one parameter has no name


def _nowhere(mode: str) -> TextIO:
    return cast("TextIO", open(os.devnull, mode, encoding="utf-8"))  # noqa: PTH123 - it stays open

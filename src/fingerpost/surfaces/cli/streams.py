"""Standard streams: replace missing ones, write unsupported characters as escapes, add colour."""

from __future__ import annotations

import io
import os
import sys
from typing import Final, TextIO, cast

import click

STANDARD: Final = 3  # descriptors: stdin, stdout, stderr


def make_streams_usable() -> None:
    """What is missing reads as empty and is written nowhere; letters a stream lacks are written out."""
    _reserve_descriptors()
    if cast("TextIO | None", sys.stdin) is None:
        sys.stdin = _open_null("r")
    if cast("TextIO | None", sys.stdout) is None:
        sys.stdout = _open_null("w")
    if cast("TextIO | None", sys.stderr) is None:
        sys.stderr = _open_null("w")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def discard_output() -> None:
    """What is still to be written to stdout, at the end of the program too, is not."""
    sys.stdout = _open_null("w")


def discard_errors() -> None:
    """The same for stderr."""
    sys.stderr = _open_null("w")


def _reserve_descriptors() -> None:
    """Let no other file get the number of a missing stream: what is printed would be written into it."""
    for number in range(STANDARD):
        try:
            os.fstat(number)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(opened, True)  # noqa: FBT003 - its one parameter has no name


def _open_null(mode: str) -> TextIO:
    return cast("TextIO", open(os.devnull, mode, encoding="utf-8"))  # noqa: PTH123 - it stays open


def is_colour_wanted() -> bool:
    """Whether anything may be coloured, bold or dim. An empty `NO_COLOR` says nothing."""
    return not os.environ.get("NO_COLOR")


def style_text(text: str, *, fg: str | None = None, bold: bool | None = None, dim: bool | None = None) -> str:
    """`text` for a terminal, and as it is for somebody who wants no colour."""
    return click.style(text, fg=fg, bold=bold, dim=dim) if is_colour_wanted() else text

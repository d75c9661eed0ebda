"""Standard streams: replace missing ones, write unsupported characters as escapes, add colour."""

from __future__ import annotations

import io
import os
import sys
from typing import Final, TextIO, cast

import click

STANDARD_STREAM_COUNT: Final = 3  # descriptors: stdin, stdout, stderr


def make_streams_usable() -> None:
    """Replace missing streams by the null device; write unsupported characters as escapes."""
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
    """Discard everything still to be written to stdout."""
    sys.stdout = _open_null("w")


def discard_errors() -> None:
    """Discard everything still to be written to stderr."""
    sys.stderr = _open_null("w")


def _reserve_descriptors() -> None:
    """Open the null device for missing descriptors, so that no other file gets their number."""
    for number in range(STANDARD_STREAM_COUNT):
        try:
            os.fstat(number)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(opened, True)  # noqa: FBT003 - its one parameter has no name


def _open_null(mode: str) -> TextIO:
    return cast("TextIO", open(os.devnull, mode, encoding="utf-8"))  # noqa: PTH123 - it stays open


def is_colour_wanted() -> bool:
    """Return whether colour may be used: `NO_COLOR` is unset or empty."""
    return not os.environ.get("NO_COLOR")


def style_text(text: str, *, fg: str | None = None, bold: bool | None = None, dim: bool | None = None) -> str:
    """Return `text` with terminal styles, or unchanged if colour is not wanted."""
    return click.style(text, fg=fg, bold=bold, dim=dim) if is_colour_wanted() else text

"""What a change would do to a text, line by line, in the form everybody knows. Bounded."""

from __future__ import annotations

import difflib
from itertools import islice
from typing import Final

from fingerpost.builtin.workspace.text.encodings import read_text

MOST_LINES: Final = 300  # shown
MOST_COMPARED: Final = 20_000  # lines; comparing takes the square of what differs
LONGEST_LINE: Final = 500


def diff(shown: str, before: bytes | None, after: bytes | None, *, most: int = MOST_LINES) -> str:
    """The unified difference; None: no such file."""
    if before == after:
        return "(no difference)"
    old, new = _lines(before), _lines(after)
    if old is None or new is None:
        return f"(binary: {_size(before)} before, {_size(after)} after)"
    if len(old) + len(new) > MOST_COMPARED:
        return f"({len(old)} lines before, {len(new)} after: too long to show the difference)"
    made = difflib.unified_diff(
        old,
        new,
        "/dev/null" if before is None else f"a/{shown}",
        "/dev/null" if after is None else f"b/{shown}",
        lineterm="",
    )
    lines = [_short(line) for line in islice(made, most + 1)]
    if len(lines) > most:
        lines[most:] = [f"… (the first {most} lines of the difference)"]
    return "\n".join(lines) or _invisible(before, after)


def _lines(data: bytes | None) -> list[str] | None:
    if data is None:
        return []
    text = read_text(data)
    if text is None:
        return None
    lines = text.text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    if not lines[-1]:
        lines.pop()
    elif lines:
        lines[-1] += "\n\\ No newline at end of file"
    return lines


def _invisible(before: bytes | None, after: bytes | None) -> str:
    """Same lines, other bytes."""
    if before is None or after is None:
        return "(empty)"
    return f"(only line ends or the encoding differ: {_size(before)} before, {_size(after)} after)"


def _short(line: str) -> str:
    return line if len(line) <= LONGEST_LINE else f"{line[:LONGEST_LINE]}…"


def _size(data: bytes | None) -> str:
    return "nothing" if data is None else f"{len(data)} bytes"

"""What a change would do to a text, line by line, in the form everybody knows. Bounded."""

from __future__ import annotations

import difflib
from itertools import islice
from typing import Final

from fingerpost.builtin.workspace.text.encodings import decode_text

MAX_DIFF_LINES: Final = 300  # shown
MAX_COMPARED_LINES: Final = 20_000  # lines; comparing takes the square of what differs
MAX_LINE_LENGTH: Final = 500


def render_diff(
    display_path: str, before: bytes | None, after: bytes | None, *, limit: int = MAX_DIFF_LINES
) -> str:
    """The unified difference; None: no such file."""
    if before == after:
        return "(no difference)"
    old, new = _split_diff_lines(before), _split_diff_lines(after)
    if old is None or new is None:
        return f"(binary: {_describe_size(before)} before, {_describe_size(after)} after)"
    if len(old) + len(new) > MAX_COMPARED_LINES:
        return f"({len(old)} lines before, {len(new)} after: too long to show the difference)"
    made = difflib.unified_diff(
        old,
        new,
        "/dev/null" if before is None else f"a/{display_path}",
        "/dev/null" if after is None else f"b/{display_path}",
        lineterm="",
    )
    lines = [_shorten_line(line) for line in islice(made, limit + 1)]
    if len(lines) > limit:
        lines[limit:] = [f"… (the first {limit} lines of the difference)"]
    return "\n".join(lines) or _describe_invisible(before, after)


def _split_diff_lines(data: bytes | None) -> list[str] | None:
    if data is None:
        return []
    text = decode_text(data)
    if text is None:
        return None
    lines = text.text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    if not lines[-1]:
        lines.pop()
    elif lines:
        lines[-1] += "\n\\ No newline at end of file"
    return lines


def _describe_invisible(before: bytes | None, after: bytes | None) -> str:
    """Same lines, other bytes."""
    if before is None or after is None:
        return "(empty)"
    return (
        f"(only line ends or the encoding differ: {_describe_size(before)} "
        f"before, {_describe_size(after)} after)"
    )


def _shorten_line(line: str) -> str:
    return line if len(line) <= MAX_LINE_LENGTH else f"{line[:MAX_LINE_LENGTH]}…"


def _describe_size(data: bytes | None) -> str:
    return "nothing" if data is None else f"{len(data)} bytes"

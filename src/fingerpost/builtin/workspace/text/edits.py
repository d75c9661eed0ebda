"""Edits of a text that are certain: what is to be replaced must be there, and as often as was meant."""

from __future__ import annotations

import difflib
from typing import Final

from fingerpost.builtin.kit import ToolRefused
from fingerpost.builtin.workspace.text.encodings import split_lines
from fingerpost.frozen import frozen

MAX_PLACES_LISTED: Final = 8
_MAX_HINT_LINES: Final = 5000  # looked through for one that is near


@frozen
class TextEdit:
    """One text for another."""

    old: str
    new: str
    everywhere: bool = False


def replace_text(text: str, edit: TextEdit, display_path: str) -> str:
    """The text after the edit. Raises `ToolRefused` unless it is clear where."""
    if not edit.old:
        message = "`old_string` is empty."
        raise ToolRefused(
            message, hint="insert_text adds text where there was none; write_file writes it all."
        )
    if edit.old == edit.new:
        message = "`old_string` and `new_string` are the same."
        raise ToolRefused(message, hint="Nothing would change.")
    count = text.count(edit.old)
    if count == 0:
        raise _build_not_found_error(text, edit.old, display_path)
    if count > 1 and not edit.everywhere:
        raise _build_ambiguous_error(text, edit.old, count, display_path)
    return text.replace(edit.old, edit.new)


def insert_lines(text: str, line: int, addition: str, display_path: str) -> str:
    """The text with more before a line; one past the last line: at the end; 0: at the end, too."""
    lines = split_lines(text)
    if line > len(lines) + 1:
        message = f"{display_path} has {len(lines)} lines, so there is no line {line} to insert before."
        raise ToolRefused(message, hint=f"Use 1 to {len(lines) + 1}, or 0 for the end.")
    at = len(lines) if line == 0 else line - 1
    if at == len(lines) and lines and not lines[-1].endswith("\n"):
        lines[-1] += "\n"
    if not addition.endswith("\n"):
        addition += "\n"
    return "".join((*lines[:at], addition, *lines[at:]))


def _build_not_found_error(text: str, old: str, display_path: str) -> ToolRefused:
    message = f"{display_path} does not contain that text, so nothing was replaced."
    first = next((line for line in split_lines(old) if line.strip()), old).strip()
    lines = [line.rstrip("\r\n") for line in split_lines(text)[:_MAX_HINT_LINES]]
    same = [number for number, line in enumerate(lines, start=1) if first and first in line][:3]
    if same:
        hint = (
            f"Its first line stands in line {_format_numbers(same)}, but "
            "not the rest: compare spaces and indents."
        )
        return ToolRefused(message, hint=hint)
    near = difflib.get_close_matches(first, [line.strip() for line in lines if line.strip()], n=1, cutoff=0.6)
    if near:
        number = next(number for number, line in enumerate(lines, start=1) if line.strip() == near[0])
        return ToolRefused(message, hint=f"Line {number} is near: {near[0][:200]}")
    return ToolRefused(message, hint="Read the file and copy the text exactly, spaces included.")


def _build_ambiguous_error(text: str, old: str, count: int, display_path: str) -> ToolRefused:
    places: list[int] = []
    at = text.find(old)
    while at >= 0 and len(places) < MAX_PLACES_LISTED:
        places.append(text.count("\n", 0, at) + 1)
        at = text.find(old, at + len(old))
    message = (
        f"{display_path} contains that text {count} times (line "
        f"{_format_numbers(places)}), so nothing was replaced."
    )
    return ToolRefused(message, hint="Add more of the lines around it, or say `all: true`.")


def _format_numbers(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers))

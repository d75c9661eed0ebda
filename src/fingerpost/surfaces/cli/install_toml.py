"""Changing our own table of a TOML file as text; everything else stays as it is, comments included."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def put(text: str, place: Sequence[str], name: str, entry: Mapping[str, object]) -> str:
    """`text` with the table `[place.name]` holding `entry`: in place of an older one, or at the end."""
    newline = "\r\n" if "\r\n" in text else "\n"
    block = newline.join(_table((*place, name), entry))
    lines = text.splitlines(keepends=True)
    span = _span(lines, (*place, name))
    if span is not None:
        start, end = span
        return "".join(lines[:start]) + block + newline + "".join(lines[end:])
    if not text.strip():
        return f"{text}{block}{newline}"
    gap = newline if text.endswith("\n") else newline * 2
    return f"{text}{gap}{block}{newline}"


def drop(text: str, place: Sequence[str], name: str) -> str:
    """`text` without the table `[place.name]` and those inside it."""
    lines = text.splitlines(keepends=True)
    span = _span(lines, (*place, name))
    if span is None:
        return text
    start, end = span
    kept = lines[:start]
    if kept and not kept[-1].strip() and (end == len(lines) or not lines[end].strip()):
        kept.pop()  # the empty line that set our table apart
    return "".join(kept) + "".join(lines[end:])


def _table(path: Sequence[str], entry: Mapping[str, object]) -> list[str]:
    lines = [f"[{'.'.join(_key(part) for part in path)}]"]
    inner: list[str] = []
    for key, value in entry.items():
        if isinstance(value, Mapping):
            inner += ["", *_table((*path, key), value)]  # pyright: ignore[reportUnknownArgumentType] - of strings
        else:
            # Texts, lists of texts and switches are written in TOML as in JSON.
            lines.append(f"{_key(key)} = {json.dumps(value, ensure_ascii=False)}")
    return lines + inner


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else json.dumps(name)


def _span(lines: Sequence[str], path: Sequence[str]) -> tuple[int, int] | None:
    """The lines of a table and those inside it, from its header to before what belongs to the next."""
    start = next((number for number, line in enumerate(lines) if _header(line) == tuple(path)), None)
    if start is None:
        return None
    end = start + 1
    while end < len(lines) and not _is_other(_header(lines[end]), path):
        end += 1
    while end > start + 1 and end < len(lines) and _belongs_to_next(lines[end - 1]):
        end -= 1
    while end > start + 1 and not lines[end - 1].strip():
        end -= 1
    return start, end


def _is_other(header: tuple[str, ...] | None, path: Sequence[str]) -> bool:
    return header is not None and header[: len(path)] != tuple(path)


def _belongs_to_next(line: str) -> bool:
    return not line.strip() or line.lstrip().startswith("#")


def _header(line: str) -> tuple[str, ...] | None:
    """The path of a table's header; None for every other line."""
    match = re.fullmatch(r"\s*\[\[?\s*(.+?)\s*\]\]?\s*(?:#.*)?", line)
    if match is None:
        return None
    parts = re.findall(r'"(?:[^"\\]|\\.)*"|\'[^\']*\'|[A-Za-z0-9_-]+', match[1])
    return tuple(part.strip("\"'") for part in parts)

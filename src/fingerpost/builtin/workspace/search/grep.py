"""Text search: files are read as bytes, most are dismissed by one look, the rest are taken line by line.

No thread pool: reading and searching 50 MB takes one thread about 0.1 s, most of it holding the
interpreter's lock, so a second thread gains nothing.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Protocol

from fingerpost.builtin.kit import ToolRefused
from fingerpost.builtin.workspace.files.listing import compile_path_pattern, walk_folder
from fingerpost.builtin.workspace.ground import format_name
from fingerpost.builtin.workspace.ground.walking import FolderWalk, WalkedEntry
from fingerpost.builtin.workspace.search.literal import LiteralFinder
from fingerpost.builtin.workspace.search.pattern import PatternFinder
from fingerpost.builtin.workspace.text.encodings import decode_text
from fingerpost.builtin.workspace.workplace import WorkspaceContext
from fingerpost.frozen import frozen

MAX_GREP_FILE_BYTES: Final = 16 * 1024 * 1024  # files above are passed over
GREP_TIMEOUT_S: Final = 15.0
MAX_QUERY_LENGTH: Final = 1000
MAX_LINE_SHOWN: Final = 300  # characters of a line
MAX_LINES_PER_FILE: Final = 200


@frozen
class TextQuery:
    """What to look for, and where."""

    query: str
    path: str = "."
    glob: str = ""
    regex: bool = False
    match_case: bool = False
    context_lines: int = 0  # lines shown above and below
    limit: int = 100
    include_ignored: bool = False


@dataclass(slots=True)
class _SearchCounts:
    files: int = 0
    matching: int = 0
    large: int = 0
    shown: int = 0
    cut: bool = False


class LineFinder(Protocol):
    """Says in which lines of a text something is found."""

    def may_match(self, data: bytes) -> bool:
        """Whether a look at the bytes leaves it possible."""
        ...

    def find_lines(self, text: str, limit: int) -> list[int]:
        """The numbers of the lines, from 0, in order."""
        ...


def search_text(workspace: WorkspaceContext, query: TextQuery) -> str:
    """The lines that contain the text, as `path:line: text`, in the order of paths."""
    if not query.query or len(query.query) > MAX_QUERY_LENGTH:
        message = f"The text to look for must have 1 to {MAX_QUERY_LENGTH} characters."
        raise ToolRefused(message)
    walking = workspace.build_walk(include_ignored=query.include_ignored)
    walking.seconds = GREP_TIMEOUT_S
    tally = _SearchCounts()
    if query.regex:
        with PatternFinder(query.query, match_case=query.match_case, seconds=GREP_TIMEOUT_S) as finder:
            lines = _search_files(workspace, query, finder, walking, tally)
    else:
        lines = _search_files(
            workspace, query, LiteralFinder(query.query, match_case=query.match_case), walking, tally
        )
    return "\n".join((_format_summary(query, walking, tally), *lines))


def _search_files(
    workspace: WorkspaceContext, query: TextQuery, finder: LineFinder, walk: FolderWalk, counts: _SearchCounts
) -> list[str]:
    found: list[str] = []
    until = time.monotonic() + GREP_TIMEOUT_S
    for path, data in _read_contents(workspace, query, walk, counts):
        counts.files += 1
        if _has_nul(data) or not finder.may_match(data) or (text := decode_text(data)) is None:
            continue
        # As read_range counts lines: `\n` ends one, nothing else.
        numbers = finder.find_lines(text.text, min(MAX_LINES_PER_FILE, query.limit - counts.shown + 1))
        if numbers:
            found.extend(_render_matches(path, _split_lines(text.text), numbers, query, counts))
        if counts.cut or time.monotonic() > until:
            if not counts.cut:
                walk.stop_reason = f"it stopped after {GREP_TIMEOUT_S:g} seconds"
            break
    return found


def _read_contents(
    workspace: WorkspaceContext, query: TextQuery, walk: FolderWalk, counts: _SearchCounts
) -> Iterator[tuple[str, bytes]]:
    with workspace.root_folder.open_entry(query.path) as place:
        found = place.require_stat()
        if not _is_folder(found):
            descriptor, found = place.open_file()
            try:
                yield place.display_path, _read_all(descriptor, found.st_size, counts)
            finally:
                os.close(descriptor)
            return
    fits = compile_path_pattern(query.glob) if query.glob else None
    with walk_folder(workspace, query.path, walk) as (place, below):
        start = len(place.display_path) + 1 if place.names else 0
        for entry in _filter_files(below):
            if fits is not None and not fits.fullmatch(entry.path[start:]):
                continue
            data = _read_entry(entry, counts)
            if data:
                yield entry.path, data


def _is_folder(file_stat: os.stat_result) -> bool:
    return (file_stat.st_mode & 0o170000) == 0o040000


def _filter_files(below: Iterable[WalkedEntry]) -> Iterator[WalkedEntry]:
    return (entry for entry in below if entry.is_file)


def _read_entry(entry: WalkedEntry, counts: _SearchCounts) -> bytes:
    try:
        descriptor = entry.open_file()
    except OSError:  # gone, swapped, or not ours to read
        return b""
    try:
        found = os.fstat(descriptor)
        return _read_all(descriptor, found.st_size, counts) if found.st_mode & 0o170000 == 0o100000 else b""
    except OSError:
        return b""
    finally:
        os.close(descriptor)


def _read_all(descriptor: int, size: int, counts: _SearchCounts) -> bytes:
    if size > MAX_GREP_FILE_BYTES:
        counts.large += 1
        return b""
    data = os.read(descriptor, size + 1)
    while len(data) <= MAX_GREP_FILE_BYTES and (more := os.read(descriptor, MAX_GREP_FILE_BYTES)):
        data += more
    return data


def _render_matches(
    path: str, lines: list[str], numbers: list[int], query: TextQuery, counts: _SearchCounts
) -> Iterator[str]:
    """The lines that fit, with those around them; groups are kept apart."""
    counts.matching += 1
    hits, last = set(numbers), -1
    name = format_name(path)
    for number in numbers:
        if counts.shown >= query.limit:
            counts.cut = True
            return
        counts.shown += 1
        first = max(number - query.context_lines, last + 1)
        if query.context_lines and last >= 0 and first > last + 1:
            yield "--"
        for each in range(first, min(number + query.context_lines + 1, len(lines))):
            if each > number and each in hits:
                break  # it comes in its own turn
            sign = ":" if each in hits else "-"
            yield f"{name}{sign}{each + 1}{sign} {_shorten_line(lines[each])}"
            last = each


def _has_nul(data: bytes) -> bool:
    """The quickest way to see that most binary files are: not even searched."""
    return b"\0" in data[:1024] and data[:2] not in (b"\xff\xfe", b"\xfe\xff") and data[:2] != b"\0\0"


def _split_lines(text: str) -> list[str]:
    lines = text.split("\n")
    return lines if lines[-1] else lines[:-1]


def _shorten_line(line: str) -> str:
    line = line.rstrip("\r")
    return line if len(line) <= MAX_LINE_SHOWN else f"{line[:MAX_LINE_SHOWN]}…"


def _format_summary(query: TextQuery, walk: FolderWalk, counts: _SearchCounts) -> str:
    where = "" if query.path in (".", "") else f" below {query.path}"
    count = f"{counts.shown} lines in {counts.matching} files" if counts.shown else "No line"
    notes = [f"{counts.files} files were searched{where}"]
    if counts.cut:
        notes.append(f"more than {query.limit}: narrow it down, or raise `limit`")
    if counts.large:
        notes.append(f"{counts.large} files above {MAX_GREP_FILE_BYTES // 2**20} MiB were passed over")
    if walk.stop_reason:
        notes.append(walk.stop_reason)
    return f"[{count} with {query.query[:100]!r}; {'; '.join(notes)}]"

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
from fingerpost.builtin.workspace.files.listing import entries, path_pattern
from fingerpost.builtin.workspace.ground import shown_name
from fingerpost.builtin.workspace.ground.walking import Entry, Walking
from fingerpost.builtin.workspace.search.literal import Literal
from fingerpost.builtin.workspace.search.pattern import PatternSearch
from fingerpost.builtin.workspace.text.encodings import read_text
from fingerpost.builtin.workspace.workplace import Workplace
from fingerpost.frozen import frozen

LARGEST: Final = 16 * 1024 * 1024  # files above are passed over
SECONDS: Final = 15.0
LONGEST_QUERY: Final = 1000
LONGEST_SHOWN: Final = 300  # characters of a line
MOST_PER_FILE: Final = 200


@frozen
class Wanted:
    """What to look for, and where."""

    query: str
    path: str = "."
    glob: str = ""
    regex: bool = False
    match_case: bool = False
    around: int = 0  # lines shown above and below
    limit: int = 100
    everything: bool = False


@dataclass(slots=True)
class _Tally:
    files: int = 0
    matching: int = 0
    large: int = 0
    shown: int = 0
    cut: bool = False


class Finder(Protocol):
    """Says in which lines of a text something is found."""

    def may_be_in(self, data: bytes) -> bool:
        """Whether a look at the bytes leaves it possible."""
        ...

    def lines(self, text: str, most: int) -> list[int]:
        """The numbers of the lines, from 0, in order."""
        ...


def grep_search(work: Workplace, wanted: Wanted) -> str:
    """The lines that contain the text, as `path:line: text`, in the order of paths."""
    if not wanted.query or len(wanted.query) > LONGEST_QUERY:
        message = f"The text to look for must have 1 to {LONGEST_QUERY} characters."
        raise ToolRefused(message)
    walking = work.walking(everything=wanted.everything)
    walking.seconds = SECONDS
    tally = _Tally()
    if wanted.regex:
        with PatternSearch(wanted.query, match_case=wanted.match_case, seconds=SECONDS) as finder:
            lines = _search(work, wanted, finder, walking, tally)
    else:
        lines = _search(work, wanted, Literal(wanted.query, match_case=wanted.match_case), walking, tally)
    return "\n".join((_summary(wanted, walking, tally), *lines))


def _search(work: Workplace, wanted: Wanted, finder: Finder, walking: Walking, tally: _Tally) -> list[str]:
    found: list[str] = []
    until = time.monotonic() + SECONDS
    for path, data in _contents(work, wanted, walking, tally):
        tally.files += 1
        if _has_zero(data) or not finder.may_be_in(data) or (text := read_text(data)) is None:
            continue
        # As read_range counts lines: `\n` ends one, nothing else.
        numbers = finder.lines(text.text, min(MOST_PER_FILE, wanted.limit - tally.shown + 1))
        if numbers:
            found.extend(_shown(path, _split(text.text), numbers, wanted, tally))
        if tally.cut or time.monotonic() > until:
            if not tally.cut:
                walking.stopped = f"it stopped after {SECONDS:g} seconds"
            break
    return found


def _contents(
    work: Workplace, wanted: Wanted, walking: Walking, tally: _Tally
) -> Iterator[tuple[str, bytes]]:
    with work.ground.at(wanted.path) as place:
        found = place.there()
        if not _is_folder(found):
            descriptor, found = place.open_file()
            try:
                yield place.shown, _all(descriptor, found.st_size, tally)
            finally:
                os.close(descriptor)
            return
    fits = path_pattern(wanted.glob) if wanted.glob else None
    with entries(work, wanted.path, walking) as (place, below):
        start = len(place.shown) + 1 if place.names else 0
        for entry in _files(below):
            if fits is not None and not fits.fullmatch(entry.path[start:]):
                continue
            data = _content(entry, tally)
            if data:
                yield entry.path, data


def _is_folder(found: os.stat_result) -> bool:
    return (found.st_mode & 0o170000) == 0o040000


def _files(below: Iterable[Entry]) -> Iterator[Entry]:
    return (entry for entry in below if entry.is_file)


def _content(entry: Entry, tally: _Tally) -> bytes:
    try:
        descriptor = entry.open()
    except OSError:  # gone, swapped, or not ours to read
        return b""
    try:
        found = os.fstat(descriptor)
        return _all(descriptor, found.st_size, tally) if found.st_mode & 0o170000 == 0o100000 else b""
    except OSError:
        return b""
    finally:
        os.close(descriptor)


def _all(descriptor: int, size: int, tally: _Tally) -> bytes:
    if size > LARGEST:
        tally.large += 1
        return b""
    data = os.read(descriptor, size + 1)
    while len(data) <= LARGEST and (more := os.read(descriptor, LARGEST)):
        data += more
    return data


def _shown(path: str, lines: list[str], numbers: list[int], wanted: Wanted, tally: _Tally) -> Iterator[str]:
    """The lines that fit, with those around them; groups are kept apart."""
    tally.matching += 1
    hits, last = set(numbers), -1
    name = shown_name(path)
    for number in numbers:
        if tally.shown >= wanted.limit:
            tally.cut = True
            return
        tally.shown += 1
        first = max(number - wanted.around, last + 1)
        if wanted.around and last >= 0 and first > last + 1:
            yield "--"
        for each in range(first, min(number + wanted.around + 1, len(lines))):
            if each > number and each in hits:
                break  # it comes in its own turn
            sign = ":" if each in hits else "-"
            yield f"{name}{sign}{each + 1}{sign} {_short(lines[each])}"
            last = each


def _has_zero(data: bytes) -> bool:
    """The quickest way to see that most binary files are: not even searched."""
    return b"\0" in data[:1024] and data[:2] not in (b"\xff\xfe", b"\xfe\xff") and data[:2] != b"\0\0"


def _split(text: str) -> list[str]:
    lines = text.split("\n")
    return lines if lines[-1] else lines[:-1]


def _short(line: str) -> str:
    line = line.rstrip("\r")
    return line if len(line) <= LONGEST_SHOWN else f"{line[:LONGEST_SHOWN]}…"


def _summary(wanted: Wanted, walking: Walking, tally: _Tally) -> str:
    where = "" if wanted.path in (".", "") else f" below {wanted.path}"
    count = f"{tally.shown} lines in {tally.matching} files" if tally.shown else "No line"
    notes = [f"{tally.files} files were searched{where}"]
    if tally.cut:
        notes.append(f"more than {wanted.limit}: narrow it down, or raise `limit`")
    if tally.large:
        notes.append(f"{tally.large} files above {LARGEST // 2**20} MiB were passed over")
    if walking.stopped:
        notes.append(walking.stopped)
    return f"[{count} with {wanted.query[:100]!r}; {'; '.join(notes)}]"

"""Files of the folder by what they mean: an index of passages, brought up to date at each search."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Final

from fingerpost.builtin.kit import ToolRefused
from fingerpost.builtin.passages import Hit, Passage, PassageIndex
from fingerpost.builtin.workspace.files.listing import entries
from fingerpost.builtin.workspace.ground import shown_name
from fingerpost.builtin.workspace.ground.walking import Entry
from fingerpost.builtin.workspace.text.encodings import lines_of, read_text
from fingerpost.builtin.workspace.workplace import Workplace

LARGEST: Final = 512 * 1024  # larger files are passed over
MOST_FILES: Final = 5000
MOST_PASSAGES: Final = 10_000
LINES: Final = 30  # of one passage
CHARACTERS: Final = 1500
SECONDS: Final = 20.0  # for bringing it up to date; the rest comes with the next search
SETTLING: Final = 2.0  # for the meanings of what is new; until they are there, its words count
LONGEST_SHOWN: Final = 700

Mark = tuple[int, int, int]


@dataclass(slots=True)
class _Known:
    mark: Mark
    passages: int


class MeaningIndex:
    """The text files of a folder as passages. Its methods block; safe to use from several threads."""

    def __init__(self, work: Workplace, *, meaning: bool, vectors: Path | None) -> None:
        self._work = work
        self._index = PassageIndex(meaning=meaning, vectors=vectors)
        self._known: dict[str, _Known] = {}
        self._lock = Lock()

    def search(self, query: str, path: str, limit: int) -> str:
        """The passages that answer the query best, with where they stand."""
        if not query.strip():
            message = "The query is empty."
            raise ToolRefused(message, hint="Say in a few words what you are looking for.")
        note = self._refresh()
        self._index.settle(SETTLING)
        with self._work.ground.at(path) as place:
            within = place.shown
            place.there()
        hits = self._index.search(query, limit, within=_below(within))
        if not hits:
            return f"[Nothing in {within} is like {query[:100]!r}; {len(self._known)} files are known{note}]"
        if self._index.ready < 1:
            note += f"; by meaning so far {self._index.ready:.0%} of it, the rest by its words"
        heading = f"[{len(hits)} passages, the best first; {len(self._known)} files are known{note}]"
        return "\n\n".join((heading, *(_told(hit) for hit in hits)))

    def close(self) -> None:
        self._index.close()

    def _refresh(self) -> str:
        """Read what is new or changed, forget what is gone. Returns what has to be said about it."""
        with self._lock:
            seen, note = set[str](), ""
            until = time.monotonic() + SECONDS
            room = MOST_PASSAGES
            with entries(self._work, ".", self._work.walking()) as (_, below):
                for entry in below:
                    if not entry.is_file:
                        continue
                    if len(seen) >= MOST_FILES or room <= 0 or time.monotonic() > until:
                        note = "; there are more, which were left out"
                        break
                    if self._take(entry):
                        seen.add(entry.path)
                        room -= self._known[entry.path].passages
            for gone in self._known.keys() - seen:
                del self._known[gone]
                self._index.remove(gone)
            return note

    def _take(self, entry: Entry) -> bool:
        """Whether the file is in the index now."""
        try:
            found = entry.look()
            mark = (found.st_ino, found.st_size, found.st_mtime_ns)
            known = self._known.get(entry.path)
            if known is not None and known.mark == mark:
                return True
            if found.st_size > LARGEST or (data := _content(entry)) is None:
                return False
        except OSError:
            return False
        text = read_text(data)
        if text is None or not text.text.strip():
            return False
        passages = list(_passages(entry.path, text.text))
        self._index.put(entry.path, passages)
        self._known[entry.path] = _Known(mark, len(passages))
        return True


def _content(entry: Entry) -> bytes | None:
    descriptor = entry.open()
    try:
        data = os.read(descriptor, LARGEST + 1)
        while len(data) <= LARGEST and (more := os.read(descriptor, LARGEST + 1)):
            data += more
    finally:
        os.close(descriptor)
    return None if len(data) > LARGEST else data


def _passages(path: str, text: str) -> Iterator[Passage]:
    """Pieces of some lines each, cut at empty lines where possible. The path stands above each."""
    first, piece, size = 1, list[str](), 0
    for number, line in enumerate(lines_of(text), start=1):
        full = len(piece) >= LINES or size >= CHARACTERS
        if piece and (full or (not line.strip() and len(piece) >= LINES // 2)):
            yield _passage(path, first, piece)
            first, piece, size = number, [], 0
        piece.append(line[:CHARACTERS])
        size += len(line)
    if piece:
        yield _passage(path, first, piece)


def _passage(path: str, first: int, lines: list[str]) -> Passage:
    text = "".join(lines)
    return Passage(source=path, text=text, heading=path, first_line=first, last_line=first + len(lines) - 1)


def _below(path: str) -> Callable[[str], bool] | None:
    if path == ".":
        return None
    return lambda source: source == path or source.startswith(f"{path}/")


def _told(hit: Hit) -> str:
    passage = hit.passage
    text = passage.text.strip("\n")
    if len(text) > LONGEST_SHOWN:
        text = f"{text[:LONGEST_SHOWN]}…"
    return f"{shown_name(passage.source)}:{passage.first_line}–{passage.last_line} ({hit.score:.2f})\n{text}"

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
from fingerpost.builtin.passages import PassageHit, PassageIndex, TextPassage
from fingerpost.builtin.workspace.files.listing import walk_folder
from fingerpost.builtin.workspace.ground import format_name
from fingerpost.builtin.workspace.ground.walking import WalkedEntry
from fingerpost.builtin.workspace.text.encodings import decode_text, split_lines
from fingerpost.builtin.workspace.workplace import WorkspaceContext

MAX_INDEXED_FILE_BYTES: Final = 512 * 1024  # larger files are passed over
MAX_INDEXED_FILES: Final = 5000
MAX_PASSAGES: Final = 10_000
PASSAGE_LINES: Final = 30  # of one passage
PASSAGE_CHARACTERS: Final = 1500
REFRESH_TIMEOUT_S: Final = 20.0  # for bringing it up to date; the rest comes with the next search
SETTLE_S: Final = 2.0  # for the meanings of what is new; until they are there, its words count
MAX_PASSAGE_SHOWN: Final = 700

FileMark = tuple[int, int, int]


@dataclass(slots=True)
class _IndexedFile:
    mark: FileMark
    passages: int


class MeaningIndex:
    """The text files of a folder as passages. Its methods block; safe to use from several threads."""

    def __init__(self, workspace: WorkspaceContext, *, meaning: bool, vectors: Path | None) -> None:
        self._work = workspace
        self._index = PassageIndex(by_meaning=meaning, vectors=vectors)
        self._known: dict[str, _IndexedFile] = {}
        self._lock = Lock()

    def search_passages(self, query: str, path: str, limit: int) -> str:
        """The passages that answer the query best, with where they stand."""
        if not query.strip():
            message = "The query is empty."
            raise ToolRefused(message, hint="Say in a few words what you are looking for.")
        note = self._refresh()
        self._index.wait_until_ready(SETTLE_S)
        with self._work.root_folder.open_entry(path) as place:
            within = place.display_path
            place.require_stat()
        hits = self._index.search(query, limit, within=_build_path_filter(within))
        if not hits:
            return f"[Nothing in {within} is like {query[:100]!r}; {len(self._known)} files are known{note}]"
        if self._index.ready < 1:
            note += f"; by meaning so far {self._index.ready:.0%} of it, the rest by its words"
        heading = f"[{len(hits)} passages, the best first; {len(self._known)} files are known{note}]"
        return "\n\n".join((heading, *(_format_hit(hit) for hit in hits)))

    def close(self) -> None:
        self._index.close()

    def _refresh(self) -> str:
        """Read what is new or changed, forget what is gone. Returns what has to be said about it."""
        with self._lock:
            seen, note = set[str](), ""
            until = time.monotonic() + REFRESH_TIMEOUT_S
            room = MAX_PASSAGES
            with walk_folder(self._work, ".", self._work.build_walk()) as (_, below):
                for entry in below:
                    if not entry.is_file:
                        continue
                    if len(seen) >= MAX_INDEXED_FILES or room <= 0 or time.monotonic() > until:
                        note = "; there are more, which were left out"
                        break
                    if self._index_file(entry):
                        seen.add(entry.path)
                        room -= self._known[entry.path].passages
            for gone in self._known.keys() - seen:
                del self._known[gone]
                self._index.remove(gone)
            return note

    def _index_file(self, entry: WalkedEntry) -> bool:
        """Whether the file is in the index now."""
        try:
            found = entry.get_stat()
            mark = (found.st_ino, found.st_size, found.st_mtime_ns)
            known = self._known.get(entry.path)
            if known is not None and known.mark == mark:
                return True
            if found.st_size > MAX_INDEXED_FILE_BYTES or (data := _read_text_file(entry)) is None:
                return False
        except OSError:
            return False
        text = decode_text(data)
        if text is None or not text.text.strip():
            return False
        passages = list(_split_passages(entry.path, text.text))
        self._index.set_source(entry.path, passages)
        self._known[entry.path] = _IndexedFile(mark, len(passages))
        return True


def _read_text_file(entry: WalkedEntry) -> bytes | None:
    descriptor = entry.open_file()
    try:
        data = os.read(descriptor, MAX_INDEXED_FILE_BYTES + 1)
        while len(data) <= MAX_INDEXED_FILE_BYTES and (
            more := os.read(descriptor, MAX_INDEXED_FILE_BYTES + 1)
        ):
            data += more
    finally:
        os.close(descriptor)
    return None if len(data) > MAX_INDEXED_FILE_BYTES else data


def _split_passages(path: str, text: str) -> Iterator[TextPassage]:
    """Pieces of some lines each, cut at empty lines where possible. The path stands above each."""
    first, piece, size = 1, list[str](), 0
    for number, line in enumerate(split_lines(text), start=1):
        full = len(piece) >= PASSAGE_LINES or size >= PASSAGE_CHARACTERS
        if piece and (full or (not line.strip() and len(piece) >= PASSAGE_LINES // 2)):
            yield _build_passage(path, first, piece)
            first, piece, size = number, [], 0
        piece.append(line[:PASSAGE_CHARACTERS])
        size += len(line)
    if piece:
        yield _build_passage(path, first, piece)


def _build_passage(path: str, first: int, lines: list[str]) -> TextPassage:
    text = "".join(lines)
    return TextPassage(
        source=path, text=text, heading=path, first_line=first, last_line=first + len(lines) - 1
    )


def _build_path_filter(path: str) -> Callable[[str], bool] | None:
    if path == ".":
        return None
    return lambda source: source == path or source.startswith(f"{path}/")


def _format_hit(hit: PassageHit) -> str:
    passage = hit.passage
    text = passage.text.strip("\n")
    if len(text) > MAX_PASSAGE_SHOWN:
        text = f"{text[:MAX_PASSAGE_SHOWN]}…"
    return f"{format_name(passage.source)}:{passage.first_line}–{passage.last_line} ({hit.score:.2f})\n{text}"

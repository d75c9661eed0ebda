"""The knowledge base: the notes of a folder as they are now, and the search over them.

A look compares what stands in the folder with what is known, by size, time and inode, and reads only what
changed. Text is read at once; PDF files, which take a hundred times as long, one after the other in the
background. Synchronous and thread-safe: whoever has an event loop calls it from a thread.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from threading import Condition, Event, Lock, Thread
from typing import Final

from fingerpost.builtin.kit import ToolRefused
from fingerpost.builtin.knowledge.decoding import decoded
from fingerpost.builtin.knowledge.folder import Folder, kind_of
from fingerpost.builtin.knowledge.links import Graph, Names, graph_of
from fingerpost.builtin.knowledge.markdown import parse_markdown
from fingerpost.builtin.knowledge.pdf import PdfReader, pdf_passages
from fingerpost.builtin.knowledge.plain import parse_plain
from fingerpost.builtin.knowledge.records import Kind, Note, Parsed, Stamp
from fingerpost.builtin.passages import Hit, Passage, PassageIndex
from fingerpost.frozen import frozen

log = logging.getLogger(__name__)

FRESH_SECONDS: Final = 0.2  # a look as young as this is not repeated
MOST_PASSAGES: Final = 150_000
# A search waits a moment for what comes in the background, where that will be there in a moment.
FEW_TEXTS: Final = 120
FEW_PDFS: Final = 3
PATIENCE_SECONDS: Final = 3.0
PER_NOTE: Final = 3  # passages of one note among the hits
LEAST_SHARE: Final = 0.35  # of the best one's score: what is further behind was only found by chance
CONTEXTS: Final = "contexts"  # the folder of contexts


@frozen(kw_only=False)
class Library:
    """All notes of one moment, by path, and the links between them."""

    notes: Mapping[str, Note]
    names: Names
    graph: Graph

    @property
    def problems(self) -> tuple[Note, ...]:
        return tuple(note for note in self.notes.values() if note.problem)


@frozen
class Found:
    """What a search brought, and what it could not look into."""

    hits: tuple[Hit, ...]
    unread: tuple[Note, ...]
    reading: int  # PDF files still to be read
    by_meaning: float  # share of passages that were compared by meaning too


class KnowledgeBase:
    """Reads a folder, and follows it."""

    def __init__(
        self, root: Path, *, file_bytes: int, meaning: bool = True, vectors: Path | None = None
    ) -> None:
        self.folder = Folder(root)
        self._file_bytes = file_bytes
        self._index = PassageIndex(meaning=meaning, vectors=vectors)
        self._pdfs = PdfReader()
        self._looking = Lock()
        self._looked_at = float("-inf")
        self._changed = Condition()  # over everything below
        self._notes: dict[str, Note] = {}
        self._library: Library | None = None
        self._waiting: dict[str, Stamp] = {}  # PDF files
        self._reader: Thread | None = None
        self._stopped = Event()

    # --- following the folder

    def follow(self, seconds: float) -> None:
        """Look now and then, on a thread. The first time after a while: who ends at once reads no notes."""
        Thread(target=self._follow, args=(seconds,), name="fingerpost-notes", daemon=True).start()

    def _follow(self, seconds: float) -> None:
        while not self._stopped.wait(seconds):
            with suppress(ToolRefused):  # no folder: whoever asks is told
                self.look()

    def look(self) -> None:
        """Bring everything up to date. Raises `ToolRefused` where there is no folder."""
        with self._looking:
            if time.monotonic() - self._looked_at < FRESH_SECONDS:
                return
            if not self.folder.is_there:
                message = f"The knowledge base has no folder: {self.folder.root} is not there."
                raise ToolRefused(message, hint="Make it, or set builtin.knowledge.folder to another.")
            there = self.folder.scan()
            with self._changed:
                known = {path: note.stamp for path, note in self._notes.items()} | self._waiting
            gone = [path for path in known if path not in there]
            fresh = [path for path, stamp in there.items() if known.get(path) != stamp]
            self._forget(gone)
            for path in fresh:
                if self._stopped.is_set():
                    return
                self._take(path, there[path])
            if gone or fresh:  # now, so that the next search need not wait for it
                self._index.refresh()
                _ = self.library
            self._looked_at = time.monotonic()

    def _forget(self, gone: Iterable[str]) -> None:
        for path in gone:
            self._index.remove(path)
            with self._changed:
                self._waiting.pop(path, None)
                self._notes.pop(path, None)
                self._library = None

    def _take(self, path: str, stamp: Stamp) -> None:
        kind = kind_of(path)
        assert kind is not None
        if kind == "pdf" and stamp.size <= self._file_bytes:
            self._read_later(path, stamp)
            return
        parsed, problem = self._read(path, kind, stamp)
        note = Note(
            path=path,
            kind=kind,
            stamp=stamp,
            title=parsed.title,
            front=parsed.front,
            tags=parsed.tags,
            headings=parsed.headings,
            references=parsed.references,
            lines=parsed.lines,
            problem=problem,
        )
        self._put(note, parsed.passages)

    def _read(self, path: str, kind: Kind, stamp: Stamp) -> tuple[Parsed, str]:
        """A file taken apart, and what is wrong with it. One that cannot be read hides no other."""
        name = _name(path)
        if stamp.size > self._file_bytes:
            return Parsed(title=name), f"it is larger than {self._file_bytes:,} bytes"
        try:
            text = decoded(self.folder.read(tuple(path.split("/")), self._file_bytes))
        except OSError as error:
            return Parsed(title=name), f"it cannot be read: {error.strerror or error}"
        if text is None:
            return Parsed(title=name), "it is not text"
        try:
            return (parse_markdown if kind == "markdown" else parse_plain)(path, text, name), ""
        except Exception:  # one strange note must not hide all others
            log.exception("%s could not be taken apart", path)
            return Parsed(title=name), "it could not be taken apart"

    def _put(self, note: Note, passages: Sequence[Passage]) -> None:
        if self._index.size + len(passages) > MOST_PASSAGES:
            passages = ()
            note = replace(note, problem=f"the knowledge base is full: {MOST_PASSAGES:,} passages")
        self._index.put(note.path, passages)
        with self._changed:
            self._notes[note.path] = note
            self._library = None

    # --- PDF files, in the background

    def _read_later(self, path: str, stamp: Stamp) -> None:
        with self._changed:
            self._waiting[path] = stamp
            if self._reader is None and not self._stopped.is_set():
                self._reader = Thread(target=self._read_pdfs, name="fingerpost-pdf", daemon=True)
                self._reader.start()

    def _read_pdfs(self) -> None:
        while True:
            with self._changed:
                path = next(iter(self._waiting), None)
                if path is None or self._stopped.is_set():
                    self._reader = None
                    self._changed.notify_all()
                    return
                stamp = self._waiting[path]
            self._read_pdf(path, stamp)
            with self._changed:
                if self._waiting.get(path) == stamp:
                    del self._waiting[path]
                is_last = not self._waiting
            if is_last:
                self._index.refresh()

    def _read_pdf(self, path: str, stamp: Stamp) -> None:
        pages: tuple[str, ...] = ()
        title = ""
        try:
            with self.folder.opened(tuple(path.split("/"))) as handle:
                document = self._pdfs.read(handle)
            pages, title, problem = document.pages, document.title, document.problem
        except OSError as error:
            problem = f"it cannot be read: {error.strerror or error}"
        with self._changed:
            if self._waiting.get(path) != stamp:
                return  # it changed or went meanwhile
        title = title or _name(path)
        lines = sum(page.count("\n") + 1 for page in pages)
        note = Note(
            path=path, kind="pdf", stamp=stamp, title=title, lines=lines, pages=pages, problem=problem
        )
        self._put(note, pdf_passages(path, title, pages))

    # --- asking

    @property
    def library(self) -> Library:
        """All notes as they were at the last look."""
        with self._changed:
            if self._library is None:
                notes = dict(sorted(self._notes.items()))
                names = Names(notes.values())
                self._library = Library(notes, names, graph_of(notes, names))
            return self._library

    @property
    def passages(self) -> int:
        """How many there are."""
        return self._index.size

    def all_passages(self) -> dict[str, tuple[Passage, ...]]:
        """All of them, by note."""
        return self._index.all()

    def search(
        self, query: str, limit: int, *, folder: str = "", tags: Sequence[str] = (), paths: Sequence[str] = ()
    ) -> Found:
        """The best passages, a few of each note at most. Looks first whether something changed."""
        self.look()
        reading = self._catch_up()
        notes = self.library.notes
        wanted, among = frozenset(tags), frozenset(paths)

        def within(path: str) -> bool:
            note = notes.get(path)
            if note is None or not wanted.issubset(note.tags) or (among and path not in among):
                return False
            # Contexts point at notes; whoever looks for those wants the notes.
            return (
                path.startswith(f"{folder}/") if folder else note.folder.casefold() != CONTEXTS or bool(among)
            )

        hits = self._index.search(query, limit * PER_NOTE, within=within)
        good = [hit for hit in hits if hit.score >= LEAST_SHARE * hits[0].score]
        return Found(
            hits=_spread(good, limit, len(hits) if among else PER_NOTE),
            unread=tuple(
                note for note in notes.values() if note.problem and (not folder or within(note.path))
            ),
            reading=reading,
            by_meaning=self._index.ready,
        )

    def _catch_up(self) -> int:
        """Wait a moment for what will be there in a moment. How many PDF files are still to be read."""
        with self._changed:
            if 0 < len(self._waiting) <= FEW_PDFS:
                self._changed.wait_for(lambda: self._reader is None, PATIENCE_SECONDS)
            reading = len(self._waiting)
        self._index.refresh()
        if 0 < self._index.waiting <= FEW_TEXTS:
            self._index.settle(PATIENCE_SECONDS)
        return reading

    def settle(self, seconds: float) -> bool:
        """Whether everything is read and can be found by meaning too, at most so long from now."""
        self.look()
        with self._changed:
            read = self._changed.wait_for(lambda: self._reader is None, seconds)
        return self._index.settle(seconds) and read

    def close(self) -> None:
        """Stop what runs in the background."""
        self._stopped.set()
        self._pdfs.close()
        self._index.close()

    # --- reading one note

    def find(self, given: str) -> Note:
        """The note a caller means: by path, or by what it is called. Raises `ToolRefused`."""
        self.look()
        parts = self.folder.parts(given)
        library = self.library
        for tried in (parts, parts[1:] if parts[:1] == (self.folder.root.name,) else parts):
            path = library.names.resolve("/".join(tried)) if tried else None
            if path is not None:
                return library.notes[path]
        message = f"There is no note {'/'.join(parts)[:200]!r} in the knowledge base."
        raise ToolRefused(
            message, hint="list_kb_directory shows what there is, search_knowledge_base finds it."
        )

    def text(self, note: Note) -> str:
        """What stands in a note now. Raises `ToolRefused`."""
        if note.kind == "pdf":
            return "\n".join(f"[page {number}]\n{page}" for number, page in enumerate(note.pages, start=1))
        try:
            text = decoded(self.folder.read(tuple(note.path.split("/")), self._file_bytes))
        except OSError as error:
            message = f"{note.path} cannot be read: {error.strerror or error}."
            raise ToolRefused(message) from error
        if text is None:
            message = f"{note.path} is not text."
            raise ToolRefused(message)
        return text


def _spread(hits: Sequence[Hit], limit: int, most: int) -> tuple[Hit, ...]:
    """The best ones, of each note a few: a long note must not hide all others."""
    counts: dict[str, int] = {}
    kept: list[Hit] = []
    for hit in hits:
        source = hit.passage.source
        counts[source] = counts.get(source, 0) + 1
        if counts[source] <= most and len(kept) < limit:
            kept.append(hit)
    return tuple(kept)


def _name(path: str) -> str:
    name = path.rpartition("/")[2]
    return (name.rpartition(".")[0] or name).replace("_", " ").strip() or name

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
from fingerpost.builtin.knowledge.decoding import decode_text
from fingerpost.builtin.knowledge.folder import NoteFolder, get_kind
from fingerpost.builtin.knowledge.links import LinkGraph, NoteNames, build_graph
from fingerpost.builtin.knowledge.markdown import parse_markdown
from fingerpost.builtin.knowledge.pdf import PdfReader, build_pdf_passages
from fingerpost.builtin.knowledge.plain import parse_plain
from fingerpost.builtin.knowledge.records import FileStamp, KnowledgeNote, NoteKind, ParsedNote
from fingerpost.builtin.passages import PassageHit, PassageIndex, TextPassage
from fingerpost.frozen import frozen

log = logging.getLogger(__name__)

FRESH_SECONDS: Final = 0.2  # a look as young as this is not repeated
MAX_FOUND_PASSAGES: Final = 150_000
# A search waits a moment for what comes in the background, where that will be there in a moment.
FEW_WAITING_TEXTS: Final = 120
FEW_WAITING_PDFS: Final = 3
INDEX_TIMEOUT_S: Final = 3.0
MAX_HITS_PER_NOTE: Final = 3  # passages of one note among the hits
MIN_SCORE_SHARE: Final = 0.35  # of the best one's score: what is further behind was only found by chance
CONTEXT_FOLDER: Final = "contexts"  # the folder of contexts


@frozen(kw_only=False)
class NoteLibrary:
    """All notes of one moment, by path, and the links between them."""

    notes: Mapping[str, KnowledgeNote]
    names: NoteNames
    graph: LinkGraph

    @property
    def problems(self) -> tuple[KnowledgeNote, ...]:
        return tuple(note for note in self.notes.values() if note.problem)


@frozen
class SearchResult:
    """What a search brought, and what it could not look into."""

    hits: tuple[PassageHit, ...]
    unread: tuple[KnowledgeNote, ...]
    reading: int  # PDF files still to be read
    by_meaning: float  # share of passages that were compared by meaning too


class KnowledgeBase:
    """Reads a folder, and follows it."""

    def __init__(
        self, root: Path, *, file_bytes: int, by_meaning: bool = True, vectors: Path | None = None
    ) -> None:
        self.folder = NoteFolder(root)
        self._file_bytes = file_bytes
        self._index = PassageIndex(by_meaning=by_meaning, vectors=vectors)
        self._pdfs = PdfReader()
        self._looking = Lock()
        self._looked_at = float("-inf")
        self._changed = Condition()  # over everything below
        self._notes: dict[str, KnowledgeNote] = {}
        self._library: NoteLibrary | None = None
        self._waiting: dict[str, FileStamp] = {}  # PDF files
        self._reader: Thread | None = None
        self._stopped = Event()

    # --- following the folder

    def start_polling(self, seconds: float) -> None:
        """Look now and then, on a thread. The first time after a while: who ends at once reads no notes."""
        Thread(target=self._poll_folder, args=(seconds,), name="fingerpost-notes", daemon=True).start()

    def _poll_folder(self, seconds: float) -> None:
        while not self._stopped.wait(seconds):
            with suppress(ToolRefused):  # no folder: whoever asks is told
                self.refresh()

    def refresh(self) -> None:
        """Bring everything up to date. Raises `ToolRefused` where there is no folder."""
        with self._looking:
            if time.monotonic() - self._looked_at < FRESH_SECONDS:
                return
            if not self.folder.exists:
                message = f"The knowledge base has no folder: {self.folder.root} is not there."
                raise ToolRefused(message, hint="Make it, or set builtin.knowledge.folder to another.")
            there = self.folder.scan_notes()
            with self._changed:
                known = {path: note.stamp for path, note in self._notes.items()} | self._waiting
            gone = [path for path in known if path not in there]
            fresh = [path for path, stamp in there.items() if known.get(path) != stamp]
            self._remove_notes(gone)
            for path in fresh:
                if self._stopped.is_set():
                    return
                self._read_note(path, there[path])
            if gone or fresh:  # now, so that the next search need not wait for it
                self._index.refresh()
                _ = self.library
            self._looked_at = time.monotonic()

    def _remove_notes(self, gone: Iterable[str]) -> None:
        for path in gone:
            self._index.remove(path)
            with self._changed:
                self._waiting.pop(path, None)
                self._notes.pop(path, None)
                self._library = None

    def _read_note(self, path: str, stamp: FileStamp) -> None:
        kind = get_kind(path)
        assert kind is not None
        if kind == "pdf" and stamp.size <= self._file_bytes:
            self._read_later(path, stamp)
            return
        parsed, problem = self._parse_file(path, kind, stamp)
        note = KnowledgeNote(
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
        self._add_note(note, parsed.passages)

    def _parse_file(self, path: str, kind: NoteKind, stamp: FileStamp) -> tuple[ParsedNote, str]:
        """A file taken apart, and what is wrong with it. One that cannot be read hides no other."""
        name = _get_name(path)
        if stamp.size > self._file_bytes:
            return ParsedNote(title=name), f"it is larger than {self._file_bytes:,} bytes"
        try:
            text = decode_text(self.folder.read_bytes(tuple(path.split("/")), self._file_bytes))
        except OSError as error:
            return ParsedNote(title=name), f"it cannot be read: {error.strerror or error}"
        if text is None:
            return ParsedNote(title=name), "it is not text"
        try:
            return (parse_markdown if kind == "markdown" else parse_plain)(path, text, name), ""
        except Exception:  # one strange note must not hide all others
            log.exception("%s could not be taken apart", path)
            return ParsedNote(title=name), "it could not be taken apart"

    def _add_note(self, note: KnowledgeNote, passages: Sequence[TextPassage]) -> None:
        if self._index.size + len(passages) > MAX_FOUND_PASSAGES:
            passages = ()
            note = replace(note, problem=f"the knowledge base is full: {MAX_FOUND_PASSAGES:,} passages")
        self._index.set_source(note.path, passages)
        with self._changed:
            self._notes[note.path] = note
            self._library = None

    # --- PDF files, in the background

    def _read_later(self, path: str, stamp: FileStamp) -> None:
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

    def _read_pdf(self, path: str, stamp: FileStamp) -> None:
        pages: tuple[str, ...] = ()
        title = ""
        try:
            with self.folder.open_path(tuple(path.split("/"))) as handle:
                document = self._pdfs.read(handle)
            pages, title, problem = document.pages, document.title, document.problem
        except OSError as error:
            problem = f"it cannot be read: {error.strerror or error}"
        with self._changed:
            if self._waiting.get(path) != stamp:
                return  # it changed or went meanwhile
        title = title or _get_name(path)
        lines = sum(page.count("\n") + 1 for page in pages)
        note = KnowledgeNote(
            path=path, kind="pdf", stamp=stamp, title=title, lines=lines, pages=pages, problem=problem
        )
        self._add_note(note, build_pdf_passages(path, title, pages))

    # --- asking

    @property
    def library(self) -> NoteLibrary:
        """All notes as they were at the last look."""
        with self._changed:
            if self._library is None:
                notes = dict(sorted(self._notes.items()))
                names = NoteNames(notes.values())
                self._library = NoteLibrary(notes, names, build_graph(notes, names))
            return self._library

    @property
    def passages(self) -> int:
        """How many there are."""
        return self._index.size

    def get_all_passages(self) -> dict[str, tuple[TextPassage, ...]]:
        """All of them, by note."""
        return self._index.get_all()

    def search(
        self, query: str, limit: int, *, folder: str = "", tags: Sequence[str] = (), paths: Sequence[str] = ()
    ) -> SearchResult:
        """The best passages, a few of each note at most. Looks first whether something changed."""
        self.refresh()
        reading = self._wait_for_reading()
        notes = self.library.notes
        wanted, among = frozenset(tags), frozenset(paths)

        def within(path: str) -> bool:
            note = notes.get(path)
            if note is None or not wanted.issubset(note.tags) or (among and path not in among):
                return False
            # Contexts point at notes; whoever looks for those wants the notes.
            return (
                path.startswith(f"{folder}/")
                if folder
                else note.folder.casefold() != CONTEXT_FOLDER or bool(among)
            )

        hits = self._index.search(query, limit * MAX_HITS_PER_NOTE, within=within)
        good = [hit for hit in hits if hit.score >= MIN_SCORE_SHARE * hits[0].score]
        return SearchResult(
            hits=_limit_per_note(good, limit, len(hits) if among else MAX_HITS_PER_NOTE),
            unread=tuple(
                note for note in notes.values() if note.problem and (not folder or within(note.path))
            ),
            reading=reading,
            by_meaning=self._index.ready,
        )

    def _wait_for_reading(self) -> int:
        """Wait a moment for what will be there in a moment. How many PDF files are still to be read."""
        with self._changed:
            if 0 < len(self._waiting) <= FEW_WAITING_PDFS:
                self._changed.wait_for(lambda: self._reader is None, INDEX_TIMEOUT_S)
            reading = len(self._waiting)
        self._index.refresh()
        if 0 < self._index.waiting <= FEW_WAITING_TEXTS:
            self._index.wait_until_ready(INDEX_TIMEOUT_S)
        return reading

    def wait_until_indexed(self, seconds: float) -> bool:
        """Whether everything is read and can be found by meaning too, at most so long from now."""
        self.refresh()
        with self._changed:
            read = self._changed.wait_for(lambda: self._reader is None, seconds)
        return self._index.wait_until_ready(seconds) and read

    def close(self) -> None:
        """Stop what runs in the background."""
        self._stopped.set()
        self._pdfs.close()
        self._index.close()

    # --- reading one note

    def find_note(self, given: str) -> KnowledgeNote:
        """The note a caller means: by path, or by what it is called. Raises `ToolRefused`."""
        self.refresh()
        parts = self.folder.split_path(given)
        library = self.library
        for tried in (parts, parts[1:] if parts[:1] == (self.folder.root.name,) else parts):
            path = library.names.resolve("/".join(tried)) if tried else None
            if path is not None:
                return library.notes[path]
        message = f"There is no note {'/'.join(parts)[:200]!r} in the knowledge base."
        raise ToolRefused(
            message, hint="list_kb_directory shows what there is, search_knowledge_base finds it."
        )

    def read_text(self, note: KnowledgeNote) -> str:
        """What stands in a note now. Raises `ToolRefused`."""
        if note.kind == "pdf":
            return "\n".join(f"[page {number}]\n{page}" for number, page in enumerate(note.pages, start=1))
        try:
            text = decode_text(self.folder.read_bytes(tuple(note.path.split("/")), self._file_bytes))
        except OSError as error:
            message = f"{note.path} cannot be read: {error.strerror or error}."
            raise ToolRefused(message) from error
        if text is None:
            message = f"{note.path} is not text."
            raise ToolRefused(message)
        return text


def _limit_per_note(hits: Sequence[PassageHit], limit: int, per_note: int) -> tuple[PassageHit, ...]:
    """The best ones, of each note a few: a long note must not hide all others."""
    counts: dict[str, int] = {}
    kept: list[PassageHit] = []
    for hit in hits:
        source = hit.passage.source
        counts[source] = counts.get(source, 0) + 1
        if counts[source] <= per_note and len(kept) < limit:
            kept.append(hit)
    return tuple(kept)


def _get_name(path: str) -> str:
    name = path.rpartition("/")[2]
    return (name.rpartition(".")[0] or name).replace("_", " ").strip() or name

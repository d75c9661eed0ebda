"""The knowledge base: the current folder of notes, links between notes, and search."""

from __future__ import annotations

import errno
import logging
import os
import posixpath
import stat
import time
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path, PurePosixPath
from threading import Condition, Event, Lock, Thread
from typing import Final

from fingerpost.builtin.knowledge.documents import (
    FileStamp,
    KnowledgeNote,
    NoteKind,
    ParsedNote,
    PdfReader,
    build_pdf_passages,
    decode_text,
    parse_markdown,
    parse_plain,
)
from fingerpost.builtin.passages import PassageHit, PassageIndex, TextPassage
from fingerpost.builtin.toolkit import ToolRefused
from fingerpost.frozen import copy_fields, frozen

KINDS_BY_SUFFIX: Final[dict[str, NoteKind]] = {
    **dict.fromkeys((".md", ".markdown", ".mdown"), "markdown"),
    **dict.fromkeys((".txt", ".text", ".rst", ".org", ".adoc"), "text"),
    ".pdf": "pdf",
}
MAX_FILES: Final = 20_000
MAX_DEPTH: Final = 32
MAX_PATH_LENGTH: Final = 1000
_READ_FLAGS: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_FOLDER_FLAGS: Final = _READ_FLAGS | os.O_DIRECTORY
_SKIPPED_NAMES: Final = frozenset({"node_modules", "__pycache__"})


def get_kind(path: str) -> NoteKind | None:
    """Return the kind of a file by its name, or None if it is no note."""
    stem, dot, ending = path.rpartition(".")
    return KINDS_BY_SUFFIX.get(f".{ending.lower()}") if dot and stem else None


@frozen(kw_only=False)
class FolderEntry:
    """A file or folder in a listing."""

    name: str
    is_folder: bool
    stamp: FileStamp


class NoteFolder:
    """Read access to the folder of the knowledge base. Nothing is ever written."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @property
    def exists(self) -> bool:
        return self.root.is_dir()

    def split_path(self, path: str) -> tuple[str, ...]:
        """Split a caller's path into parts below the folder. Raises `ToolRefused` if it leads outside."""
        given = path.strip().replace("\\", "/")
        if "\0" in given or len(given) > MAX_PATH_LENGTH:
            raise ToolRefused("That is not a path.", hint="Give it as list_kb_directory shows it.")
        if given.startswith(("/", "~")):
            whole = PurePosixPath(given)
            roots = [root for root in (self.root, self.root.resolve()) if whole.is_relative_to(root)]
            if not roots:
                raise _build_outside_error(path)
            given = str(whole.relative_to(roots[0]))
        parts = tuple(part for part in given.split("/") if part not in ("", "."))
        if ".." in parts:
            raise _build_outside_error(path)
        return parts

    @contextmanager
    def open_path(self, parts: tuple[str, ...], *, folder: bool = False) -> Generator[int]:
        """Open a file or folder for reading. Raises `OSError`."""
        held = os.open(self.root, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY)
        try:
            for place, part in enumerate(parts):
                inner = folder or place < len(parts) - 1
                step = os.open(part, _FOLDER_FLAGS if inner else _READ_FLAGS, dir_fd=held)
                os.close(held)
                held = step
            mode = os.fstat(held).st_mode
            if not (stat.S_ISDIR(mode) if folder else stat.S_ISREG(mode)):
                raise OSError(errno.EINVAL, "not a file" if not folder else "not a folder")
            yield held
        finally:
            os.close(held)

    def read_bytes(self, parts: tuple[str, ...], limit: int) -> bytes:
        """Return the beginning of a file, one byte more than `limit` if it is longer. Raises `OSError`."""
        with self.open_path(parts) as handle, os.fdopen(handle, "rb", closefd=False) as file:
            return file.read(limit + 1)

    def list_entries(self, parts: tuple[str, ...]) -> list[FolderEntry]:
        """Return the entries of a folder, folders first. Raises `OSError`."""
        with self.open_path(parts, folder=True) as handle, os.scandir(handle) as found:
            made = [entry for each in found if (entry := _build_entry(each)) is not None]
        return sorted(made, key=lambda entry: (not entry.is_folder, entry.name.casefold(), entry.name))


def _scan_folder(handle: int, above: str, depth: int, found: dict[str, FileStamp]) -> None:
    """Collect the notes of an open folder and of all folders below it."""
    folders: list[str] = []
    with os.scandir(handle) as entries:
        for each in entries:
            if (entry := _build_entry(each)) is None:
                continue
            if entry.is_folder:
                folders.append(entry.name)
            elif get_kind(entry.name) is not None and len(found) < MAX_FILES:
                found[above + entry.name] = entry.stamp
    for name in folders if depth else ():
        with suppress(OSError):
            inner = os.open(name, _FOLDER_FLAGS, dir_fd=handle)
            try:
                _scan_folder(inner, f"{above}{name}/", depth - 1, found)
            finally:
                os.close(inner)


def _build_entry(found: os.DirEntry[str]) -> FolderEntry | None:
    if found.name.startswith(".") or found.name in _SKIPPED_NAMES or not _is_text(found.name):
        return None
    try:
        if found.is_symlink():
            return None
        known = found.stat(follow_symlinks=False)
    except OSError:
        return None
    if not (stat.S_ISDIR(known.st_mode) or stat.S_ISREG(known.st_mode)):
        return None
    stamp = FileStamp(known.st_size, known.st_mtime_ns, known.st_ino)
    return FolderEntry(found.name, stat.S_ISDIR(known.st_mode), stamp)


def _is_text(name: str) -> bool:
    """Return whether the name is valid text. Other names cannot be shown or passed back by a model."""
    return name.isascii() or all(not "\ud800" <= letter <= "\udfff" for letter in name)


def iterate_parents(path: str) -> Iterator[str]:
    """Yield the folders that contain a file, nearest first. The last is the root, an empty text."""
    while path:
        path = path.rpartition("/")[0]
        yield path


def _build_outside_error(path: str) -> ToolRefused:
    message = f"{path[:200]} is outside of the knowledge base."
    return ToolRefused(message, hint="Give a path as list_kb_directory shows it.")


@frozen(kw_only=False)
class LinkGraph:
    """All links between the notes, in both directions, by path."""

    outgoing: Mapping[str, tuple[str, ...]]
    incoming: Mapping[str, tuple[str, ...]]
    broken: Mapping[str, tuple[str, ...]]  # links to notes that do not exist

    @classmethod
    def from_notes(cls, notes: Mapping[str, KnowledgeNote], names: NoteNames) -> LinkGraph:
        """Build the graph of all links between notes."""
        outgoing: dict[str, tuple[str, ...]] = {}
        broken: dict[str, tuple[str, ...]] = {}
        incoming: dict[str, list[str]] = {}
        for path, note in notes.items():
            resolved = {
                each.target: names.resolve(each.target, note.folder, by_name=each.by_name)
                for each in note.references
            }
            reached = tuple(dict.fromkeys(to for to in resolved.values() if to is not None and to != path))
            if reached:
                outgoing[path] = reached
            if lost := tuple(target for target, to in resolved.items() if to is None):
                broken[path] = lost
            for to in reached:
                incoming.setdefault(to, []).append(path)
        return cls(outgoing, {path: tuple(sorted(found)) for path, found in incoming.items()}, broken)


class NoteNames:
    """Notes by all of their names."""

    def __init__(self, notes: Iterable[KnowledgeNote]) -> None:
        self._paths: dict[str, str] = {}
        self._names: dict[str, list[str]] = {}
        for note in notes:
            self._paths[note.path.casefold()] = note.path
            for name in (note.stem, note.title, *note.front.aliases):
                self._names.setdefault(name.casefold(), []).append(note.path)

    def resolve(self, target: str, start: str = "", *, by_name: bool = True) -> str | None:
        """Return the note that `target` names, seen from the folder `start`; of several, the nearest."""
        target = target.strip().replace("\\", "/")
        for base in dict.fromkeys((start, "")):
            path = posixpath.normpath(posixpath.join(base, target.lstrip("/"))).casefold()
            for candidate in (path, f"{path}.md", f"{path}.markdown", f"{path}.txt"):
                if candidate in self._paths:
                    return self._paths[candidate]
        if not by_name:
            return None
        folder, _, name = target.rpartition("/")
        found = dict.fromkeys(self._names.get(name.casefold(), ()))
        if folder:
            found = [path for path in found if f"/{path}".casefold().find(f"/{folder}/".casefold()) >= 0]
        return min(found, key=lambda path: (_count_steps(start, path), path), default=None)


def _count_steps(start: str, path: str) -> int:
    """Return the number of path steps from a folder to a file."""
    above = [start, *iterate_parents(start)] if start else [""]
    ups = {folder: steps for steps, folder in enumerate(above)}
    for downs, folder in enumerate(iterate_parents(path)):
        if folder in ups:
            return downs + ups[folder]
    return len(path)


log = logging.getLogger(__name__)

FRESH_SECONDS: Final = 0.2  # a scan more recent than this is not repeated
MAX_INDEXED_PASSAGES: Final = 150_000
# A search waits for background work if only this little is left.
FEW_WAITING_TEXTS: Final = 120
FEW_WAITING_PDFS: Final = 3
INDEX_TIMEOUT_S: Final = 3.0
MAX_HITS_PER_NOTE: Final = 3  # passages of one note among the hits
MIN_SCORE_SHARE: Final = 0.35  # of the best score; lower scores are chance hits
CONTEXT_FOLDER: Final = "contexts"


@frozen(kw_only=False)
class NoteLibrary:
    """A snapshot of all notes by path, and the links between them."""

    notes: Mapping[str, KnowledgeNote]
    names: NoteNames
    graph: LinkGraph

    @property
    def problems(self) -> tuple[KnowledgeNote, ...]:
        return tuple(note for note in self.notes.values() if note.problem)


@frozen
class SearchResult:
    """The hits of a search, and what could not be searched."""

    hits: tuple[PassageHit, ...]
    unread: tuple[KnowledgeNote, ...]
    waiting_pdfs: int  # PDF files still to be read
    meaning_share: float  # share of passages that were also compared by meaning


class KnowledgeBase:
    """Reads a folder of notes and follows its changes."""

    def __init__(
        self, root: Path, *, file_bytes: int, by_meaning: bool = True, vector_folder: Path | None = None
    ) -> None:
        self.folder = NoteFolder(root)
        self._file_bytes = file_bytes
        self._index = PassageIndex(by_meaning=by_meaning, vectors=vector_folder)
        self._pdfs = PdfReader()
        self._refresh_lock = Lock()
        self._refreshed_at = float("-inf")
        self._changed = Condition()  # guards all attributes below
        self._notes: dict[str, KnowledgeNote] = {}
        self._library: NoteLibrary | None = None
        self._waiting: dict[str, FileStamp] = {}  # PDF files
        self._reader: Thread | None = None
        self._stopped = Event()

    def start_polling(self, seconds: float) -> None:
        """Poll the folder in a thread. The first poll is delayed, so that a short process reads no notes."""
        Thread(target=self._poll_folder, args=(seconds,), name="fingerpost-notes", daemon=True).start()

    def _poll_folder(self, seconds: float) -> None:
        while not self._stopped.wait(seconds):
            with suppress(ToolRefused):  # a missing folder is reported to callers
                self.refresh()

    def refresh(self) -> None:
        """Read new and changed notes and remove deleted ones. Raises `ToolRefused` if there is no folder."""
        with self._refresh_lock:
            if time.monotonic() - self._refreshed_at < FRESH_SECONDS:
                return
            if not self.folder.exists:
                message = f"The knowledge base has no folder: {self.folder.root} is not there."
                raise ToolRefused(message, hint="Make it, or set builtin.knowledge.folder to another.")
            there: dict[str, FileStamp] = {}
            with suppress(OSError), self.folder.open_path((), folder=True) as handle:
                _scan_folder(handle, "", MAX_DEPTH, there)
            with self._changed:
                known = {path: note.stamp for path, note in self._notes.items()} | self._waiting
            gone = [path for path in known if path not in there]
            fresh = [path for path, stamp in there.items() if known.get(path) != stamp]
            self._remove_notes(gone)
            for path in fresh:
                if self._stopped.is_set():
                    return
                self._read_note(path, there[path])
            if gone or fresh:  # so that the next search does not have to wait
                self._index.refresh()
                _ = self.library
            self._refreshed_at = time.monotonic()

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
            with self._changed:
                self._waiting[path] = stamp
                if self._reader is None and not self._stopped.is_set():
                    self._reader = Thread(target=self._read_pdfs, name="fingerpost-pdf", daemon=True)
                    self._reader.start()
            return
        parsed, problem = self._parse_file(path, kind, stamp)
        note = copy_fields(KnowledgeNote, parsed, path=path, kind=kind, stamp=stamp, problem=problem)
        self._add_note(note, parsed.passages)

    def _parse_file(self, path: str, kind: NoteKind, stamp: FileStamp) -> tuple[ParsedNote, str]:
        """Return the parsed file and its problem. An unreadable file does not affect others."""
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
        except Exception:  # one invalid note must not affect others
            log.exception("%s could not be parsed", path)
            return ParsedNote(title=name), "it could not be parsed"

    def _add_note(self, note: KnowledgeNote, passages: Sequence[TextPassage]) -> None:
        if self._index.size + len(passages) > MAX_INDEXED_PASSAGES:
            passages = ()
            note = replace(note, problem=f"the knowledge base is full: {MAX_INDEXED_PASSAGES:,} passages")
        self._index.set_source(note.path, passages)
        with self._changed:
            self._notes[note.path] = note
            self._library = None

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
                return  # it was changed or deleted meanwhile
        title = title or _get_name(path)
        lines = sum(page.count("\n") + 1 for page in pages)
        note = KnowledgeNote(
            path=path, kind="pdf", stamp=stamp, title=title, line_count=lines, pages=pages, problem=problem
        )
        self._add_note(note, build_pdf_passages(path, title, pages))

    @property
    def library(self) -> NoteLibrary:
        """All notes as of the last refresh."""
        with self._changed:
            if self._library is None:
                notes = dict(sorted(self._notes.items()))
                names = NoteNames(notes.values())
                self._library = NoteLibrary(notes, names, LinkGraph.from_notes(notes, names))
            return self._library

    @property
    def passage_count(self) -> int:
        """The number of passages."""
        return self._index.size

    def get_all_passages(self) -> dict[str, tuple[TextPassage, ...]]:
        """Return all passages by note."""
        return self._index.get_all()

    def search(
        self, query: str, limit: int, *, folder: str = "", tags: Sequence[str] = (), paths: Sequence[str] = ()
    ) -> SearchResult:
        """Refresh, then return the best passages, at most a few per note."""
        self.refresh()
        reading = self._wait_for_reading()
        notes = self.library.notes
        wanted, among = frozenset(tags), frozenset(paths)

        def within(path: str) -> bool:
            note = notes.get(path)
            if note is None or not wanted.issubset(note.tags) or (among and path not in among):
                return False
            if folder:
                return path.startswith(f"{folder}/")
            # Contexts only refer to notes, so a search returns the notes themselves.
            return note.folder.casefold() != CONTEXT_FOLDER or bool(among)

        hits = self._index.search(query, limit * MAX_HITS_PER_NOTE, within=within)
        good = [hit for hit in hits if hit.score >= MIN_SCORE_SHARE * hits[0].score]
        best = _limit_per_note(good, limit, len(hits) if among else MAX_HITS_PER_NOTE)
        unread = (note for note in notes.values() if note.problem and (not folder or within(note.path)))
        share = self._index.ready
        return SearchResult(hits=best, unread=tuple(unread), waiting_pdfs=reading, meaning_share=share)

    def _wait_for_reading(self) -> int:
        """Wait briefly if little work is left. Return the number of PDF files still to be read."""
        with self._changed:
            if 0 < len(self._waiting) <= FEW_WAITING_PDFS:
                self._changed.wait_for(lambda: self._reader is None, INDEX_TIMEOUT_S)
            reading = len(self._waiting)
        self._index.refresh()
        if 0 < self._index.waiting <= FEW_WAITING_TEXTS:
            self._index.wait_until_ready(INDEX_TIMEOUT_S)
        return reading

    def wait_until_indexed(self, seconds: float) -> bool:
        """Wait until all is read and searchable by meaning. Return False after `seconds`."""
        self.refresh()
        with self._changed:
            read = self._changed.wait_for(lambda: self._reader is None, seconds)
        return self._index.wait_until_ready(seconds) and read

    def close(self) -> None:
        """Stop background work."""
        self._stopped.set()
        self._pdfs.close()
        self._index.close()

    def find_note(self, given: str) -> KnowledgeNote:
        """Return the note with this path or name. Raises `ToolRefused`."""
        self.refresh()
        parts = self.folder.split_path(given)
        library = self.library
        for tried in (parts, parts[1:] if parts[:1] == (self.folder.root.name,) else parts):
            path = library.names.resolve("/".join(tried)) if tried else None
            if path is not None:
                return library.notes[path]
        message = f"There is no note {'/'.join(parts)[:200]!r} in the knowledge base."
        hint = "list_kb_directory shows what there is, search_knowledge_base finds it."
        raise ToolRefused(message, hint=hint)

    def read_text(self, note: KnowledgeNote) -> str:
        """Return the current text of a note. Raises `ToolRefused`."""
        if note.kind == "pdf":
            return "\n".join(f"[page {number}]\n{page}" for number, page in enumerate(note.pages, start=1))
        try:
            text = decode_text(self.folder.read_bytes(tuple(note.path.split("/")), self._file_bytes))
        except OSError as error:
            raise ToolRefused(f"{note.path} cannot be read: {error.strerror or error}.") from error
        if text is None:
            raise ToolRefused(f"{note.path} is not text.")
        return text


def _limit_per_note(hits: Sequence[PassageHit], limit: int, per_note: int) -> tuple[PassageHit, ...]:
    """Return the best hits with a limit per note, so that a long note does not displace all others."""
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

"""Search in files: by text, by regular expression (in a process that can be killed), by meaning."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from threading import Lock, Timer
from typing import IO, Final, Protocol, Self, cast

from fingerpost.builtin.passages import PassageHit, PassageIndex, TextPassage
from fingerpost.builtin.toolkit import ToolRefused
from fingerpost.builtin.workspace.context import RunMode, ToolArguments, WorkspaceContext
from fingerpost.builtin.workspace.file_content import read_bytes
from fingerpost.builtin.workspace.file_tree import compile_path_pattern, walk_folder
from fingerpost.builtin.workspace.folder_walk import FolderWalk, WalkedEntry
from fingerpost.builtin.workspace.paths import format_name
from fingerpost.builtin.workspace.text import decode_text, split_lines
from fingerpost.frozen import frozen

_PLAIN_CHARACTERS: Final = re.compile(r"[A-Za-z0-9_ ]+")
# Alternatives, groups, inline flags and comments change the meaning of neighbouring text.
_AMBIGUOUS_SYNTAX: Final = re.compile(r"[|()#]")
_CLASS: Final = re.compile(r"\[\^?\]?(?:\\.|[^\]\\])*\]")
_ESCAPE: Final = re.compile(r"\\.", re.DOTALL)
_COUNT: Final = re.compile(r"\{[^{}]*\}")
_OPTIONAL: Final = frozenset("*?{")


def find_required_text(pattern: str) -> str:
    """Return the longest plain text that every match contains, empty if none is certain."""
    if _AMBIGUOUS_SYNTAX.search(pattern) or not pattern.isascii():
        return ""
    plain = _COUNT.sub("{", _CLASS.sub("\0", _ESCAPE.sub("\0", pattern)))
    best = ""
    for match in _PLAIN_CHARACTERS.finditer(plain):
        run = match.group()
        if plain[match.end() : match.end() + 1] in _OPTIONAL:
            run = run[:-1]  # the last character is optional
        if len(run) > len(best):
            best = run
    return best


class LiteralFinder:
    """Finds a literal text."""

    def __init__(self, query: str, *, match_case: bool) -> None:
        self._match_case = match_case
        folded = query if match_case else query.casefold()
        # é is one character or two; files contain either form.
        self._forms = tuple(dict.fromkeys(unicodedata.normalize(form, folded) for form in ("NFC", "NFD")))
        self._bytes = folded.encode("utf-8", "surrogatepass") if folded.isascii() else None

    def may_match(self, data: bytes) -> bool:
        if data[:2] in (b"\xff\xfe", b"\xfe\xff") or data[:4] == b"\0\0\xfe\xff":
            return True  # UTF-16 and UTF-32 must be decoded first
        if self._bytes is None:
            return not data.isascii()
        return self._bytes in (data if self._match_case else data.lower())

    def find_lines(self, text: str, limit: int) -> list[int]:
        found: list[int] = []
        text = text if self._match_case else (text.lower() if text.isascii() else text.casefold())
        at, line, counted = self._find_next(text, 0), 0, 0
        while at >= 0 and len(found) < limit:
            line += text.count("\n", counted, at)
            counted = at
            found.append(line)
            end = text.find("\n", at)
            at = -1 if end < 0 else self._find_next(text, end)
        return found

    def _find_next(self, text: str, start: int) -> int:
        return min((at for form in self._forms if (at := text.find(form, start)) >= 0), default=-1)


_WORKER_PROGRAM: Final = Path(__file__).with_name("pattern_worker.py")

# Non-ASCII letters that are another case of ASCII letters: ſ, İ, ı and the Kelvin sign.
_CASE_VARIANTS: Final = tuple(letter.encode() for letter in "\u017f\u0130\u0131\u212a")


class PatternFinder:
    """Finds a pattern, line by line. Its process is started for the first text that may match."""

    def __init__(self, pattern: str, *, match_case: bool, seconds: float) -> None:
        try:
            re.compile(pattern)
        except (re.error, RecursionError, OverflowError) as error:
            message = f"The pattern cannot be read: {error}."
            raise ToolRefused(message, hint="Leave out `regex` to look for the text as it stands.") from None
        text = find_required_text(pattern)
        self._required_bytes = text.encode() if match_case else text.lower().encode()
        self._pattern = pattern
        self._match_case = match_case
        self._seconds = seconds
        self._process: subprocess.Popen[bytes] | None = None
        self._timer: Timer | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._process is not None:
            self._process.kill()
            self._process.communicate()

    def may_match(self, data: bytes) -> bool:
        if not self._required_bytes or data[:2] in (b"\xff\xfe", b"\xfe\xff") or data[:4] == b"\0\0\xfe\xff":
            return True
        if self._match_case:
            return self._required_bytes in data
        if self._required_bytes in data.lower():
            return True
        return not data.isascii() and any(each in data for each in _CASE_VARIANTS)

    def find_lines(self, text: str, limit: int) -> list[int]:
        process = self._process or self._start_worker()
        try:
            _send_data(process, b"%d\n" % limit + text.encode("utf-8", "surrogatepass"))
            answer = cast("IO[bytes]", process.stdout).readline()
        except OSError:
            answer = b""
        if not answer:
            message = f"The pattern takes longer than {self._seconds:g} seconds."
            raise ToolRefused(message, hint="Make it simpler: no repetition inside of a repetition.")
        return [int(number) for number in answer.split()]

    def _start_worker(self) -> subprocess.Popen[bytes]:
        process = self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(_WORKER_PROGRAM)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={},
        )
        self._timer = Timer(self._seconds, process.kill)
        self._timer.start()
        header = b"%d %d\n" % (int(self._seconds) + 1, self._match_case)
        _send_data(process, header + self._pattern.encode("utf-8", "surrogatepass"))
        return process


def _send_data(process: subprocess.Popen[bytes], data: bytes) -> None:
    pipe = cast("IO[bytes]", process.stdin)
    pipe.write(b"%d\n" % len(data) + data)
    pipe.flush()


MAX_GREP_FILE_BYTES: Final = 16 * 1024 * 1024  # larger files are skipped
GREP_TIMEOUT_S: Final = 15.0
MAX_QUERY_LENGTH: Final = 1000
MAX_LINE_LENGTH: Final = 300  # characters of a line
MAX_LINES_PER_FILE: Final = 200


@frozen
class TextQuery:
    """What to search for, and where."""

    query: str
    path: str
    glob: str
    match_case: bool
    context_lines: int  # lines shown before and after
    limit: int

    @classmethod
    def from_arguments(cls, args: ToolArguments) -> TextQuery:
        return cls(
            query=args.get_text("query"),
            path=args.get_text("path", "."),
            glob=args.get_text("pattern"),
            match_case=args.get_flag("match_case"),
            context_lines=args.get_number("context_lines", 0),
            limit=args.get_number("limit", 100),
        )


@dataclass(slots=True)
class _SearchCounts:
    files: int = 0
    matching: int = 0
    large: int = 0
    shown: int = 0
    cut: bool = False


class LineFinder(Protocol):
    """Finds the lines of a text that match."""

    def may_match(self, data: bytes) -> bool:
        """Return whether the bytes may contain a match."""
        ...

    def find_lines(self, text: str, limit: int) -> list[int]:
        """Return the numbers of the matching lines, from 0, in order."""
        ...


def search_text(workspace: WorkspaceContext, args: ToolArguments, run_mode: RunMode) -> str:
    """Return the matching lines as `path:line: text`, ordered by path."""
    query = TextQuery.from_arguments(args)
    if not query.query or len(query.query) > MAX_QUERY_LENGTH:
        raise ToolRefused(f"The text to look for must have 1 to {MAX_QUERY_LENGTH} characters.")
    walking = workspace.build_walk(include_ignored=args.get_flag("include_ignored"))
    walking.seconds = GREP_TIMEOUT_S
    tally = _SearchCounts()
    if args.get_flag("regex"):
        with PatternFinder(query.query, match_case=query.match_case, seconds=GREP_TIMEOUT_S) as finder:
            lines = _search_files(workspace, query, finder, walking, tally)
    else:
        literal = LiteralFinder(query.query, match_case=query.match_case)
        lines = _search_files(workspace, query, literal, walking, tally)
    where = "" if query.path in (".", "") else f" below {query.path}"
    count = f"{tally.shown} lines in {tally.matching} files" if tally.shown else "No line"
    notes = [f"{tally.files} files were searched{where}"]
    if tally.cut:
        notes.append(f"more than {query.limit}: narrow it down, or raise `limit`")
    if tally.large:
        notes.append(f"{tally.large} files above {MAX_GREP_FILE_BYTES // 2**20} MiB were passed over")
    if walking.stop_reason:
        notes.append(walking.stop_reason)
    return "\n".join((f"[{count} with {query.query[:100]!r}; {'; '.join(notes)}]", *lines))


def _search_files(
    workspace: WorkspaceContext, query: TextQuery, finder: LineFinder, walk: FolderWalk, counts: _SearchCounts
) -> list[str]:
    found: list[str] = []
    until = time.monotonic() + GREP_TIMEOUT_S
    for path, data in _read_contents(workspace, query, walk, counts):
        counts.files += 1
        if _has_nul(data) or not finder.may_match(data) or (text := decode_text(data)) is None:
            continue
        # Counted as in read_range: only `\n` ends a line.
        numbers = finder.find_lines(text.text, min(MAX_LINES_PER_FILE, query.limit - counts.shown + 1))
        if numbers:
            lines = text.text.removesuffix("\n").split("\n")
            found.extend(_render_matches(path, lines, numbers, query, counts))
        if counts.cut or time.monotonic() > until:
            if not counts.cut:
                walk.stop_reason = f"it stopped after {GREP_TIMEOUT_S:g} seconds"
            break
    return found


def _read_contents(
    workspace: WorkspaceContext, query: TextQuery, walk: FolderWalk, counts: _SearchCounts
) -> Iterator[tuple[str, bytes]]:
    with workspace.root_folder.open_entry(query.path) as start_entry:
        if not S_ISDIR(start_entry.require_stat().st_mode):
            content = read_bytes(start_entry, MAX_GREP_FILE_BYTES)
            counts.large += not content.whole
            yield start_entry.display_path, content.data if content.whole else b""
            return
    fits = compile_path_pattern(query.glob) if query.glob else None
    with walk_folder(workspace, query.path, walk) as (start_entry, below):
        start = len(start_entry.display_path) + 1 if start_entry.names else 0
        for entry in below:
            if not entry.is_file or (fits is not None and not fits.fullmatch(entry.path[start:])):
                continue
            data = _read_entry(entry, MAX_GREP_FILE_BYTES)
            counts.large += data is None
            if data:
                yield entry.path, data


def _read_entry(entry: WalkedEntry, limit: int) -> bytes | None:
    """Return the content of a file: None if it is larger than `limit`, nothing if it cannot be read."""
    try:
        with os.fdopen(entry.open_file(), "rb", buffering=0) as file:
            found = os.fstat(file.fileno())
            if not S_ISREG(found.st_mode):
                return b""
            if found.st_size > limit:
                return None
            data = file.read(found.st_size + 1)
            while len(data) <= limit and (more := file.read(64 * 1024)):  # it grew meanwhile
                data += more
    except OSError:  # deleted, replaced, or not readable
        return b""
    return data if len(data) <= limit else None


def _render_matches(
    path: str, lines: list[str], numbers: list[int], query: TextQuery, counts: _SearchCounts
) -> Iterator[str]:
    """Yield the matching lines with their context lines. Groups are separated."""
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
                break  # it is shown as a match itself
            sign = ":" if each in hits else "-"
            yield f"{name}{sign}{each + 1}{sign} {_shorten_line(lines[each])}"
            last = each


def _has_nul(data: bytes) -> bool:
    """Return whether the data contains NUL, the quickest sign of most binary files."""
    return b"\0" in data[:1024] and data[:2] not in (b"\xff\xfe", b"\xfe\xff") and data[:2] != b"\0\0"


def _shorten_line(line: str) -> str:
    line = line.rstrip("\r")
    return line if len(line) <= MAX_LINE_LENGTH else f"{line[:MAX_LINE_LENGTH]}…"


MAX_INDEXED_FILE_BYTES: Final = 512 * 1024  # larger files are skipped
MAX_INDEXED_FILES: Final = 5000
MAX_PASSAGES: Final = 10_000
PASSAGE_LINES: Final = 30  # of one passage
PASSAGE_CHARACTERS: Final = 1500
REFRESH_TIMEOUT_S: Final = 20.0  # the remaining files follow with the next search
INDEX_TIMEOUT_S: Final = 2.0  # wait for vectors of new text; until then it is found by words
MAX_SHOWN_PASSAGE_LENGTH: Final = 700

FileMark = tuple[int, int, int]


class MeaningIndex:
    """The text files of a folder as passages. Its methods block. Thread-safe."""

    def __init__(self, workspace: WorkspaceContext, *, by_meaning: bool, vector_folder: Path | None) -> None:
        self._workspace = workspace
        self._index = PassageIndex(by_meaning=by_meaning, vectors=vector_folder)
        self._known: dict[str, tuple[FileMark, int]] = {}  # the mark and the number of passages
        self._lock = Lock()

    def search_passages(self, query: str, path: str, limit: int) -> str:
        """Return the best passages for the query, with their locations."""
        if not query.strip():
            raise ToolRefused("The query is empty.", hint="Say in a few words what you are looking for.")
        note = self._refresh()
        self._index.wait_until_ready(INDEX_TIMEOUT_S)
        with self._workspace.root_folder.open_entry(path) as entry:
            within = entry.display_path
            entry.require_stat()
        hits = self._index.search(
            query, limit, within=lambda source: within == "." or f"{source}/".startswith(f"{within}/")
        )
        if not hits:
            return f"[Nothing in {within} is like {query[:100]!r}; {len(self._known)} files are known{note}]"
        if self._index.ready < 1:
            note += f"; by meaning so far {100 * self._index.ready:.0f} % of it, the rest by its words"
        heading = f"[{len(hits)} passages, the best first; {len(self._known)} files are known{note}]"
        return "\n\n".join((heading, *(_format_hit(hit) for hit in hits)))

    def close(self) -> None:
        self._index.close()

    def _refresh(self) -> str:
        """Read new and changed files and remove deleted ones. Return a note about what is incomplete."""
        with self._lock:
            seen, note = set[str](), ""
            until = time.monotonic() + REFRESH_TIMEOUT_S
            room = MAX_PASSAGES
            with walk_folder(self._workspace, ".", self._workspace.build_walk()) as (_, below):
                for entry in below:
                    if not entry.is_file:
                        continue
                    if len(seen) >= MAX_INDEXED_FILES or room <= 0 or time.monotonic() > until:
                        note = "; there are more, which were left out"
                        break
                    if self._index_file(entry):
                        seen.add(entry.path)
                        room -= self._known[entry.path][1]
            for gone in self._known.keys() - seen:
                del self._known[gone]
                self._index.remove(gone)
            return note

    def _index_file(self, entry: WalkedEntry) -> bool:
        """Return whether the file is now in the index."""
        try:
            found = entry.get_stat()
            mark = (found.st_ino, found.st_size, found.st_mtime_ns)
            known = self._known.get(entry.path)
            if known is not None and known[0] == mark:
                return True
        except OSError:
            return False
        data = _read_entry(entry, MAX_INDEXED_FILE_BYTES)
        if data is None:
            return False
        text = decode_text(data)
        if text is None or not text.text.strip():
            return False
        passages = list(_split_passages(entry.path, text.text))
        self._index.set_source(entry.path, passages)
        self._known[entry.path] = mark, len(passages)
        return True


def _split_passages(path: str, text: str) -> Iterator[TextPassage]:
    """Split into passages of some lines, at empty lines if possible. The path is the heading of each."""
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
    text, last = "".join(lines), first + len(lines) - 1
    return TextPassage(source=path, text=text, heading=path, first_line=first, last_line=last)


def _format_hit(hit: PassageHit) -> str:
    passage = hit.passage
    text = passage.text.strip("\n")
    if len(text) > MAX_SHOWN_PASSAGE_LENGTH:
        text = f"{text[:MAX_SHOWN_PASSAGE_LENGTH]}…"
    return f"{format_name(passage.source)}:{passage.first_line}–{passage.last_line} ({hit.score:.2f})\n{text}"

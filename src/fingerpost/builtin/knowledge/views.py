"""Notes, passages and folders as text for models and people."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Final

from fingerpost.builtin.knowledge.base import FolderEntry, KnowledgeBase, NoteLibrary, SearchResult
from fingerpost.builtin.knowledge.documents import KnowledgeNote, NoteHeading
from fingerpost.builtin.passages import PassageHit, TextPassage
from fingerpost.builtin.toolkit import ToolRefused
from fingerpost.narrow.lexical_terms import iterate_terms

MAX_SHOWN_LENGTH: Final = 900
MAX_NAMED: Final = 8
_STRONG_SCORE: Final = 0.5
_MAX_SHARED_WORDS: Final = 5


def format_location(passage: TextPassage) -> str:
    """Format `garden/tomatoes.md:12-18` or `report.pdf page 3`."""
    if passage.page:
        return f"{passage.source} page {passage.page}"
    if passage.first_line == passage.last_line:
        return f"{passage.source}:{passage.first_line}"
    return f"{passage.source}:{passage.first_line}-{passage.last_line}"


def explain_hit(query: str, hit: PassageHit) -> str:
    """Return why a passage was found."""
    there = set(iterate_terms(f"{hit.passage.heading}\n{hit.passage.text}"))
    asked = {next(iter(iterate_terms(word)), ""): word for word in query.split()[:64]}
    shared = [word.strip(".,;:!?\"'()").lower() for term, word in asked.items() if term in there]
    reasons = [f"shares {', '.join(shared[:_MAX_SHARED_WORDS])}"] if shared else []
    if hit.meaning is not None and hit.meaning >= _STRONG_SCORE:
        reasons.append("means much the same")
    elif not shared:
        reasons.append("means something near")
    return "; ".join(reasons)


def format_hits(query: str, found: SearchResult) -> str:
    """Format a search result as a numbered list."""
    head = f"{_format_count(len(found.hits), 'passage')} for {query[:200]!r}, best first:"
    parts = [
        f"[{number}] {format_location(hit.passage)} · {hit.passage.heading} (score {hit.score:.2f}: "
        f"{explain_hit(query, hit)})\n{shorten(hit.passage.text, MAX_SHOWN_LENGTH)}"
        for number, hit in enumerate(found.hits, start=1)
    ]
    return "\n\n".join((head, *parts, *list_caveats(found)))


def list_caveats(found: SearchResult) -> Sequence[str]:
    """Return what the search could not include, so that a missing hit is not taken for "there is nothing"."""
    caveats: list[str] = []
    if found.waiting_pdfs:
        caveats.append(f"Not searched yet: {_format_count(found.waiting_pdfs, 'PDF file')} still being read.")
    if found.unread:
        named = ", ".join(f"{note.path} ({note.problem})" for note in found.unread[:MAX_NAMED])
        more = len(found.unread) - MAX_NAMED
        caveats.append(f"Not searched: {named}" + (f" and {more} more." if more > 0 else "."))
    return caveats


def describe_note(note: KnowledgeNote, *, outgoing: Iterable[str] = (), incoming: Iterable[str] = ()) -> str:
    """Return one line about a note, and its links."""
    details = [note.title if note.title != note.stem else ""]
    details += [f"tags {', '.join(note.tags[:MAX_NAMED])}" if note.tags else "", note.front.date]
    lines = [f"{note.path} · {' · '.join(filter(None, details))}" if any(details) else note.path]
    for words, paths in (("Links to", tuple(outgoing)), ("Linked from", tuple(incoming))):
        if paths:
            more = f" and {len(paths) - MAX_NAMED} more" if len(paths) > MAX_NAMED else ""
            lines.append(f"{words}: {', '.join(paths[:MAX_NAMED])}{more}")
    if note.problem:
        lines.append(f"Problem: {note.problem}")
    return "\n".join(lines)


def format_day(modified_ns: int) -> str:
    return f"{datetime.fromtimestamp(modified_ns / 1e9, UTC):%Y-%m-%d}"


def shorten(text: str, limit: int) -> str:
    """Return the beginning of a text, up to the end of a word."""
    if len(text) <= limit:
        return text
    end = text.rfind(" ", limit // 2, limit)
    return text[: limit if end < 0 else end].rstrip() + " …"


def _format_count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


MAX_LISTED_LINES: Final = 300
_KILO: Final = 1024


def list_folder(base: KnowledgeBase, path: str, depth: int) -> str:
    """List a folder of the knowledge base down to `depth`. Raises `ToolRefused` if it does not exist."""
    base.refresh()
    parts = base.folder.split_path(path)
    if parts == (base.folder.root.name,) and not _is_folder(base, parts):
        parts = ()  # the caller named the knowledge base's own folder
    if not _is_folder(base, parts):
        message = f"There is no folder {'/'.join(parts)[:200]!r} in the knowledge base."
        raise ToolRefused(message, hint="list_kb_directory without a path shows what there is.")
    lines: list[str] = []
    more = 0
    for line in _list_lines(base, parts, depth):
        if len(lines) < MAX_LISTED_LINES:
            lines.append(line)
        else:
            more += 1
    notes = sum(1 for each in base.library.notes if not parts or each.startswith("/".join(parts) + "/"))
    head = f"{'/'.join(parts) or 'The knowledge base'}: {notes:,} notes"
    tail = [f"… and {more:,} more: list a folder of it."] if more else []
    return "\n".join((head, *(lines or ["(empty)"]), *tail))


def _is_folder(base: KnowledgeBase, parts: tuple[str, ...]) -> bool:
    try:
        with base.folder.open_path(parts, folder=True):
            return True
    except OSError:
        return False


def _list_lines(base: KnowledgeBase, parts: tuple[str, ...], depth: int, indent: str = "") -> Iterator[str]:
    try:
        entries = base.folder.list_entries(parts)
    except OSError as error:
        yield f"{indent}(cannot be listed: {error.strerror or error})"
        return
    library = base.library
    for entry in entries:
        path = "/".join((*parts, entry.name))
        if entry.is_folder:
            inside = sum(1 for each in library.notes if each.startswith(f"{path}/"))
            yield f"{indent}{entry.name}/ ({inside:,} notes)"
            if depth > 1:
                yield from _list_lines(base, (*parts, entry.name), depth - 1, f"{indent}  ")
        else:
            yield indent + _format_file(library, path, entry)


def _format_file(library: NoteLibrary, path: str, entry: FolderEntry) -> str:
    note = library.notes.get(path)
    size = f"{entry.stamp.size / _KILO:,.1f} kB, {format_day(entry.stamp.modified_ns)}"
    if note is None:
        return f"{entry.name} ({size}; not searched)"
    title = f" · {note.title}" if note.title != note.stem else ""
    tags = f" #{' #'.join(note.tags[:5])}" if note.tags else ""
    return f"{entry.name}{title} ({size}){tags}" + (f" — {note.problem}" if note.problem else "")


MAX_READ_CHARACTERS: Final = 12_000  # a digest passes this much unchanged
MAX_READ_LINES: Final = 2000
MAX_ABOUT_PASSAGES: Final = 5


def read_note(base: KnowledgeBase, path: str, section: str, start: int, end: int) -> str:
    """Return a note with its metadata. Lines count from 1. Raises `ToolRefused`."""
    note = base.find_note(path)
    if note.problem and not note.pages:
        raise ToolRefused(f"{note.path} cannot be read: {note.problem}.")
    lines = base.read_text(note).split("\n")
    first, last = _find_section(note, lines, section) if section else (1, len(lines))
    start, last = max(first, start), min(last, len(lines))
    if start > last:
        raise ToolRefused(f"{note.path} has {len(lines)} lines.", hint="Give a smaller start_line.")
    shown, end = _fit_lines(lines, start, max(start, min(last, end, start + MAX_READ_LINES - 1)))
    graph = base.library.graph
    outgoing, incoming = graph.outgoing.get(note.path, ()), graph.incoming.get(note.path, ())
    head = describe_note(note, outgoing=outgoing, incoming=incoming)
    more = f"\n\nIt goes on: start_line={end + 1}." if end < last else ""
    return f"{head}\nLines {start}-{end} of {len(lines)}:\n\n{shown}{more}"


def read_about(base: KnowledgeBase, path: str, subject: str) -> str:
    """Return what a note says about a subject, or the whole note if nothing specific is found."""
    note = base.find_note(path)
    hits = base.search(subject, MAX_ABOUT_PASSAGES, paths=[note.path]).hits
    if not hits:
        head = f"It says nothing about {subject[:200]!r} that could be found. This is what it says:"
        return "\n\n".join((head, read_note(base, path, "", 1, MAX_READ_LINES)))
    shown = [
        f"{format_location(hit.passage)} · {hit.passage.heading}\n{hit.passage.text}"
        for hit in sorted(hits, key=lambda hit: (hit.passage.page, hit.passage.first_line))
    ]
    head = f"{describe_note(note)}\nWhat it says about {subject[:200]!r}:"
    return "\n\n".join((head, *shown))[:MAX_READ_CHARACTERS]


def _fit_lines(lines: Sequence[str], start: int, end: int) -> tuple[str, int]:
    """Return the lines that fit, and the number of the last one."""
    size = 0
    for number in range(start, end + 1):
        size += len(lines[number - 1]) + 1
        if size > MAX_READ_CHARACTERS and number > start:
            end = number - 1
            break
    return "\n".join(lines[start - 1 : end])[:MAX_READ_CHARACTERS], end


def _find_section(note: KnowledgeNote, lines: Sequence[str], name: str) -> tuple[int, int]:
    """Return the first and last line of a section with its subsections, or of a page of a PDF."""
    if note.kind == "pdf":
        number = re.search(r"\d{1,6}", name)
        if number is None or not 1 <= int(number[0]) <= len(note.pages):
            raise ToolRefused(f"{note.path} has {len(note.pages)} pages.", hint="Give section as 'page 1'.")
        first = 1 + sum(page.count("\n") + 2 for page in note.pages[: int(number[0]) - 1])
        return first, first + note.pages[int(number[0]) - 1].count("\n") + 1
    wanted = " ".join(name.lstrip("#").split()).casefold()
    fits: Sequence[Callable[[NoteHeading], bool]] = (
        lambda heading: heading.text.casefold() == wanted,
        lambda heading: wanted in heading.text.casefold(),
    )
    for fit in fits:
        for place, heading in enumerate(note.headings):
            if fit(heading):
                later = note.headings[place + 1 :]
                ends = (other.line - 1 for other in later if other.level <= heading.level)
                return heading.line, next(ends, len(lines))
    known = ", ".join(heading.text for heading in note.headings[:20]) or "none"
    raise ToolRefused(f"{note.path} has no section {name[:100]!r}.", hint=f"There are: {known}.")

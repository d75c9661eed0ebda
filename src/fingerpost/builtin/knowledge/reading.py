"""One note, or a part of it: by lines, by section, by page."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final

from fingerpost.builtin.kit import ToolRefused
from fingerpost.builtin.knowledge.base import KnowledgeBase
from fingerpost.builtin.knowledge.records import KnowledgeNote, NoteHeading
from fingerpost.builtin.knowledge.showing import describe_note, format_location

MAX_READ_CHARACTERS: Final = 12_000  # at most: what a call's digest lets through whole
MAX_READ_LINES: Final = 2000
MAX_ABOUT_PASSAGES: Final = 5


def read_note(base: KnowledgeBase, path: str, section: str, start: int, end: int) -> str:
    """A note with what is known of it; lines count from 1. Raises `ToolRefused`."""
    note = base.find_note(path)
    if note.problem and not note.pages:
        message = f"{note.path} cannot be read: {note.problem}."
        raise ToolRefused(message)
    lines = base.read_text(note).split("\n")
    first, last = _find_section(note, lines, section) if section else (1, len(lines))
    start, last = max(first, start), min(last, len(lines))
    if start > last:
        message = f"{note.path} has {len(lines)} lines."
        raise ToolRefused(message, hint="Give a smaller start_line.")
    shown, end = _fit_lines(lines, start, max(start, min(last, end, start + MAX_READ_LINES - 1)))
    graph = base.library.graph
    head = describe_note(
        note, outgoing=graph.outgoing.get(note.path, ()), incoming=graph.incoming.get(note.path, ())
    )
    more = f"\n\nIt goes on: start_line={end + 1}." if end < last else ""
    return f"{head}\nLines {start}-{end} of {len(lines)}:\n\n{shown}{more}"


def read_about(base: KnowledgeBase, path: str, subject: str) -> str:
    """What a note says about something; all of it where it says nothing in particular."""
    note = base.find_note(path)
    hits = base.search(subject, MAX_ABOUT_PASSAGES, paths=[note.path]).hits
    if not hits:
        whole = read_note(base, path, "", 1, MAX_READ_LINES)
        return (
            f"It says nothing about {subject[:200]!r} that could be found. This is what it says:\n\n{whole}"
        )
    shown = [
        f"{format_location(hit.passage)} · {hit.passage.heading}\n{hit.passage.text}"
        for hit in sorted(hits, key=lambda hit: (hit.passage.page, hit.passage.first_line))
    ]
    return "\n\n".join((f"{describe_note(note)}\nWhat it says about {subject[:200]!r}:", *shown))[
        :MAX_READ_CHARACTERS
    ]


def _fit_lines(lines: Sequence[str], start: int, end: int) -> tuple[str, int]:
    """These lines as far as they fit, and the last of them that does."""
    size = 0
    for number in range(start, end + 1):
        size += len(lines[number - 1]) + 1
        if size > MAX_READ_CHARACTERS and number > start:
            end = number - 1
            break
    return "\n".join(lines[start - 1 : end])[:MAX_READ_CHARACTERS], end


def _find_section(note: KnowledgeNote, lines: Sequence[str], name: str) -> tuple[int, int]:
    """The first and last line of a section, with all that stands below it; of a PDF, of a page."""
    if note.kind == "pdf":
        return _find_page(note, lines, name)
    wanted = " ".join(name.lstrip("#").split()).casefold()
    fits: Sequence[Callable[[NoteHeading], bool]] = (
        lambda heading: heading.text.casefold() == wanted,
        lambda heading: wanted in heading.text.casefold(),
    )
    for fit in fits:
        for place, heading in enumerate(note.headings):
            if fit(heading):
                below = (
                    other.line - 1 for other in note.headings[place + 1 :] if other.level <= heading.level
                )
                return heading.line, next(below, len(lines))
    known = ", ".join(heading.text for heading in note.headings[:20]) or "none"
    message = f"{note.path} has no section {name[:100]!r}."
    raise ToolRefused(message, hint=f"There are: {known}.")


def _find_page(note: KnowledgeNote, lines: Sequence[str], name: str) -> tuple[int, int]:
    number = re.search(r"\d{1,6}", name)
    if number is None or not 1 <= int(number[0]) <= len(note.pages):
        message = f"{note.path} has {len(note.pages)} pages."
        raise ToolRefused(message, hint="Give section as 'page 1'.")
    first = 1 + sum(page.count("\n") + 2 for page in note.pages[: int(number[0]) - 1])
    return first, first + note.pages[int(number[0]) - 1].count("\n") + 1

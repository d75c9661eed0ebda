"""Notes and passages in words, for a model and a person."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Final

from fingerpost.builtin.knowledge.base import Found
from fingerpost.builtin.knowledge.records import Note
from fingerpost.builtin.passages import Hit, Passage
from fingerpost.narrow.lexical.words import terms_of

LONGEST_PASSAGE: Final = 900
MOST_NAMED: Final = 8
_STRONG: Final = 0.5
_SHARED: Final = 5


def place_of(passage: Passage) -> str:
    """`garden/tomatoes.md:12-18`, `report.pdf page 3`."""
    if passage.page:
        return f"{passage.source} page {passage.page}"
    if passage.first_line == passage.last_line:
        return f"{passage.source}:{passage.first_line}"
    return f"{passage.source}:{passage.first_line}-{passage.last_line}"


def reason_of(query: str, hit: Hit) -> str:
    """Why a passage was found."""
    there = set(terms_of(f"{hit.passage.heading}\n{hit.passage.text}"))
    asked = {next(iter(terms_of(word)), ""): word for word in query.split()[:64]}
    shared = [word.strip(".,;:!?\"'()").lower() for term, word in asked.items() if term in there][:_SHARED]
    said = [f"shares {', '.join(shared)}"] if shared else []
    if hit.meaning is not None and hit.meaning >= _STRONG:
        said.append("means much the same")
    elif not shared:
        said.append("means something near")
    return "; ".join(said)


def shown_hits(query: str, found: Found) -> str:
    """A search's result, numbered."""
    head = f"{_count(len(found.hits), 'passage')} for {query[:200]!r}, best first:"
    parts = [
        f"[{number}] {place_of(hit.passage)} · {hit.passage.heading} (score {hit.score:.2f}: "
        f"{reason_of(query, hit)})\n{cut(hit.passage.text, LONGEST_PASSAGE)}"
        for number, hit in enumerate(found.hits, start=1)
    ]
    return "\n\n".join((head, *parts, *caveats(found)))


def caveats(found: Found) -> Sequence[str]:
    """What the search could not look into: silence would be taken for "there is nothing"."""
    said: list[str] = []
    if found.reading:
        said.append(f"Not searched yet: {_count(found.reading, 'PDF file')} still being read.")
    if found.unread:
        named = ", ".join(f"{note.path} ({note.problem})" for note in found.unread[:MOST_NAMED])
        more = len(found.unread) - MOST_NAMED
        said.append(f"Not searched: {named}" + (f" and {more} more." if more > 0 else "."))
    return said


def about(note: Note, *, outgoing: Iterable[str] = (), incoming: Iterable[str] = ()) -> str:
    """One line on a note, and its links."""
    said = [note.title if note.title != note.stem else ""]
    said += [f"tags {', '.join(note.tags[:MOST_NAMED])}" if note.tags else "", note.front.date]
    lines = [f"{note.path} · {' · '.join(filter(None, said))}" if any(said) else note.path]
    for words, paths in (("Links to", tuple(outgoing)), ("Linked from", tuple(incoming))):
        if paths:
            more = f" and {len(paths) - MOST_NAMED} more" if len(paths) > MOST_NAMED else ""
            lines.append(f"{words}: {', '.join(paths[:MOST_NAMED])}{more}")
    if note.problem:
        lines.append(f"Problem: {note.problem}")
    return "\n".join(lines)


def day_of(modified_ns: int) -> str:
    return f"{datetime.fromtimestamp(modified_ns / 1e9, UTC):%Y-%m-%d}"


def cut(text: str, most: int) -> str:
    """The beginning of a text, up to the end of a word."""
    if len(text) <= most:
        return text
    return text[: text.rfind(" ", most // 2, most) if " " in text[most // 2 : most] else most].rstrip() + " …"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")

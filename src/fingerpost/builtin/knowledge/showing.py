"""Notes and passages in words, for a model and a person."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Final

from fingerpost.builtin.knowledge.base import SearchResult
from fingerpost.builtin.knowledge.records import KnowledgeNote
from fingerpost.builtin.passages import PassageHit, TextPassage
from fingerpost.narrow.lexical.words import iterate_terms

MAX_SHOWN_LENGTH: Final = 900
MAX_NAMED: Final = 8
_STRONG_SCORE: Final = 0.5
_SHARED: Final = 5


def format_location(passage: TextPassage) -> str:
    """`garden/tomatoes.md:12-18`, `report.pdf page 3`."""
    if passage.page:
        return f"{passage.source} page {passage.page}"
    if passage.first_line == passage.last_line:
        return f"{passage.source}:{passage.first_line}"
    return f"{passage.source}:{passage.first_line}-{passage.last_line}"


def explain_hit(query: str, hit: PassageHit) -> str:
    """Why a passage was found."""
    there = set(iterate_terms(f"{hit.passage.heading}\n{hit.passage.text}"))
    asked = {next(iter(iterate_terms(word)), ""): word for word in query.split()[:64]}
    shared = [word.strip(".,;:!?\"'()").lower() for term, word in asked.items() if term in there][:_SHARED]
    said = [f"shares {', '.join(shared)}"] if shared else []
    if hit.meaning is not None and hit.meaning >= _STRONG_SCORE:
        said.append("means much the same")
    elif not shared:
        said.append("means something near")
    return "; ".join(said)


def format_hits(query: str, found: SearchResult) -> str:
    """A search's result, numbered."""
    head = f"{_format_count(len(found.hits), 'passage')} for {query[:200]!r}, best first:"
    parts = [
        f"[{number}] {format_location(hit.passage)} · {hit.passage.heading} (score {hit.score:.2f}: "
        f"{explain_hit(query, hit)})\n{shorten(hit.passage.text, MAX_SHOWN_LENGTH)}"
        for number, hit in enumerate(found.hits, start=1)
    ]
    return "\n\n".join((head, *parts, *list_caveats(found)))


def list_caveats(found: SearchResult) -> Sequence[str]:
    """What the search could not look into: silence would be taken for "there is nothing"."""
    said: list[str] = []
    if found.reading:
        said.append(f"Not searched yet: {_format_count(found.reading, 'PDF file')} still being read.")
    if found.unread:
        named = ", ".join(f"{note.path} ({note.problem})" for note in found.unread[:MAX_NAMED])
        more = len(found.unread) - MAX_NAMED
        said.append(f"Not searched: {named}" + (f" and {more} more." if more > 0 else "."))
    return said


def describe_note(note: KnowledgeNote, *, outgoing: Iterable[str] = (), incoming: Iterable[str] = ()) -> str:
    """One line on a note, and its links."""
    said = [note.title if note.title != note.stem else ""]
    said += [f"tags {', '.join(note.tags[:MAX_NAMED])}" if note.tags else "", note.front.date]
    lines = [f"{note.path} · {' · '.join(filter(None, said))}" if any(said) else note.path]
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
    """The beginning of a text, up to the end of a word."""
    if len(text) <= limit:
        return text
    return (
        text[: text.rfind(" ", limit // 2, limit) if " " in text[limit // 2 : limit] else limit].rstrip()
        + " …"
    )


def _format_count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")

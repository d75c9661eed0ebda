"""Contexts: what a model should know before it begins, within a bound of tokens.

A context is a note in the folder `contexts`: its own text, the notes it links to, and the passages that
lines such as `- search: open decisions` find. The one called `kos` is the person's own: how they work and
what they are at. Where nobody wrote it, the first page of the knowledge base and its newest notes stand in.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from fingerpost.builtin.kit import ToolRefused
from fingerpost.builtin.knowledge.base import CONTEXTS, KnowledgeBase, Library
from fingerpost.builtin.knowledge.records import Note
from fingerpost.builtin.knowledge.showing import about, day_of, place_of
from fingerpost.call.digest.tokens import clip, count_tokens
from fingerpost.frozen import frozen

OWN: Final = "kos"
USUAL_TOKENS: Final = 3000
MOST_TOKENS: Final = 12_000
MOST_NOTES: Final = 40
NEWEST: Final = 5
PER_SEARCH: Final = 3
OF_ITSELF: Final = 0.5  # of the tokens, at most for the context's own text
SHORTEST: Final = 40  # tokens: less of a note says nothing
_SEARCH = re.compile(r"\s{0,8}[-*+]?\s{0,4}search:\s{0,4}(.{1,300})", re.IGNORECASE)
_FIRST_PAGES: Final = ("index", "readme", "home", "start", "moc")


@frozen(kw_only=False)
class Piece:
    """Something that belongs into a context: where it is from, and its text."""

    title: str
    text: str


class Contexts:
    """Loads contexts of one knowledge base."""

    def __init__(self, base: KnowledgeBase) -> None:
        self._base = base

    def own(self, tokens: int) -> str:
        """The person's own context, or what stands in for it."""
        self._base.look()
        note = _named(self._base.library, OWN)
        if note is not None:
            return self._bundle(note, tokens)
        pieces = list(self._stand_in(self._base.library))
        if not pieces:
            message = "The knowledge base is empty."
            raise ToolRefused(message, hint="Put notes into its folder.")
        head = f"There is no {CONTEXTS}/{OWN}.md: this is the first page and the newest notes."
        return _fitted(head, pieces, tokens)

    def named(self, name: str, tokens: int) -> str:
        """The context with this name. Raises `ToolRefused` where there is none."""
        self._base.look()
        note = _named(self._base.library, name)
        if note is None:
            message = f"There is no context {name[:100]!r}."
            raise ToolRefused(message, hint=self.listed())
        return self._bundle(note, tokens)

    def listed(self) -> str:
        """Which contexts there are."""
        self._base.look()
        notes = contexts_of(self._base.library)
        if not notes:
            return f"No context is written yet: one is a note in {CONTEXTS}/ that links to others."
        lines = [
            f"- {note.stem}: {note.front.description or note.title} ({len(note.references)} links)"
            for note in notes
        ]
        return "Contexts there are:\n" + "\n".join(lines)

    def of_notes(self, paths: Sequence[str], tokens: int) -> str:
        """These notes, each with its fair share."""
        notes = [self._base.find(path) for path in dict.fromkeys(paths[:MOST_NOTES])]
        return _fitted("", [self._piece(note) for note in notes], tokens)

    def on_topic(self, topic: str, tokens: int) -> str:
        """What the notes say on a topic, and which notes stand next to those."""
        found = self._base.search(topic, MOST_NOTES)
        if not found.hits:
            message = f"No note says anything about {topic[:100]!r}."
            raise ToolRefused(message, hint=self.listed())
        pieces = [
            Piece(f"{place_of(hit.passage)} · {hit.passage.heading}", hit.passage.text) for hit in found.hits
        ]
        near = self._neighbours([hit.passage.source for hit in found.hits[:NEWEST]])
        head = f"From the notes on {topic[:200]!r}."
        return _fitted(
            head + (f" Linked with them: {', '.join(near)}." if near else ""), pieces, tokens, share=False
        )

    def _neighbours(self, paths: Sequence[str]) -> list[str]:
        graph = self._base.library.graph
        near = [to for path in paths for to in (*graph.outgoing.get(path, ()), *graph.incoming.get(path, ()))]
        return [path for path in dict.fromkeys(near) if path not in paths][:NEWEST]

    def _bundle(self, note: Note, tokens: int) -> str:
        library = self._base.library
        text = self._body(note)
        linked = [library.notes[path] for path in library.graph.outgoing.get(note.path, ())[:MOST_NOTES]]
        pieces = [self._piece(each) for each in linked]
        queries = [
            found[1].strip() for line in text.split("\n") if (found := _SEARCH.match(line)) is not None
        ]
        for query in queries[:MOST_NOTES]:
            pieces += [
                Piece(f"{place_of(hit.passage)} · found for {query!r}", hit.passage.text)
                for hit in self._base.search(query, PER_SEARCH).hits
                if hit.passage.source != note.path
            ]
        lost = library.graph.broken.get(note.path, ())
        tail = f"\n\nNot there: {', '.join(lost[:NEWEST])}." if lost else ""
        own = clip(text.strip(), max(SHORTEST, int(tokens * OF_ITSELF)))
        return _fitted(f"{about(note)}\n\n{own}{tail}", pieces, tokens)

    def _piece(self, note: Note) -> Piece:
        return Piece(about(note), self._body(note) if not note.problem or note.pages else "")

    def _body(self, note: Note) -> str:
        lines = self._base.text(note).split("\n")
        return "\n".join(lines[note.front.lines :]).strip()

    def _stand_in(self, library: Library) -> Iterator[Piece]:
        readable = [note for note in library.notes.values() if not note.problem]
        first = [note for note in readable if not note.folder and note.stem.casefold() in _FIRST_PAGES]
        for note in sorted(first, key=lambda note: _FIRST_PAGES.index(note.stem.casefold()))[:1]:
            yield self._piece(note)
        newest = sorted(readable, key=lambda note: -note.stamp.modified_ns)
        for note in [note for note in newest if note not in first[:1]][:NEWEST]:
            yield Piece(f"{about(note)} · changed {day_of(note.stamp.modified_ns)}", self._piece(note).text)


def contexts_of(library: Library) -> tuple[Note, ...]:
    return tuple(note for note in library.notes.values() if note.folder.casefold() == CONTEXTS)


def _named(library: Library, name: str) -> Note | None:
    wanted = name.strip().removesuffix(".md").casefold()
    for note in contexts_of(library):
        if wanted in (note.stem.casefold(), note.title.casefold(), *map(str.casefold, note.front.aliases)):
            return note
    return None


def _fitted(head: str, pieces: Sequence[Piece], tokens: int, *, share: bool = True) -> str:
    """The head and as much of the pieces as fits: of each its share, or one after the other."""
    said = [head] if head else []
    left = tokens - count_tokens(head)
    for place, piece in enumerate(pieces):
        title = f"--- {piece.title}\n"
        room = (left // (len(pieces) - place) if share else left) - count_tokens(title) - 16
        if room < SHORTEST and place:
            said.append(f"Left out for want of room: {len(pieces) - place} more.")
            break
        text = clip(piece.text, max(room, 0))
        whole = title + text + (" …" if len(text) < len(piece.text) else "")
        said.append(whole)
        left -= count_tokens(whole) + 2
    return "\n\n".join(said)

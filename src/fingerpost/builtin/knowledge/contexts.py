"""Contexts: what a model should know before it starts, within a token limit.

A context is a note in the folder `contexts`: its own text, the notes it links to, and the passages found by
lines such as `- search: open decisions`. The context `kos` describes the person's own work. If it does not
exist, the first page of the knowledge base and its newest notes replace it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from fingerpost.builtin.knowledge.base import CONTEXT_FOLDER, KnowledgeBase, NoteLibrary
from fingerpost.builtin.knowledge.documents import KnowledgeNote
from fingerpost.builtin.knowledge.views import describe_note, format_day, format_location
from fingerpost.builtin.toolkit import ToolRefused
from fingerpost.call.digest.tokens import clip_to_tokens, count_tokens
from fingerpost.frozen import frozen

OWN_CONTEXT_NAME: Final = "kos"
DEFAULT_TOKENS: Final = 3000
MAX_TOKENS: Final = 12_000
MAX_NOTES: Final = 40
MAX_NEWEST: Final = 5
HITS_PER_SEARCH: Final = 3
MAX_OWN_TEXT_SHARE: Final = 0.5  # maximum share of the tokens for the context's own text
MIN_PIECE_TOKENS: Final = 40  # less of a note is useless
_SEARCH = re.compile(r"\s{0,8}[-*+]?\s{0,4}search:\s{0,4}(.{1,300})", re.IGNORECASE)
_FIRST_PAGES: Final = ("index", "readme", "home", "start", "moc")


@frozen(kw_only=False)
class ContextPiece:
    """A part of a context: its source and its text."""

    title: str
    text: str


class ContextLoader:
    """Loads the contexts of one knowledge base."""

    def __init__(self, base: KnowledgeBase) -> None:
        self._base = base

    def load_own(self, tokens: int) -> str:
        """Return the person's own context, or its replacement."""
        self._base.refresh()
        note = _find_named(self._base.library, OWN_CONTEXT_NAME)
        if note is not None:
            return self._load_bundle(note, tokens)
        pieces = list(self._build_default(self._base.library))
        if not pieces:
            message = "The knowledge base is empty."
            raise ToolRefused(message, hint="Put notes into its folder.")
        head = (
            f"There is no {CONTEXT_FOLDER}/{OWN_CONTEXT_NAME}.md: this "
            "is the first page and the newest notes."
        )
        return _fit_pieces(head, pieces, tokens)

    def load_named(self, name: str, tokens: int) -> str:
        """Return the context with this name. Raises `ToolRefused` if there is none."""
        self._base.refresh()
        note = _find_named(self._base.library, name)
        if note is None:
            message = f"There is no context {name[:100]!r}."
            raise ToolRefused(message, hint=self.list_contexts())
        return self._load_bundle(note, tokens)

    def list_contexts(self) -> str:
        """Return a list of all contexts."""
        self._base.refresh()
        notes = find_contexts(self._base.library)
        if not notes:
            return f"No context is written yet: one is a note in {CONTEXT_FOLDER}/ that links to others."
        lines = [
            f"- {note.stem}: {note.front.description or note.title} ({len(note.references)} links)"
            for note in notes
        ]
        return "Contexts there are:\n" + "\n".join(lines)

    def load_notes(self, paths: Sequence[str], tokens: int) -> str:
        """Return these notes, each with an equal share of the tokens."""
        notes = [self._base.find_note(path) for path in dict.fromkeys(paths[:MAX_NOTES])]
        return _fit_pieces("", [self._build_piece(note) for note in notes], tokens)

    def load_topic(self, topic: str, tokens: int) -> str:
        """Return what the notes say about a topic, and the notes linked with those."""
        found = self._base.search(topic, MAX_NOTES)
        if not found.hits:
            message = f"No note says anything about {topic[:100]!r}."
            raise ToolRefused(message, hint=self.list_contexts())
        pieces = [
            ContextPiece(f"{format_location(hit.passage)} · {hit.passage.heading}", hit.passage.text)
            for hit in found.hits
        ]
        near = self._find_neighbours([hit.passage.source for hit in found.hits[:MAX_NEWEST]])
        head = f"From the notes on {topic[:200]!r}."
        return _fit_pieces(
            head + (f" Linked with them: {', '.join(near)}." if near else ""),
            pieces,
            tokens,
            equal_shares=False,
        )

    def _find_neighbours(self, paths: Sequence[str]) -> list[str]:
        graph = self._base.library.graph
        near = [to for path in paths for to in (*graph.outgoing.get(path, ()), *graph.incoming.get(path, ()))]
        return [path for path in dict.fromkeys(near) if path not in paths][:MAX_NEWEST]

    def _load_bundle(self, note: KnowledgeNote, tokens: int) -> str:
        library = self._base.library
        text = self._read_body(note)
        linked = [library.notes[path] for path in library.graph.outgoing.get(note.path, ())[:MAX_NOTES]]
        pieces = [self._build_piece(each) for each in linked]
        queries = [
            found[1].strip() for line in text.split("\n") if (found := _SEARCH.match(line)) is not None
        ]
        for query in queries[:MAX_NOTES]:
            pieces += [
                ContextPiece(f"{format_location(hit.passage)} · found for {query!r}", hit.passage.text)
                for hit in self._base.search(query, HITS_PER_SEARCH).hits
                if hit.passage.source != note.path
            ]
        lost = library.graph.broken.get(note.path, ())
        tail = f"\n\nNot there: {', '.join(lost[:MAX_NEWEST])}." if lost else ""
        own = clip_to_tokens(text.strip(), max(MIN_PIECE_TOKENS, int(tokens * MAX_OWN_TEXT_SHARE)))
        return _fit_pieces(f"{describe_note(note)}\n\n{own}{tail}", pieces, tokens)

    def _build_piece(self, note: KnowledgeNote) -> ContextPiece:
        return ContextPiece(
            describe_note(note), self._read_body(note) if not note.problem or note.pages else ""
        )

    def _read_body(self, note: KnowledgeNote) -> str:
        lines = self._base.read_text(note).split("\n")
        return "\n".join(lines[note.front.line_count :]).strip()

    def _build_default(self, library: NoteLibrary) -> Iterator[ContextPiece]:
        readable = [note for note in library.notes.values() if not note.problem]
        first = [note for note in readable if not note.folder and note.stem.casefold() in _FIRST_PAGES]
        for note in sorted(first, key=lambda note: _FIRST_PAGES.index(note.stem.casefold()))[:1]:
            yield self._build_piece(note)
        newest = sorted(readable, key=lambda note: -note.stamp.modified_ns)
        for note in [note for note in newest if note not in first[:1]][:MAX_NEWEST]:
            yield ContextPiece(
                f"{describe_note(note)} · changed {format_day(note.stamp.modified_ns)}",
                self._build_piece(note).text,
            )


def find_contexts(library: NoteLibrary) -> tuple[KnowledgeNote, ...]:
    return tuple(note for note in library.notes.values() if note.folder.casefold() == CONTEXT_FOLDER)


def _find_named(library: NoteLibrary, name: str) -> KnowledgeNote | None:
    wanted = name.strip().removesuffix(".md").casefold()
    for note in find_contexts(library):
        if wanted in (note.stem.casefold(), note.title.casefold(), *map(str.casefold, note.front.aliases)):
            return note
    return None


def _fit_pieces(head: str, pieces: Sequence[ContextPiece], tokens: int, *, equal_shares: bool = True) -> str:
    """Return the head and as much of the pieces as fits, with equal shares or one after another."""
    parts = [head] if head else []
    left = tokens - count_tokens(head)
    for place, piece in enumerate(pieces):
        title = f"--- {piece.title}\n"
        room = (left // (len(pieces) - place) if equal_shares else left) - count_tokens(title) - 16
        if room < MIN_PIECE_TOKENS and place:
            parts.append(f"Left out for want of room: {len(pieces) - place} more.")
            break
        text = clip_to_tokens(piece.text, max(room, 0))
        whole = title + text + (" …" if len(text) < len(piece.text) else "")
        parts.append(whole)
        left -= count_tokens(whole) + 2
    return "\n\n".join(parts)

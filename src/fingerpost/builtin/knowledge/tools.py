"""The six tools of the knowledge base, and contexts: what a model should know before it starts.

A context is a note in the folder `contexts`: its own text, the notes it links to, and the passages found by
lines such as `- search: open decisions`. The context `kos` describes the person's own work. If it does not
exist, the first page of the knowledge base and its newest notes replace it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final, TypeVar, cast

import anyio.to_thread

from fingerpost.builtin.knowledge.base import CONTEXT_FOLDER, KnowledgeBase, NoteLibrary, SearchResult
from fingerpost.builtin.knowledge.documents import KnowledgeNote, normalize_tags
from fingerpost.builtin.knowledge.synthesis import (
    MAX_SOURCES,
    UNANSWERED_TEXT,
    CitedAnswer,
    WrittenAnswer,
    build_prompt,
    extract_answer,
    format_sources,
    keep_cited_sentences,
    write_answer,
)
from fingerpost.builtin.knowledge.views import (
    describe_note,
    format_day,
    format_hits,
    format_location,
    list_caveats,
    list_folder,
    read_about,
    read_note,
)
from fingerpost.builtin.toolkit import (
    BuiltinHost,
    BuiltinTool,
    ToolCaller,
    ToolDefinitions,
    ToolRefused,
    ToolReply,
)
from fingerpost.call.digest.tokens import clip_to_tokens, count_tokens
from fingerpost.frozen import frozen
from fingerpost.records import Effect, Json, JsonObject

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
            raise ToolRefused("The knowledge base is empty.", hint="Put notes into its folder.")
        missing = f"There is no {CONTEXT_FOLDER}/{OWN_CONTEXT_NAME}.md"
        return _fit_pieces(f"{missing}: this is the first page and the newest notes.", pieces, tokens)

    def load_named(self, name: str, tokens: int) -> str:
        """Return the context with this name. Raises `ToolRefused` if there is none."""
        self._base.refresh()
        note = _find_named(self._base.library, name)
        if note is None:
            raise ToolRefused(f"There is no context {name[:100]!r}.", hint=self.list_contexts())
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
            raise ToolRefused(f"No note says anything about {topic[:100]!r}.", hint=self.list_contexts())
        pieces = [
            ContextPiece(f"{format_location(hit.passage)} · {hit.passage.heading}", hit.passage.text)
            for hit in found.hits
        ]
        paths = [hit.passage.source for hit in found.hits[:MAX_NEWEST]]
        graph = self._base.library.graph
        near = [to for path in paths for to in (*graph.outgoing.get(path, ()), *graph.incoming.get(path, ()))]
        near = [path for path in dict.fromkeys(near) if path not in paths][:MAX_NEWEST]
        head = f"From the notes on {topic[:200]!r}."
        head += f" Linked with them: {', '.join(near)}." if near else ""
        return _fit_pieces(head, pieces, tokens, equal_shares=False)

    def _load_bundle(self, note: KnowledgeNote, tokens: int) -> str:
        library = self._base.library
        text = self._read_body(note)
        linked = [library.notes[path] for path in library.graph.outgoing.get(note.path, ())[:MAX_NOTES]]
        pieces = [self._build_piece(each) for each in linked]
        queries = [found[1].strip() for line in text.split("\n") if (found := _SEARCH.match(line))]
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
        body = self._read_body(note) if not note.problem or note.pages else ""
        return ContextPiece(describe_note(note), body)

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
            title = f"{describe_note(note)} · changed {format_day(note.stamp.modified_ns)}"
            yield ContextPiece(title, self._build_piece(note).text)


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


T = TypeVar("T")

DEFINITIONS: Final = ToolDefinitions.load(__package__ or "")
DEFAULT_HITS: Final = 6


class KnowledgeTools:
    """Implements the tools for one knowledge base."""

    def __init__(self, host: BuiltinHost, base: KnowledgeBase) -> None:
        self._host = host
        self._base = base
        self._contexts = ContextLoader(base)
        self._by_meaning = host.settings.flags.dense_scores

    async def search_notes(self, arguments: JsonObject, caller: ToolCaller) -> ToolReply:
        query = str(arguments["query"])
        limit = _get_number(arguments, "limit", DEFAULT_HITS)
        found = await _run_in_thread(lambda: self._search_notes(query, limit, arguments))
        return ToolReply(format_hits(query, found) if found.hits else _report_no_hits(query, found))

    async def read_note(self, arguments: JsonObject, caller: ToolCaller) -> ToolReply:
        path, section = str(arguments["path"]), str(arguments.get("section") or "")
        if subject := str(arguments.get("about") or ""):
            return ToolReply(await _run_in_thread(lambda: read_about(self._base, path, subject)))
        start, end = _get_number(arguments, "start_line", 1), _get_number(arguments, "end_line", sys.maxsize)
        return ToolReply(await _run_in_thread(lambda: read_note(self._base, path, section, start, end)))

    async def list_notes(self, arguments: JsonObject, caller: ToolCaller) -> ToolReply:
        path, depth = str(arguments.get("path") or "."), _get_number(arguments, "depth", 1)
        return ToolReply(await _run_in_thread(lambda: list_folder(self._base, path, depth)))

    async def get_own_context(self, arguments: JsonObject, caller: ToolCaller) -> ToolReply:
        tokens = _get_number(arguments, "max_tokens", DEFAULT_TOKENS)
        name, contexts = str(arguments.get("name") or ""), self._contexts
        load = partial(contexts.load_named, name) if name else contexts.load_own
        return ToolReply(await _run_in_thread(lambda: load(tokens)))

    async def get_context(self, arguments: JsonObject, caller: ToolCaller) -> ToolReply:
        return ToolReply(await _run_in_thread(lambda: self._load_context(arguments)))

    async def synthesize_answer(self, arguments: JsonObject, caller: ToolCaller) -> ToolReply:
        question = str(arguments["question"])
        found = await _run_in_thread(lambda: self._search_notes(question, MAX_SOURCES, arguments))
        if not found.hits:
            return ToolReply(_report_no_hits(question, found))
        sources = [hit.passage for hit in found.hits]
        router, model = self._host.router, WrittenAnswer()
        if router is not None and router.models.prime:
            model = await write_answer(router, build_prompt(question, sources), caller)
        answer = keep_cited_sentences(model.text, len(sources))
        if UNANSWERED_TEXT in model.text and not answer.cited:
            near = "\n".join(f"- {format_location(source)} · {source.heading}" for source in sources[:5])
            return ToolReply(f"The notes do not answer this. Nearest to it:\n{near}")
        by = model.by if answer.cited else ""
        if not answer.cited:
            extract = partial(extract_answer, question, found.hits, by_meaning=self._by_meaning)
            answer = await _run_in_thread(extract)
        remarks = (*_list_remarks(answer, model, by), *list_caveats(found))
        return ToolReply("\n\n".join((answer.text, format_sources(sources, answer.cited), *remarks)))

    def _search_notes(self, query: str, limit: int, arguments: JsonObject) -> SearchResult:
        folder = "/".join(self._base.folder.split_path(str(arguments.get("folder") or "")))
        paths = [self._base.find_note(path).path for path in _get_texts(arguments, "paths")]
        tags = normalize_tags(_get_texts(arguments, "tags"))
        found = self._base.search(query, limit, folder=folder, tags=tags, paths=paths)
        # The caller named the knowledge base's own folder.
        if not found.hits and folder == self._base.folder.root.name:
            return self._base.search(query, limit, tags=tags, paths=paths)
        return found

    def _load_context(self, arguments: JsonObject) -> str:
        tokens = _get_number(arguments, "max_tokens", DEFAULT_TOKENS)
        name, topic = str(arguments.get("name") or ""), str(arguments.get("topic") or "")
        if paths := _get_texts(arguments, "paths"):
            return self._contexts.load_notes(paths, tokens)
        if name:
            return self._contexts.load_named(name, tokens)
        return self._contexts.load_topic(topic, tokens) if topic else self._contexts.list_contexts()


def _report_no_hits(query: str, found: SearchResult) -> str:
    return "\n\n".join((f"No note says anything about {query[:200]!r}.", *list_caveats(found)))


def _list_remarks(answer: CitedAnswer, model: WrittenAnswer, by: str) -> Sequence[str]:
    if by:
        left_out = f" {answer.dropped} sentences without a source were left out." if answer.dropped else ""
        return (f"Written by {by} from these passages.{left_out}",)
    if model.problem:
        return (f"The model could not be asked ({model.problem}): these are the notes' own sentences.",)
    if model.text:
        return ("The model named no source: these are the notes' own sentences.",)
    return ("These are the notes' own sentences; no language model put them together.",)


def _get_number(arguments: JsonObject, name: str, default: int) -> int:
    value = arguments.get(name)
    return int(value) if isinstance(value, int | float) else default


def _get_texts(arguments: JsonObject, name: str) -> list[str]:
    value = arguments.get(name)
    return [str(each) for each in cast("Sequence[Json]", value)] if isinstance(value, list | tuple) else []


async def _run_in_thread(work: Callable[[], T]) -> T:
    return await anyio.to_thread.run_sync(work, abandon_on_cancel=True)


def build_knowledge_tools(tools: KnowledgeTools) -> tuple[BuiltinTool, ...]:
    """Build the six tools."""
    handlers = {
        "search_knowledge_base": tools.search_notes,
        "load_kos_context": tools.get_own_context,
        "read_kb_file": tools.read_note,
        "list_kb_directory": tools.list_notes,
        "load_kb_context": tools.get_context,
        "synthesize_kb_information": tools.synthesize_answer,
    }
    return tuple(DEFINITIONS.build_tool(name, run, Effect.READ) for name, run in handlers.items())

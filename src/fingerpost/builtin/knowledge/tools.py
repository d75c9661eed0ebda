"""The six tools of the knowledge base and their definitions."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar, cast

import anyio.to_thread

from fingerpost.builtin.host import BuiltinHost
from fingerpost.builtin.knowledge.base import KnowledgeBase, SearchResult
from fingerpost.builtin.knowledge.contexts import DEFAULT_TOKENS, MAX_TOKENS, ContextLoader
from fingerpost.builtin.knowledge.documents import normalize_tags
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
    format_hits,
    format_location,
    list_caveats,
    list_folder,
    read_about,
    read_note,
)
from fingerpost.builtin.toolkit import BuiltinTool, ToolCaller, ToolReply
from fingerpost.records import Effect, Json, JsonObject

T = TypeVar("T")

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
        if not found.hits:
            return ToolReply(
                "\n\n".join((f"No note says anything about {query[:200]!r}.", *list_caveats(found)))
            )
        return ToolReply(format_hits(query, found))

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
        name = str(arguments.get("name") or "")
        contexts = self._contexts
        return ToolReply(
            await _run_in_thread(
                lambda: contexts.load_named(name, tokens) if name else contexts.load_own(tokens)
            )
        )

    async def get_context(self, arguments: JsonObject, caller: ToolCaller) -> ToolReply:
        return ToolReply(await _run_in_thread(lambda: self._load_context(arguments)))

    async def synthesize_answer(self, arguments: JsonObject, caller: ToolCaller) -> ToolReply:
        question = str(arguments["question"])
        found = await _run_in_thread(lambda: self._search_notes(question, MAX_SOURCES, arguments))
        if not found.hits:
            return ToolReply(
                "\n\n".join((f"No note says anything about {question[:200]!r}.", *list_caveats(found)))
            )
        sources = [hit.passage for hit in found.hits]
        router = self._host.router
        model = WrittenAnswer()
        if router is not None and router.models.prime:
            model = await write_answer(router, build_prompt(question, sources), caller)
        answer = keep_cited_sentences(model.text, len(sources))
        if UNANSWERED_TEXT in model.text and not answer.cited:
            near = "\n".join(f"- {format_location(source)} · {source.heading}" for source in sources[:5])
            return ToolReply(f"The notes do not answer this. Nearest to it:\n{near}")
        by = model.by
        if not answer.cited:
            by = ""
            answer = await _run_in_thread(
                lambda: extract_answer(question, found.hits, by_meaning=self._by_meaning)
            )
        text = "\n\n".join(
            (
                answer.text,
                format_sources(sources, answer.cited),
                *_list_remarks(answer, model, by),
                *list_caveats(found),
            )
        )
        return ToolReply(text)

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


# These tools are for stored knowledge, not for general knowledge.
_WHEN_NOT: Final = (
    "General knowledge, arithmetic, explanations, jokes, greetings: answer directly",
    "What the conversation already holds",
    "Files outside of the knowledge base, and source code",
)
_NOTE_KEYWORDS: Final = (
    "my notes",
    "notes",
    "note",
    "knowledge base",
    "kb",
    "wiki",
    "vault",
    "journal",
    "second brain",
)


def _build_knowledge(**more: Any) -> Mapping[str, Any]:
    return {"category": "knowledge", "when_not": _WHEN_NOT, "timeout_ms": 60_000} | more


SEARCH_KNOWLEDGE: Final = _build_knowledge(
    priority=70,
    keywords=(
        *_NOTE_KEYWORDS,
        "search my notes",
        "what do my notes say",
        "what did i write",
        "which of my notes",
        "mention",
    ),
    typical_ms=40,
    typical_tokens=1200,
    purpose="Finds passages in the person's own notes",
    when=(
        "The person asks what their notes, documents or knowledge base say about something",
        "The person asks to find, look up or search something they wrote down",
    ),
    examples=(
        "What do my notes say about the tomato beds?",
        "Find my notes on API design patterns",
        "Which of my notes mention the insurance?",
    ),
)
READ_KNOWLEDGE: Final = _build_knowledge(
    priority=60,
    keywords=(*_NOTE_KEYWORDS, "read my note", "open the note", "what does the note say", ".md", "md"),
    typical_ms=10,
    typical_tokens=2000,
    purpose="Reads one note of the person's own, or a section of it",
    when=("The person names one note or document of theirs and wants to know what stands in it",),
    examples=("What does notes/garden.md say about watering?", "Read me my note on the boiler"),
)
LIST_KNOWLEDGE: Final = _build_knowledge(
    priority=50,
    keywords=(
        *_NOTE_KEYWORDS,
        "list my notes",
        "which notes",
        "notes do i have",
        "what is in my knowledge base",
    ),
    typical_ms=20,
    typical_tokens=600,
    purpose="Lists notes and folders of the knowledge base",
    when=("The person asks which notes or folders there are",),
    examples=("Which notes do I have about the house?", "List my knowledge base"),
)
OWN_CONTEXT_KNOWLEDGE: Final = _build_knowledge(
    priority=45,
    keywords=("kos", "my context", "knowledge operating system", "how i work", "what am i working on"),
    typical_ms=20,
    typical_tokens=2500,
    max_tokens=MAX_TOKENS + 100,
    purpose="Loads who the person is, how they work and what they are at, from their notes",
    when=("The person asks to load their context, or an answer depends on how they work",),
    examples=("Load my context before we begin", "Load my KOS context"),
)
CONTEXT_KNOWLEDGE: Final = _build_knowledge(
    priority=45,
    keywords=("load context", "context bundle", "named context", "load my notes on", *_NOTE_KEYWORDS),
    typical_ms=40,
    typical_tokens=2500,
    max_tokens=MAX_TOKENS + 100,
    purpose="Loads a named bundle of notes, or all that the notes hold on a topic",
    when=("The person asks to load or take up a bundle of notes, several notes or a topic as background",),
    examples=("Load the context for project atlas", "Which contexts do I have in my knowledge base?"),
)
SYNTHESIZE_KNOWLEDGE: Final = _build_knowledge(
    priority=55,
    keywords=(
        *_NOTE_KEYWORDS,
        "summarise my notes",
        "synthesize my notes",
        "across my notes",
        "compare my notes",
    ),
    typical_ms=3000,
    typical_tokens=700,
    timeout_ms=90_000,
    purpose="One answer from several notes, with its sources",
    when=(
        "The person wants a summary, a comparison or a conclusion from several of their notes",
        "The person wants the answer with its sources",
    ),
    examples=(
        "Summarise what my notes say about the move to Lisbon",
        "Across my notes, what have we decided about pricing?",
    ),
)


MAX_HITS: Final = 20
MAX_QUERY_LENGTH: Final = 1000
MAX_PATHS: Final = 40
MAX_LIST_DEPTH: Final = 8

_QUERY_SCHEMA: Final[JsonObject] = {"type": "string", "minLength": 1, "maxLength": MAX_QUERY_LENGTH}
_PATH_SCHEMA: Final[JsonObject] = {"type": "string", "minLength": 1, "maxLength": 1000}
_FOLDER_SCHEMA: Final[JsonObject] = {
    **_PATH_SCHEMA,
    "description": "Only notes in this folder of the knowledge base",
}
_TAGS_SCHEMA: Final[JsonObject] = {
    "type": "array",
    "items": {"type": "string", "maxLength": 100},
    "maxItems": 10,
    "description": "Only notes that have all of these tags",
}
_TOKENS_SCHEMA: Final[JsonObject] = {
    "type": "integer",
    "minimum": 200,
    "maximum": MAX_TOKENS,
    "default": DEFAULT_TOKENS,
    "description": "Most it may take",
}


def _build_tool(
    name: str,
    title: str,
    description: str,
    run: Any,
    knowledge: Mapping[str, Any],
    properties: Mapping[str, JsonObject],
    *required: str,
) -> BuiltinTool:
    return BuiltinTool(
        name=name,
        title=title,
        description=description,
        run=run,
        effect=Effect.READ,
        properties=properties,
        required=required,
        knowledge=knowledge,
    )


def build_knowledge_tools(tools: KnowledgeTools) -> tuple[BuiltinTool, ...]:
    """Build the six tools."""
    return (
        _build_tool(
            "search_knowledge_base",
            "Search the knowledge base",
            "Search the user's own knowledge base: their personal notes and documents (Markdown, text, PDF). "
            "Finds passages by words and by meaning and gives each with its file, heading and lines. Use it "
            "when the user asks what their notes say, or to find something they wrote down.",
            tools.search_notes,
            SEARCH_KNOWLEDGE,
            {
                "query": {**_QUERY_SCHEMA, "description": "What to look for, in the user's own words"},
                "limit": {"type": "integer", "minimum": 1, "maximum": MAX_HITS, "default": DEFAULT_HITS},
                "folder": _FOLDER_SCHEMA,
                "tags": _TAGS_SCHEMA,
            },
            "query",
        ),
        _build_tool(
            "load_kos_context",
            "Load the user's own context",
            "Load the user's knowledge operating system (KOS) context: who they are, how they work, what "
            "they are working on, from contexts/kos.md of their knowledge base or, where that is not "
            "written, its first page and newest notes.",
            tools.get_own_context,
            OWN_CONTEXT_KNOWLEDGE,
            {
                "name": {**_PATH_SCHEMA, "description": "Another context instead, by name"},
                "max_tokens": _TOKENS_SCHEMA,
            },
        ),
        _build_tool(
            "read_kb_file",
            "Read a note",
            "Read one note or document of the user's knowledge base: what it says, or what it says about "
            "something, a section or some lines of it; with its tags and the notes it links to and is "
            "linked from.",
            tools.read_note,
            READ_KNOWLEDGE,
            {
                "path": {
                    **_PATH_SCHEMA,
                    "description": "Its path, title or alias, such as garden/tomatoes.md",
                },
                "about": {**_QUERY_SCHEMA, "description": "Only what it says about this subject"},
                "section": {
                    "type": "string",
                    "maxLength": 200,
                    "description": "Only what stands under this heading; 'page 3' of a PDF",
                },
                "start_line": {"type": "integer", "minimum": 1},
                "end_line": {"type": "integer", "minimum": 1},
            },
            "path",
        ),
        _build_tool(
            "list_kb_directory",
            "List notes",
            "List the notes and folders of the user's knowledge base with their titles.",
            tools.list_notes,
            LIST_KNOWLEDGE,
            {
                "path": {
                    **_PATH_SCHEMA,
                    "default": ".",
                    "description": "A folder of the knowledge base",
                },
                "depth": {"type": "integer", "minimum": 1, "maximum": MAX_LIST_DEPTH, "default": 1},
            },
        ),
        _build_tool(
            "load_kb_context",
            "Load notes as context",
            "Load a bundle of the user's notes as background within a bound of tokens: a named context "
            "(a file in contexts/), everything on a topic, or the given notes. Without any of these it lists "
            "the contexts there are.",
            tools.get_context,
            CONTEXT_KNOWLEDGE,
            {
                "name": {**_PATH_SCHEMA, "description": "A named context"},
                "topic": {**_QUERY_SCHEMA, "description": "A topic, where no context is named"},
                "paths": {
                    "type": "array",
                    "items": _PATH_SCHEMA,
                    "maxItems": MAX_PATHS,
                    "description": "These notes, by path or title",
                },
                "max_tokens": _TOKENS_SCHEMA,
            },
        ),
        _build_tool(
            "synthesize_kb_information",
            "Answer from the notes",
            "Answer a question from several notes of the user's knowledge base at once: a summary, a "
            "comparison, a conclusion, in which every statement cites its source.",
            tools.synthesize_answer,
            SYNTHESIZE_KNOWLEDGE,
            {
                "question": {**_QUERY_SCHEMA, "description": "The question, in the user's own words"},
                "folder": _FOLDER_SCHEMA,
                "tags": _TAGS_SCHEMA,
                "paths": {
                    "type": "array",
                    "items": _PATH_SCHEMA,
                    "maxItems": MAX_PATHS,
                    "description": "Only these notes",
                },
            },
            "question",
        ),
    )

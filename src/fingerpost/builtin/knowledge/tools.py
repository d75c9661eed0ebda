"""The six tools of the knowledge base and their definitions."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Final, TypeVar, cast

import anyio.to_thread

from fingerpost.builtin.knowledge.base import KnowledgeBase, SearchResult
from fingerpost.builtin.knowledge.contexts import DEFAULT_TOKENS, ContextLoader
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
from fingerpost.builtin.toolkit import BuiltinHost, BuiltinTool, ToolCaller, ToolDefinitions, ToolReply
from fingerpost.records import Effect, Json, JsonObject

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

"""What the six tools of the knowledge base do: words in, words out. All of them only read."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Final, TypeVar, cast

import anyio.to_thread

from fingerpost.builtin.kit import Caller, Reply
from fingerpost.builtin.knowledge.answering import Written, written
from fingerpost.builtin.knowledge.base import Found, KnowledgeBase
from fingerpost.builtin.knowledge.contexts import USUAL_TOKENS, Contexts
from fingerpost.builtin.knowledge.front import normal_tags
from fingerpost.builtin.knowledge.listing import listed
from fingerpost.builtin.knowledge.reading import read_about, read_note
from fingerpost.builtin.knowledge.showing import caveats, place_of, shown_hits
from fingerpost.builtin.knowledge.synthesis import (
    MOST_SOURCES,
    UNANSWERED,
    Checked,
    checked,
    extract,
    prompt,
    sources_of,
)
from fingerpost.builtin.premises import Premises
from fingerpost.records import Json, JsonObject

T = TypeVar("T")

USUAL_HITS: Final = 6


class Tools:
    """What the tools do, over one knowledge base."""

    def __init__(self, premises: Premises, base: KnowledgeBase) -> None:
        self._premises = premises
        self._base = base
        self._contexts = Contexts(base)
        self._meaning = premises.settings.flags.dense_scores

    async def search(self, arguments: JsonObject, caller: Caller) -> Reply:
        query = str(arguments["query"])
        limit = _number(arguments, "limit", USUAL_HITS)
        found = await _in_thread(lambda: self._found(query, limit, arguments))
        if not found.hits:
            return Reply("\n\n".join((f"No note says anything about {query[:200]!r}.", *caveats(found))))
        return Reply(shown_hits(query, found))

    async def read(self, arguments: JsonObject, caller: Caller) -> Reply:
        path, section = str(arguments["path"]), str(arguments.get("section") or "")
        if subject := str(arguments.get("about") or ""):
            return Reply(await _in_thread(lambda: read_about(self._base, path, subject)))
        start, end = _number(arguments, "start_line", 1), _number(arguments, "end_line", sys.maxsize)
        return Reply(await _in_thread(lambda: read_note(self._base, path, section, start, end)))

    async def list(self, arguments: JsonObject, caller: Caller) -> Reply:
        path, depth = str(arguments.get("path") or "."), _number(arguments, "depth", 1)
        return Reply(await _in_thread(lambda: listed(self._base, path, depth)))

    async def own_context(self, arguments: JsonObject, caller: Caller) -> Reply:
        tokens = _number(arguments, "max_tokens", USUAL_TOKENS)
        name = str(arguments.get("name") or "")
        contexts = self._contexts
        return Reply(await _in_thread(lambda: contexts.named(name, tokens) if name else contexts.own(tokens)))

    async def context(self, arguments: JsonObject, caller: Caller) -> Reply:
        return Reply(await _in_thread(lambda: self._context(arguments)))

    async def synthesize(self, arguments: JsonObject, caller: Caller) -> Reply:
        question = str(arguments["question"])
        found = await _in_thread(lambda: self._found(question, MOST_SOURCES, arguments))
        if not found.hits:
            return Reply("\n\n".join((f"No note says anything about {question[:200]!r}.", *caveats(found))))
        sources = [hit.passage for hit in found.hits]
        router = self._premises.router
        model = Written()
        if router is not None and router.models.prime:
            model = await written(router, prompt(question, sources), caller)
        answer = checked(model.text, len(sources))
        if UNANSWERED in model.text and not answer.cited:
            near = "\n".join(f"- {place_of(source)} · {source.heading}" for source in sources[:5])
            return Reply(f"The notes do not answer this. Nearest to it:\n{near}")
        by = model.by
        if not answer.cited:
            by = ""
            answer = await _in_thread(lambda: extract(question, found.hits, meaning=self._meaning))
        text = "\n\n".join(
            (answer.text, sources_of(sources, answer.cited), *_remarks(answer, model, by), *caveats(found))
        )
        return Reply(text)

    def _found(self, query: str, limit: int, arguments: JsonObject) -> Found:
        folder = "/".join(self._base.folder.parts(str(arguments.get("folder") or "")))
        paths = [self._base.find(path).path for path in _texts(arguments, "paths")]
        tags = normal_tags(_texts(arguments, "tags"))
        found = self._base.search(query, limit, folder=folder, tags=tags, paths=paths)
        if not found.hits and folder == self._base.folder.root.name:  # named as it is seen from outside
            return self._base.search(query, limit, tags=tags, paths=paths)
        return found

    def _context(self, arguments: JsonObject) -> str:
        tokens = _number(arguments, "max_tokens", USUAL_TOKENS)
        name, topic = str(arguments.get("name") or ""), str(arguments.get("topic") or "")
        if paths := _texts(arguments, "paths"):
            return self._contexts.of_notes(paths, tokens)
        if name:
            return self._contexts.named(name, tokens)
        return self._contexts.on_topic(topic, tokens) if topic else self._contexts.listed()


def _remarks(answer: Checked, model: Written, by: str) -> Sequence[str]:
    if by:
        left_out = f" {answer.dropped} sentences without a source were left out." if answer.dropped else ""
        return (f"Written by {by} from these passages.{left_out}",)
    if model.problem:
        return (f"The model could not be asked ({model.problem}): these are the notes' own sentences.",)
    if model.text:
        return ("The model named no source: these are the notes' own sentences.",)
    return ("These are the notes' own sentences; no language model put them together.",)


def _number(arguments: JsonObject, name: str, usual: int) -> int:
    value = arguments.get(name)
    return int(value) if isinstance(value, int | float) else usual


def _texts(arguments: JsonObject, name: str) -> list[str]:
    value = arguments.get(name)
    return [str(each) for each in cast("Sequence[Json]", value)] if isinstance(value, list | tuple) else []


async def _in_thread(work: Callable[[], T]) -> T:
    return await anyio.to_thread.run_sync(work, abandon_on_cancel=True)

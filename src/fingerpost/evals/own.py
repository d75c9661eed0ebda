"""A set made of an operator's own tools and of what was chosen for real requests.

Nothing is labelled by hand: a request for which a tool worked is a query whose
right answer is that tool. Tools used for the same request in one conversation
were all needed; a tool that failed is no answer. Words and ids are stable, so
that the predictions of two configurations can be compared pair by pair.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

from fingerpost.frozen import frozen
from fingerpost.records import Choice, Json, JsonObject, ToolCard


@frozen
class OperatorSet:
    """The lines of both files, and how many choices name a tool that is gone."""

    tools: tuple[JsonObject, ...]
    queries: tuple[JsonObject, ...]
    gone: int = 0


def build_operator_set(cards: Sequence[ToolCard], choices: Iterable[Choice]) -> OperatorSet:
    """The set these tools and choices (newest first) make."""
    known = {card.key for card in cards}
    gone = 0
    chosen: dict[tuple[str, str | None], list[str]] = {}
    for choice in choices:
        if not choice.worked or not choice.request.strip():
            continue
        if choice.tool not in known:
            gone += 1
            continue
        tools = chosen.setdefault((choice.request, choice.conversation), [])
        if choice.tool not in tools:
            tools.insert(0, choice.tool)
    queries: dict[str, JsonObject] = {}
    for (request, _), tools in chosen.items():
        line = _build_query_line(request, tools)
        queries.setdefault(str(line["id"]), line)
    return OperatorSet(
        tools=tuple(_build_tool_line(card) for card in cards), queries=tuple(queries.values()), gone=gone
    )


def _build_tool_line(card: ToolCard) -> JsonObject:
    return {
        "id": card.key,
        "server": card.server,
        "name": card.name,
        "description": card.description,
        "input_schema": card.definition.get("inputSchema") or {"type": "object"},
    }


def build_request_id(request: str, tools: Sequence[str]) -> str:
    """The same for the same words and tools, in every run."""
    digest = hashlib.sha256("\0".join((request, *sorted(tools))).encode(errors="surrogatepass"))
    return f"own-{digest.hexdigest()[:16]}"


def _build_query_line(request: str, tools: Sequence[str]) -> dict[str, Json]:
    return {
        "id": build_request_id(request, tools),
        "query": request,
        "relevant": list(tools),
        "needs_tool": True,
    }

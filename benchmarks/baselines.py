"""What others do with the same tools and the same queries, computed in the same run.

Each baseline is the real thing: bm25s through its own tokenizer and index,
FastMCP through the search tool its server offers to a model.
"""

from __future__ import annotations

import importlib
import logging
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import anyio
import numpy as np
from fastmcp import FastMCP
from fastmcp.server.transforms.search import BM25SearchTransform
from fastmcp.tools.base import Tool, ToolResult
from numpy.typing import NDArray

from benchmarks.routing_sets import Set
from fingerpost import Settings
from fingerpost.evals.datasets import EvalCatalog, Prediction, QueryRecord, RankingEntry
from fingerpost.evals.predictions import RankingScope
from fingerpost.narrow.scorer import build_tool_text

TOP = 20
bm25s: Any = importlib.import_module("bm25s")  # it comes without types


def create_prediction(
    query: QueryRecord, tools: Sequence[str], scores: Sequence[float], ms: float
) -> Prediction:
    """A baseline's ranking as a prediction. It says nothing about need; its best score stands for fit."""
    ranking = tuple(RankingEntry(tool=tool, score=score) for tool, score in zip(tools, scores, strict=True))
    return Prediction(
        id=query.id, verdict="tool", need=1.0, fit=scores[0] if scores else 0.0, ranking=ranking, ms=ms
    )


def bm25(source: Set, queries: Sequence[QueryRecord], _: RankingScope = "catalog") -> list[Prediction]:
    """bm25s with its defaults (English stop words, small letters), over the text our own scorers read."""
    shelf = EvalCatalog.from_tools(source.tools, Settings())
    cards = shelf.snapshot.cards
    index: Any = bm25s.BM25()
    index.index(_tokens([build_tool_text(card).format_long() for card in cards]), show_progress=False)

    def score(text: str) -> NDArray[np.float32]:
        asked = _tokens([text])[0]
        return (
            cast("NDArray[np.float32]", index.get_scores(asked))
            if asked
            else np.zeros(len(cards), np.float32)
        )

    return [best_of(shelf, query, score) for query in queries]


def _tokens(texts: list[str]) -> list[list[str]]:
    made: Any = bm25s.tokenize(texts, stopwords="en", show_progress=False, return_ids=False)
    return cast("list[list[str]]", made)


class _Offered(Tool):
    """A tool of the set on a FastMCP server."""

    async def run(self, arguments: dict[str, Any], **_: Any) -> ToolResult:
        return ToolResult(content="")


@dataclass
class _Search:
    """A FastMCP server with its BM25 search transform, and the way back to the set's ids."""

    server: Any
    ids: dict[str, str]

    async def ask(self, text: str) -> list[str]:
        result = await self.server.call_tool("search_tools", {"query": text})
        content: dict[str, Any] = result.structured_content or {}
        found = cast("list[dict[str, Any]]", content.get("result") or [])
        return [self.ids[str(tool["name"])] for tool in found]


def fastmcp_search(
    source: Set, queries: Sequence[QueryRecord], _: RankingScope = "catalog"
) -> list[Prediction]:
    """FastMCP's `search_tools` as a model calls it; only the number of results is raised to twenty."""
    return anyio.run(_fastmcp_search, EvalCatalog.from_tools(source.tools, Settings()), queries)


async def _fastmcp_search(shelf: EvalCatalog, queries: Sequence[QueryRecord]) -> list[Prediction]:
    logging.getLogger("fastmcp").setLevel(logging.ERROR)
    logging.getLogger("mcp").setLevel(logging.ERROR)
    search = _fastmcp_server(shelf)
    await search.ask("anything")  # the index is made by the first search
    found: list[Prediction] = []
    for query in queries:
        began = time.perf_counter()
        tools = await search.ask(query.query)
        ms = (time.perf_counter() - began) * 1000
        found.append(create_prediction(query, tools, [1 - place / TOP for place in range(len(tools))], ms))
    return found


def _fastmcp_server(shelf: EvalCatalog) -> _Search:
    server: Any = FastMCP("bench")
    ids: dict[str, str] = {}
    for card in shelf.snapshot.cards:
        name = _free(re.sub(r"[^A-Za-z0-9_.-]+", "_", f"{card.server}_{card.name}")[:120], ids)
        ids[name] = shelf.ids[card.key]
        schema = cast("dict[str, Any]", card.definition["inputSchema"])
        server.add_tool(_Offered(name=name, description=card.description, parameters=schema))
    server.add_transform(BM25SearchTransform(max_results=TOP))
    return _Search(server, ids)


def _free(name: str, taken: dict[str, str]) -> str:
    number = 2
    while name in taken:
        name, number = f"{name}_{number}", number + 1
    return name


Encode = Callable[[str], NDArray[np.float32]]


def vectors_alone(source: Set, queries: Sequence[QueryRecord], encode: Encode) -> list[Prediction]:
    """Cosine of an encoder's vectors, nothing else: request against the tool's long text."""
    shelf = EvalCatalog.from_tools(source.tools, Settings())
    if not shelf.snapshot.cards:
        return [best_of(shelf, query, lambda _: np.zeros(0, np.float32)) for query in queries]
    matrix = np.stack([encode(build_tool_text(card).format_long()) for card in shelf.snapshot.cards])
    return [best_of(shelf, query, lambda text: matrix @ encode(text)) for query in queries]


def best_of(shelf: EvalCatalog, query: QueryRecord, score: Encode) -> Prediction:
    """The prediction of a way that gives every card a number."""
    cards = shelf.snapshot.cards
    began = time.perf_counter()
    scores = score(query.query)
    best: list[int] = np.argsort(-scores, kind="stable")[:TOP].tolist()
    ms = (time.perf_counter() - began) * 1000
    return create_prediction(query, [shelf.ids[cards[row].key] for row in best], scores[best].tolist(), ms)

"""What finding tools costs: our scorers beside bm25s and FastMCP's search, over the same tools in one run.

CPU time. Ours scores every tool; the others search as they are shipped: bm25s scores every tool too,
FastMCP answers a model's call of its `search_tools`. The catalogs are written here, so nothing is needed.
"""

from __future__ import annotations

import importlib
import logging
import random
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
from rich.console import Console
from rich.table import Table

from benchmarks.catalog import build, definition, listings
from fingerpost.narrow.dense import DenseScorer, OnnxEncoder
from fingerpost.narrow.dense.encoder import DIMENSIONS, Vector
from fingerpost.narrow.lexical_scorer import LexicalScorer
from fingerpost.narrow.scorer import ScorerRequest, build_tool_text
from fingerpost.records import ToolCard

SIZES = (300, 3_000, 10_000)
QUERIES = 60
ENCODED = 60  # tools encoded for real to say what one costs; the rest get made-up vectors
SEED = 7
bm25s: Any = importlib.import_module("bm25s")  # it comes without types

OPENINGS = ("Please", "Could you", "I need you to", "Quickly", "For the meeting tomorrow,", "")
WISHES = (
    "find the newest invoice of collection 12",
    "delete that ticket, it was a mistake",
    "list all open orders for Dana and send me the first page",
    "create an event on Friday at ten and invite the whole team to it",
    "update the file with the notes we took about the Berlin trip",
    "serch for mesages that mention the outage",
    "what photos do I have from last summer in Lisbon?",
    "close branch 17 and merge the other one",
)


def requests() -> list[str]:
    """Ordinary requests of at most 25 words, all different."""
    chance = random.Random(SEED)
    return [
        f"{chance.choice(OPENINGS)} {chance.choice(WISHES)} number {number}".strip()
        for number in range(QUERIES)
    ]


@dataclass(frozen=True, slots=True)
class SearchCost:
    """Seconds of CPU: to build, and for each query."""

    build: float
    queries: list[float]

    @property
    def typical(self) -> float:
        return float(np.median(self.queries))

    @property
    def slow(self) -> float:
        return float(np.percentile(self.queries, 99))


def measure_time(work: Callable[[], object]) -> float:
    begin = time.process_time()
    work()
    return time.process_time() - begin


def lexical(cards: Sequence[ToolCard], texts: Sequence[str]) -> SearchCost:
    scorer = LexicalScorer()
    building = measure_time(lambda: scorer.prepare(cards))
    scorer.scores(ScorerRequest(text="warm up"), cards)
    return SearchCost(
        building,
        [measure_time(lambda text=text: scorer.scores(ScorerRequest(text=text), cards)) for text in texts],
    )


class Halfway:
    """The real encoder for requests, random directions for tools: comparing costs the same."""

    identity = "random"

    def __init__(self, encoder: OnnxEncoder) -> None:
        self._encoder = encoder
        self._random = np.random.default_rng(SEED)
        self.is_real = False

    def encode(self, text: str) -> Vector:
        if self.is_real:
            return self._encoder.encode(text)
        made = self._random.standard_normal(DIMENSIONS, dtype=np.float32)
        return made / np.float32(np.linalg.norm(made))


def dense(
    cards: Sequence[ToolCard], texts: Sequence[str], encoder: OnnxEncoder, per_tool: float
) -> SearchCost:
    halfway = Halfway(encoder)
    with DenseScorer(halfway) as scorer:
        scorer.prepare(cards)
        scorer.wait(120)
        halfway.is_real = True
        scorer.scores(ScorerRequest(text="warm up"), cards)
        queries = [
            measure_time(lambda text=text: scorer.scores(ScorerRequest(text=text), cards)) for text in texts
        ]
    return SearchCost(per_tool * len(cards), queries)


def cost_of_encoding(encoder: OnnxEncoder, cards: Sequence[ToolCard]) -> float:
    encoder.encode("warm up")
    texts = [build_tool_text(card).format_long() for card in cards[:ENCODED]]
    return measure_time(lambda: [encoder.encode(text) for text in texts]) / len(texts)


def with_bm25s(cards: Sequence[ToolCard], texts: Sequence[str]) -> SearchCost:
    index: Any = bm25s.BM25()

    def tokens(passages: list[str]) -> list[list[str]]:
        made: Any = bm25s.tokenize(passages, stopwords="en", show_progress=False, return_ids=False)
        return cast("list[list[str]]", made)

    def make() -> None:
        index.index(tokens([build_tool_text(card).format_long() for card in cards]), show_progress=False)

    building = measure_time(make)
    return SearchCost(
        building, [measure_time(lambda text=text: index.get_scores(tokens([text])[0])) for text in texts]
    )


class Offered(Tool):
    """A tool on a FastMCP server that is never run."""

    async def run(self, arguments: dict[str, Any], **_: Any) -> ToolResult:
        return ToolResult(content="")


async def with_fastmcp(cards: Sequence[ToolCard], texts: Sequence[str]) -> SearchCost:
    for name in ("fastmcp", "mcp"):
        logging.getLogger(name).setLevel(logging.ERROR)
    server: Any = FastMCP("bench")
    for card in cards:
        name = re.sub(r"[^A-Za-z0-9_.-]+", "_", f"{card.server}_{card.name}")
        schema = cast("dict[str, Any]", card.definition["inputSchema"])
        server.add_tool(Offered(name=name, description=card.description, parameters=schema))
    server.add_transform(BM25SearchTransform())

    async def search(text: str) -> float:
        begin = time.process_time()
        await server.call_tool("search_tools", {"query": text})
        return time.process_time() - begin

    building = await search("anything")  # the first search makes the index
    return SearchCost(building, [await search(text) for text in texts[:20]])


def compare(table: Table, count: int, encoder: OnnxEncoder) -> None:
    cards = build(listings(count)).snapshot.cards
    texts = requests()
    costs = {"Fingerpost, words": lexical(cards, texts)}
    if encoder.is_installed:
        costs["Fingerpost, meaning"] = dense(cards, texts, encoder, cost_of_encoding(encoder, cards))
    costs["bm25s"] = with_bm25s(cards, texts)
    costs["FastMCP search"] = anyio.run(with_fastmcp, cards, texts)
    first = costs["Fingerpost, words"].typical
    for name, cost in costs.items():
        table.add_row(
            f"{len(cards):,}",
            name,
            f"{cost.build * 1e3:,.0f}",
            f"{cost.typical * 1e3:.2f}",
            f"{cost.slow * 1e3:.2f}",
            f"{cost.typical / first:.1f}",
        )
    table.add_section()


def change_of_one() -> Table:
    """A catalog in which one tool changes: what following it costs, beside building anew."""
    table = Table(title="One tool of many changes (CPU, words)")
    for column in ("tools", "build ms", "follow ms"):
        table.add_column(column, justify="right")
    for count in SIZES:
        catalog = build(listings(count))
        scorer = LexicalScorer()
        whole = measure_time(lambda scorer=scorer, cards=catalog.snapshot.cards: scorer.prepare(cards))
        last = listings(count)[-1]
        changed = {**definition(count), "name": last.definitions[-1]["name"]}
        catalog.replace_server(type(last)(server=last.server, definitions=(*last.definitions[:-1], changed)))
        again = measure_time(lambda scorer=scorer, cards=catalog.snapshot.cards: scorer.prepare(cards))
        table.add_row(f"{count:,}", f"{whole * 1e3:.0f}", f"{again * 1e3:.0f}")
    return table


def run() -> None:
    table = Table(title="Finding tools (CPU ms; meaning: index = encoding every tool once, kept on disk)")
    for column in ("tools", "by", "index", "query p50", "query p99", "x words"):
        table.add_column(column, justify="left" if column == "by" else "right")
    encoder = OnnxEncoder()
    for count in SIZES:
        compare(table, count, encoder)
    console = Console()
    console.print(table)
    console.print(change_of_one())

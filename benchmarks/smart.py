"""Server pre-selection without a model: tools and tokens left out, time added,
and the share of requests all of whose needed servers were kept.

The catalogs and requests are those in training/data: definitions of real and recorded
servers, requests written for them (short, vague, misspelt, several wishes; English and
Hebrew). The encoder was trained on these requests, so recall on others is a little lower.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

import anyio
from rich.console import Console
from rich.table import Table

from fingerpost.call.digest.tokens import count_tokens
from fingerpost.evals.datasets import EvalCatalog, QueryRecord, read_queries, read_tools
from fingerpost.events import Fanout, MemorySink
from fingerpost.narrow.narrower import Narrower
from fingerpost.narrow.request import NarrowRequest
from fingerpost.narrow.server_picker import DefinitionCosts, ServerPicker, SmartRoutingStats
from fingerpost.records import ServerChoice
from fingerpost.settings import Settings

DATA = Path(__file__).parent.parent / "training" / "data"
CATALOGS = (("registry",), ("packages",), ("everyday",), ("packages", "registry"))
REQUESTS = 60
VECTORS_S = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SmartFigures:
    """One catalog, and what pre-selection did to it over its requests."""

    name: str
    tools: int
    servers: int
    tokens: int
    requests: int
    recall: float  # requests whose needed servers were all kept
    figures: SmartRoutingStats
    first_ms: float  # the first request of all, which counts every definition once

    @property
    def saved(self) -> float:
        return self.figures.tokens_saved / (self.tokens * self.requests)


async def measure(names: Sequence[str], vectors: Path) -> SmartFigures:
    settings = Settings.model_validate({"narrow": {"vectors": str(vectors)}})
    shelf = EvalCatalog.from_tools(
        [tool for name in names for tool in read_tools(DATA / f"tools-{name}.jsonl")], settings
    )
    queries = [query for name in names for query in read_queries(DATA / f"requests-{name}.jsonl")]
    chosen = random.Random(4).sample([query for query in queries if query.wanted_groups], REQUESTS)
    narrower = Narrower(settings)
    narrower.prepare(shelf.snapshot)
    if narrower.parts.meaning is not None:
        narrower.parts.meaning.wait(VECTORS_S)
    sink, at_first = MemorySink(), MemorySink()
    events = Fanout(at_first)
    picker = ServerPicker(settings.smart_routing, events, count=count_tokens)
    await pick(picker, narrower, shelf, chosen[0])
    events.add(sink)
    kept = [await pick(picker, narrower, shelf, query) for query in chosen]
    narrower.close()
    return SmartFigures(
        name=" + ".join(names),
        tools=len(shelf.snapshot.cards),
        servers=len({card.server for card in shelf.snapshot.cards}),
        tokens=DefinitionCosts(count_tokens).count_total(shelf.snapshot.cards),
        requests=len(chosen),
        recall=mean(has_all(shelf, query, choice) for query, choice in zip(chosen, kept, strict=True)),
        figures=SmartRoutingStats.from_events(sink.events),
        first_ms=SmartRoutingStats.from_events(at_first.events[:2]).p50_ms,
    )


async def pick(
    picker: ServerPicker, narrower: Narrower, shelf: EvalCatalog, query: QueryRecord
) -> ServerChoice:
    request = NarrowRequest(text=query.query, history=query.history)
    signals = narrower.read_signals(query.query)
    return await picker.pick(
        query.query,
        query.history,
        None,
        shelf.snapshot,
        lambda: narrower.score_servers(request, signals),
        signals=signals,
    )


def has_all(shelf: EvalCatalog, query: QueryRecord, choice: ServerChoice) -> bool:
    servers = {card.key: card.server for card in shelf.snapshot.cards}
    return all(
        any(servers[key] in choice.servers for key in shelf.get_keys(group)) for group in query.wanted_groups
    )


def show(rows: Sequence[SmartFigures]) -> None:
    table = Table(title=f"Smart routing without a model ({REQUESTS} requests each)", title_justify="left")
    table.add_column("catalog")
    for column in (
        "servers",
        "tools",
        "fewer tools",
        "tokens",
        "fewer tokens",
        "first ms",
        "p50 ms",
        "p99 ms",
    ):
        table.add_column(column, justify="right")
    table.add_column("needed kept", justify="right")
    for row in rows:
        table.add_row(
            row.name,
            str(row.servers),
            str(row.tools),
            f"{row.figures.reduction:.0%}",
            f"{row.tokens:,}",
            f"{row.saved:.0%}",
            f"{row.first_ms:.1f}",
            f"{row.figures.p50_ms:.1f}",
            f"{row.figures.p99_ms:.1f}",
            f"{row.recall:.1%}",
        )
    Console(width=120).print(table)


async def measure_all() -> None:
    with tempfile.TemporaryDirectory() as vectors:
        show([await measure(names, Path(vectors)) for names in CATALOGS])


def run() -> None:
    anyio.run(measure_all)


if __name__ == "__main__":
    run()

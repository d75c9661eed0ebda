"""What a catalog costs: building it from records, and from fifty live servers, some of them dead."""

from __future__ import annotations

import gc
import sys
import time
import tracemalloc
from dataclasses import dataclass

import anyio
from rich.console import Console
from rich.table import Table

from fingerpost.catalog import Catalog
from fingerpost.events import MemorySink
from fingerpost.records import Json, JsonObject, Listing, ServerSpec, ServerState
from fingerpost.servers import Server, ServerPool
from fingerpost.settings.model import LimitSettings
from fingerpost.testing import tool_server

SIZES = (300, 1_000, 3_000, 10_000)
ROUNDS = 3
SERVERS = 50
TOOLS_PER_SERVER = 60
LONGEST_WAIT = 60.0

VERBS = ("get", "list", "search", "create", "update", "delete")
THINGS = ("invoice", "ticket", "branch", "message", "event", "table", "page", "photo", "order", "file")


def definition(number: int) -> JsonObject:
    """One of many tools, about as large as real ones are."""
    verb, thing = VERBS[number % len(VERBS)], THINGS[number // len(VERBS) % len(THINGS)]
    properties: dict[str, Json] = {
        "id": {"type": "string", "description": f"Which {thing} is meant"},
        "limit": {"type": "integer", "default": 20, "minimum": 1, "maximum": 100},
        "state": {
            "type": "string",
            "enum": ["open", "closed", "all"],
            "description": "Only those in this state",
        },
    }
    return {
        "name": f"{verb}_{thing}_{number}",
        "description": f"{verb.capitalize()} one {thing} or several of collection {number}, newest first.",
        "inputSchema": {"type": "object", "properties": properties, "required": ["id"]},
        "annotations": {"readOnlyHint": verb in ("get", "list", "search")},
    }


def build(listings: list[Listing]) -> Catalog:
    catalog = Catalog(events=MemorySink())
    for listing in listings:
        catalog.replace_server(listing)
    assert catalog.snapshot.cards
    return catalog


def listings(count: int) -> list[Listing]:
    """`count` tools on servers of sixty."""
    return [
        Listing(
            server=f"server{begin // TOOLS_PER_SERVER:03}",
            definitions=tuple(
                definition(number) for number in range(begin, min(count, begin + TOOLS_PER_SERVER))
            ),
        )
        for begin in range(0, count, TOOLS_PER_SERVER)
    ]


@dataclass(frozen=True, slots=True)
class CatalogCost:
    seconds: float
    listed_again: float  # seconds for the same listings once more, changing nothing
    bytes: int


def cost(count: int) -> CatalogCost:
    """Best of some rounds for the time; memory in a round of its own, because tracing is slow."""
    offered = listings(count)
    again = listings(count)
    seconds: list[float] = []
    repeated: list[float] = []
    for _ in range(ROUNDS):
        gc.collect()
        begin = time.process_time()
        catalog = build(offered)
        seconds.append(time.process_time() - begin)
        begin = time.process_time()
        for listing in again:
            catalog.replace_server(listing)
        repeated.append(time.process_time() - begin)
    gc.collect()
    tracemalloc.start()
    kept = build(offered)
    gc.collect()
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept.snapshot.version
    return CatalogCost(min(seconds), min(repeated), size)


def growth() -> Table:
    costs = {count: cost(count) for count in SIZES}
    first = costs[SIZES[0]].seconds / SIZES[0]
    table = Table(title=f"Building a catalog from records (CPU, best of {ROUNDS})")
    for column in (
        "tools",
        "build ms",
        "µs per tool",
        "per tool, x smallest",
        "list again ms",
        "MiB",
        "KiB per tool",
    ):
        table.add_column(column, justify="right")
    for count, item in costs.items():
        table.add_row(
            f"{count:,}",
            f"{item.seconds * 1e3:.0f}",
            f"{item.seconds / count * 1e6:.0f}",
            f"{item.seconds / count / first:.2f}",
            f"{item.listed_again * 1e3:.0f}",
            f"{item.bytes / 2**20:.1f}",
            f"{item.bytes / count / 2**10:.1f}",
        )
    return table


def dead_or_hanging() -> list[ServerSpec]:
    """A closed port, a program that is not there, one that crashes, two that never say a word."""
    silent = [sys.executable, "-c", "import time; time.sleep(600)"]
    return [
        Server.http("closed", "http://127.0.0.1:9/mcp"),
        Server.stdio("missing", ["fingerpost-no-such-program"]),
        Server.stdio("crashing", [sys.executable, "-c", "raise SystemExit(3)"]),
        Server.stdio("silent-1", silent),
        Server.stdio("silent-2", silent),
    ]


@dataclass(frozen=True, slots=True)
class Start:
    ready: float  # seconds from the start until the last good server's tools are in the catalog
    tools: int
    still_trying: int  # servers that were neither up nor down at that moment


async def start(*others: ServerSpec) -> Start:
    """Connect fifty in-process servers, and these others, and wait for the fifty."""
    good = [
        tool_server(f"good{number:02}", [dict(definition(index)) for index in range(TOOLS_PER_SERVER)])
        for number in range(SERVERS)
    ]
    catalog = Catalog(events=MemorySink())
    complete = anyio.Event()

    # The others come first: if they could delay it, they would.
    async with ServerPool(
        [*others, *(server.spec() for server in good)], events=MemorySink(), limits=LimitSettings()
    ) as servers:

        def take(name: str) -> None:
            listing = servers.get_listing(name)
            if listing is not None and servers.get_status(name).state is ServerState.READY:
                catalog.replace_server(listing)
                if len(catalog.snapshot.cards) == SERVERS * TOOLS_PER_SERVER:
                    complete.set()

        servers.subscribe_to_changes(take)
        begin = time.perf_counter()
        servers.start()
        with anyio.fail_after(LONGEST_WAIT):
            await complete.wait()
        ready = time.perf_counter() - begin
        trying = sum(status.state is ServerState.CONNECTING for status in servers.statuses)
        return Start(ready, len(catalog.snapshot.cards), trying)


def measure_connecting() -> Table:
    table = Table(title=f"{SERVERS} in-process MCP servers with {TOOLS_PER_SERVER} tools each (wall clock)")
    for column in ("with", "catalog ready ms", "tools", "others still connecting"):
        table.add_column(column, justify="left" if column == "with" else "right")
    anyio.run(start)  # the first connection of a process loads libraries; that is not what is measured
    rounds = [(anyio.run(start), anyio.run(start, *dead_or_hanging())) for _ in range(ROUNDS)]
    for name, place in (("nothing else", 0), ("five dead or hanging servers", 1)):
        best = min((pair[place] for pair in rounds), key=lambda one: one.ready)
        table.add_row(name, f"{best.ready * 1e3:.0f}", f"{best.tools:,}", str(best.still_trying))
    return table


def run() -> None:
    console = Console()
    console.print(growth())
    console.print(measure_connecting())

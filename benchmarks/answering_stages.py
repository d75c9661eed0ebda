"""Where the time of a request goes, from its own events.

A stage lasts from one event to another. Nothing of the product is changed to measure it: one sink stands
before the journal and one behind it, and both look at the clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from statistics import mean
from typing import Final

from rich.table import Table

from benchmarks.answering_world import ANSWER, Marks, World
from fingerpost.choose.syntax_guard.scanner import SyntaxGuard
from fingerpost.events import encode

# The event with which each stage ends; whatever follows the last one is the end.
STAGES: Final[Mapping[str, str]] = {
    "smart_routing_start": "narrow: who may see what",
    "smart_routing_end": "narrow: servers",
    "tools_offered": "narrow: tools",
    "tool_selected": "choose: prompt, reading the reply",
    "call_received": "check, review, gate",
    "call_finished": "call path",
    "answer_given": "answer: prompt, guard, sources",
}
END: Final = "end"
JOURNAL: Final = "handing events to the journal"
ROWS: Final = (*STAGES.values(), END, JOURNAL)
ROUNDS: Final = 30


def stages(began: float, ended: float, before: Marks, behind: Marks) -> dict[str, float]:
    """Milliseconds of each stage, what the journal took of it apart."""
    spent = dict.fromkeys(ROWS, 0.0)
    last, open_spans = began, list[float]()
    for (arrived, event), (left, _) in zip(before.marks, behind.marks, strict=True):
        open_spans.append(arrived - last)
        spent[JOURNAL] += (left - arrived) * 1e3
        last = left
        if (stage := STAGES.get(event.kind)) is not None:
            spent[stage] += sum(open_spans) * 1e3
            open_spans.clear()
    spent[END] += (sum(open_spans) + ended - last) * 1e3
    return spent


def stage_table(measured: Mapping[str, Sequence[Mapping[str, float]]], tools: int) -> Table:
    """One column for each way. The fastest quarter of the requests: the others waited for a processor."""
    table = Table(title=f"Where the time goes at {tools} tools (clock, ms, mean of the fastest quarter)")
    table.add_column("until the stage's last event")
    for way in measured:
        table.add_column(way, justify="right")
    fastest = [
        sorted(spans, key=lambda spent: sum(spent.values()))[: max(1, len(spans) // 4)]
        for spans in measured.values()
    ]
    for row in ROWS:
        found = [mean(spent[row] for spent in spans) for spans in fastest]
        table.add_row(row, *(f"{value:.2f}" if value else "" for value in found))
    table.add_section()
    table.add_row("all", *(f"{mean(sum(spent.values()) for spent in spans):.2f}" for spans in fastest))
    return table


async def parts_table(bench_world: World) -> Table:
    """What some parts take of one staged request, each by itself."""
    route = await bench_world.router.route("What time is it in Tokyo right now?", mode="staged")
    cards = bench_world.router.tools.cards
    SyntaxGuard(cards)
    largest = max(route.events, key=lambda event: len(encode(event)))
    parts: dict[str, Callable[[], object]] = {
        f"making its {len(route.events)} events, secrets masked": lambda: [
            replace(one) for one in route.events
        ],
        f"of these `{largest.kind}`, {len(encode(largest)):,} bytes": lambda: replace(largest),
        "encoding them, in the writer's thread": lambda: [encode(one) for one in route.events],
        "the guard over the answer": lambda: SyntaxGuard(cards).clean(ANSWER),
    }
    table = Table(title=f"Parts of one staged request at {bench_world.tools} tools (processor)")
    table.add_column("what")
    table.add_column("ms", justify="right")
    for name, work in parts.items():
        table.add_row(name, f"{best_of(work):.2f}")
    return table


def best_of(work: Callable[[], object]) -> float:
    """Milliseconds of processor time, the best of some rounds."""
    found: list[float] = []
    for _ in range(ROUNDS):
        began = time.process_time()
        work()
        found.append((time.process_time() - began) * 1e3)
    return min(found)

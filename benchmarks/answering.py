"""What answering adds to a request, without the time of a model: each way, each stage, prompts, crowds.

The model answers at once (`ScriptedModel`), the tool is in this process, and nothing is answered from
memory: what is left is what Fingerpost itself does. The ways take turns in every round, so that a busy
moment touches all of them alike. On a shared machine the best round says most, so ratios are of the best.
CPU is of all threads until every event is stored, each request committed by itself.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, quantiles
from typing import Final, TypeAlias

import anyio
from mcp import Client
from rich.console import Console
from rich.table import Table

from benchmarks.answering_crowd import crowds
from benchmarks.answering_guard import measure_guard
from benchmarks.answering_prompts import prompts
from benchmarks.answering_stages import parts_table, stage_table, stages
from benchmarks.answering_world import TOOL, World, requests, small_talk, world
from fingerpost import Route, Router
from fingerpost.records import NeedVerdict, RouteOutcome

SIZES: Final = (57, 300, 3_000)
CLOSER: Final = 300  # tools, where stages, prompts and crowds are looked at
ROUNDS: Final = 30
WARM_UP: Final = 3
ZONE: Final = {"timezone": "Asia/Tokyo"}
BARE, CALL, DIRECT = "the tool, by an MCP client", "the tool, by Router.call", "direct answer"

Way: TypeAlias = Callable[[str], Awaitable[object]]


@dataclass(slots=True)
class AnswerCost:
    """Milliseconds of each request: by the clock until the answer, by the processor until all is stored."""

    clock: list[float] = field(default_factory=list[float])
    processor: list[float] = field(default_factory=list[float])
    stages: list[dict[str, float]] = field(default_factory=list[dict[str, float]])


def ways(bench_world: World) -> Mapping[str, tuple[Router, Way]]:
    """Every way to the answer, each with the router it goes through."""

    def routed(router: Router, mode: str, *, streamed: bool = False) -> tuple[Router, Way]:
        async def go(text: str) -> object:
            pieces: list[str] = []
            on_text = pieces.append if streamed else None
            return check_route(await router.route(text, mode=mode, on_text=on_text), direct=False)

        return router, go

    async def direct(text: str) -> object:
        return check_route(await bench_world.router.route(text), direct=True)

    return {
        DIRECT: (bench_world.router, direct),
        "single": routed(bench_world.router, "single"),
        "react": routed(bench_world.router, "react"),
        "staged": routed(bench_world.router, "staged"),
        "staged, streamed": routed(bench_world.router, "staged", streamed=True),
        "keyless": routed(bench_world.keyless, "keyless"),
    }


def check_route(route: Route, *, direct: bool) -> Route:
    """A way that did not get there is not measured."""
    used = [step.tool for step in route.packet.tool_routing.steps if step.success]
    assert route.outcome is RouteOutcome.ANSWERED, route.trace
    assert used == ([] if direct else [TOOL]), route.trace
    verdict = None if route.narrowing is None else route.narrowing.need.verdict
    assert not direct or verdict is NeedVerdict.NONE, route.trace
    return route


async def measure(bench_world: World) -> dict[str, AnswerCost]:
    """Every way, in turns."""
    all_ways = ways(bench_world)
    costs = {name: AnswerCost() for name in (BARE, CALL, *all_ways)}
    asked, talk = requests(), small_talk()
    async with Client(bench_world.server.server) as client:
        for number in range(WARM_UP + ROUNDS):
            if number == WARM_UP:
                costs = {name: AnswerCost() for name in costs}
            await measure_time(costs[BARE], lambda: client.call_tool("get_current_time", dict(ZONE)))
            await measure_time(
                costs[CALL],
                lambda: bench_world.router.call(TOOL, dict(ZONE)),
                bench_world,
                bench_world.router,
            )
            for name, (router, go) in all_ways.items():
                text = next(talk if name == DIRECT else asked)
                await measure_time(costs[name], lambda go=go, text=text: go(text), bench_world, router)
    return costs


async def measure_time(
    cost: AnswerCost,
    work: Callable[[], Awaitable[object]],
    bench_world: World | None = None,
    router: Router | None = None,
) -> None:
    marked = () if bench_world is None or router is None else bench_world.marks[router]
    for marks in marked:
        marks.marks.clear()
    processor, clock = time.process_time(), time.perf_counter()
    await work()
    ended = time.perf_counter()
    if marked:
        cost.stages.append(stages(clock, ended, *marked))
    if router is not None:
        await router.store.journal.flush()
    cost.clock.append((ended - clock) * 1e3)
    cost.processor.append((time.process_time() - processor) * 1e3)


def add_rows(table: Table, tools: int, costs: Mapping[str, AnswerCost]) -> None:
    bare, call = (min(costs[name].clock) for name in (BARE, CALL))
    for name, cost in costs.items():
        best = min(cost.clock)
        table.add_row(
            f"{tools:,}",
            name,
            f"{median(cost.clock):.1f}",
            f"{quantiles(cost.clock, n=10)[-1]:.1f}",
            f"{best:.1f}",
            f"{best / call:.1f}",
            f"{best / bare:.1f}",
            f"{median(cost.processor):.1f}",
            f"{min(cost.processor):.1f}",
        )
    table.add_section()


async def measure_all(console: Console) -> None:
    table = Table(title=f"Answering one request, a model that answers at once ({ROUNDS} rounds, ms)")
    for column in (
        "tools",
        "way",
        "p50",
        "p90",
        "best",
        "x Router.call",
        "x MCP client",
        "CPU p50",
        "CPU best",
    ):
        table.add_column(column, justify="left" if column == "way" else "right")
    closer: list[Table] = []
    with tempfile.TemporaryDirectory() as folder:
        for count in SIZES:
            async with world(count, Path(folder)) as bench_world:
                costs = await measure(bench_world)
                add_rows(table, count, costs)
                if count == CLOSER:
                    spans = {name: cost.stages for name, cost in costs.items() if name not in (BARE, CALL)}
                    closer += [
                        stage_table(spans, count),
                        await parts_table(bench_world),
                        await prompts(bench_world),
                    ]
        closer.append(await crowds(CLOSER, Path(folder)))
    for made in (table, *closer):
        console.print(made)


def run() -> None:
    console = Console(width=130)
    anyio.run(measure_all, console)
    console.print(measure_guard())


if __name__ == "__main__":
    run()

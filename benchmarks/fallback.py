"""How many failed calls are saved by the next tool in line.

First the three classic faults of a primary tool, one by one: down, hanging,
empty. Then a thousand calls over three servers that all fail at random, every
fifth time, in one of three ways; a call counts as recovered when its first tool
failed and the caller got an answer nevertheless. With two stand-ins that fail
as often, chance alone allows 96 %: what is measured is that nothing is lost on
the way, neither to time nor to breakers.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import anyio
from mcp.shared.exceptions import MCPError
from rich.console import Console
from rich.table import Table

from fingerpost.call.execution import CallRun, CallRunner
from fingerpost.events import Event, MemorySink
from fingerpost.records import (
    Call,
    CallContext,
    Effect,
    Execution,
    Known,
    LatencyProfile,
    Permit,
    ServerSpec,
    Source,
    create_id,
)
from fingerpost.servers import Server, ServerPool
from fingerpost.settings.model import CallSettings, FlagSettings, LimitSettings
from fingerpost.testing import tool_server

CALLS = 1000
AT_ONCE = 20
FAILING = 0.2
TARGET = 0.8
NAMES = ("first", "second", "third")
FAULTS = ("error", "empty", "hang")


class Chaos:
    """Decides for every call whether, and how, it fails."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    async def act(self, server: str, _: str, __: dict[str, Any]) -> str:
        if self._random.random() >= FAILING:
            return f"an answer from {server}"
        fault = self._random.choice(FAULTS)
        if fault == "hang":
            await anyio.sleep_forever()
        if fault == "error":
            raise MCPError(-32000, "injected")
        return ""


async def hang(_: str, __: dict[str, Any]) -> str:
    await anyio.sleep_forever()
    return ""


async def find_nothing(_: str, __: dict[str, Any]) -> str:
    return "[]"


def a_call(server: str, number: int) -> Call:
    return Call(
        tool=f"{server}/find",
        server=server,
        name="find",
        operation=f"{server}/find",
        arguments={"number": number},
        effect=Effect.READ,
        fingerprint=f"{server} {number}",
    )


async def create_permit(call: Call) -> Permit | None:
    return Permit(call_fingerprint=call.fingerprint, given_by="benchmark")


async def unwritten(_: Event) -> None:
    """Nothing here is dangerous, so nothing is written down."""


def create_latency(seconds: float) -> LatencyProfile:
    return LatencyProfile(
        typical=Known(10, Source.WRITTEN),
        timeout=Known(int(seconds * 1000), Source.WRITTEN),
        feedback_delay=Known(1000, Source.DEFAULT),
    )


class Others:
    """The other servers' tools, all permitted."""

    def __init__(self, others: Sequence[Call]) -> None:
        self._others = others

    def find_alternatives(self, call: Call) -> Sequence[Call]:
        return self._others

    async def prepare_fallback(self, call: Call) -> None:
        pass

    async def permit_fallback(self, call: Call, context: CallContext) -> Permit | None:
        return await create_permit(call)

    def get_latency(self, call: Call) -> LatencyProfile | None:
        return create_latency(0.25)


async def ask(runner: CallRunner, number: int, *, fallback: bool = True) -> Execution:
    first, *others = (a_call(name, number) for name in NAMES)
    run = CallRun(
        first,
        Permit(call_fingerprint=first.fingerprint, given_by="benchmark"),
        CallContext(call_id=create_id("cal")),
        latency=create_latency(0.25),
        fallbacks=Others(others if fallback else ()),
    )
    return await runner.run(run)


def a_runner(servers: ServerPool) -> CallRunner:
    return CallRunner(
        servers,
        settings=CallSettings(retries=0, concurrency=AT_ONCE),
        flags=FlagSettings(),
        events=MemorySink(),
        journal=unwritten,
    )


async def one_by_one() -> list[tuple[str, bool, float]]:
    """Each classic fault of the primary: whether it was recovered, and in how many milliseconds."""
    firsts: dict[str, ServerSpec] = {
        "down": Server.stdio("first", ["/no/such/program"]),
        "hanging": tool_server("first", ["find"], call=hang).spec(),
        "empty": tool_server("first", ["find"], call=find_nothing).spec(),
    }
    rows: list[tuple[str, bool, float]] = []
    for fault, first in firsts.items():
        specs = [first, tool_server("second", ["find"]).spec(), tool_server("third", ["find"]).spec()]
        async with ServerPool(specs, events=MemorySink(), limits=LimitSettings()) as servers:
            servers.start()
            await servers.wait_until_settled(timeout=30)
            began = time.perf_counter()
            execution = await ask(a_runner(servers), 0)
            recovered = execution.error is None and execution.call.server == "second"
            rows.append((fault, recovered, (time.perf_counter() - began) * 1000))
    return rows


async def at_random(*, seed: int, fallback: bool) -> list[Execution]:
    """A thousand calls, some at once."""
    chaos = Chaos(seed)
    specs = [tool_server(name, ["find"], call=partial(chaos.act, name)).spec() for name in NAMES]
    done: list[Execution] = []
    async with ServerPool(specs, events=MemorySink(), limits=LimitSettings()) as servers:
        servers.start()
        await servers.wait_until_settled(timeout=30)
        runner = a_runner(servers)
        numbers = iter(range(CALLS))

        async def work() -> None:
            while (number := next(numbers, None)) is not None:
                done.append(await ask(runner, number, fallback=fallback))

        async with anyio.create_task_group() as tasks:
            for _ in range(AT_ONCE):
                tasks.start_soon(work)
    return done


def has_answer(execution: Execution) -> bool:
    content: Any = (execution.result or {}).get("content")
    return execution.error is None and bool(content and content[0]["text"])


def first_failed(execution: Execution) -> bool:
    return execution.call.server != "first" or not has_answer(execution)


def run() -> None:
    console = Console()
    table = Table(title="Fallback: one fault of the primary tool at a time")
    for column in ("primary is", "recovered", "ms"):
        table.add_column(column, justify="right" if column == "ms" else "left")
    for fault, recovered, milliseconds in anyio.run(one_by_one):
        table.add_row(fault, "yes" if recovered else "NO", f"{milliseconds:.0f}")
    console.print(table)

    table = Table(title=f"Fallback: {CALLS:,} calls, {FAILING:.0%} of all attempts fail at random")
    for column in ("", "first tool failed", "answered after all", "recovered", "failed in the end"):
        table.add_column(column, justify="left" if not column else "right")
    for fallback in (False, True):
        done = anyio.run(partial(at_random, seed=7, fallback=fallback))
        failed = [execution for execution in done if first_failed(execution)]
        saved = sum(has_answer(execution) for execution in failed)
        table.add_row(
            "with fallback" if fallback else "without",
            f"{len(failed)}",
            f"{saved}",
            f"{saved / len(failed):.1%}",
            f"{(len(failed) - saved) / len(done):.1%}",
        )
    console.print(table)
    console.print(f"target: more than {TARGET:.0%} recovered")

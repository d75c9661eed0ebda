"""What the call path costs, from the name to the digest, without any network, and its share by step.

Then what `call.data_flow` costs: two real gateways (HTTP) in front of one server, `off` and `default`, called
in turns. The processor time of each for a call with a result of 2 KB is compared, by kind of result.
"""

from __future__ import annotations

import itertools
import json
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from statistics import median
from typing import Any

import anyio
from rich.console import Console
from rich.table import Table

from benchmarks.gateway.client import GatewayClient
from benchmarks.gateway.fronts import GatewayBench, ready
from benchmarks.gateway.load import LoadFigures, Subject, alternate
from fingerpost import Router, Settings
from fingerpost.call.arguments import prepare_arguments
from fingerpost.call.build import ResolvedTool, compute_call_fingerprint, resolve_tool
from fingerpost.call.digest import build_digest
from fingerpost.call.execution import CallRun, CallRunner
from fingerpost.events import CallReceived, Event, MemorySink, encode
from fingerpost.policy.rules import PolicyEngine
from fingerpost.records import Call, CallContext, Effect, JsonObject, Permit, ToolCall
from fingerpost.testing import tool_server

ROUNDS = 400
BATCHES = 5
TOOL = {
    "name": "search_notes",
    "description": "Search the notes.",
    "annotations": {"readOnlyHint": True},
    "inputSchema": {
        "type": "object",
        "properties": {
            "query": {"type": "string"},
            "limit": {"type": "integer", "default": 10},
            "sort": {"enum": ["new", "old"]},
            "tags": {"type": "array", "items": {"type": "string"}},
        },
        "required": ["query"],
    },
}
GOOD = {"query": "opening hours", "limit": 3}
BROKEN = {"Query": "opening hours", "limit": "3", "sort": "NEW"}
RESULT = {"content": [{"type": "text", "text": "The library opens at nine and closes at eight. " * 8}]}


class ImmediateServers:
    """A server that costs nothing."""

    def hold(self, name: str) -> AbstractContextManager[object]:
        return nullcontext()

    async def ensure(self, name: str, *, timeout: float) -> None:
        return None

    async def call(
        self,
        name: str,
        tool: str,
        arguments: JsonObject,
        *,
        clock: Any,
        on_progress: Any = None,
        meta: Any = None,
        context: Any = None,
    ) -> JsonObject:
        return RESULT


async def nowhere(*_: Event) -> None:
    return None


def microseconds(work: Callable[[], object]) -> float:
    samples: list[float] = []
    for _ in range(BATCHES):
        began = time.perf_counter()
        for _ in range(ROUNDS):
            work()
        samples.append((time.perf_counter() - began) / ROUNDS * 1e6)
    return median(samples)


async def measure_median(work: Callable[[], Awaitable[object]]) -> float:
    samples: list[float] = []
    for _ in range(BATCHES):
        began = time.perf_counter()
        for _ in range(ROUNDS):
            await work()
        samples.append((time.perf_counter() - began) / ROUNDS * 1e6)
    return median(samples)


async def measure() -> None:
    server = tool_server("notes", [TOOL])
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings.model_validate(
            {
                "store": {"url": f"sqlite:///{folder}/bench.db"},
                "flags": {"result_cache": False, "loop_guard": False},
            }
        )
        async with Router([server.spec()], settings=settings) as router:
            await router.connect()
            tool_call = ToolCall(name="notes/search_notes", arguments=GOOD)
            found = resolve_tool(tool_call, router.tools)
            assert isinstance(found, ResolvedTool)
            card = found.card
            call = Call(
                tool=card.key, server=card.server, name=card.name, operation=card.key, arguments=GOOD,
                effect=Effect.READ, fingerprint="f",
            )  # fmt: skip
            context = CallContext(call_id="cal_bench")
            policy = PolicyEngine(())
            leave = Permit(call_fingerprint=call.fingerprint, given_by="benchmark")
            runner = CallRunner(
                ImmediateServers(),
                settings=settings.call,
                flags=settings.flags,
                events=MemorySink(),
                journal=nowhere,
            )
            steps = {
                "name": microseconds(lambda: resolve_tool(tool_call, router.tools)),
                "arguments (valid)": microseconds(lambda: prepare_arguments(card, GOOD)),
                "arguments (three repairs)": microseconds(lambda: prepare_arguments(card, BROKEN)),
                "fingerprint": microseconds(
                    lambda: compute_call_fingerprint(card.fingerprint, card.key, GOOD)
                ),
                "policy": await measure_median(lambda: policy.judge(call, context)),
                "execution (a door that answers at once)": await measure_median(
                    lambda: runner.run(CallRun(call, leave, context, latency=card.intelligence.latency))
                ),
                "digest": microseconds(lambda: build_digest(RESULT, card, budget=4000)),
                "seven events, made and encoded": 7
                * microseconds(
                    lambda: encode(CallReceived(call_id="c", packet_id="c", name="n", arguments=GOOD))
                ),
            }
            direct = await measure_median(
                lambda: router.servers.call("notes", "search_notes", GOOD, timeout=10)
            )
            through = await measure_median(lambda: router.call("notes/search_notes", GOOD))
            repaired = await measure_median(lambda: router.call("notes/search_notes", BROKEN))
    show(steps, direct, through, repaired)


def show(steps: dict[str, float], direct: float, through: float, repaired: float) -> None:
    table = Table(title=f"The call path, per call (median of {BATCHES} batches of {ROUNDS})")
    for column in ("what", "µs", "share of the added time"):
        table.add_column(column, justify="left" if column == "what" else "right")
    added = through - direct
    for name, value in steps.items():
        table.add_row(name, f"{value:.0f}", f"{value / added:.0%}")
    named = sum(value for name, value in steps.items() if "repairs" not in name)
    table.add_row(
        "the rest: writing to the store, progress, task groups",
        f"{added - named:.0f}",
        f"{1 - named / added:.0%}",
    )
    table.add_section()
    table.add_row("an in-process server, called directly", f"{direct:.0f}", "")
    table.add_row("the same through the whole path", f"{through:.0f}", "")
    table.add_row("the same with three repairs", f"{repaired:.0f}", "")
    table.add_row("added by the path", f"{added:.0f}", "100%")
    Console().print(table)


FLOW_PRESETS = ("off", "default")
FLOW_SECONDS = 1.0
FLOW_ROUNDS = 12
FLOW_LABELS = '[[tools]]\nmatch = "s0/echo"\nlabels = { untrusted = true, private = true }\n'
MAIL = (
    "Hi Dana,\n\nthanks for the notes from Tuesday. The venue confirmed the room for 14 March, and the "
    "caterer needs a final number of guests by Friday. I think we should keep the buffet and skip the second "
    "coffee break; it was hardly used last year. Tom will bring the projector.\n\nRoom 420 EUR\nBuffet 23 "
    "EUR per person\n\nBest wishes\nJonas\n\n"
)
ROWS = json.dumps(
    [
        {"id": number, "name": f"item {number}", "status": "open", "owner": f"user{number}@corp.example"}
        for number in range(40)
    ]
)
FLOW_RESULTS = {"rows as JSON": ROWS[:2000], "mails": (MAIL * 8)[:2000]}


async def measure_data_flow(folder: Path) -> None:
    """Measure both gateways in turns, so that they meet the same machine."""
    bench = GatewayBench(folder)
    upstream, urls = bench.upstream(tools=1)
    programs = [upstream]
    try:
        await ready("upstream", upstream, urls[0])
        subjects: list[Subject] = []
        for preset in FLOW_PRESETS:
            extra = f'[call]\ndata_flow = "{preset}"\n{FLOW_LABELS}'
            program, url = bench.ours(urls, extra=extra)
            programs.append(program)
            front = await ready(preset, program, url)
            subjects.append(
                Subject(name=preset, url=url, tool=front.tool, upstream=upstream, gateway=program)
            )
        found = {kind: await _call_in_turns(subjects, text) for kind, text in FLOW_RESULTS.items()}
    finally:
        for program in programs:
            program.stop()
    show_data_flow(found)


async def _call_in_turns(subjects: Sequence[Subject], text: str) -> dict[str, LoadFigures]:
    numbers = itertools.count()

    async def call(client: GatewayClient, subject: Subject) -> None:
        await client.call(subject.tool, {"text": f"{text}\n{next(numbers)}"})

    return await alternate(subjects, call, workers=4, seconds=FLOW_SECONDS, rounds=FLOW_ROUNDS)


def show_data_flow(found: dict[str, dict[str, LoadFigures]]) -> None:
    table = Table(title="Processor time of the gateway for a call, by call.data_flow")
    for column in ("result (2 KB)", "off, ms", "default, ms", "added", "calls", "errors"):
        table.add_column(column, justify="left" if column == "result (2 KB)" else "right")
    for kind, figures in found.items():
        before, after = (figures[preset] for preset in FLOW_PRESETS)
        table.add_row(
            kind,
            f"{before.gateway_ms:.3f}",
            f"{after.gateway_ms:.3f}",
            f"{after.gateway_ms / before.gateway_ms - 1:+.1%}",
            str(before.calls + after.calls),
            str(len(before.errors) + len(after.errors)),
        )
    Console().print(table)


def run() -> None:
    anyio.run(measure)
    with tempfile.TemporaryDirectory() as folder:
        anyio.run(measure_data_flow, Path(folder))


if __name__ == "__main__":
    run()

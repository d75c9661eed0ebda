"""P1–P3: one call, through the gateway and direct, in alternating slices of one run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from benchmarks.gateway.client import HANDSHAKE, MODERN, Era
from benchmarks.gateway.fronts import Front, GatewayBench, NotReady, ready
from benchmarks.gateway.goals import Finding, at_least, at_most, console, show_load
from benchmarks.gateway.load import LoadFigures, Subject, alternate, echo
from benchmarks.gateway.programs import RunningProgram

DIRECT = "direct"
OURS = "fingerpost"
UNSAFE = "fingerpost, flags off"
POSTGRESQL = "fingerpost on PostgreSQL"
FORWARDER = "bare forwarder"
FASTMCP = "FastMCP proxy"
HELD = "FastMCP proxy, session held"
CONTEXTFORGE = "ContextForge"
LOADS = (1, 8, 32)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How much time a measurement takes."""

    seconds: float
    rounds: int
    peers: tuple[str, ...]


@dataclass
class Field:
    """All gateways in front of one upstream, started."""

    upstream: RunningProgram
    url: str
    fronts: dict[str, Front] = field(default_factory=dict[str, Front])

    def subjects(self, era: Era, names: Sequence[str]) -> list[Subject]:
        direct = Subject(name=DIRECT, url=self.url, tool="echo", upstream=self.upstream, era=era)
        found = [self.fronts[name] for name in names if name in self.fronts]
        return [
            direct,
            *(
                Subject(
                    name=front.name,
                    url=front.url,
                    tool=front.tool,
                    upstream=self.upstream,
                    gateway=front.program,
                    era=era,
                    headers=front.headers,
                )
                for front in found
            ),
        ]

    def stop(self) -> None:
        for front in self.fronts.values():
            front.program.stop()
        self.upstream.stop()


async def start_field(bench: GatewayBench, names: Sequence[str]) -> Field:
    """One upstream and these gateways in front of it, one after another; one that fails is left out."""
    upstream, urls = bench.upstream(tools=30)
    await ready(DIRECT, upstream, urls[0])
    field = Field(upstream, urls[0])
    for name in names:
        program = None
        try:
            program, url, headers = await launch(bench, name, urls)
            field.fronts[name] = await ready(name, program, url, headers=headers)
        except NotReady as problem:
            if program is not None:
                program.stop()
            console.print(f"left out: {problem}", markup=False)
    return field


async def launch(
    bench: GatewayBench, name: str, urls: Sequence[str]
) -> tuple[RunningProgram, str, dict[str, str]]:
    if name == CONTEXTFORGE:
        from benchmarks.gateway.contextforge import start

        return await start(bench.folder, urls)
    if name == FORWARDER:
        return *bench.forwarder(urls), {}
    if name in {FASTMCP, HELD}:
        return *bench.fastmcp(urls, held=name == HELD), {}
    return *bench.ours(urls, safe=name != UNSAFE, database=bench.postgresql if name == POSTGRESQL else ""), {}


async def measure(field: Field, plan: Plan) -> list[Finding]:
    """Print a table for every load and give what is to be said of P1–P3."""
    by_load: dict[int, dict[str, LoadFigures]] = {}
    for workers in LOADS:
        subjects = field.subjects(HANDSHAKE, plan.peers)
        by_load[workers] = await alternate(
            subjects, echo, workers=workers, seconds=plan.seconds, rounds=plan.rounds
        )
        show_load(f"tools/call, 2025-11-25, {workers} at once", DIRECT, by_load[workers])
    modern: dict[int, dict[str, LoadFigures]] = {}
    for workers in (1, 32):
        subjects = field.subjects(MODERN, [name for name in plan.peers if name in {OURS, FORWARDER}])
        modern[workers] = await alternate(
            subjects, echo, workers=workers, seconds=plan.seconds, rounds=plan.rounds
        )
        show_load(f"tools/call, 2026-07-28, {workers} at once", DIRECT, modern[workers])
    return [*_first_goal(by_load, "2025-11-25"), *_first_goal(modern, "2026-07-28"), *_cpu_goals(by_load)]


def _first_goal(by_load: dict[int, dict[str, LoadFigures]], era: str) -> list[Finding]:
    slow = by_load[1][OURS].p50 / by_load[1][DIRECT].p50
    share = by_load[32][OURS].per_second / by_load[32][DIRECT].per_second
    return [
        at_most("P1", f"{era}: p50 of direct, one at a time", slow, 1.8),
        at_least("P1", f"{era}: calls per second of direct, 32 at once", share, 0.85),
    ]


def _cpu_goals(by_load: dict[int, dict[str, LoadFigures]]) -> list[Finding]:
    loaded = by_load[32]
    ours = loaded[OURS].gateway_ms
    found = [at_most("P2", "gateway CPU of the upstream's own", ours / loaded[OURS].upstream_ms, 0.55)]
    for name, part in ((FASTMCP, 50), (HELD, 5)):
        if name in loaded and loaded[name].calls:
            found.append(
                at_least("P2", f"{name}'s CPU per call of ours", loaded[name].gateway_ms / ours, part)
            )
    if POSTGRESQL in loaded:
        share = loaded[POSTGRESQL].per_second / loaded[OURS].per_second
        found.append(at_least("P2", "calls per second of those on SQLite, on PostgreSQL", share, 0.8))
    safe = {load: figures[OURS].gateway_ms / figures[UNSAFE].gateway_ms for load, figures in by_load.items()}
    found.append(
        at_most(
            "P3",
            "CPU of that with all flags off (policy, breaker, events stay on), 32 at once",
            safe[32],
            1.5,
        )
    )
    found.append(at_most("P3", "the same, one at a time", safe[1], 1.5))
    return found

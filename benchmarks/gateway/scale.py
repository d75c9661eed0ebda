"""P4–P8: long lists, many servers, many sessions, starting up, memory."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Mapping
from statistics import median

import anyio
from rich.table import Table

from benchmarks.gateway import hub
from benchmarks.gateway.calls import DIRECT, FASTMCP, OURS, Field
from benchmarks.gateway.client import HANDSHAKE, MODERN, Era
from benchmarks.gateway.fronts import Front, GatewayBench, NotReady, ready
from benchmarks.gateway.goals import Finding, at_least, at_most, console
from benchmarks.gateway.load import LoadFigures, Subject, alternate, echo, first_page, list_tools
from benchmarks.gateway.programs import RunningProgram

ERAS: tuple[Era, ...] = (HANDSHAKE, MODERN)


@contextlib.contextmanager
def stop_at_end(*programs: RunningProgram) -> Generator[None]:
    try:
        yield
    finally:
        for program in programs:
            program.stop()


def subject(front: Front, upstream: RunningProgram, era: Era = HANDSHAKE) -> Subject:
    return Subject(
        name=front.name,
        url=front.url,
        tool=front.tool,
        upstream=upstream,
        gateway=front.program,
        era=era,
        headers=front.headers,
    )


async def long_lists(bench: GatewayBench, *, seconds: float) -> list[Finding]:
    """tools/list of one server with 30, 300 and 3,000 tools, whole and first page, in both eras."""
    table = Table(title="tools/list of one server, ms (p50)", title_justify="left")
    for column in ("tools", "era", "direct", OURS, "first page", "tools listed"):
        table.add_column(column, justify="right")
    findings: list[Finding] = []
    for tools in (30, 300, 3000):
        upstream, urls = bench.upstream(tools=tools)
        ours, url = bench.ours(urls)
        with stop_at_end(ours, upstream):
            front = await ready(OURS, ours, url)
            for era in ERAS:
                direct = Subject(name=DIRECT, url=urls[0], tool="echo", upstream=upstream, era=era)
                pair = [direct, subject(front, upstream, era)]
                whole = await alternate(pair, list_tools, workers=1, seconds=seconds, rounds=2)
                page = await alternate(pair[1:], first_page, workers=1, seconds=seconds, rounds=1)
                client = await pair[1].client().open()
                listed = len(set(await client.list_tools()))
                await client.close()
                row = (whole[DIRECT].p50, whole[OURS].p50, page[OURS].p50)
                table.add_row(str(tools), era, *(f"{value:.2f}" for value in row), str(listed))
                if tools == 3000:
                    findings.append(at_most("P5", f"{era}: first page of direct's", row[2] / row[0], 0.2))
                    findings.append(
                        at_least("P5", f"{era}: tools of 3,000 listed", float(listed), 3000, "tools")
                    )
    console.print(table)
    return findings


async def many_servers(
    bench: GatewayBench, *, seconds: float, counts: tuple[int, ...], starts: int
) -> list[Finding]:
    """One call and tools/list with more and more servers of 30 tools; the peers' list beside ours."""
    table = Table(title="Servers with 30 tools each", title_justify="left")
    for column in ("servers", "call p50 ms", "× one", "tools/list ms", "mcp-hub", FASTMCP, "start s", "MiB"):
        table.add_column(column, justify="right")
    findings: list[Finding] = []
    one, one_url = bench.upstream(tools=30)
    ours, url = bench.ours(one_url)
    with stop_at_end(ours, one):
        alone = await ready(OURS, ours, url)
        for count in counts:
            upstream, urls = bench.upstream(tools=30, servers=count)
            many, many_url = bench.ours(urls)
            with stop_at_end(many, upstream):
                front = await _with_all(many, many_url, tools=30 * count)
                pair = [subject(alone, one), _rename_subject(subject(front, upstream), str(count))]
                calls = await alternate(pair, echo, workers=1, seconds=seconds, rounds=4)
                lists = await alternate([pair[1]], list_tools, workers=1, seconds=seconds, rounds=1)
                grown = calls[str(count)].p50 / calls[OURS].p50
                ours_ms, memory = lists[str(count)].p50, many.memory_mib()
                hub_ms = await _hub(bench, urls, seconds=seconds)
                proxy_ms = await _fastmcp(bench, urls, upstream)
                if count == max(counts):
                    findings += await _longer_start(bench, one_url, urls, times=starts)
            row = (calls[str(count)].p50, grown, ours_ms, hub_ms, proxy_ms, front.seconds, memory)
            table.add_row(str(count), *("–" if value is None else f"{value:.2f}" for value in row))
            if count == max(counts):
                findings += _list_findings(count, ours_ms, hub_ms, proxy_ms)
                findings.append(at_most("P6", f"p50 with {count} servers of that with one", grown, 1.2))
    console.print(table)
    return findings


def _list_findings(count: int, ours: float, hub_ms: float | None, proxy: float | None) -> list[Finding]:
    words = f"tools/list of {count} × 30 tools"
    found = [
        Finding("P4", f"{words} of mcp-hub's ≤ 1 ×", "–", None)
        if hub_ms is None
        else at_most("P4", f"{words} of mcp-hub's", ours / hub_ms, 1.0)
    ]
    if proxy is not None:
        found.append(at_least("P4", f"{words}: FastMCP's time of ours", proxy / ours, 100))
    return found


def _rename_subject(subject: Subject, name: str) -> Subject:
    return Subject(
        name=name, url=subject.url, tool=subject.tool, upstream=subject.upstream, gateway=subject.gateway
    )


async def _with_all(program: RunningProgram, url: str, *, tools: int) -> Front:
    """Started, and every server's tools are there."""
    front = await ready(OURS, program, url)
    client = await subject(front, program).client().open()
    with anyio.move_on_after(60):
        listed = 0
        while listed < tools:
            listed = len(await client.list_tools())
            await anyio.sleep(0.05)
    await client.close()
    return front


async def _hub(bench: GatewayBench, urls: list[str], *, seconds: float) -> float | None:
    if not hub.is_installed():
        return None
    program, url = hub.start(bench.folder, urls)
    with stop_at_end(program):
        taken = await hub.list_milliseconds(program, url, tools=30 * len(urls), seconds=seconds)
    return median(taken) if taken else None


async def _fastmcp(bench: GatewayBench, urls: list[str], upstream: RunningProgram) -> float | None:
    program, url = bench.fastmcp(urls)
    with stop_at_end(program):
        try:
            front = await ready(FASTMCP, program, url)
        except NotReady:
            return None
        found = await alternate([subject(front, upstream)], list_tools, workers=1, seconds=0.5, rounds=1)
    return found[FASTMCP].p50


async def many_sessions(field: Field, *, seconds: float) -> list[Finding]:
    """1, 50 and 200 clients, each in a session of its own."""
    table = Table(title="Sessions (2025-11-25), each with a connection of its own", title_justify="left")
    columns = ("sessions", "direct p50", "p50", "direct calls/s", "calls/s", "× direct", "MiB", "KiB/session")
    for column in columns:
        table.add_column(column, justify="right")
    program = field.fronts[OURS].program
    findings: list[Finding] = []
    for sessions in (1, 50, 200):
        pair = field.subjects(HANDSHAKE, [OURS])
        before = program.memory_mib()
        found = await alternate(pair, echo, workers=sessions, seconds=seconds, rounds=2, own_sessions=True)
        after = program.memory_mib()
        each = 1024 * (after - before) / (2 * sessions)
        direct, ours = found[DIRECT], found[OURS]
        share = ours.per_second / direct.per_second
        row = (direct.p50, ours.p50, direct.per_second, ours.per_second, share, after, each)
        table.add_row(str(sessions), *(f"{value:.2f}" for value in row))
        _complain(found)
        if sessions == 200:
            findings.append(at_least("P7", "calls per second of direct, 200 sessions", share, 0.7))
            findings.append(at_most("P7", "memory for each session", each / 1024, 0.2, "MiB"))
    console.print(table)
    return findings


def _complain(found: dict[str, LoadFigures]) -> None:
    for name, figures in found.items():
        if figures.errors:
            console.print(f"  {name}: {len(figures.errors)} errors: {figures.errors[0]}", markup=False)


async def measure_start(bench: GatewayBench, *, times: int) -> list[Finding]:
    """From the start of the process to its first answered call, and what it holds then."""
    upstream, urls = bench.upstream(tools=30)
    with stop_at_end(upstream):
        await ready(DIRECT, upstream, urls[0])
        begun = await _starts(
            {OURS: lambda: bench.ours(urls), FASTMCP: lambda: bench.fastmcp(urls)}, times=times
        )
    table = Table(title="Start to first answered call, and memory then", title_justify="left")
    for column in ("", "s (median)", "MiB"):
        table.add_column(column, justify="right")
    for name, (seconds, memory) in begun.items():
        table.add_row(name, f"{seconds:.2f}", f"{memory:.0f}")
    console.print(table)
    (seconds, memory), (their_seconds, their_memory) = begun[OURS], begun[FASTMCP]
    return [
        at_most("P8", "start of FastMCP's", seconds / their_seconds, 1.0),
        at_most("P8", "memory of FastMCP's", memory / their_memory, 1.1),
    ]


async def _longer_start(bench: GatewayBench, one: list[str], many: list[str], *, times: int) -> list[Finding]:
    """Our start with many servers, beside FastMCP's and ours with one. All of them are up already."""
    begun = await _starts(
        {
            "one": lambda: bench.ours(one),
            "many": lambda: bench.ours(many),
            FASTMCP: lambda: bench.fastmcp(one),
        },
        times=times,
    )
    seconds = begun["many"][0]
    with_many = f"start with {len(many)} servers"
    return [
        at_most("P8", f"{with_many} of FastMCP's with one", seconds / begun[FASTMCP][0], 1.5),
        at_most("", f"{with_many} of our own with one", seconds / begun["one"][0], 1.5),
    ]


async def _starts(
    subjects: Mapping[str, Callable[[], tuple[RunningProgram, str]]], *, times: int
) -> dict[str, tuple[float, float]]:
    """Seconds and MiB (medians), started in turns: what the machine does meanwhile happens to all of them."""
    seconds: dict[str, list[float]] = {name: [] for name in subjects}
    memory: dict[str, list[float]] = {name: [] for name in subjects}
    for _ in range(times):
        for name, start in subjects.items():
            program, url = start()
            with stop_at_end(program):
                front = await ready(name, program, url)
                seconds[name].append(front.seconds)
                memory[name].append(program.memory_mib())
    return {name: (median(seconds[name]), median(memory[name])) for name in subjects}

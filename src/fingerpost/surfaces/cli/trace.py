"""`fingerpost trace`, `breakers` and `insight`: recorded events as a tree, and figures over time."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import click
from rich.text import Text
from rich.tree import Tree

from fingerpost.analytics.journal_reader import JournalReader
from fingerpost.events import (
    ApprovalDecided,
    ApprovalRequested,
    AttemptFinished,
    AttemptStarted,
    BreakerMoved,
    CallEvent,
    CallFinished,
    CallPrepared,
    CallReceived,
    CallRefused,
    CallReplayed,
    CallRuled,
    Event,
    ExecutionStatusChanged,
    FallbackTaken,
    PacketReceived,
    RequestNarrowed,
    ResultDigested,
    ResultMarked,
    SubagentBegan,
    SubagentEnded,
    ToolResultInjected,
    encode,
    find_unfinished_attempts,
)
from fingerpost.frozen import frozen
from fingerpost.records.codec import to_plain
from fingerpost.surfaces.cli.common import match_id, run_on_store, use_router, use_store
from fingerpost.surfaces.cli.options import CommonOptions
from fingerpost.surfaces.cli.screen import (
    clean_text,
    format_count,
    get_output,
    print_json,
    print_table,
    shorten,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from fingerpost.analytics.records import Counted, Figures
    from fingerpost.router import Router
    from fingerpost.settings import Settings
    from fingerpost.store import Store


MAX_TEXT_LENGTH = 120
UNFINISHED_NOTE = "began and never ended: whether it took effect is unknown"


@frozen(kw_only=False)
class TraceStep:
    """One line of the tree and the lines under it."""

    what: str
    text: str
    style: str = ""
    under: tuple[TraceStep, ...] = ()


def draw_trace(
    identity: str, events: Sequence[Event], children: Mapping[str, Sequence[Event]] = MappingProxyType({})
) -> Tree:
    """Return the events of an id as a tree; `children` are the events of subagents by packet."""
    root = Tree(Text(identity, style="bold"))
    _add_events(root, identity, events, dict(children))
    return root


def _add_events(
    root: Tree, identity: str, events: Sequence[Event], children: dict[str, Sequence[Event]]
) -> None:
    branches: dict[str, Tree] = {identity: root}
    for event in events:
        call_id = event.call_id if isinstance(event, CallEvent) else identity
        if call_id not in branches:
            branches[call_id] = root.add(Text(call_id, style="bold"))
        if isinstance(event, SubagentBegan):
            _add_subagent(root, event, children)
        elif (step := _describe(event)) is not None:
            _add_step(branches[call_id], step)
    for lost in find_unfinished_attempts(events):
        _add_step(
            branches[lost.call_id],
            TraceStep("attempt", f"{lost.tool}, attempt {lost.number} {UNFINISHED_NOTE}", "red"),
        )


def _add_subagent(root: Tree, event: SubagentBegan, children: dict[str, Sequence[Event]]) -> None:
    """Add the events of a subagent where it began, once."""
    events = children.pop(event.child, None)
    if events is None:
        _add_step(root, TraceStep("subagent", f"{event.child}: see `fingerpost trace {event.child}`", "dim"))
        return
    branch = root.add(Text.assemble(("subagent ", "bold"), (event.child, "bold cyan")))
    _add_events(branch, event.child, events, children)


def _add_step(branch: Tree, step: TraceStep) -> None:
    leaf = branch.add(
        Text.assemble((f"{step.what} ", "bold"), (clean_text(step.text)[:MAX_TEXT_LENGTH], step.style))
    )
    for below in step.under:
        _add_step(leaf, below)


def _describe(event: Event) -> TraceStep | None:
    """Return the step for an event, or None if it is not shown."""
    if (describe := _DESCRIPTIONS.get(type(event))) is not None:
        return describe(event)
    label, style = _SUMMARISED.get(type(event), (event.kind.replace("_", " "), "dim"))
    return TraceStep(label, event.summary(), style)


def _describe_packet(event: PacketReceived) -> TraceStep:
    parent = event.packet.header.parent_id
    return TraceStep(
        "asked", event.summary(), under=(TraceStep("on behalf of", parent, "dim"),) if parent else ()
    )


def _describe_narrowing(event: RequestNarrowed) -> TraceStep:
    narrowing = event.narrowing
    reasons = (TraceStep("because", reason, "dim") for reason in narrowing.need.reasons)
    tools = (
        TraceStep(
            clean_text(one.tool),
            f"{one.score:.2f}: " + ", ".join(f"{part.signal} {part.points:+.2f}" for part in one.parts),
        )
        for one in narrowing.shortlist.offered
    )
    failures = (
        TraceStep("left out", f"the scorer {failure.scorer}: it {failure.reason}", "yellow")
        for failure in narrowing.shortlist.failed_scorers
    )
    chance, fit = narrowing.need.score * 100, narrowing.shortlist.fit * 100
    told = f"tool needed: {narrowing.need.verdict} ({chance:.0f} %), fit {fit:.0f} %"
    return TraceStep("narrowed", told, under=(*reasons, *failures, *tools))


def _describe_request(event: CallReceived) -> TraceStep:
    by = (TraceStep("by", event.caller, "dim"),) if event.caller else ()
    return TraceStep("asked", f"{event.name} {_format_json(event.arguments)}", under=by)


def _describe_call(event: CallPrepared) -> TraceStep:
    repairs = tuple(
        TraceStep(
            f"repaired ({repair.kind})",
            f"{repair.path}: {_format_json(repair.before)} → {_format_json(repair.after)}  {repair.reason}",
            "yellow",
        )
        for repair in event.repairs
    )
    return TraceStep("call", f"{event.tool} {_format_json(event.arguments)}", under=repairs)


def _describe_attempt(event: AttemptFinished) -> TraceStep:
    made = event.attempt
    notes = [f"waited {made.waited_ms:.0f} ms"] if made.waited_ms >= 1 else []
    notes += [f"from the cache, {made.age_ms / 1000:.1f} s old"] if made.cached else []
    note = f" ({', '.join(notes)})" if notes else ""
    return TraceStep("attempt", event.summary() + note, "" if made.error is None else "red")


def _describe_digest(event: ResultDigested) -> TraceStep:
    under = [TraceStep("left out", note, "yellow") for note in event.dropped]
    if event.handle:
        under.append(TraceStep("the rest", f"fingerpost result {event.handle}", "dim"))
    return TraceStep("digest", event.summary(), under=tuple(under))


_SUMMARISED: Final[Mapping[type[Event], tuple[str, str]]] = {  # label and style
    CallRefused: ("refused", "red"),
    ApprovalRequested: ("approval", "yellow"),
    ApprovalDecided: ("approval", "yellow"),
    FallbackTaken: ("fallback", "yellow"),
    CallReplayed: ("replayed", "yellow"),
    ResultMarked: ("marked", "yellow"),
    ExecutionStatusChanged: ("status", "dim"),
    ToolResultInjected: ("result", "dim"),
}
_DESCRIPTIONS: Final[Mapping[type[Event], Callable[[Any], TraceStep | None]]] = {
    AttemptStarted: lambda _: None,  # shown by its end
    PacketReceived: _describe_packet,
    RequestNarrowed: _describe_narrowing,
    SubagentEnded: lambda event: TraceStep(
        "subagent ended", f"{event.summary()}, {event.milliseconds:.0f} ms", "cyan"
    ),
    CallReceived: _describe_request,
    CallPrepared: _describe_call,
    CallRuled: lambda event: TraceStep("policy", f"{event.verdict}: {event.reason} ({event.rule})"),
    AttemptFinished: _describe_attempt,
    ResultDigested: _describe_digest,
    CallFinished: lambda event: TraceStep(
        "finished", f"{event.summary()} in {event.milliseconds:.0f} ms", "green" if event.success else "red"
    ),
}


def _format_json(value: object) -> str:
    return shorten(json.dumps(value, ensure_ascii=False, default=str), MAX_TEXT_LENGTH)


PAGE_SIZE = 1_000
MAX_RECENT = 200  # requests and calls among which a part of an id is looked for
MAX_DEPTH = 5  # levels of subagents
MAX_CHILDREN = 50  # shown with their own events; others only by name


async def list_recent_ids(store: Store) -> list[str]:
    """Return the ids of the newest requests, and calls outside of requests, newest first."""
    await store.journal.flush()
    entries = await store.journal.list_beginnings(
        kinds=(PacketReceived.kind, CallReceived.kind), limit=MAX_RECENT
    )
    return [entry.event.packet_id for entry in entries if entry.event.packet_id is not None]


async def list_recent_handles(store: Store) -> list[str]:
    """Return the handles of the newest results that were cut, newest first."""
    ids = await list_recent_ids(store)
    entries = await store.journal.list_packet_events(ids, kinds=(ResultDigested.kind,))
    events = [entry.event for entry in reversed(entries)]
    return [event.handle for event in events if isinstance(event, ResultDigested) and event.handle]


def show_trace(*, given: str | None, last: bool, common: CommonOptions) -> int:
    """Draw the events of one call (cal_…) or packet (pkt_…): repairs, rulings, approvals, attempts, dropped
    content. Without an id, of the latest.
    """
    if last and given is not None:
        raise click.UsageError("give an id or --last, not both")

    async def work(store: Store, _: Settings) -> int:
        # The router takes seconds to import; `breakers` does not need it.
        from fingerpost.router.store_sync import record_interrupted

        await record_interrupted(store)
        recent = await list_recent_ids(store)
        if given is None and not recent:
            click.echo("Nothing is recorded yet.", err=True)
            return 1
        identity = recent[0] if given is None else match_id(given, recent)
        events = await read_events(store, identity)
        if not events:
            click.echo(f"Nothing is recorded under {identity}.", err=True)
            return 1
        if common.as_json:
            click.echo("[" + ",\n ".join(encode(event).decode() for event in events) + "]")
            return 0

        get_output().print(draw_trace(identity, events, await read_children(store, events)))
        return 0

    return run_on_store(common, work)


NO_BREAKER_OPEN = "No circuit breaker is open"


@use_store
async def show_breakers(store: Store, _: Settings, *, common: CommonOptions) -> int:
    """Show the latest recorded state of every server's circuit breaker, newest first."""
    recorded = _read_journal(store, kinds=("breaker_moved",))
    newest = {event.server: event async for event in recorded if isinstance(event, BreakerMoved)}
    moved = sorted(newest.values(), key=lambda event: event.at, reverse=True)
    if common.as_json:
        print_json([to_plain(event) for event in moved])
        return 0
    if not moved:
        click.echo(f"{NO_BREAKER_OPEN}.")
        return 0
    open_now = [event for event in moved if event.state != "closed"]
    title = f"{format_count(len(open_now), 'circuit breaker')} open" if open_now else NO_BREAKER_OPEN
    print_table(
        title,
        ("server", "state", "since", "because"),
        ((event.server, event.state, f"{event.at:%Y-%m-%d %H:%M:%S}", event.reason) for event in moved),
    )
    return 0


async def read_events(store: Store, identity: str) -> list[Event]:
    """Return all events of a packet or of a call inside one."""
    found = [event async for event in _read_journal(store, packet_id=identity)]
    if found:
        return found
    async for event in _read_journal(store, kinds=("call_received",)):
        if getattr(event, "call_id", None) == identity:
            whole = _read_journal(store, packet_id=event.packet_id)
            return [one async for one in whole if getattr(one, "call_id", None) == identity]
    return []


async def read_children(store: Store, events: Sequence[Event]) -> dict[str, Sequence[Event]]:
    """Return the events of subagents by packet, up to `MAX_DEPTH` levels and `MAX_CHILDREN` packets."""
    found: dict[str, Sequence[Event]] = {}
    level: Sequence[Event] = events
    for _ in range(MAX_DEPTH):
        child_ids = dict.fromkeys(event.child for event in level if isinstance(event, SubagentBegan))
        new = [child for child in child_ids if child not in found][: MAX_CHILDREN - len(found)]
        for child in new:
            found[child] = [event async for event in _read_journal(store, packet_id=child)]
        level = [event for child in new for event in found[child]]
    return found


async def _read_journal(
    store: Store, *, packet_id: str | None = None, kinds: tuple[str, ...] | None = None
) -> AsyncGenerator[Event]:
    """Yield events of the journal from its beginning, read in pages."""
    seq = 0
    while page := await store.journal.list_events(
        packet_id=packet_id, kinds=kinds, after_seq=seq, limit=PAGE_SIZE
    ):
        for entry in page:
            yield entry.event
        seq = page[-1].seq


@use_router(need_servers=False)
async def show_figures(router: Router, *, hours: float, common: CommonOptions) -> int:
    """Show figures of the last hours: requests, failures, fallbacks, tokens, time, and rollouts."""
    found = await JournalReader(router.store, router.live).get_figures(hours=hours)
    if common.as_json:
        print_json(to_plain(found))
    else:
        _print_figures(found)
    return 0


def _print_figures(found: Figures) -> None:
    print_table(None, ("figure", "value"), _format_figures(found.totals))
    by_rollout: dict[str, dict[str, Counted]] = {}
    for one in found.rollouts:
        by_rollout.setdefault(one.rollout, {})[one.arm] = one.figures
    for rollout, arms in by_rollout.items():
        columns = [dict(_format_figures(figures)) for figures in arms.values()]
        rows = ((name, *(column[name] for column in columns)) for name in columns[0])
        print_table(f"rollout {clean_text(rollout)}", ("figure", *arms), rows)


def _format_figures(counted: Counted) -> Iterator[tuple[str, str]]:
    whole = counted.stages.get("whole")
    ended = sum(counted.outcomes.values())
    yield "requests", f"{counted.requests:,}"
    yield "needed no tool, unclear", f"{counted.no_tool:,}, {counted.unclear:,} of {counted.judged:,}"
    yield "tools left out", "-" if counted.reduction is None else f"{counted.reduction * 100:.0f} %"
    yield "answered", f"{counted.outcomes.get('answered', 0):,} of {ended:,}"
    yield "failed requests", f"{counted.outcomes.get('failed', 0):,}"
    yield "failed calls", f"{counted.failed_calls:,} of {counted.calls:,}"
    yield "recovered by a fallback", f"{counted.recovered:,} of {counted.fallbacks:,}"
    yield "cut results", f"{counted.truncated:,} of {counted.digested:,}"
    yield "tokens read and written", f"{counted.prompt_tokens:,} and {counted.completion_tokens:,}"
    yield "time, median and 95 %", f"{whole.p50:,.0f} and {whole.p95:,.0f} ms" if whole else "-"
    yield "exclusive tool asked for", f"{counted.exclusive_asked:,}"
    taken = f"{counted.exclusive_offered:,}, {counted.exclusive_taken:,}, {counted.exclusive_succeeded:,}"
    yield "and offered, taken, succeeded", taken

"""Request lines, built from events, and pages of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

import anyio.to_thread

from fingerpost.analytics.records import PacketLine, PacketPage, PacketQuery
from fingerpost.events import (
    ApprovalDecided,
    ApprovalRequested,
    AttemptFinished,
    AttemptStarted,
    CallFinished,
    CallReceived,
    Event,
    FallbackTaken,
    ModelAnswered,
    PacketReceived,
    RequestNarrowed,
    RouteBegan,
    RouteEnded,
    RouteResumed,
    SubagentBegan,
    ToolsOffered,
)
from fingerpost.events.route import INTERRUPTED
from fingerpost.records import Decision, ErrorKind, RouteOutcome
from fingerpost.store.journal import Journal, JournalEntry

MAX_PROMPT_LENGTH: Final = 200
MAX_TOOLS: Final = 50
MAX_CHILDREN: Final = 50

_LineChanges = dict[str, Any]


def fold_events(lines: Mapping[str, PacketLine], events: Iterable[JournalEntry]) -> dict[str, PacketLine]:
    """Return the lines that these events start or change, by packet. `lines` are the known lines.

    Events must be in the order of their numbers. Events of packets with an unknown start are ignored.
    """
    changed: dict[str, PacketLine] = {}
    for entry in events:
        packet_id = entry.event.packet_id
        if packet_id is None or type(entry.event) not in _LINE_HANDLERS:
            continue
        before = changed.get(packet_id) or lines.get(packet_id)
        after = fold_event(before, entry)
        if after is not None and after is not before:
            changed[packet_id] = after
    return changed


def fold_event(line: PacketLine | None, entry: JournalEntry) -> PacketLine | None:
    """Return the line after one more event, or None if no line has started."""
    event, seq = entry.event, entry.seq
    if line is None:
        return _begin_line(entry)
    if seq <= line.last_seq:
        return line
    handler = _LINE_HANDLERS.get(type(event))
    if handler is None:
        return line
    return replace(line, **handler(line, event), last_seq=seq, last_at=event.at)


def is_beginning(event: Event) -> bool:
    """Return whether this event starts a line: a request, or a direct call."""
    if isinstance(event, CallReceived):
        return event.packet_id == event.call_id
    return isinstance(event, PacketReceived)


def _begin_line(entry: JournalEntry) -> PacketLine | None:
    event, seq = entry.event, entry.seq
    begins: Any = {"seq": seq, "last_seq": seq, "at": event.at, "last_at": event.at}
    if isinstance(event, PacketReceived):
        packet = event.packet
        return PacketLine(
            **begins,
            packet_id=packet.packet_id,
            kind="request",
            prompt=packet.content.original_prompt[:MAX_PROMPT_LENGTH],
            caller=packet.header.caller,
            conversation=packet.header.session_id,
            mode=packet.context.mode,
            profile=packet.context.profile,
            parent=packet.header.parent_id,
        )
    if isinstance(event, CallReceived) and event.packet_id == event.call_id:
        return PacketLine(
            **begins,
            packet_id=event.call_id,
            kind="call",
            prompt=event.name[:MAX_PROMPT_LENGTH],
            caller=event.caller,
            conversation=event.conversation,
            dry_run=event.dry_run,
        )
    return None


def _apply_narrowed(line: PacketLine, event: RequestNarrowed) -> _LineChanges:
    narrowing = event.narrowing
    changes: _LineChanges = {
        "language": narrowing.signals.language,
        "need": narrowing.need.verdict.value,
        "considered": max(line.considered, narrowing.shortlist.considered),
        "offered": len(narrowing.shortlist.offered),
    }
    # A request with several steps is narrowed several times; the tokens of one model call count.
    if line.spared_tokens is None:
        changes["spared_tokens"] = event.saved_tokens
    if line.mode is None:  # only narrowed, not routed: the request is complete
        elapsed = (event.at - line.at).total_seconds() * 1000  # with the choice of servers
        whole = max(narrowing.milliseconds, elapsed)
        changes |= {"state": "ended", "outcome": "narrowed", "milliseconds": whole}
    return changes


def _apply_model_answered(line: PacketLine, event: ModelAnswered) -> _LineChanges:
    return {
        "saved_tokens": line.spared_tokens,
        "model_calls": line.model_calls + 1,
        "prompt_tokens": line.prompt_tokens + (event.prompt_tokens or 0),
        "completion_tokens": line.completion_tokens + (event.completion_tokens or 0),
    }


def _apply_call_received(line: PacketLine, event: CallReceived) -> _LineChanges:
    """Set a direct call to running again. This event comes again when the call continues after a decision."""
    changes: _LineChanges = {"state": "running", "outcome": None} if line.kind == "call" else {}
    return {**changes, "dry_run": event.dry_run}


def _apply_approval_decided(line: PacketLine, event: ApprovalDecided) -> _LineChanges:
    """Apply a decision. An approved request waits to be resumed; a direct call ends, to be repeated."""
    if line.pending_id not in (None, event.pending_id) or line.state == "ended":
        return {}
    changes: _LineChanges = {"decision": event.decision.value, "pending_id": None}
    if event.decision is not Decision.APPROVED:
        outcome = RouteOutcome.DECLINED if line.kind == "request" else ErrorKind.CANCELLED
        return {**changes, "state": "ended", "outcome": outcome.value}
    if line.kind == "request":
        return {**changes, "state": "waiting", "outcome": event.decision.value}
    return {**changes, "state": "ended", "outcome": "approved"}


def _apply_attempt_started(line: PacketLine, event: AttemptStarted) -> _LineChanges:
    again = event.number > 1 and (not event.fallback or line.tools[-1:] == (event.tool,))
    return {} if again else {"tools": _append_tool(line.tools, event.tool)}


def _apply_attempt_finished(line: PacketLine, event: AttemptFinished) -> _LineChanges:
    made = event.attempt
    if made.error is not None:
        return {"failures": line.failures + 1}
    return {"tools": _append_tool(line.tools, made.tool)} if made.cached else {}


def _apply_call_finished(line: PacketLine, event: CallFinished) -> _LineChanges:
    if line.kind == "request":
        return {}
    if event.error is ErrorKind.AUTHORIZATION_REQUIRED and line.pending_id is not None:
        return {"state": "waiting", "outcome": None, "milliseconds": event.milliseconds}
    return {
        "prompt": event.tool[:MAX_PROMPT_LENGTH] or line.prompt,
        "state": "ended",
        "outcome": "succeeded" if event.success else (event.error or ErrorKind.EXECUTION_FAILED).value,
        "milliseconds": (line.milliseconds or 0.0) + event.milliseconds,
    }


def _apply_route_ended(line: PacketLine, event: RouteEnded) -> _LineChanges:
    """Apply the end of a route. A request that waited has several ends; their durations are added."""
    waits = event.outcome in (RouteOutcome.WAITING, RouteOutcome.ASKED)
    return {
        "state": "waiting" if waits else "ended",
        "outcome": event.outcome.value,
        "milliseconds": (line.milliseconds or 0.0) + event.milliseconds,
        "pending_id": line.pending_id if event.outcome is RouteOutcome.WAITING else None,
        "next_step": INTERRUPTED if event.outcome is RouteOutcome.INTERRUPTED else "",
    }


def _apply_subagent_began(line: PacketLine, event: SubagentBegan) -> _LineChanges:
    known = event.child in line.children or len(line.children) >= MAX_CHILDREN
    return {} if known else {"children": (*line.children, event.child)}


def _append_tool(tools: tuple[str, ...], tool: str) -> tuple[str, ...]:
    return (*tools, tool) if len(tools) < MAX_TOOLS else tools


_LINE_HANDLERS: Final[dict[type[Event], Callable[[PacketLine, Any], _LineChanges]]] = {
    PacketReceived: lambda line, event: {},
    RouteBegan: lambda line, event: {
        "mode": event.mode.value,
        "profile": event.profile,
        "state": "running",
        "outcome": None,
    },
    RouteResumed: lambda line, event: {"state": "running", "outcome": None},
    RequestNarrowed: _apply_narrowed,
    ToolsOffered: lambda line, event: {"offered": len(event.tools)},
    ModelAnswered: _apply_model_answered,
    CallReceived: _apply_call_received,
    ApprovalRequested: lambda line, event: {"state": "waiting", "pending_id": event.pending_id},
    ApprovalDecided: _apply_approval_decided,
    AttemptStarted: _apply_attempt_started,
    AttemptFinished: _apply_attempt_finished,
    FallbackTaken: lambda line, event: {"fallbacks": line.fallbacks + 1},
    CallFinished: _apply_call_finished,
    RouteEnded: _apply_route_ended,
    SubagentBegan: _apply_subagent_began,
}

BEGINNING_KINDS: Final = (PacketReceived.kind, CallReceived.kind)
LINE_KINDS: Final = tuple(event.kind for event in _LINE_HANDLERS)  # event kinds used for lines


MAX_LINES_CHECKED: Final = 5_000  # first events per page; the next page continues after them
MAX_PACKETS_READ: Final = 500  # packets per page whose events are read
_BATCH_SIZE: Final = 200
_GROUP_SIZE: Final = 50


async def read_page(journal: Journal, query: PacketQuery) -> PacketPage:
    """Return the newest matching packets. A short or empty page may still have a `next`."""
    items: list[PacketLine] = []
    limit = max(1, query.limit)
    cursor, looked_at, read = query.before, 0, 0
    kinds = _get_beginning_kinds(query)
    while len(items) <= limit:
        if looked_at >= MAX_LINES_CHECKED or read >= MAX_PACKETS_READ:
            return PacketPage(items=tuple(items), next=cursor)
        batch = max(min(_BATCH_SIZE, limit + 1 - len(items)), _GROUP_SIZE)
        beginnings = await journal.list_beginnings(kinds=kinds, before=cursor, limit=batch)
        if not beginnings:
            return PacketPage(items=tuple(items))
        looked_at += len(beginnings)
        cursor = beginnings[-1].seq
        wanted = [entry for entry in beginnings if _may_match(entry, query)]
        read += len(wanted)
        for start in range(0, len(wanted), _GROUP_SIZE):
            lines = await read_lines(journal, wanted[start : start + _GROUP_SIZE])
            items += [line for line in lines if _matches_query(line, query)]
    return PacketPage(items=tuple(items[:limit]), next=items[limit - 1].seq)


async def read_lines(journal: Journal, beginnings: list[JournalEntry]) -> list[PacketLine]:
    """Return the lines that start with these events, in the same order."""
    ids = [entry.event.packet_id for entry in beginnings if entry.event.packet_id is not None]
    events = await journal.list_packet_events(ids, kinds=LINE_KINDS)
    lines = await anyio.to_thread.run_sync(fold_events, dict[str, PacketLine](), events)
    return [lines[packet_id] for packet_id in ids if packet_id in lines]


def _get_beginning_kinds(query: PacketQuery) -> tuple[str, ...]:
    if query.kind is None:
        return BEGINNING_KINDS
    return (PacketReceived.kind if query.kind == "request" else CallReceived.kind,)


def _may_match(entry: JournalEntry, query: PacketQuery) -> bool:
    """Return whether the first event allows a match. Otherwise the other events are not read."""
    event = entry.event
    if not is_beginning(event):
        return False
    if isinstance(event, PacketReceived):
        header = event.packet.header
        caller, conversation = header.caller, header.session_id
        named = query.text.casefold() in event.packet.content.original_prompt.casefold()
    else:
        assert isinstance(event, CallReceived)
        caller, conversation, named = event.caller, event.conversation, True
    is_from = query.caller in (None, caller) and query.conversation in (None, conversation)
    return is_from and (named or query.text == event.packet_id)


def _matches_query(line: PacketLine, query: PacketQuery) -> bool:
    names = (line.prompt, *line.tools, line.packet_id)
    return (
        query.outcome in (None, line.outcome, line.state)
        and query.mode in (None, line.mode)
        and (query.tool is None or query.tool in line.tools or query.tool == line.prompt)
        and (line.kind == "request" or any(query.text.casefold() in name.casefold() for name in names))
    )

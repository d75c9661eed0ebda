"""A line for each request, folded from its events. Nothing here reads or waits.

An event changes at most one line, and a line knows the number of the last event that
changed it: an event that comes again changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

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
from fingerpost.events.choose import INTERRUPTED
from fingerpost.insight.records import PacketLine
from fingerpost.records import Decision, ErrorKind, RouteOutcome
from fingerpost.store.journal import Recorded

PROMPT_CHARACTERS: Final = 200
MOST_TOOLS: Final = 50
MOST_CHILDREN: Final = 50

_Changes = dict[str, Any]


def folded(lines: Mapping[str, PacketLine], events: Iterable[Recorded]) -> dict[str, PacketLine]:
    """The lines these events begin or change, by packet; `lines` are those known so far.

    Events come in the order of their numbers. Those of packets whose beginning is not known change nothing.
    """
    changed: dict[str, PacketLine] = {}
    for entry in events:
        packet_id = entry.event.packet_id
        if packet_id is None or type(entry.event) not in _MEANING:
            continue
        before = changed.get(packet_id) or lines.get(packet_id)
        after = fold(before, entry)
        if after is not None and after is not before:
            changed[packet_id] = after
    return changed


def fold(line: PacketLine | None, entry: Recorded) -> PacketLine | None:
    """The line after one more event of its packet; None where nothing has begun."""
    event, seq = entry.event, entry.seq
    if line is None:
        return _begin(entry)
    if seq <= line.last_seq:
        return line
    meaning = _MEANING.get(type(event))
    if meaning is None:
        return line
    return replace(line, **meaning(line, event), last_seq=seq, last_at=event.at)


def begins(event: Event) -> bool:
    """Whether a line begins with this event: a request, or a call no request asked for."""
    if isinstance(event, CallReceived):
        return event.packet_id == event.call_id
    return isinstance(event, PacketReceived)


def saved_tokens(event: RequestNarrowed) -> int | None:
    """What one question to a model saves against showing every tool; None where nobody counted."""
    return max(0, event.tokens_all - event.tokens_offered) if event.tokens_all else None


def _begin(entry: Recorded) -> PacketLine | None:
    event = entry.event
    if isinstance(event, PacketReceived):
        return _request(entry.seq, event)
    if isinstance(event, CallReceived) and event.packet_id == event.call_id:
        return _bare_call(entry.seq, event)
    return None


def _request(seq: int, event: PacketReceived) -> PacketLine:
    packet = event.packet
    return PacketLine(
        packet_id=packet.packet_id,
        kind="request",
        seq=seq,
        last_seq=seq,
        at=event.at,
        last_at=event.at,
        prompt=packet.content.original_prompt[:PROMPT_CHARACTERS],
        caller=packet.header.caller,
        conversation=packet.header.session_id,
        mode=packet.context.mode,
        profile=packet.context.profile,
        parent=packet.header.parent_id,
    )


def _bare_call(seq: int, event: CallReceived) -> PacketLine:
    return PacketLine(
        packet_id=event.call_id,
        kind="call",
        seq=seq,
        last_seq=seq,
        at=event.at,
        last_at=event.at,
        prompt=event.name[:PROMPT_CHARACTERS],
        caller=event.caller,
        conversation=event.conversation,
    )


def _begun(line: PacketLine, event: RouteBegan) -> _Changes:
    return {"mode": event.mode.value, "profile": event.profile, "state": "running", "outcome": None}


def _resumed(line: PacketLine, event: RouteResumed) -> _Changes:
    return {"state": "running", "outcome": None}


def _narrowed(line: PacketLine, event: RequestNarrowed) -> _Changes:
    narrowing = event.narrowing
    changes: _Changes = {
        "language": narrowing.signals.language,
        "need": narrowing.need.verdict.value,
        "considered": max(line.considered, narrowing.shortlist.considered),
        "offered": len(narrowing.shortlist.offered),
    }
    # A request of several steps is narrowed for each; what one question to a model saves is wanted here.
    if line.saved_tokens is None:
        changes["saved_tokens"] = saved_tokens(event)
    if line.mode is None:  # nobody set out to answer it: this is all that was wanted
        changes |= {"state": "ended", "outcome": "narrowed", "milliseconds": narrowing.milliseconds}
    return changes


def _offered(line: PacketLine, event: ToolsOffered) -> _Changes:
    return {"offered": len(event.tools)}


def _model_answered(line: PacketLine, event: ModelAnswered) -> _Changes:
    return {
        "model_calls": line.model_calls + 1,
        "prompt_tokens": line.prompt_tokens + (event.prompt_tokens or 0),
        "completion_tokens": line.completion_tokens + (event.completion_tokens or 0),
    }


def _call_received(line: PacketLine, event: CallReceived) -> _Changes:
    """Told of an existing bare call when it goes on after a person's decision."""
    return {"state": "running", "outcome": None} if line.kind == "call" else {}


def _approval_requested(line: PacketLine, event: ApprovalRequested) -> _Changes:
    return {"state": "waiting", "pending_id": event.pending_id}


def _approval_decided(line: PacketLine, event: ApprovalDecided) -> _Changes:
    """A request waits until somebody goes on with it; a bare call is over: its client makes it again."""
    if line.pending_id not in (None, event.pending_id) or line.state == "ended":
        return {}
    if event.decision is not Decision.APPROVED:
        outcome = RouteOutcome.DECLINED if line.kind == "request" else ErrorKind.CANCELLED
        return {"state": "ended", "outcome": outcome.value, "pending_id": None}
    if line.kind == "request":
        return {"state": "waiting", "outcome": event.decision.value, "pending_id": None}
    return {"state": "ended", "outcome": "approved", "pending_id": None}


def _attempt_started(line: PacketLine, event: AttemptStarted) -> _Changes:
    again = event.number > 1 and (not event.fallback or line.tools[-1:] == (event.tool,))
    return {} if again else {"tools": _with(line.tools, event.tool)}


def _attempt_finished(line: PacketLine, event: AttemptFinished) -> _Changes:
    made = event.attempt
    if made.error is not None:
        return {"failures": line.failures + 1}
    return {"tools": _with(line.tools, made.tool)} if made.cached else {}


def _fallback_taken(line: PacketLine, event: FallbackTaken) -> _Changes:
    return {"fallbacks": line.fallbacks + 1}


def _call_finished(line: PacketLine, event: CallFinished) -> _Changes:
    if line.kind == "request":
        return {}
    if event.error is ErrorKind.AUTHORIZATION_REQUIRED and line.pending_id is not None:
        return {"state": "waiting", "outcome": None, "milliseconds": event.milliseconds}
    return {
        "prompt": event.tool[:PROMPT_CHARACTERS] or line.prompt,
        "state": "ended",
        "outcome": "succeeded" if event.success else (event.error or ErrorKind.EXECUTION_FAILED).value,
        "milliseconds": (line.milliseconds or 0.0) + event.milliseconds,
    }


def _route_ended(line: PacketLine, event: RouteEnded) -> _Changes:
    """A request that waited is told of again when it comes to its end: the parts add up."""
    waits = event.outcome in (RouteOutcome.WAITING, RouteOutcome.ASKED)
    return {
        "state": "waiting" if waits else "ended",
        "outcome": event.outcome.value,
        "milliseconds": (line.milliseconds or 0.0) + event.milliseconds,
        "pending_id": line.pending_id if event.outcome is RouteOutcome.WAITING else None,
        "next_step": INTERRUPTED if event.outcome is RouteOutcome.INTERRUPTED else "",
    }


def _subagent_began(line: PacketLine, event: SubagentBegan) -> _Changes:
    known = event.child in line.children or len(line.children) >= MOST_CHILDREN
    return {} if known else {"children": (*line.children, event.child)}


def _with(tools: tuple[str, ...], tool: str) -> tuple[str, ...]:
    return (*tools, tool) if len(tools) < MOST_TOOLS else tools


def _nothing(line: PacketLine, event: PacketReceived) -> _Changes:
    return {}


_MEANING: Final[dict[type[Event], Callable[[PacketLine, Any], _Changes]]] = {
    PacketReceived: _nothing,
    RouteBegan: _begun,
    RouteResumed: _resumed,
    RequestNarrowed: _narrowed,
    ToolsOffered: _offered,
    ModelAnswered: _model_answered,
    CallReceived: _call_received,
    ApprovalRequested: _approval_requested,
    ApprovalDecided: _approval_decided,
    AttemptStarted: _attempt_started,
    AttemptFinished: _attempt_finished,
    FallbackTaken: _fallback_taken,
    CallFinished: _call_finished,
    RouteEnded: _route_ended,
    SubagentBegan: _subagent_began,
}

BEGINNINGS: Final = (PacketReceived.kind, CallReceived.kind)
KINDS: Final = tuple(event.kind for event in _MEANING)  # what lines are made of

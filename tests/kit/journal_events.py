"""Small journals, as the router writes them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta

from fingerpost.events import (
    ApprovalDecided,
    ApprovalRequested,
    AttemptFinished,
    AttemptStarted,
    CallFinished,
    CallPrepared,
    CallReceived,
    Event,
    FallbackTaken,
    ModelAnswered,
    PacketReceived,
    RequestNarrowed,
    ResultDigested,
    RouteBegan,
    RouteEnded,
)
from fingerpost.records import (
    Attempt,
    Candidate,
    Content,
    Decision,
    ErrorKind,
    Header,
    Mode,
    Narrowing,
    Need,
    NeedVerdict,
    Packet,
    RouteOutcome,
    Shortlist,
    Signals,
)
from fingerpost.store.journal import JournalEntry

NOON = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)


def number_entries(events: Iterable[Event], *, first: int = 1) -> list[JournalEntry]:
    return [JournalEntry(number, event) for number, event in enumerate(events, first)]


def request(
    packet_id: str,
    prompt: str = "what time is it in Tokyo?",
    *,
    caller: str | None = "dana",
    at: datetime = NOON,
    mode: Mode | None = Mode.STAGED,
    outcome: RouteOutcome | None = RouteOutcome.ANSWERED,
    need: NeedVerdict = NeedVerdict.TOOL,
    within: Sequence[Event] = (),
    profile: str | None = None,
) -> list[Event]:
    """One request from its beginning to its end; `outcome` None leaves it on its way."""
    header = Header(packet_id=packet_id, session_id=f"ses_{packet_id}", created=at, caller=caller)
    packet = Packet(header=header, content=Content(original_prompt=prompt))
    events: list[Event] = [PacketReceived.from_packet(packet)]
    if mode is not None:
        events.append(RouteBegan(packet_id=packet_id, mode=mode, profile=profile, at=at))
    events.append(create_narrowed(packet_id, need=need, at=at))
    if mode is not None:
        events.append(
            ModelAnswered(
                packet_id=packet_id,
                role="lite",
                purpose="selection",
                model="small",
                prompt_tokens=300,
                completion_tokens=20,
                milliseconds=80.0,
                at=at,
            )
        )
    events += within
    if outcome is not None:
        events.append(RouteEnded(packet_id=packet_id, outcome=outcome, milliseconds=120.0, at=at))
    return events


def create_narrowed(
    packet_id: str, *, need: NeedVerdict = NeedVerdict.TOOL, at: datetime = NOON
) -> RequestNarrowed:
    offered = need is not NeedVerdict.NONE
    candidates = tuple(
        Candidate(tool=tool, score=1.0, offered=offered) for tool in ("time/now", "time/convert")
    )
    return RequestNarrowed(
        packet_id=packet_id,
        at=at,
        tokens_all=4_000,
        tokens_offered=200 if offered else 0,
        narrowing=Narrowing(
            need=Need(verdict=need, score=0.9),
            signals=Signals(language="en"),
            shortlist=Shortlist(candidates=candidates, considered=40),
            milliseconds=4.0,
        ),
    )


def call(
    call_id: str,
    tool: str = "time/now",
    *,
    packet_id: str | None = None,
    caller: str | None = "dana",
    error: ErrorKind | None = None,
    milliseconds: float = 30.0,
    cut: bool = False,
    fallback: str | None = None,
    at: datetime = NOON,
    dry_run: bool = False,
) -> list[Event]:
    """A call to its end; with `fallback` the first tool fails and this one takes over."""
    subject = packet_id or call_id
    events: list[Event] = [
        CallReceived(
            packet_id=subject,
            call_id=call_id,
            name=tool.split("/")[1],
            arguments={},
            caller=caller,
            at=at,
            dry_run=dry_run,
        ),
        CallPrepared(
            packet_id=subject,
            call_id=call_id,
            tool=tool,
            operation=tool,
            arguments={},
            fingerprint="f",
            at=at,
        ),
    ]
    ends = [(tool, ErrorKind.TIMEOUT), (fallback, error)] if fallback else [(tool, error)]
    for number, (tried, ended) in enumerate(() if dry_run else ends, 1):
        if number > 1:
            events.append(
                FallbackTaken(
                    packet_id=subject,
                    call_id=call_id,
                    tool=tried or "",
                    instead_of=tool,
                    reason="it failed",
                    at=at,
                )
            )
        events += attempt(call_id, tried or "", number, ended, packet_id=subject, ms=milliseconds, at=at)
    if error is None and not dry_run:
        dropped = ("items 2–9 of 9",) if cut else ()
        events.append(
            ResultDigested(
                packet_id=subject, call_id=call_id, tokens=5, original_tokens=9, dropped=dropped, at=at
            )
        )
    events.append(
        CallFinished(
            packet_id=subject,
            call_id=call_id,
            tool=fallback or tool,
            success=error is None,
            error=error,
            milliseconds=milliseconds + 2,
            at=at,
        )
    )
    return events


def attempt(
    call_id: str,
    tool: str,
    number: int,
    error: ErrorKind | None,
    *,
    packet_id: str,
    ms: float = 30.0,
    at: datetime = NOON,
) -> list[Event]:
    made = Attempt(tool=tool, number=number, began=at, milliseconds=ms, error=error)
    return [
        AttemptStarted(
            packet_id=packet_id,
            call_id=call_id,
            tool=tool,
            number=number,
            call_fingerprint="f",
            permit="policy",
            fallback=number > 1,
            at=at,
        ),
        AttemptFinished(packet_id=packet_id, call_id=call_id, attempt=made, at=at),
    ]


def create_requested(
    call_id: str, pending_id: str, *, packet_id: str | None = None, at: datetime = NOON
) -> Event:
    return ApprovalRequested(
        packet_id=packet_id or call_id,
        call_id=call_id,
        pending_id=pending_id,
        tool="files/write_file",
        call_fingerprint="f",
        reason="it writes",
        at=at,
    )


def create_decided(
    call_id: str,
    pending_id: str,
    decision: Decision,
    *,
    packet_id: str | None = None,
    seconds: float = 8.0,
    at: datetime = NOON,
) -> Event:
    return ApprovalDecided(
        packet_id=packet_id or call_id,
        call_id=call_id,
        pending_id=pending_id,
        decision=decision,
        decided_by="noa",
        at=at + timedelta(seconds=seconds),
    )

"""What took how long, one after another and side by side: the stages of a journey on one axis."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from fingerpost.events import (
    ApprovalDecided,
    ApprovalRequested,
    AttemptFinished,
    Event,
    ModelAnswered,
    RequestNarrowed,
    RouteEnded,
    SubagentEnded,
)
from fingerpost.frozen import frozen
from fingerpost.records import RouteOutcome

_BAD = (RouteOutcome.FAILED, RouteOutcome.LIMITED, RouteOutcome.LEFT)


@frozen
class Span:
    """Something that took time. `start` and `length` are milliseconds; the axis begins at 0."""

    stage: str  # "narrow", "model", "tool"
    name: str
    start: float
    length: float
    note: str = ""
    failed: bool = False


@frozen
class Timeline:
    """All spans of a journey. The time it waited for a person is cut out of the axis."""

    spans: tuple[Span, ...]
    length: float
    waited: float = 0.0  # for a person

    def taken(self, stage: str) -> float:
        """Milliseconds of this stage, what ran side by side counted once."""
        covered = end = 0.0
        for span in sorted((one for one in self.spans if one.stage == stage), key=lambda one: one.start):
            begin = max(span.start, end)
            end = max(end, span.start + span.length)
            covered += max(0.0, end - begin)
        return covered


def timeline(events: Sequence[Event]) -> Timeline:
    """The axis of these events, which are in order."""
    if not events:
        return Timeline(spans=(), length=0.0)
    clock = _Clock(events)
    found = [_span(event, clock) for event in events]
    spans = sorted((span for span in found if span is not None), key=lambda span: span.start)
    ends = [clock.at(events[-1].at), *(span.start + span.length for span in spans)]
    return Timeline(spans=tuple(spans), length=max(ends), waited=clock.waited)


class _Clock:
    """Milliseconds since the beginning, without those in which a person thought about it."""

    def __init__(self, events: Sequence[Event]) -> None:
        self._began = events[0].at
        self._pauses = _pauses(events)

    @property
    def waited(self) -> float:
        return sum(_milliseconds(end - begin) for begin, end in self._pauses)

    def at(self, moment: datetime) -> float:
        paused = sum(_milliseconds(min(end, moment) - begin) for begin, end in self._pauses if begin < moment)
        return max(0.0, _milliseconds(moment - self._began) - paused)


def _pauses(events: Sequence[Event]) -> list[tuple[datetime, datetime]]:
    asked: dict[str, datetime] = {}
    question: datetime | None = None
    pauses: list[tuple[datetime, datetime]] = []
    for event in events:
        if question is not None:
            pauses.append((question, event.at))
        question = event.at if isinstance(event, RouteEnded) and event.outcome is RouteOutcome.ASKED else None
        if isinstance(event, ApprovalRequested):
            asked[event.pending_id] = event.at
        elif isinstance(event, ApprovalDecided) and event.pending_id in asked:
            pauses.append((asked.pop(event.pending_id), event.at))
    return _merged(pauses)


def _merged(pauses: list[tuple[datetime, datetime]]) -> list[tuple[datetime, datetime]]:
    """Without overlaps: two calls may wait for the same person at the same time."""
    merged: list[tuple[datetime, datetime]] = []
    for begin, end in sorted(pauses):
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((begin, end))
    return merged


def _span(event: Event, clock: _Clock) -> Span | None:
    match event:
        case RequestNarrowed():
            length = event.narrowing.milliseconds
            return Span(stage="narrow", name="narrowing", start=_before(event, length, clock), length=length)
        case ModelAnswered():
            return _asked(event, clock)
        case AttemptFinished():
            return _tried(event, clock)
        case SubagentEnded():
            return _helped(event, clock)
        case _:
            return None


def _asked(event: ModelAnswered, clock: _Clock) -> Span:
    known = event.prompt_tokens is not None or event.completion_tokens is not None
    tokens = f"{event.prompt_tokens or 0:,} + {event.completion_tokens or 0:,} tokens" if known else ""
    stood_in = "stood in" if event.stood_in else ""
    return Span(
        stage="model",
        name=f"{event.purpose} ({event.model})",
        start=_before(event, event.milliseconds, clock),
        length=event.milliseconds,
        note=event.error or ", ".join(filter(None, (tokens, stood_in))),
        failed=event.error is not None,
    )


def _tried(event: AttemptFinished, clock: _Clock) -> Span:
    made = event.attempt
    notes = [f"attempt {made.number}"] if made.number > 1 else []
    notes += [f"waited {made.waited_ms:.0f} ms"] if made.waited_ms >= 1 else []
    notes += [f"from the cache, {made.age_ms / 1000:.1f} s old"] if made.cached else []
    notes += [f"{made.error}: {made.detail}".rstrip(": ")] if made.error is not None else []
    return Span(
        stage="tool",
        name=made.tool,
        start=clock.at(made.began),
        length=made.milliseconds,
        note=", ".join(notes),
        failed=made.error is not None,
    )


def _helped(event: SubagentEnded, clock: _Clock) -> Span:
    """Part of the tool that began it: counted once, drawn beside it."""
    return Span(
        stage="tool",
        name=f"subagent {event.child}",
        start=_before(event, event.milliseconds, clock),
        length=event.milliseconds,
        note=f"{event.outcome}, {event.tokens:,} tokens",
        failed=event.outcome in _BAD,
    )


def _before(event: Event, milliseconds: float, clock: _Clock) -> float:
    return max(0.0, clock.at(event.at) - milliseconds)


def _milliseconds(length: timedelta) -> float:
    return length.total_seconds() * 1000

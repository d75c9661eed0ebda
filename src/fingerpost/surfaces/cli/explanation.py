"""`fingerpost ask --explain`: why a tool was chosen, what ran when, and what it cost."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from rich.text import Text

from fingerpost.events import (
    ApprovalDecided,
    ApprovalRequested,
    AttemptFinished,
    BudgetReached,
    CallPrepared,
    CallRefused,
    ConfidenceJudged,
    Event,
    FallbackTaken,
    HistorySummarised,
    ModelAnswered,
    PlanNoted,
    ReplyRejected,
    RequestNarrowed,
    ResultDigested,
    ResultMarked,
    RouteEnded,
    SelectionReviewed,
    ShortlistWidened,
    SubagentEnded,
    SyntaxStopped,
    ThoughtNoted,
    ToolSelected,
    ToolsOffered,
)
from fingerpost.frozen import frozen
from fingerpost.records import RouteOutcome, Selection
from fingerpost.surfaces.cli.route import show_narrowing
from fingerpost.surfaces.cli.screen import build_table, clean_text, format_count, get_output, shorten

if TYPE_CHECKING:
    from rich.table import Table

    from fingerpost.records import Confidence
    from fingerpost.router import Route
_FAILED_OUTCOMES = (RouteOutcome.FAILED, RouteOutcome.LIMITED, RouteOutcome.LEFT)


@frozen
class TimelineSpan:
    """A step that took time. `start` and `length` are milliseconds."""

    stage: str  # "narrow", "model", "tool"
    name: str
    start: float
    length: float
    note: str = ""
    failed: bool = False


@frozen
class Timeline:
    """All spans of a request. Time spent waiting for a person is left out."""

    spans: tuple[TimelineSpan, ...]
    length: float
    waited: float = 0.0  # for an approval

    def sum_stage(self, stage: str) -> float:
        """Return the milliseconds of a stage; parallel time counts once."""
        covered = end = 0.0
        for span in sorted((one for one in self.spans if one.stage == stage), key=lambda one: one.start):
            begin = max(span.start, end)
            end = max(end, span.start + span.length)
            covered += max(0.0, end - begin)
        return covered

    @classmethod
    def from_events(cls, events: Sequence[Event]) -> Timeline:
        """Build the timeline of ordered events."""
        if not events:
            return cls(spans=(), length=0.0)
        clock = _TimelineClock(events)
        found = [_build_span(event, clock) for event in events]
        spans = sorted((span for span in found if span is not None), key=lambda span: span.start)
        ends = [clock.at(events[-1].at), *(span.start + span.length for span in spans)]
        return cls(spans=tuple(spans), length=max(ends), waited=clock.waited)


class _TimelineClock:
    """Milliseconds since the first event, without waiting for a person."""

    def __init__(self, events: Sequence[Event]) -> None:
        self._began = events[0].at
        self._pauses = _find_pauses(events)

    @property
    def waited(self) -> float:
        return sum(_to_milliseconds(end - begin) for begin, end in self._pauses)

    def at(self, moment: datetime) -> float:
        paused = sum(
            _to_milliseconds(min(end, moment) - begin) for begin, end in self._pauses if begin < moment
        )
        return max(0.0, _to_milliseconds(moment - self._began) - paused)


def _find_pauses(events: Sequence[Event]) -> list[tuple[datetime, datetime]]:
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
    return _merge_pauses(pauses)


def _merge_pauses(pauses: list[tuple[datetime, datetime]]) -> list[tuple[datetime, datetime]]:
    """Merge overlapping pauses."""
    merged: list[tuple[datetime, datetime]] = []
    for begin, end in sorted(pauses):
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((begin, end))
    return merged


def _build_span(event: Event, clock: _TimelineClock) -> TimelineSpan | None:
    match event:
        case RequestNarrowed():
            length = event.narrowing.milliseconds
            start = _compute_start(event, length, clock)
            return TimelineSpan(stage="narrow", name="narrowing", start=start, length=length)
        case ModelAnswered():
            return _build_model_span(event, clock)
        case AttemptFinished():
            return _build_attempt_span(event, clock)
        case SubagentEnded():  # overlaps the tool that started it
            return TimelineSpan(
                stage="tool",
                name=f"subagent {event.child}",
                start=_compute_start(event, event.milliseconds, clock),
                length=event.milliseconds,
                note=f"{event.outcome}, {event.tokens:,} tokens",
                failed=event.outcome in _FAILED_OUTCOMES,
            )
        case _:
            return None


def _build_model_span(event: ModelAnswered, clock: _TimelineClock) -> TimelineSpan:
    known = event.prompt_tokens is not None or event.completion_tokens is not None
    tokens = f"{event.prompt_tokens or 0:,} + {event.completion_tokens or 0:,} tokens" if known else ""
    stood_in = "stood in" if event.stood_in else ""
    return TimelineSpan(
        stage="model",
        name=f"{event.purpose} ({event.model})",
        start=_compute_start(event, event.milliseconds, clock),
        length=event.milliseconds,
        note=event.error or ", ".join(filter(None, (tokens, stood_in))),
        failed=event.error is not None,
    )


def _build_attempt_span(event: AttemptFinished, clock: _TimelineClock) -> TimelineSpan:
    made = event.attempt
    notes = [f"attempt {made.number}"] if made.number > 1 else []
    notes += [f"waited {made.waited_ms:.0f} ms"] if made.waited_ms >= 1 else []
    notes += [f"from the cache, {made.age_ms / 1000:.1f} s old"] if made.cached else []
    notes += [f"{made.error}: {made.detail}".rstrip(": ")] if made.error is not None else []
    return TimelineSpan(
        stage="tool",
        name=made.tool,
        start=clock.at(made.began),
        length=made.milliseconds,
        note=", ".join(notes),
        failed=made.error is not None,
    )


def _compute_start(event: Event, milliseconds: float, clock: _TimelineClock) -> float:
    return max(0.0, clock.at(event.at) - milliseconds)


def _to_milliseconds(length: timedelta) -> float:
    return length.total_seconds() * 1000


MAX_TEXT_LENGTH: Final = 300
AXIS_WIDTH: Final = 40
_READ_ONLY_NOTES: Final = {True: " (it only reads)", False: " (it changes something)", None: ""}
_COLOURS: Final = {"narrow": "green", "model": "cyan", "tool": "magenta"}
_SHADES: Final = {"narrow": "▒", "model": "█", "tool": "▓"}

ExplanationLine = tuple[str, str, str]  # label, text, style


def show_explanation(route: Route, events: Sequence[Event]) -> None:
    """Print the explanation to stdout. `events` are the events of the packet."""
    screen = get_output()
    screen.print()
    if route.narrowing is not None:
        show_narrowing(route.narrowing, explain=False, trace=False)
    for what, words, style in describe_events(events):
        screen.print(Text.assemble((f"{what:<15}", "dim"), (words, style)), soft_wrap=True)
    found = Timeline.from_events(events)
    if found.spans:
        screen.print(_build_axis(found, coloured=screen.is_terminal))
    for what, words, style in describe_costs(route, found, events):
        screen.print(Text.assemble((f"{what:<15}", "dim"), (words, style)), soft_wrap=True)


def describe_events(events: Sequence[Event]) -> Iterator[ExplanationLine]:
    """Yield one line for each notable event, in order."""
    for event in events:
        if (labelled := _SUMMARISED.get(type(event))) is not None:
            lines: Iterable[ExplanationLine] = [(labelled[0], event.summary(), labelled[1])]
        else:
            lines = _describe_event(event)
        for what, words, style in lines:
            yield what, shorten(clean_text(words), MAX_TEXT_LENGTH), style


_SUMMARISED: Final[Mapping[type[Event], tuple[str, str]]] = {  # label and style
    CallRefused: ("Refused", "red"),
    ApprovalRequested: ("Approval", "yellow"),
    ApprovalDecided: ("Approval", "yellow"),
    FallbackTaken: ("Fallback", "yellow"),
    ShortlistWidened: ("Added tools", "yellow"),
    ReplyRejected: ("Rejected", "red"),
    HistorySummarised: ("Summarised", "dim"),
    BudgetReached: ("Limit", "red"),
}


def _describe_event(event: Event) -> Iterator[ExplanationLine]:
    match event:
        case ToolsOffered() if event.kept:
            kept = f"{', '.join(event.kept)}: also offered, as in an earlier turn of the conversation"
            yield "Kept", kept, ""
        case ToolSelected():
            yield from _describe_selection(event)
        case SelectionReviewed():
            yield "Review", event.summary(), "" if event.review.approved else "yellow"
        case ConfidenceJudged():
            yield _describe_confidence(event.confidence)
        case CallPrepared():
            yield from _describe_repairs(event)
        case ResultDigested() if event.dropped:
            rest = f"; the rest: fingerpost result {event.handle}" if event.handle else ""
            yield "Cut", f"{event.summary()}, left out {', '.join(event.dropped)}{rest}", "yellow"
        case ResultMarked() | SyntaxStopped():
            yield _describe_suspect(event)
        case PlanNoted() if event.remaining:
            yield "Next", event.remaining, ""
        case ThoughtNoted():
            yield "Thought", event.text, "dim"
        case _:
            pass


def _describe_suspect(event: ResultMarked | SyntaxStopped) -> ExplanationLine:
    if isinstance(event, ResultMarked):
        return "Marked", event.summary(), "yellow"
    return "Removed", f"tool syntax in the answer: {event.summary()}", "yellow"


def _describe_repairs(event: CallPrepared) -> Iterator[ExplanationLine]:
    for repair in event.repairs:
        change = f"{_format_json(repair.before)} → {_format_json(repair.after)}"
        yield "Repaired", f"{repair.path} ({repair.kind}): {change}  {repair.reason}", "yellow"


def _describe_selection(event: ToolSelected) -> Iterator[ExplanationLine]:
    if event.selection is None:
        yield "Chosen", "no tool", ""
        return
    for chosen in (event.selection, *event.beside):
        why = f": {chosen.reasoning}" if chosen.reasoning else ""
        yield "Chosen", f"{_format_selection(chosen)}{why}{_READ_ONLY_NOTES[chosen.read_only]}", "bold"
    for other in event.alternatives:
        yield "Alternative", _format_selection(other), "dim"


def _format_selection(chosen: Selection) -> str:
    sure = f", confidence {chosen.confidence * 100:.0f} %" if chosen.confidence else ""
    return f"{chosen.tool} {_format_json(chosen.arguments)}{sure}"


def _describe_confidence(sure: Confidence) -> ExplanationLine:
    parts = f"claim {sure.claim:.2f}, review {sure.review:.2f}, margin {sure.margin:.2f}"
    how = "calibrated" if sure.calibrated else "not calibrated"
    reason = f"; {sure.reason}" if sure.reason else ""
    style = "green" if sure.verdict == "go" else "yellow"
    return "Confidence", f"{sure.verdict} at {sure.score:.2f} ({parts}; {how}){reason}", style


def _format_json(value: object) -> str:
    return shorten(json.dumps(value, ensure_ascii=False, default=str), MAX_TEXT_LENGTH)


def _build_axis(found: Timeline, *, coloured: bool) -> Table:
    table = build_table(None, "", "ms", f"0 … {found.length:,.0f} ms", "", right=(1,))
    for span in found.spans:
        name = Text(clean_text(span.name), style="red" if span.failed else "")
        table.add_row(
            name,
            f"{span.length:,.0f}",
            draw_bar(span, found.length, coloured=coloured),
            clean_text(span.note)[:80],
        )
    return table


def draw_bar(span: TimelineSpan, whole: float, *, coloured: bool, width: int = AXIS_WIDTH) -> Text:
    """Return the span as a bar of at least one character."""
    whole = whole or 1.0  # shares are computed first, because the scale may be huge
    start = min(int(span.start / whole * width), width - 1)
    length = max(1, min(round(span.length / whole * width), width - start))
    mark = "█" if coloured else _SHADES[span.stage]
    return Text(" " * start + mark * length, style=_COLOURS[span.stage] if coloured else "", no_wrap=True)


def describe_costs(route: Route, found: Timeline, events: Sequence[Event]) -> Iterator[ExplanationLine]:
    """Yield time and tokens by stage."""
    models, tools = found.sum_stage("model"), found.sum_stage("tool")
    own = max(0.0, found.length - models - tools)
    waited = f"; {found.waited / 1000:,.1f} s more waiting for a person" if found.waited >= 1 else ""
    stages = f"models {models:,.0f}, tools {tools:,.0f}, the rest {own:,.0f}{waited}"
    yield "Time", f"{found.length:,.0f} ms: {stages}", ""
    asked = [event for event in events if isinstance(event, ModelAnswered)]
    if asked:
        read = sum(event.prompt_tokens or 0 for event in asked)
        written = sum(event.completion_tokens or 0 for event in asked)
        price = f", cost {route.cost:.4f}" if route.cost is not None else ""
        asked_count = format_count(len(asked), "model call")
        yield "Tokens", f"{asked_count}: {read:,} read, {written:,} written{price}", ""

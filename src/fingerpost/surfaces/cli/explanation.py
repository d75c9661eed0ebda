"""Why the answer is what it is: need, shortlist, choice, doubts, repairs, calls on a time axis, costs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import singledispatch
from typing import TYPE_CHECKING, Final

from rich.text import Text

from fingerpost.events import (
    ApprovalDecided,
    ApprovalRequested,
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
    ResultDigested,
    SelectionReviewed,
    ShortlistWidened,
    SyntaxStopped,
    ThoughtNoted,
    ToolSelected,
    ToolsOffered,
)
from fingerpost.records import Selection
from fingerpost.surfaces.cli.route import show_narrowing
from fingerpost.surfaces.cli.screen import count, output, plain, table
from fingerpost.surfaces.cli.timeline import Span, Timeline, timeline

if TYPE_CHECKING:
    from rich.table import Table

    from fingerpost.router import Route

LONGEST: Final = 300
AXIS_WIDTH: Final = 40
_READS: Final = {True: " (it only reads)", False: " (it changes something)", None: ""}
_COLOURS: Final = {"narrow": "green", "model": "cyan", "tool": "magenta"}
_SHADES: Final = {"narrow": "▒", "model": "█", "tool": "▓"}

Line = tuple[str, str, str]  # what, the words, how they look


def show_explanation(route: Route, events: Sequence[Event]) -> None:
    """Everything on stdout, after the answer. `events` are the packet's, from the journal."""
    screen = output()
    screen.print()
    if route.narrowing is not None:
        show_narrowing(route.narrowing, explain=False, trace=False)
    for what, words, style in story(events):
        screen.print(Text.assemble((f"{what:<9}", "dim"), (words, style)), soft_wrap=True)
    found = timeline(events)
    if found.spans:
        screen.print(_axis(found, coloured=screen.is_terminal))
    for what, words, style in costs(route, found, events):
        screen.print(Text.assemble((f"{what:<9}", "dim"), (words, style)), soft_wrap=True)


def story(events: Sequence[Event]) -> Iterator[Line]:
    """What was chosen and why, one line for each thing worth knowing, in the order it happened."""
    for event in events:
        for what, words, style in _told(event):
            shown = plain(words)
            yield what, shown if len(shown) <= LONGEST else shown[: LONGEST - 1] + "…", style


@singledispatch
def _told(event: Event) -> Iterator[Line]:
    return iter(())


@_told.register
def _(event: ToolsOffered) -> Iterator[Line]:
    if event.kept:
        yield "kept", f"{', '.join(event.kept)}: also offered, as in an earlier turn of the conversation", ""


@_told.register
def _(event: ToolSelected) -> Iterator[Line]:
    if event.selection is None:
        yield "chose", "no tool", ""
        return
    for chosen in (event.selection, *event.beside):
        why = f": {chosen.reasoning}" if chosen.reasoning else ""
        yield "chose", f"{_selection(chosen)}{why}{_READS[chosen.read_only]}", "bold"
    for other in event.alternatives:
        yield "or", _selection(other), "dim"


def _selection(chosen: Selection) -> str:
    sure = f", {chosen.confidence:.0%} sure" if chosen.confidence else ""
    return f"{chosen.tool} {_json(chosen.arguments)}{sure}"


@_told.register
def _(event: SelectionReviewed) -> Iterator[Line]:
    yield "review", event.summary(), "" if event.review.approved else "yellow"


@_told.register
def _(event: ConfidenceJudged) -> Iterator[Line]:
    sure = event.confidence
    parts = f"claim {sure.claim:.2f}, review {sure.review:.2f}, margin {sure.margin:.2f}"
    how = "calibrated" if sure.calibrated else "not calibrated"
    reason = f"; {sure.reason}" if sure.reason else ""
    style = "green" if sure.verdict == "go" else "yellow"
    yield "sure", f"{sure.verdict} at {sure.score:.2f} ({parts}; {how}){reason}", style


@_told.register
def _(event: CallPrepared) -> Iterator[Line]:
    for repair in event.repairs:
        change = f"{_json(repair.before)} → {_json(repair.after)}"
        yield "repaired", f"{repair.path} ({repair.kind}): {change}  {repair.reason}", "yellow"


@_told.register
def _(event: CallRefused) -> Iterator[Line]:
    yield "refused", event.summary(), "red"


@_told.register(ApprovalRequested)
@_told.register(ApprovalDecided)
def _(event: Event) -> Iterator[Line]:
    yield "approval", event.summary(), "yellow"


@_told.register
def _(event: FallbackTaken) -> Iterator[Line]:
    yield "fallback", event.summary(), "yellow"


@_told.register
def _(event: ResultDigested) -> Iterator[Line]:
    if event.dropped:
        rest = f"; the rest: fingerpost result {event.handle}" if event.handle else ""
        yield "cut", f"{event.summary()}, left out {', '.join(event.dropped)}{rest}", "yellow"


@_told.register
def _(event: ShortlistWidened) -> Iterator[Line]:
    yield "widened", event.summary(), "yellow"


@_told.register
def _(event: ReplyRejected) -> Iterator[Line]:
    yield "rejected", event.summary(), "red"


@_told.register
def _(event: SyntaxStopped) -> Iterator[Line]:
    yield "stopped", f"tool syntax in the answer: {event.summary()}", "yellow"


@_told.register
def _(event: PlanNoted) -> Iterator[Line]:
    if event.remaining:
        yield "then", event.remaining, ""


@_told.register
def _(event: ThoughtNoted) -> Iterator[Line]:
    yield "thought", event.text, "dim"


@_told.register
def _(event: HistorySummarised) -> Iterator[Line]:
    yield "shorter", event.summary(), "dim"


@_told.register
def _(event: BudgetReached) -> Iterator[Line]:
    yield "limit", event.summary(), "red"


def _json(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def _axis(found: Timeline, *, coloured: bool) -> Table:
    made = table(None, "", "ms", f"0 … {found.length:,.0f} ms", "")
    made.columns[1].justify = "right"
    for span in found.spans:
        name = Text(plain(span.name), style="red" if span.failed else "")
        made.add_row(
            name, f"{span.length:,.0f}", bar(span, found.length, coloured=coloured), plain(span.note)[:80]
        )
    return made


def bar(span: Span, whole: float, *, coloured: bool, width: int = AXIS_WIDTH) -> Text:
    """Where on the axis it lies. Even the shortest is seen."""
    whole = whole or 1.0  # shares first: of a moment too short to divide by, the scale would be endless
    start = min(int(span.start / whole * width), width - 1)
    length = max(1, min(round(span.length / whole * width), width - start))
    mark = "█" if coloured else _SHADES[span.stage]
    return Text(" " * start + mark * length, style=_COLOURS[span.stage] if coloured else "", no_wrap=True)


def costs(route: Route, found: Timeline, events: Sequence[Event]) -> Iterator[Line]:
    """Time and tokens by stage."""
    models, tools = found.taken("model"), found.taken("tool")
    own = max(0.0, found.length - models - tools)
    waited = f"; {found.waited / 1000:,.1f} s more for a person" if found.waited >= 1 else ""
    yield (
        "time",
        f"{found.length:,.0f} ms: models {models:,.0f}, tools {tools:,.0f}, the rest {own:,.0f}{waited}",
        "",
    )
    asked = [event for event in events if isinstance(event, ModelAnswered)]
    if asked:
        read = sum(event.prompt_tokens or 0 for event in asked)
        written = sum(event.completion_tokens or 0 for event in asked)
        price = f", cost {route.cost:.4f}" if route.cost is not None else ""
        yield "tokens", f"{count(len(asked), 'question')}: {read:,} read, {written:,} written{price}", ""

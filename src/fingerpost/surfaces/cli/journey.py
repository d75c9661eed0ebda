"""A call's events as a tree a person can follow: one branch per call, one line per step."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import singledispatch
from types import MappingProxyType

from rich.text import Text
from rich.tree import Tree

from fingerpost.events import (
    ApprovalDecided,
    ApprovalRequested,
    AttemptFinished,
    AttemptStarted,
    CallEvent,
    CallFinished,
    CallPrepared,
    CallReceived,
    CallRefused,
    CallReplayed,
    CallRuled,
    Event,
    FallbackTaken,
    PacketReceived,
    RequestNarrowed,
    ResultDigested,
    SubagentBegan,
    SubagentEnded,
    unfinished_attempts,
)
from fingerpost.frozen import frozen
from fingerpost.surfaces.cli.screen import plain

LONGEST = 120
UNKNOWN = "began and never ended: whether it took effect is unknown"


@frozen(kw_only=False)
class Step:
    """One line of the tree, with what belongs under it."""

    what: str
    text: str
    style: str = ""
    under: tuple[Step, ...] = ()


def draw(
    identity: str, events: Sequence[Event], children: Mapping[str, Sequence[Event]] = MappingProxyType({})
) -> Tree:
    """The journey under this id, in the order things happened; `children` are its subagents', by packet."""
    root = Tree(Text(identity, style="bold"))
    _grow(root, identity, events, dict(children))
    return root


def _grow(root: Tree, identity: str, events: Sequence[Event], children: dict[str, Sequence[Event]]) -> None:
    branches: dict[str, Tree] = {identity: root}
    for event in events:
        call_id = event.call_id if isinstance(event, CallEvent) else identity
        if call_id not in branches:
            branches[call_id] = root.add(Text(call_id, style="bold"))
        if isinstance(event, SubagentBegan):
            _nest(root, event, children)
        elif (step := _told(event)) is not None:
            _hang(branches[call_id], step)
    for lost in unfinished_attempts(events):
        _hang(branches[lost.call_id], Step("attempt", f"{lost.tool}, attempt {lost.number} {UNKNOWN}", "red"))


def _nest(root: Tree, event: SubagentBegan, children: dict[str, Sequence[Event]]) -> None:
    """A subagent's own journey, at the place where it began: once, though it may have gone on later."""
    events = children.pop(event.child, None)
    if events is None:
        _hang(root, Step("subagent", f"{event.child}: see `fingerpost trace {event.child}`", "dim"))
        return
    branch = root.add(Text.assemble(("subagent ", "bold"), (event.child, "bold cyan")))
    _grow(branch, event.child, events, children)


def _hang(branch: Tree, step: Step) -> None:
    leaf = branch.add(Text.assemble((f"{step.what} ", "bold"), (plain(step.text)[:LONGEST], step.style)))
    for below in step.under:
        _hang(leaf, below)


@singledispatch
def _told(event: Event) -> Step | None:
    return Step(event.kind.replace("_", " "), event.summary(), "dim")


@_told.register
def _(event: AttemptStarted) -> Step | None:
    return None  # told by its end


@_told.register
def _(event: PacketReceived) -> Step | None:
    parent = event.packet.header.parent_id
    return Step("asked", event.summary(), under=(Step("on behalf of", parent, "dim"),) if parent else ())


@_told.register
def _(event: SubagentEnded) -> Step | None:
    return Step("subagent ended", f"{event.summary()}, {event.milliseconds:.0f} ms", "cyan")


@_told.register
def _(event: RequestNarrowed) -> Step | None:
    narrowing = event.narrowing
    reasons = (Step("because", reason, "dim") for reason in narrowing.need.reasons)
    tools = (
        Step(
            plain(one.tool),
            f"{one.score:.2f}: " + ", ".join(f"{part.signal} {part.points:+.2f}" for part in one.parts),
        )
        for one in narrowing.shortlist.offered
    )
    told = f"need {narrowing.need.verdict} ({narrowing.need.score:.0%}), fit {narrowing.shortlist.fit:.0%}"
    return Step("narrowed", told, under=(*reasons, *tools))


@_told.register
def _(event: CallReceived) -> Step | None:
    by = (Step("by", event.caller, "dim"),) if event.caller else ()
    return Step("asked", f"{event.name} {_json(event.arguments)}", under=by)


@_told.register
def _(event: CallPrepared) -> Step | None:
    repairs = tuple(
        Step(
            f"repaired ({repair.kind})",
            f"{repair.path}: {_json(repair.before)} → {_json(repair.after)}  {repair.reason}",
            "yellow",
        )
        for repair in event.repairs
    )
    return Step("call", f"{event.tool} {_json(event.arguments)}", under=repairs)


@_told.register
def _(event: CallRefused) -> Step | None:
    return Step("refused", event.summary(), "red")


@_told.register
def _(event: CallRuled) -> Step | None:
    return Step("policy", f"{event.verdict}: {event.reason} ({event.rule})")


@_told.register(ApprovalRequested)
@_told.register(ApprovalDecided)
def _(event: Event) -> Step | None:
    return Step("approval", event.summary(), "yellow")


@_told.register
def _(event: AttemptFinished) -> Step | None:
    made = event.attempt
    notes = [f"waited {made.waited_ms:.0f} ms"] if made.waited_ms >= 1 else []
    notes += [f"from the cache, {made.age_ms / 1000:.1f} s old"] if made.cached else []
    note = f" ({', '.join(notes)})" if notes else ""
    return Step("attempt", event.summary() + note, "" if made.error is None else "red")


@_told.register
def _(event: FallbackTaken) -> Step | None:
    return Step("fallback", event.summary(), "yellow")


@_told.register
def _(event: CallReplayed) -> Step | None:
    return Step("replayed", event.summary(), "yellow")


@_told.register
def _(event: ResultDigested) -> Step | None:
    under = [Step("left out", note, "yellow") for note in event.dropped]
    if event.handle:
        under.append(Step("the rest", f"fingerpost result {event.handle}", "dim"))
    return Step("digest", event.summary(), under=tuple(under))


@_told.register
def _(event: CallFinished) -> Step | None:
    took = f"{event.summary()} in {event.milliseconds:.0f} ms"
    return Step("finished", took, "green" if event.success else "red")


def _json(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"

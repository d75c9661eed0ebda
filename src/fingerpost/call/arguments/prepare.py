"""From the arguments a model wrote to arguments the tool's schema accepts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from fingerpost.call.arguments.effort import Effort
from fingerpost.call.arguments.faults import explain
from fingerpost.call.arguments.mending import Mending
from fingerpost.call.arguments.plan import MOST_NOTES, Plan, plans
from fingerpost.call.arguments.prepared import Prepared
from fingerpost.call.arguments.signature import signature
from fingerpost.call.arguments.values import excess, plain_object
from fingerpost.call.arguments.wrapping import enclosing, unwrapped
from fingerpost.records import Json, JsonObject, ParameterError, ParameterFault, RepairKind, ToolCard

MOST_WRAPPERS: Final = 2


def prepare(card: ToolCard, arguments: JsonObject, *, repair: bool = True) -> Prepared:
    """Put right what is certainly meant, then validate. With `repair=False` only validate.

    Arguments that fit come back as they are. Two things count as not fitting
    though JSON Schema lets them pass: a key the schema does not list (unless it
    says that extras are welcome), because servers ignore or refuse such keys,
    and `3.0` for an integer.
    """
    plan = plans.of(card)
    fitting = plan.quick.fitting(arguments)
    if fitting is not None:
        return Prepared(arguments=fitting, notes=plan.notes)
    return thoroughly(card, plan, arguments, repair=repair)


def thoroughly(
    card: ToolCard, plan: Plan, arguments: JsonObject, *, repair: bool, effort: Effort | None = None
) -> Prepared:
    """The same for arguments that need a closer look."""
    reason = excess(arguments)
    if reason is not None:
        return _refused(card, plan, reason)
    effort = Effort() if effort is None else effort
    given = plain_object(arguments)
    walk = Mending(plan, effort)
    if repair:
        given = _mended(plan, walk, given)
    effort.check()
    found, complete = plan.validation.errors(given, effort)
    errors = explain(plan, found)
    named = {error.parameter for error in errors}
    doubts = tuple(doubt for doubt in walk.doubts if doubt.parameter not in named)
    return Prepared(
        arguments=given,
        repairs=tuple(walk.repairs),
        errors=errors + doubts,
        signature=signature(card),
        notes=(*plan.notes, *_unchecked(effort, complete=complete)),
    )


def _unchecked(effort: Effort, *, complete: bool) -> Iterator[str]:
    """What was not checked, in plain words."""
    refused = [source for source, pattern in effort.patterns.items() if pattern is None]
    for source in refused[:MOST_NOTES]:
        yield f"the pattern {source[:60]} is not matched here: the server will judge"
    if not complete:
        yield "not checked further, which would take too long: the server will check it itself"


def _mended(plan: Plan, walk: Mending, given: dict[str, Json]) -> dict[str, Json]:
    """The arguments with all put right that is certain before the effort is spent."""
    unwrapped = walk.in_full(lambda: _unwrapped(plan, walk, given), given)
    mended = walk.in_full(lambda: walk.value(plan.schema, unwrapped, ""), unwrapped)
    return dict(mended) if isinstance(mended, dict) else unwrapped


def _unwrapped(plan: Plan, walk: Mending, given: dict[str, Json]) -> dict[str, Json]:
    for _ in range(MOST_WRAPPERS):
        inner = unwrapped(plan, given, walk.effort)
        if inner is None:
            break
        key, found = inner
        walk.record(key, RepairKind.WRAPPED, given, found, "the arguments stood one level too deep")
        given = found
    holder = enclosing(plan, given)
    if holder is not None:
        walk.record(
            holder, RepairKind.WRAPPED, given, {holder: given}, "the arguments stood one level too high"
        )
        given = {holder: given}
    return given


def _refused(card: ToolCard, plan: Plan, reason: str) -> Prepared:
    error = ParameterError(
        fault=ParameterFault.BAD_VALUE, parameter="", message=f"the arguments cannot be checked: it {reason}"
    )
    return Prepared(arguments={}, errors=(error,), signature=signature(card), notes=plan.notes)

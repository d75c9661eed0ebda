"""From the arguments a model wrote to arguments the tool's schema accepts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from fingerpost.call.arguments.effort import StepBudget
from fingerpost.call.arguments.faults import explain_errors
from fingerpost.call.arguments.mending import ArgumentRepair
from fingerpost.call.arguments.plan import MAX_NOTES, ToolSchema, tool_schemas
from fingerpost.call.arguments.prepared import PreparedArguments
from fingerpost.call.arguments.signature import format_signature
from fingerpost.call.arguments.values import copy_object, find_excess
from fingerpost.call.arguments.wrapping import find_enclosing_parameter, find_wrapped
from fingerpost.records import Json, JsonObject, ParameterError, ParameterFault, RepairKind, ToolCard

MAX_WRAPPERS: Final = 2


def prepare_arguments(card: ToolCard, arguments: JsonObject, *, repair: bool = True) -> PreparedArguments:
    """Put right what is certainly meant, then validate. With `repair=False` only validate.

    Arguments that fit come back as they are. Two things count as not fitting
    though JSON Schema lets them pass: a key the schema does not list (unless it
    says that extras are welcome), because servers ignore or refuse such keys,
    and `3.0` for an integer.
    """
    plan = tool_schemas.get_schema(card)
    fitting = plan.quick.copy_if_valid(arguments)
    if fitting is not None:
        return PreparedArguments(arguments=fitting, notes=plan.notes)
    return prepare_thoroughly(card, plan, arguments, repair=repair)


def prepare_thoroughly(
    card: ToolCard,
    tool_schema: ToolSchema,
    arguments: JsonObject,
    *,
    repair: bool,
    budget: StepBudget | None = None,
) -> PreparedArguments:
    """The same for arguments that need a closer look."""
    reason = find_excess(arguments)
    if reason is not None:
        return _refuse_arguments(card, tool_schema, reason)
    budget = StepBudget() if budget is None else budget
    given = copy_object(arguments)
    walk = ArgumentRepair(tool_schema, budget)
    if repair:
        given = _repair_arguments(tool_schema, walk, given)
    budget.begin_checking()
    found, complete = tool_schema.validation.find_errors(given, budget)
    errors = explain_errors(tool_schema, found)
    named = {error.parameter for error in errors}
    doubts = tuple(doubt for doubt in walk.doubts if doubt.parameter not in named)
    return PreparedArguments(
        arguments=given,
        repairs=tuple(walk.repairs),
        errors=errors + doubts,
        signature=format_signature(card),
        notes=(*tool_schema.notes, *_describe_unchecked_parts(budget, complete=complete)),
    )


def _describe_unchecked_parts(budget: StepBudget, *, complete: bool) -> Iterator[str]:
    """What was not checked, in plain words."""
    refused = [source for source, pattern in budget.patterns.items() if pattern is None]
    for source in refused[:MAX_NOTES]:
        yield f"the pattern {source[:60]} is not matched here: the server will judge"
    if not complete:
        yield "not checked further, which would take too long: the server will check it itself"


def _repair_arguments(
    tool_schema: ToolSchema, walk: ArgumentRepair, given: dict[str, Json]
) -> dict[str, Json]:
    """The arguments with all put right that is certain before the effort is spent."""
    unwrapped = walk.apply_fully(lambda: _unwrap_arguments(tool_schema, walk, given), given)
    mended = walk.apply_fully(lambda: walk.repair_value(tool_schema.schema, unwrapped, ""), unwrapped)
    return dict(mended) if isinstance(mended, dict) else unwrapped


def _unwrap_arguments(
    tool_schema: ToolSchema, walk: ArgumentRepair, given: dict[str, Json]
) -> dict[str, Json]:
    for _ in range(MAX_WRAPPERS):
        inner = find_wrapped(tool_schema, given, walk.budget)
        if inner is None:
            break
        key, found = inner
        walk.record_repair(key, RepairKind.WRAPPED, given, found, "the arguments stood one level too deep")
        given = found
    holder = find_enclosing_parameter(tool_schema, given)
    if holder is not None:
        walk.record_repair(
            holder, RepairKind.WRAPPED, given, {holder: given}, "the arguments stood one level too high"
        )
        given = {holder: given}
    return given


def _refuse_arguments(card: ToolCard, tool_schema: ToolSchema, reason: str) -> PreparedArguments:
    error = ParameterError(
        fault=ParameterFault.BAD_VALUE, parameter="", message=f"the arguments cannot be checked: it {reason}"
    )
    return PreparedArguments(
        arguments={}, errors=(error,), signature=format_signature(card), notes=tool_schema.notes
    )

"""From a tool's card and what was asked of it to a call that may be judged, or to what is wrong with it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import field, replace

from fingerpost.call.arguments import PreparedArguments, format_signature, prepare_arguments
from fingerpost.call.fingerprints import compute_call_fingerprint
from fingerpost.call.names import ToolNotFound, find_unknown_argument, get_operation, resolve_tool
from fingerpost.call.outcomes import OutcomeBuilder
from fingerpost.catalog import Snapshot, escape_invisible_except
from fingerpost.errors import CallError
from fingerpost.frozen import frozen
from fingerpost.records import (
    Call,
    CallContext,
    Json,
    JsonObject,
    ParameterError,
    Pending,
    Precheck,
    Repair,
    ToolCall,
    ToolCard,
)


@frozen
class CheckedCall:
    """What name and arguments lead to, without running anything. No `problem`: the call could be made."""

    tool: str | None = None
    arguments: JsonObject = field(default_factory=dict[str, Json])
    repairs: tuple[Repair, ...] = ()
    errors: tuple[ParameterError, ...] = ()
    problem: str = ""
    signature: str = ""


GetPrecheck = Callable[[str], Precheck | None]  # by server


def prepare_call_arguments(
    card: ToolCard, arguments: JsonObject, prechecks: GetPrecheck, *, repair: bool
) -> PreparedArguments:
    """The arguments put right and checked: by the schema, then by the server where it is one of ours."""
    made = prepare_arguments(card, arguments, repair=repair)
    precheck = None if made.errors else prechecks(card.server)
    errors = () if precheck is None else precheck.check_arguments(card.name, made.arguments)
    return replace(made, errors=errors, signature=format_signature(card)) if errors else made


def check_call(
    tool_call: ToolCall, snapshot: Snapshot, prechecks: GetPrecheck, *, repair: bool
) -> CheckedCall:
    """What would become of the call's name and arguments. Nothing runs, nobody is asked or told."""
    found = resolve_tool(tool_call, snapshot)
    if isinstance(found, ToolNotFound):
        endings = OutcomeBuilder(tool_call, CallContext(call_id=""))
        return CheckedCall(problem=endings.build_not_found(found.near, ambiguous=found.ambiguous).content)
    made = prepare_call_arguments(found.card, found.arguments, prechecks, repair=repair)
    return CheckedCall(
        tool=found.card.key,
        arguments=made.arguments,
        repairs=made.repairs,
        errors=made.errors,
        problem="; ".join(error.message for error in made.errors),
        signature=made.signature or format_signature(found.card),
    )


def build_edited_call(
    card: ToolCard, pending: Pending, arguments: JsonObject, prechecks: GetPrecheck, *, repair: bool
) -> Call:
    """The waiting call with a person's own arguments, which are checked as any others."""
    check_argument_names(card, pending, arguments)
    made = prepare_call_arguments(card, arguments, prechecks, repair=repair)
    if made.errors:
        message = "; ".join(error.message for error in made.errors)
        raise CallError(message, hint=f"the tool takes: {made.signature}")
    return build_call(card, made.arguments, made.repairs)


def check_argument_names(card: ToolCard, pending: Pending, names: Iterable[str]) -> None:
    """A slip in a name would leave the argument that was meant as it is, and run that."""
    unknown = find_unknown_argument(card, (name for name in names if name not in pending.arguments))
    if unknown is not None:
        name, near = unknown
        message = (
            f"{card.key} takes no {escape_invisible_except(name)!r}; it takes: "
            f"{', '.join(map(escape_invisible_except, near))}"
        )
        raise CallError(message, hint="write the name as the tool does; nothing was decided")


def build_call(card: ToolCard, arguments: JsonObject, repairs: tuple[Repair, ...]) -> Call:
    """The call itself, with the fingerprint that a grant is bound to."""
    named = arguments.get("operation") if card.operations else None
    return Call(
        tool=card.key,
        server=card.server,
        name=card.name,
        operation=get_operation(card, arguments),
        arguments=arguments,
        effect=card.effect_of(named if isinstance(named, str) else None),
        cache_seconds=card.cache_seconds.value,
        retry=card.retry,
        fingerprint=compute_call_fingerprint(card.fingerprint, card.key, arguments),
        definition_fingerprint=card.fingerprint,
        repairs=repairs,
        doubt=card.doubt,
    )

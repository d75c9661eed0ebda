"""From a tool's card and what was asked of it to a call that may be judged, or to what is wrong with it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import field, replace

from fingerpost.call.arguments import Prepared, prepare, signature
from fingerpost.call.fingerprints import call_fingerprint
from fingerpost.call.names import NotFound, operation_of, resolve, unknown_argument
from fingerpost.call.outcomes import Endings
from fingerpost.catalog import Snapshot, visible
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
class Checked:
    """What name and arguments lead to, without running anything. No `problem`: the call could be made."""

    tool: str | None = None
    arguments: JsonObject = field(default_factory=dict[str, Json])
    repairs: tuple[Repair, ...] = ()
    errors: tuple[ParameterError, ...] = ()
    problem: str = ""
    signature: str = ""


PrecheckOf = Callable[[str], Precheck | None]  # by server


def prepared(card: ToolCard, arguments: JsonObject, prechecks: PrecheckOf, *, repair: bool) -> Prepared:
    """The arguments put right and checked: by the schema, then by the server where it is one of ours."""
    made = prepare(card, arguments, repair=repair)
    precheck = None if made.errors else prechecks(card.server)
    errors = () if precheck is None else precheck.check_arguments(card.name, made.arguments)
    return replace(made, errors=errors, signature=signature(card)) if errors else made


def check(wish: ToolCall, snapshot: Snapshot, prechecks: PrecheckOf, *, repair: bool) -> Checked:
    """What would become of the call's name and arguments. Nothing runs, nobody is asked or told."""
    found = resolve(wish, snapshot)
    if isinstance(found, NotFound):
        endings = Endings(wish, CallContext(call_id=""))
        return Checked(problem=endings.not_found(found.near, ambiguous=found.ambiguous).content)
    made = prepared(found.card, found.arguments, prechecks, repair=repair)
    return Checked(
        tool=found.card.key,
        arguments=made.arguments,
        repairs=made.repairs,
        errors=made.errors,
        problem="; ".join(error.message for error in made.errors),
        signature=made.signature or signature(found.card),
    )


def edited_call(
    card: ToolCard, pending: Pending, arguments: JsonObject, prechecks: PrecheckOf, *, repair: bool
) -> Call:
    """The waiting call with a person's own arguments, which are checked as any others."""
    check_names(card, pending, arguments)
    made = prepared(card, arguments, prechecks, repair=repair)
    if made.errors:
        message = "; ".join(error.message for error in made.errors)
        raise CallError(message, hint=f"the tool takes: {made.signature}")
    return call_of(card, made.arguments, made.repairs)


def check_names(card: ToolCard, pending: Pending, names: Iterable[str]) -> None:
    """A slip in a name would leave the argument that was meant as it is, and run that."""
    unknown = unknown_argument(card, (name for name in names if name not in pending.arguments))
    if unknown is not None:
        name, near = unknown
        message = f"{card.key} takes no {visible(name)!r}; it takes: {', '.join(map(visible, near))}"
        raise CallError(message, hint="write the name as the tool does; nothing was decided")


def call_of(card: ToolCard, arguments: JsonObject, repairs: tuple[Repair, ...]) -> Call:
    """The call itself, with the fingerprint that a grant is bound to."""
    named = arguments.get("operation") if card.operations else None
    return Call(
        tool=card.key,
        server=card.server,
        name=card.name,
        operation=operation_of(card, arguments),
        arguments=arguments,
        effect=card.effect_of(named if isinstance(named, str) else None),
        cache_seconds=card.cache_seconds.value,
        retry=card.retry,
        fingerprint=call_fingerprint(card.fingerprint, card.key, arguments),
        definition_fingerprint=card.fingerprint,
        repairs=repairs,
        doubt=card.doubt,
    )

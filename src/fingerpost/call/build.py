"""Builds a `Call` from a model's tool call: its tool, checked arguments and fingerprint."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import field, replace
from difflib import get_close_matches

from fingerpost.call.arguments import PreparedArguments, format_signature, prepare_arguments
from fingerpost.call.outcomes import OutcomeBuilder
from fingerpost.catalog import Catalog, Snapshot, UnavailableTool, build_tool_key, escape_invisible_except
from fingerpost.catalog.name_resolver import MAX_WRITTEN_LENGTH, list_readings, list_server_readings
from fingerpost.catalog.unavailable import build_refused, build_server_unavailable
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
    ServerStatus,
    ToolCall,
    ToolCard,
)
from fingerpost.records.json import to_canonical_json
from fingerpost.schemas import get_properties

MAX_NEAR_NAMES = 12  # parameters listed if none is similar


@frozen
class ResolvedTool:
    """The resolved tool, and the arguments with the operation that the name may contain."""

    card: ToolCard
    arguments: JsonObject


@frozen
class ToolNotFound:
    """No tool matches with certainty. Contains similar tools."""

    name: str
    near: tuple[str, ...]
    ambiguous: bool = False


def resolve_tool(call: ToolCall, snapshot: Snapshot) -> ResolvedTool | ToolNotFound:
    """Return the tool of this call."""
    if (card := snapshot.find(call.name)) is not None:
        return ResolvedTool(card=card, arguments=call.arguments)  # the most frequent case
    match = snapshot.resolve(call.name)
    if match.card is not None:
        return ResolvedTool(card=match.card, arguments=match.add_operation(call.arguments))
    name = call.name[:MAX_WRITTEN_LENGTH]
    if match.is_ambiguous:
        return ToolNotFound(name=name, near=tuple(card.key for card in match.cards), ambiguous=True)
    return ToolNotFound(name=name, near=snapshot.near(name))


def find_absence(
    call: ToolCall, catalog: Catalog, statuses: Iterable[ServerStatus]
) -> UnavailableTool | None:
    """Return why the call's tool is not in the snapshot, if the tool or its server is known."""
    found = resolve_tool(call, catalog.unavailable)
    if isinstance(found, ResolvedTool):
        return catalog.explain_unavailable(found.card)
    pairs = list(list_server_readings(call.name))
    names = {call.name, *list_readings(call.name), *(build_tool_key(server, tool) for server, tool in pairs)}
    for drop in catalog.dropped:
        if not drop.switched_off and names & {drop.name, build_tool_key(drop.server, drop.name)}:
            return build_refused(drop)
    away = {status.name: status for status in statuses if not catalog.snapshot.by_server(status.name)}
    for server, tool in pairs:
        if server in away:
            return build_server_unavailable(build_tool_key(server, tool), away[server])
    return None


def get_operation(card: ToolCard, arguments: JsonObject) -> str:
    """Return the operation key, to which a grant for a conversation is bound."""
    operation = arguments.get("operation")
    named = isinstance(operation, str) and "operation" in _get_properties(card)
    return f"{card.key}.{operation}" if named else card.key


def find_unknown_argument(card: ToolCard, names: Iterable[str]) -> tuple[str, tuple[str, ...]] | None:
    """Return the first name that is not a parameter of the tool, and the most similar parameters.

    Return None if there is no such name, or if the tool allows additional arguments.
    """
    properties = _get_properties(card)
    match card.definition.get("inputSchema"):
        case {"additionalProperties": True | {}} | {"patternProperties": _}:
            return None
        case _ if not properties:
            return None
        case _:
            pass
    for name in names:
        if name not in properties:
            near = get_close_matches(name[:MAX_WRITTEN_LENGTH], properties, n=3, cutoff=0.5)
            return name, tuple(near) or tuple(properties)[:MAX_NEAR_NAMES]
    return None


def _get_properties(card: ToolCard) -> JsonObject:
    return get_properties(card.definition.get("inputSchema"))


def compute_call_fingerprint(definition_fingerprint: str, tool: str, arguments: JsonObject) -> str:
    """Return the SHA-256 of the three values. Only the order of keys does not matter.

    `1`, `1.0`, `true` and `"1"` are different values: a tool may treat them differently.
    """
    return hashlib.sha256(to_canonical_json([definition_fingerprint, tool, arguments])).hexdigest()


@frozen
class CheckedCall:
    """A call with checked name and arguments, which was not run. Without `problem`, it could be run."""

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
    """Repair and check the arguments: by the schema, then by the server's precheck if it is built in."""
    made = prepare_arguments(card, arguments, repair=repair)
    precheck = None if made.errors else prechecks(card.server)
    errors = () if precheck is None else precheck.find_argument_errors(card.name, made.arguments)
    return replace(made, errors=errors, signature=format_signature(card)) if errors else made


def check_call(
    tool_call: ToolCall, snapshot: Snapshot, prechecks: GetPrecheck, *, repair: bool
) -> CheckedCall:
    """Check the call's name and arguments. Nothing runs and no events are emitted."""
    found = resolve_tool(tool_call, snapshot)
    if isinstance(found, ToolNotFound):
        outcomes = OutcomeBuilder(tool_call, CallContext(call_id=""))
        return CheckedCall(problem=outcomes.build_not_found(found.near, ambiguous=found.ambiguous).content)
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
    """Build the pending call with a person's edited arguments, which are checked like any others."""
    check_argument_names(card, pending, arguments)
    made = prepare_call_arguments(card, arguments, prechecks, repair=repair)
    if made.errors:
        message = "; ".join(error.message for error in made.errors)
        raise CallError(message, hint=f"the tool takes: {made.signature}")
    return build_call(card, made.arguments, made.repairs)


def check_argument_names(card: ToolCard, pending: Pending, names: Iterable[str]) -> None:
    """Raise on an unknown argument name. A typo would otherwise leave the intended argument unchanged."""
    unknown = find_unknown_argument(card, (name for name in names if name not in pending.arguments))
    if unknown is not None:
        name, near = unknown
        message = (
            f"{card.key} takes no {escape_invisible_except(name)!r}; it takes: "
            f"{', '.join(map(escape_invisible_except, near))}"
        )
        raise CallError(message, hint="use the tool's own names; nothing was decided")


def build_call(card: ToolCard, arguments: JsonObject, repairs: tuple[Repair, ...]) -> Call:
    """Build the call with the fingerprint to which a grant is bound."""
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

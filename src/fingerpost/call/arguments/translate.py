"""The same request to another tool, for when the first one fails.

Nothing may be lost or bent on the way: every argument finds its place in the
other schema by name or by a known synonym, or it is a setting that does not
change what is asked for, or the translation is refused. Identifiers stay at
home: what `id` 7 means on one server, another one does not know.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from fingerpost.call.arguments.effort import StepBudget, StepBudgetExceeded
from fingerpost.call.arguments.faults import build_value_error
from fingerpost.call.arguments.keys import Rename, find_renames
from fingerpost.call.arguments.mending import ArgumentRepair
from fingerpost.call.arguments.names import split_name
from fingerpost.call.arguments.plan import ToolSchema, tool_schemas
from fingerpost.call.arguments.prepare import prepare_arguments
from fingerpost.call.arguments.prepared import PreparedArguments
from fingerpost.call.arguments.shapes import NO_OBJECT
from fingerpost.call.arguments.synonyms import SYNONYM_GROUPS
from fingerpost.call.arguments.values import is_equal, is_list, is_object, redact_value
from fingerpost.records import Json, JsonObject, ParameterError, Repair, RepairKind, ToolCard

# How much and in what dress; what is asked for stays the same without them.
# fmt: off
_SETTING_NAMES: Final = frozenset(
    {
        "limit", "format", "timeout", "verbose", "temperature", "maximumtoken", "language", "pretty",
        "stream", "stripthinking", "reasoningeffort", "searchcontextsize",
    }
)
# fmt: on
_SETTING_PREFIXES: Final = {"page": 1, "offset": 0}
_AT_HOME: Final = frozenset({"id", "uuid", "cursor", "token", "handle", "sha", "guid"})


def translate_arguments(arguments: JsonObject, source: ToolCard, target: ToolCard) -> PreparedArguments:
    """The arguments of one tool in the schema of another, or the errors that say why not."""
    known = prepare_arguments(source, arguments)
    given = known.arguments if known.ok else dict(arguments)
    here, there = tool_schemas.get_schema(source), tool_schemas.get_schema(target)
    given, asked = _unwrap_question(given, there)
    moved, renamed = _map_arguments(given, here, there)
    repairs = [*asked, *renamed]
    errors: list[ParameterError] = []
    result = {moved[key]: value for key, value in given.items() if key in moved}
    for key, value in given.items():
        if key in moved:
            if source.server != target.server and not _AT_HOME.isdisjoint(split_name(key)):
                errors.append(
                    build_value_error(
                        key, f"something {target.server} knows: identifiers do not travel", value
                    )
                )
        elif value is None or _is_setting(here, key, value):
            repairs.append(
                _build_repair(key, RepairKind.REMOVED, value, None, f"{target.key} has no such setting")
            )
        elif not _wrap_as_message(there, key, value, result, repairs):
            errors.append(build_value_error(key, f"a parameter that {target.key} also has", value))
    prepared = prepare_arguments(target, result)
    return replace(prepared, repairs=(*repairs, *prepared.repairs), errors=(*errors, *prepared.errors))


def _map_arguments(
    given: JsonObject, here: ToolSchema, there: ToolSchema
) -> tuple[dict[str, str], list[Repair]]:
    """Where each argument goes."""
    shape = there.root
    moved = {key: key for key in given if key in shape.properties}
    found = _find_target_renames(given, moved, here, there)
    repairs = [
        _build_repair(
            each.parameter,
            RepairKind.RENAMED,
            {each.key: given[each.key]},
            {each.parameter: given[each.key]},
            each.reason,
        )
        for each in found
    ]
    return moved | {each.key: each.parameter for each in found}, repairs


def _find_target_renames(
    given: JsonObject, moved: Mapping[str, str], here: ToolSchema, there: ToolSchema
) -> tuple[Rename, ...]:
    shape = there.root
    asked = ArgumentRepair(there, StepBudget()).describe_object(shape, given, "")
    try:
        return find_renames(
            replace(asked, topic=here.topic | there.topic),
            [key for key in given if key not in moved],
            [name for name in shape.properties if name not in moved],
            typos_too=False,
        )
    except StepBudgetExceeded:
        return ()


def _is_setting(here: ToolSchema, key: str, value: Json) -> bool:
    """Whether leaving this out asks for the same thing."""
    default = here.shapes.get_node(here.root.properties.get(key)).default
    if default and is_equal(default[0], value):
        return True
    name = "".join(split_name(key))
    groups = SYNONYM_GROUPS.get(name, frozenset())
    for beginning, first in _SETTING_PREFIXES.items():
        if name == beginning or groups & SYNONYM_GROUPS[beginning]:
            return is_equal(value, first)
    return name in _SETTING_NAMES or bool(groups & SYNONYM_GROUPS["limit"])


def _wrap_as_message(
    there: ToolSchema, key: str, value: Json, result: dict[str, Json], repairs: list[Repair]
) -> bool:
    """A question to a tool that takes a conversation: a conversation of one turn."""
    if not isinstance(value, str) or not _is_question(key):
        return False
    if "messages" in result or "messages" not in there.root.required:
        return False
    items = there.shapes.get_node(there.root.properties.get("messages")).items
    wanted = there.shapes.get_node(items).properties if is_object(items) else NO_OBJECT
    if not {"role", "content"} <= wanted.keys():
        return False
    result["messages"] = [{"role": "user", "content": value}]
    repairs.append(
        _build_repair("messages", RepairKind.WRAPPED, value, result["messages"], "a conversation of one turn")
    )
    return True


def _unwrap_question(given: JsonObject, there: ToolSchema) -> tuple[JsonObject, list[Repair]]:
    """A conversation of one question, for a tool that takes the question alone.

    Instructions to the model that was asked (`system`) stay behind. A conversation with more turns is not
    touched: its last question may mean nothing without them.
    """
    question = _find_only_question(given.get("messages"))
    properties = there.root.properties
    free = [name for name in properties if name not in given and _is_question(name)]
    wanted = [name for name in free if name in there.root.required] or free
    if question is None or "messages" in properties or len(wanted) != 1:
        return given, []
    rest = {key: value for key, value in given.items() if key != "messages"}
    why = "the one question of the conversation"
    repair = _build_repair(wanted[0], RepairKind.RENAMED, given["messages"], question, why)
    return {**rest, wanted[0]: question}, [repair]


def _find_only_question(messages: Json) -> str | None:
    """What the person asks, where that is all they say."""
    if not is_list(messages):
        return None
    said: list[str] = []
    for message in messages:
        match message:
            case {"role": "user", "content": str(text)}:
                said.append(text)
            case {"role": "system" | "developer"}:
                pass
            case _:
                return None
    return said[0] if len(said) == 1 and said[0].strip() else None


def _is_question(name: str) -> bool:
    return bool(SYNONYM_GROUPS.get("".join(split_name(name)), frozenset()) & SYNONYM_GROUPS["question"])


def _build_repair(path: str, kind: RepairKind, before: Json, after: Json, reason: str) -> Repair:
    return Repair(
        path=path,
        kind=kind,
        before=redact_value(path, before),
        after=redact_value(path, after),
        reason=reason,
    )

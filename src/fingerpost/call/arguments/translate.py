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

from fingerpost.call.arguments.effort import Effort, Spent
from fingerpost.call.arguments.faults import bad_value
from fingerpost.call.arguments.keys import Rename, renames
from fingerpost.call.arguments.mending import Mending
from fingerpost.call.arguments.names import canonical
from fingerpost.call.arguments.plan import Plan, plans
from fingerpost.call.arguments.prepare import prepare
from fingerpost.call.arguments.prepared import Prepared
from fingerpost.call.arguments.shapes import NO_OBJECT
from fingerpost.call.arguments.synonyms import GROUPS
from fingerpost.call.arguments.values import is_list, is_object, kept, same
from fingerpost.records import Json, JsonObject, ParameterError, Repair, RepairKind, ToolCard

# How much and in what dress; what is asked for stays the same without them.
# fmt: off
_SETTINGS: Final = frozenset(
    {
        "limit", "format", "timeout", "verbose", "temperature", "maximumtoken", "language", "pretty",
        "stream", "stripthinking", "reasoningeffort", "searchcontextsize",
    }
)
# fmt: on
_BEGINNINGS: Final = {"page": 1, "offset": 0}
_AT_HOME: Final = frozenset({"id", "uuid", "cursor", "token", "handle", "sha", "guid"})


def translate(arguments: JsonObject, source: ToolCard, target: ToolCard) -> Prepared:
    """The arguments of one tool in the schema of another, or the errors that say why not."""
    known = prepare(source, arguments)
    given = known.arguments if known.ok else dict(arguments)
    here, there = plans.of(source), plans.of(target)
    given, asked = _as_question(given, there)
    moved, renamed = _moved(given, here, there)
    repairs = [*asked, *renamed]
    errors: list[ParameterError] = []
    result = {moved[key]: value for key, value in given.items() if key in moved}
    for key, value in given.items():
        if key in moved:
            if source.server != target.server and not _AT_HOME.isdisjoint(canonical(key)):
                errors.append(
                    bad_value(key, f"something {target.server} knows: identifiers do not travel", value)
                )
        elif value is None or _is_setting(here, key, value):
            repairs.append(_repair(key, RepairKind.REMOVED, value, None, f"{target.key} has no such setting"))
        elif not _as_message(there, key, value, result, repairs):
            errors.append(bad_value(key, f"a parameter that {target.key} also has", value))
    prepared = prepare(target, result)
    return replace(prepared, repairs=(*repairs, *prepared.repairs), errors=(*errors, *prepared.errors))


def _moved(given: JsonObject, here: Plan, there: Plan) -> tuple[dict[str, str], list[Repair]]:
    """Where each argument goes."""
    shape = there.root
    moved = {key: key for key in given if key in shape.properties}
    found = _renames(given, moved, here, there)
    repairs = [
        _repair(
            each.parameter,
            RepairKind.RENAMED,
            {each.key: given[each.key]},
            {each.parameter: given[each.key]},
            each.reason,
        )
        for each in found
    ]
    return moved | {each.key: each.parameter for each in found}, repairs


def _renames(given: JsonObject, moved: Mapping[str, str], here: Plan, there: Plan) -> tuple[Rename, ...]:
    shape = there.root
    asked = Mending(there, Effort()).asked(shape, given, "")
    try:
        return renames(
            replace(asked, topic=here.topic | there.topic),
            [key for key in given if key not in moved],
            [name for name in shape.properties if name not in moved],
            slips_too=False,
        )
    except Spent:
        return ()


def _is_setting(here: Plan, key: str, value: Json) -> bool:
    """Whether leaving this out asks for the same thing."""
    default = here.shapes.of(here.root.properties.get(key)).default
    if default and same(default[0], value):
        return True
    name = "".join(canonical(key))
    groups = GROUPS.get(name, frozenset())
    for beginning, first in _BEGINNINGS.items():
        if name == beginning or groups & GROUPS[beginning]:
            return same(value, first)
    return name in _SETTINGS or bool(groups & GROUPS["limit"])


def _as_message(there: Plan, key: str, value: Json, result: dict[str, Json], repairs: list[Repair]) -> bool:
    """A question to a tool that takes a conversation: a conversation of one turn."""
    if not isinstance(value, str) or not _is_question(key):
        return False
    if "messages" in result or "messages" not in there.root.required:
        return False
    items = there.shapes.of(there.root.properties.get("messages")).items
    wanted = there.shapes.of(items).properties if is_object(items) else NO_OBJECT
    if not {"role", "content"} <= wanted.keys():
        return False
    result["messages"] = [{"role": "user", "content": value}]
    repairs.append(
        _repair("messages", RepairKind.WRAPPED, value, result["messages"], "a conversation of one turn")
    )
    return True


def _as_question(given: JsonObject, there: Plan) -> tuple[JsonObject, list[Repair]]:
    """A conversation of one question, for a tool that takes the question alone.

    Instructions to the model that was asked (`system`) stay behind. A conversation with more turns is not
    touched: its last question may mean nothing without them.
    """
    question = _only_question(given.get("messages"))
    properties = there.root.properties
    free = [name for name in properties if name not in given and _is_question(name)]
    wanted = [name for name in free if name in there.root.required] or free
    if question is None or "messages" in properties or len(wanted) != 1:
        return given, []
    rest = {key: value for key, value in given.items() if key != "messages"}
    why = "the one question of the conversation"
    repair = _repair(wanted[0], RepairKind.RENAMED, given["messages"], question, why)
    return {**rest, wanted[0]: question}, [repair]


def _only_question(messages: Json) -> str | None:
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
    return bool(GROUPS.get("".join(canonical(name)), frozenset()) & GROUPS["question"])


def _repair(path: str, kind: RepairKind, before: Json, after: Json, reason: str) -> Repair:
    return Repair(path=path, kind=kind, before=kept(path, before), after=kept(path, after), reason=reason)

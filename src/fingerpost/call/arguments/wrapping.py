"""Arguments one level too deep, or one too shallow."""

from __future__ import annotations

from typing import Final

from fingerpost.call.arguments.effort import Effort
from fingerpost.call.arguments.names import normal
from fingerpost.call.arguments.parsing import parsed_object
from fingerpost.call.arguments.plan import Plan
from fingerpost.call.arguments.values import is_object
from fingerpost.records import Json, JsonObject

_WRAPPERS: Final = frozenset(
    [
        "arguments",
        "args",
        "argument",
        "input",
        "inputs",
        "params",
        "parameters",
        "parameter",
        "kwargs",
        "payload",
        "body",
        "request",
        "toolinput",
        "properties",
        "data",
        "json",
        "toolarguments",
        "functionarguments",
    ]
)
_NAMES: Final = frozenset({"name", "tool", "function", "toolname", "type"})


def unwrapped(plan: Plan, arguments: JsonObject, effort: Effort) -> tuple[str, dict[str, Json]] | None:
    """The key and the object within, when the arguments hold the real arguments and nothing else.

    Raises `Spent`.
    """
    known = plan.root.properties
    outer = [key for key in arguments if not _names_tool(plan, key, arguments[key])]
    if len(outer) != 1 or (normal(outer[0]) not in _WRAPPERS and outer[0] not in plan.called):
        return None
    key = outer[0]
    inner = arguments[key]
    found = inner if is_object(inner) else parsed_object(inner)
    if found is None:
        return None
    if any(name in known for name in arguments):
        return (key, dict(found)) if _is_whole_call(plan, arguments, found, effort) else None
    # With nothing inside that the tool knows, the wrapper may be the argument itself, under another name.
    familiar = {normal(name) for name in known}
    takes_nothing = not found and not plan.root.required
    return (key, dict(found)) if takes_nothing or any(normal(name) in familiar for name in found) else None


def _is_whole_call(plan: Plan, arguments: JsonObject, found: JsonObject, effort: Effort) -> bool:
    """Whether a parameter that happens to be called `params` holds the whole call, not its own value."""
    root = plan.root
    complete = bool(root.required) and all(name in found for name in root.required)
    known = complete and found.keys() <= root.properties.keys()
    return known and not plan.validation.accepts(arguments, effort)


def _names_tool(plan: Plan, key: str, value: Json) -> bool:
    return normal(key) in _NAMES and isinstance(value, str) and value in {*plan.called, "function"}


def enclosing(plan: Plan, arguments: JsonObject) -> str | None:
    """The one object parameter that all these arguments belong into."""
    root = plan.root
    if not arguments or any(key in root.properties for key in arguments):
        return None
    holders = [name for name in root.required if name in root.properties]
    if len(holders) != 1 or len(root.required) != 1:
        return None
    inner = plan.shapes.of(root.properties[holders[0]])
    if "object" not in inner.types or not inner.properties:
        return None
    return holders[0] if all(key in inner.properties for key in arguments) else None

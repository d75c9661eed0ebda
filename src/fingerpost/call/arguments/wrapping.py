"""Arguments one level too deep, or one too shallow."""

from __future__ import annotations

from typing import Final

from fingerpost.call.arguments.effort import StepBudget
from fingerpost.call.arguments.names import normalize_name
from fingerpost.call.arguments.parsing import parse_object
from fingerpost.call.arguments.plan import ToolSchema
from fingerpost.call.arguments.values import is_object
from fingerpost.records import Json, JsonObject

_WRAPPER_KEYS: Final = frozenset(
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
_TOOL_NAME_KEYS: Final = frozenset({"name", "tool", "function", "toolname", "type"})


def find_wrapped(
    tool_schema: ToolSchema, arguments: JsonObject, budget: StepBudget
) -> tuple[str, dict[str, Json]] | None:
    """The key and the object within, when the arguments hold the real arguments and nothing else.

    Raises `Spent`.
    """
    known = tool_schema.root.properties
    outer = [key for key in arguments if not _is_tool_name(tool_schema, key, arguments[key])]
    if len(outer) != 1 or (
        normalize_name(outer[0]) not in _WRAPPER_KEYS and outer[0] not in tool_schema.called
    ):
        return None
    key = outer[0]
    inner = arguments[key]
    found = inner if is_object(inner) else parse_object(inner)
    if found is None:
        return None
    if any(name in known for name in arguments):
        return (key, dict(found)) if _is_whole_call(tool_schema, arguments, found, budget) else None
    # With nothing inside that the tool knows, the wrapper may be the argument itself, under another name.
    familiar = {normalize_name(name) for name in known}
    takes_nothing = not found and not tool_schema.root.required
    return (
        (key, dict(found))
        if takes_nothing or any(normalize_name(name) in familiar for name in found)
        else None
    )


def _is_whole_call(
    tool_schema: ToolSchema, arguments: JsonObject, found: JsonObject, budget: StepBudget
) -> bool:
    """Whether a parameter that happens to be called `params` holds the whole call, not its own value."""
    root = tool_schema.root
    complete = bool(root.required) and all(name in found for name in root.required)
    known = complete and found.keys() <= root.properties.keys()
    return known and not tool_schema.validation.is_valid(arguments, budget)


def _is_tool_name(tool_schema: ToolSchema, key: str, value: Json) -> bool:
    return (
        normalize_name(key) in _TOOL_NAME_KEYS
        and isinstance(value, str)
        and value in {*tool_schema.called, "function"}
    )


def find_enclosing_parameter(tool_schema: ToolSchema, arguments: JsonObject) -> str | None:
    """The one object parameter that all these arguments belong into."""
    root = tool_schema.root
    if not arguments or any(key in root.properties for key in arguments):
        return None
    holders = [name for name in root.required if name in root.properties]
    if len(holders) != 1 or len(root.required) != 1:
        return None
    inner = tool_schema.shapes.get_node(root.properties[holders[0]])
    if "object" not in inner.types or not inner.properties:
        return None
    return holders[0] if all(key in inner.properties for key in arguments) else None

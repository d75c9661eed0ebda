"""Whether a JSON Schema is one at all: a look at its shape, not a full validation.

Model APIs refuse a whole request for one malformed schema in it, so a tool
whose schema is plainly broken is worth dropping. Checking against the full
meta-schema costs milliseconds per tool; this walk costs microseconds and finds
what servers really get wrong. References are not followed, loops cannot occur.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias, cast

_TYPES = frozenset({"null", "boolean", "object", "array", "number", "integer", "string"})

_Pending: TypeAlias = list[tuple[str, object]]  # parts still to be looked at, with their places


def find_schema_fault(path: str, schema: object) -> str | None:
    """Why this is not a JSON Schema, naming the place; None when it looks like one."""
    todo: _Pending = [(path, schema)]
    while todo:
        place, node = todo.pop()
        if isinstance(node, bool):
            continue
        if type(node) is not dict and not isinstance(node, Mapping):  # the second question is slow
            return f"{place} is {describe_kind(node)}, not a schema"
        # Only what is there is looked at: a catalog has many thousand parts, most of them of two keywords.
        for keyword, value in cast("Mapping[str, object]", node).items():
            look = _CHECKS.get(keyword)
            if look is not None and (reason := look(f"{place}.{keyword}", value, todo)) is not None:
                return reason
    return None


def _check_type(place: str, value: object, _: _Pending) -> str | None:
    names = cast("Sequence[object]", value) if isinstance(value, list) else [value]
    if all(isinstance(name, str) and name in _TYPES for name in names):
        return None
    return f"{place} is {value!r:.60}, which is no JSON Schema type"


def _check_required(place: str, value: object, _: _Pending) -> str | None:
    if isinstance(value, list) and all(isinstance(name, str) for name in cast("Sequence[object]", value)):
        return None
    return None if isinstance(value, bool) else f"{place} is not a list of names"


def _check_enum(place: str, value: object, _: _Pending) -> str | None:
    return None if isinstance(value, list) else f"{place} is not a list"


def _check_one(place: str, value: object, todo: _Pending) -> str | None:
    if not isinstance(value, list):
        todo.append((place, value))
    return None


def _check_many(place: str, value: object, todo: _Pending) -> str | None:
    if not isinstance(value, list):
        return f"{place} is {describe_kind(value)}, not a list"
    todo.extend((place, part) for part in cast("Sequence[object]", value))
    return None


def _check_named(place: str, value: object, todo: _Pending) -> str | None:
    if not isinstance(value, Mapping):
        return f"{place} is {describe_kind(value)}, not an object"
    parts = cast("Mapping[str, object]", value).items()
    todo.extend((f"{place}.{name:.60}", part) for name, part in parts)
    return None


def _check_one_or_many(place: str, value: object, todo: _Pending) -> str | None:
    look = _check_many if isinstance(value, list) else _check_one
    return look(place, cast("object", value), todo)


_CHECKS: Final[Mapping[str, Callable[[str, object, _Pending], str | None]]] = {
    "type": _check_type,
    "required": _check_required,
    "enum": _check_enum,
    "items": _check_one_or_many,
    **dict.fromkeys(
        ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas"), _check_named
    ),
    **dict.fromkeys(("allOf", "anyOf", "oneOf", "prefixItems"), _check_many),
    **dict.fromkeys(
        ("additionalItems", "contains", "additionalProperties", "propertyNames", "not"), _check_one
    ),
    **dict.fromkeys(("if", "then", "else", "unevaluatedItems", "unevaluatedProperties"), _check_one),
    "contentSchema": _check_one,
}


def describe_kind(value: object) -> str:
    """A JSON value's kind, as it reads in a sentence."""
    kinds: dict[type, str] = {
        type(None): "missing", str: "text", bool: "a boolean", int: "a number", float: "a number",
        list: "a list", dict: "an object",
    }  # fmt: skip
    return kinds.get(type(value), f"a {type(value).__name__}")

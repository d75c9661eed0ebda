"""Whether a JSON Schema is one at all: a look at its shape, not a full validation.

Model APIs refuse a whole request for one malformed schema in it, so a tool
whose schema is plainly broken is worth dropping. Checking against the full
meta-schema costs milliseconds per tool; this walk costs microseconds and finds
what servers really get wrong. References are not followed, loops cannot occur.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import cast

_TYPES = frozenset({"null", "boolean", "object", "array", "number", "integer", "string"})
_ONE = (
    "items", "additionalItems", "contains", "additionalProperties", "propertyNames", "not",
    "if", "then", "else", "unevaluatedItems", "unevaluatedProperties", "contentSchema",
)  # fmt: skip
_MANY = ("allOf", "anyOf", "oneOf", "prefixItems", "items")
_NAMED = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")


def schema_fault(path: str, schema: object) -> str | None:
    """Why this is not a JSON Schema, naming the place; None when it looks like one."""
    todo: list[tuple[str, object]] = [(path, schema)]
    while todo:
        place, node = todo.pop()
        if isinstance(node, bool):
            continue
        if not isinstance(node, Mapping):
            return f"{place} is {kind_of(node)}, not a schema"
        entries = cast("Mapping[str, object]", node)
        if (reason := _node_fault(place, entries)) is not None:
            return reason
        todo.extend(_parts(place, entries))
    return None


def _node_fault(place: str, node: Mapping[str, object]) -> str | None:
    if "type" in node and not _is_type(node["type"]):
        return f"{place}.type is {node['type']!r:.60}, which is no JSON Schema type"
    if not _is_names(node.get("required", [])) and not isinstance(node.get("required"), bool):
        return f"{place}.required is not a list of names"
    if not isinstance(node.get("enum", []), list):
        return f"{place}.enum is not a list"
    for keyword in _NAMED:
        if not isinstance(node.get(keyword, {}), Mapping):
            return f"{place}.{keyword} is {kind_of(node[keyword])}, not an object"
    for keyword in _MANY[:-1]:
        if not isinstance(node.get(keyword, []), list):
            return f"{place}.{keyword} is {kind_of(node[keyword])}, not a list"
    return None


def _is_type(value: object) -> bool:
    if isinstance(value, list):
        return all(isinstance(item, str) and item in _TYPES for item in cast("Sequence[object]", value))
    return isinstance(value, str) and value in _TYPES


def _is_names(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in cast("Sequence[object]", value))


def _parts(place: str, node: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    for keyword in _ONE:
        if keyword in node and not isinstance(node[keyword], list):
            yield f"{place}.{keyword}", node[keyword]
    for keyword in _MANY:
        if isinstance(node.get(keyword), list):
            for part in cast("Sequence[object]", node[keyword]):
                yield f"{place}.{keyword}", part
    for keyword in _NAMED:
        for name, part in cast("Mapping[str, object]", node.get(keyword, {})).items():
            yield f"{place}.{keyword}.{name:.60}", part


def kind_of(value: object) -> str:
    """A JSON value's kind, as it reads in a sentence."""
    kinds: dict[type, str] = {
        type(None): "missing", str: "text", bool: "a boolean", int: "a number", float: "a number",
        list: "a list", dict: "an object",
    }  # fmt: skip
    return kinds.get(type(value), f"a {type(value).__name__}")

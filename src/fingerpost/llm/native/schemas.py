"""The part of JSON Schema each API takes: for the shape of a reply, and for the arguments of a tool.

What an API cannot enforce is left out, never bent: a reply that keeps to the smaller schema
may still break ours, and whoever asked checks it anyway. Where the smaller schema would
forbid what ours allows, there is none, and the model is told in words.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, cast

from fingerpost.llm.base import ResponseSchema
from fingerpost.records import Json, JsonObject

_MAP_KEYWORDS: Final = frozenset({"properties", "$defs"})  # hold schemas by name
_LIST_KEYWORDS: Final = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})
_SCHEMA_KEYWORDS: Final = frozenset({"items", "additionalProperties"})
_ANTHROPIC_KEYWORDS: Final = frozenset(
    {"type", "title", "description", "enum", "const", "default", "properties", "required", "items", "anyOf"}
    | {"allOf", "$ref", "$defs", "additionalProperties"}
)
_GOOGLE_KEYWORDS: Final = frozenset(
    {"type", "format", "title", "description", "enum", "items", "prefixItems", "minItems", "maxItems"}
    | {"minimum", "maximum", "anyOf", "oneOf", "properties", "additionalProperties", "required"}
    | {"$id", "$defs", "$ref", "$anchor"}
)
_MEANINGFUL_KEYWORDS: Final = ("type", "enum", "const", "anyOf", "allOf", "$ref")
_TYPE_KEYWORDS: Final[Mapping[str, tuple[str, ...]]] = {
    "object": ("properties", "required", "additionalProperties"),
    "array": ("items",),
    "string": ("enum",),
}
_TOP_LEVEL_KEYWORDS: Final = ("anyOf", "oneOf", "allOf", "not", "if", "then", "else")

_SchemaVisitor = Callable[[Mapping[str, Json]], dict[str, Json]]


class _OpenObject(Exception):
    """An object whose names are not known beforehand."""


def build_closed_schema(schema: JsonObject) -> JsonObject | None:
    """`schema` as Anthropic enforces it: every object closed. None where one has to stay open."""
    try:
        return _close_schema(schema)
    except (_OpenObject, RecursionError):
        return None


def _close_schema(schema: Mapping[str, Json]) -> dict[str, Json]:
    found = dict(schema)
    if "oneOf" in found:
        found.setdefault("anyOf", found["oneOf"])
    kept = {name: value for name, value in found.items() if name in _ANTHROPIC_KEYWORDS}
    kinds = kept.get("type")
    if isinstance(kinds, list):
        kept = _split_by_type(kept, kinds)
    elif kinds == "object":
        if kept.get("additionalProperties", False if kept.get("properties") else None) is not False:
            raise _OpenObject
        kept["additionalProperties"] = False
    elif not any(name in kept for name in _MEANINGFUL_KEYWORDS):
        raise _OpenObject
    return _walk_schema(kept, _close_schema)


def _split_by_type(schema: Mapping[str, Json], kinds: Sequence[Json]) -> dict[str, Json]:
    """A schema of several types as a choice between schemas of one."""
    outside = {name: value for name, value in schema.items() if name in ("title", "description", "$defs")}
    choices: list[Json] = []
    for kind in kinds:
        belongs = _TYPE_KEYWORDS.get(cast("str", kind), ())
        choices.append({"type": kind, **{name: schema[name] for name in belongs if name in schema}})
    return {**outside, "anyOf": choices}


def build_plain_schema(schema: JsonObject) -> JsonObject | None:
    """`schema` with only the keywords Google knows. None where it is too deep to read."""
    try:
        return _simplify_schema(schema)
    except RecursionError:
        return None


def _simplify_schema(schema: Mapping[str, Json]) -> dict[str, Json]:
    found = dict(schema)
    if "const" in found:
        found.setdefault("enum", [found["const"]])
    return _walk_schema(
        {name: value for name, value in found.items() if name in _GOOGLE_KEYWORDS}, _simplify_schema
    )


def build_parameters_schema(schema: object) -> JsonObject:
    """What a tool takes, as Anthropic wants it: an object outright, not one of several things."""
    found = dict(cast("Mapping[str, Json]", schema)) if isinstance(schema, Mapping) else {}
    kept = {name: value for name, value in found.items() if name not in _TOP_LEVEL_KEYWORDS}
    return {**kept, "type": "object"}


def describe_schema(schema: ResponseSchema) -> str:
    """Asking for the shape where it cannot be enforced."""
    text = json.dumps(schema.schema, ensure_ascii=False)
    return f"Answer with one JSON value that satisfies this JSON Schema, and with nothing around it:\n{text}"


def _walk_schema(schema: dict[str, Json], visit: _SchemaVisitor) -> dict[str, Json]:
    """The schema with every schema inside it visited."""
    for name, value in schema.items():
        if name in _MAP_KEYWORDS and isinstance(value, Mapping):
            inside = cast("Mapping[str, Any]", value)
            schema[name] = {key: _visit_value(entry, visit) for key, entry in inside.items()}
        elif name in _LIST_KEYWORDS and isinstance(value, list):
            schema[name] = [_visit_value(entry, visit) for entry in cast("list[Any]", value)]
        elif name in _SCHEMA_KEYWORDS:
            schema[name] = _visit_value(value, visit)
    return schema


def _visit_value(value: Any, visit: _SchemaVisitor) -> Json:
    return visit(cast("Mapping[str, Json]", value)) if isinstance(value, Mapping) else value

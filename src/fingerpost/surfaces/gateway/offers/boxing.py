"""Results that are no object, for clients before 2026-07-28, whose structured content has to be one.

Such a value goes into a box, `{"result": …}`, and so does the schema that describes it. Servers that
speak both eras do the same, so a client sees no difference between them and us.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, cast

from fingerpost.records import Json, JsonObject

_RESULT_MEMBER: Final = "result"
_RESULT_POINTER: Final = f"#/properties/{_RESULT_MEMBER}"
_REFERENCE_KEYWORDS: Final = frozenset(("$ref", "$dynamicRef"))
_DATA_KEYWORDS: Final = frozenset(
    ("const", "enum", "default", "examples")
)  # what looks like a schema there is none
_NAMED_SCHEMA_KEYWORDS: Final = frozenset(
    ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies")
)


def needs_wrapping(schema: object) -> bool:
    """Whether everything this schema describes goes into a box.

    Not where it may describe an object as well: what is in a box then could not be told from what is not.
    """
    if not isinstance(schema, Mapping):
        return False
    kind = cast("Mapping[str, object]", schema).get("type")
    kinds = (kind,) if isinstance(kind, str) else kind
    return isinstance(kinds, list | tuple) and "object" not in kinds


def wrap_result(value: Json) -> JsonObject:
    return {_RESULT_MEMBER: value}


def wrap_schema(schema: JsonObject) -> JsonObject:
    """The schema of the box of what this schema describes."""
    inner: JsonObject = {key: value for key, value in schema.items() if key != "$schema"}
    dialect: JsonObject = {"$schema": schema["$schema"]} if "$schema" in schema else {}
    return {
        **dialect,
        "type": "object",
        "properties": {_RESULT_MEMBER: _move_references(inner)},
        "required": [_RESULT_MEMBER],
    }


def _move_references(schema: Json) -> Json:
    """With references that still lead where they led, now that the schema is no longer the whole document."""
    if isinstance(schema, Mapping):
        if _is_document(schema):
            return schema
        return {key: _move_member_references(key, value) for key, value in schema.items()}
    if isinstance(schema, Sequence) and not isinstance(schema, str):
        return [_move_references(each) for each in schema]
    return schema


def _move_member_references(key: str, value: Json) -> Json:
    if key in _REFERENCE_KEYWORDS and isinstance(value, str):
        return _RESULT_POINTER + value[1:] if value == "#" or value.startswith("#/") else value
    if key in _DATA_KEYWORDS:
        return value
    if key in _NAMED_SCHEMA_KEYWORDS and isinstance(value, Mapping):
        return {name: _move_references(each) for name, each in value.items()}
    return _move_references(value)


def _is_document(schema: Mapping[str, Json]) -> bool:
    """References inside lead to places in itself, wherever it stands."""
    address = schema.get("$id")
    return isinstance(address, str) and not address.startswith("#")

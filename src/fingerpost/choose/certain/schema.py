"""The parameters of a tool, read from its schema as far as certainty needs them.

What is not plain (nested objects, several shapes at once, references that lead
nowhere) is read as "cannot be filled", never as an error: schemas come from strangers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import field
from typing import Final

from fingerpost.frozen import frozen
from fingerpost.records import Json, JsonObject, ToolCard

MAX_PARAMETERS: Final = 60
MAX_ENUM_VALUES: Final = 60
_MAX_RESOLVE_STEPS: Final = 8  # through references and alternatives
_EMPTY_SCHEMA: Final[JsonObject] = {}


@frozen
class ValueSchema:
    """What one value has to look like."""

    type: str  # string, integer, number, boolean, or "" for anything that cannot be filled
    form: str = ""  # the schema's `format`
    options: tuple[str, ...] = ()
    rules: JsonObject = field(default_factory=dict[str, Json])

    def accepts(self, value: Json) -> bool:
        """Whether type and bounds are kept. Patterns are left to the call path, which bounds their cost."""
        if self.options and value not in self.options:
            return False
        match self.type:
            case "string":
                return isinstance(value, str) and self._is_length_valid(value)
            case "boolean":
                return isinstance(value, bool)
            case "integer":
                return isinstance(value, int) and not isinstance(value, bool) and self._is_in_range(value)
            case "number":
                return (
                    isinstance(value, int | float)
                    and not isinstance(value, bool)
                    and self._is_in_range(value)
                )
            case _:
                return False

    def _is_length_valid(self, value: str) -> bool:
        least, most = _get_bound(self.rules, "minLength"), _get_bound(self.rules, "maxLength")
        return (least is None or len(value) >= least) and (most is None or len(value) <= most)

    def _is_in_range(self, value: float) -> bool:
        if not math.isfinite(value):
            return False
        least, most = _get_bound(self.rules, "minimum"), _get_bound(self.rules, "maximum")
        above, below = _get_bound(self.rules, "exclusiveMinimum"), _get_bound(self.rules, "exclusiveMaximum")
        step = _get_bound(self.rules, "multipleOf")
        return (
            (least is None or value >= least)
            and (most is None or value <= most)
            and (above is None or value > above)
            and (below is None or value < below)
            and (not step or value % step == 0)
        )


@frozen
class Parameter:
    """One parameter: its name, its shape, and whether it takes a list of such values."""

    name: str
    shape: ValueSchema
    required: bool
    description: str = ""
    is_list: bool = False
    min_items: int = 0  # of a list
    max_items: int | None = None

    def accepts(self, value: Json) -> bool:
        if not self.is_list:
            return self.shape.accepts(value)
        if not isinstance(value, list):
            return False
        enough = len(value) >= self.min_items and (self.max_items is None or len(value) <= self.max_items)
        return enough and all(self.shape.accepts(item) for item in value)


def parse_parameters(card: ToolCard) -> tuple[Parameter, ...]:
    """The tool's parameters, the required ones first, each group in the schema's order."""
    schema = _as_object(card.definition.get("inputSchema"))
    needed = schema.get("required")
    listed = needed if isinstance(needed, list | tuple) else ()
    required = {name for name in listed if isinstance(name, str)}
    properties = _as_object(schema.get("properties"))
    # What must be given comes first, so that a long list of extras never hides it.
    names = sorted(properties, key=lambda name: name not in required)[:MAX_PARAMETERS]
    return tuple(
        _parse_parameter(name, _as_object(properties[name]), schema, name in required) for name in names
    )


def _parse_parameter(name: str, prop: JsonObject, root: JsonObject, required: bool) -> Parameter:
    described = prop.get("description")
    resolved = _resolve(prop, root)
    if not isinstance(described, str):
        described = resolved.get("description")
    many = _get_type(resolved) == "array"
    fewest, most = _get_bound(resolved, "minItems"), _get_bound(resolved, "maxItems")
    item = _resolve(_as_object(resolved.get("items")), root) if many else resolved
    return Parameter(
        name=name,
        shape=_parse_value_schema(item),
        required=required,
        description=described[:600] if isinstance(described, str) else "",
        is_list=many,
        min_items=int(fewest or 0),
        max_items=None if most is None else int(most),
    )


def _parse_value_schema(schema: JsonObject) -> ValueSchema:
    kind = _get_type(schema)
    form = schema.get("format")
    listed = schema.get("enum")
    options: tuple[str, ...] = ()
    if isinstance(listed, list | tuple):
        options = tuple(option for option in listed if isinstance(option, str))[:MAX_ENUM_VALUES]
        if not options:
            kind = ""  # only these will do, and none of them is a word
        elif not kind:
            kind = "string"
    if "const" in schema:
        kind = ""
    return ValueSchema(
        type=kind if kind in ("string", "integer", "number", "boolean") else "",
        form=form if isinstance(form, str) else "",
        options=options,
        rules=schema,
    )


def _resolve(schema: JsonObject, root: JsonObject) -> JsonObject:
    """The schema itself behind references and "or null"; an empty one when it has several shapes."""
    for _ in range(_MAX_RESOLVE_STEPS):
        reference = schema.get("$ref")
        if isinstance(reference, str):
            schema = _resolve_reference(reference, root)
            continue
        choices = schema.get("anyOf", schema.get("oneOf"))
        if not isinstance(choices, list | tuple):
            return schema
        real = [entry for choice in choices if (entry := _as_object(choice)).get("type") != "null"]
        if len(real) != 1:
            return _EMPTY_SCHEMA
        schema = real[0]
    return _EMPTY_SCHEMA


def _resolve_reference(reference: str, root: JsonObject) -> JsonObject:
    place: Json = root
    if not reference.startswith("#/"):
        return _EMPTY_SCHEMA
    for step in reference[2:].split("/")[:_MAX_RESOLVE_STEPS]:
        place = _as_object(place).get(step)
    return _as_object(place)


def _get_type(schema: JsonObject) -> str:
    named = schema.get("type")
    if isinstance(named, list | tuple):
        real = [one for one in named if one != "null"]
        named = real[0] if len(real) == 1 else ""
    return named if isinstance(named, str) else ""


def _as_object(value: Json) -> JsonObject:
    return value if isinstance(value, Mapping) else _EMPTY_SCHEMA


def _get_bound(schema: JsonObject, name: str) -> float | None:
    value = schema.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value

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

MOST_PARAMETERS: Final = 60
MOST_OPTIONS: Final = 60
_MOST_STEPS: Final = 8  # through references and alternatives
_NOTHING: Final[JsonObject] = {}


@frozen
class Shape:
    """What one value has to look like."""

    type: str  # string, integer, number, boolean, or "" for anything that cannot be filled
    form: str = ""  # the schema's `format`
    options: tuple[str, ...] = ()
    rules: JsonObject = field(default_factory=dict[str, Json])

    def admits(self, value: Json) -> bool:
        """Whether type and bounds are kept. Patterns are left to the call path, which bounds their cost."""
        if self.options and value not in self.options:
            return False
        match self.type:
            case "string":
                return isinstance(value, str) and self._fits_length(value)
            case "boolean":
                return isinstance(value, bool)
            case "integer":
                return isinstance(value, int) and not isinstance(value, bool) and self._within(value)
            case "number":
                return isinstance(value, int | float) and not isinstance(value, bool) and self._within(value)
            case _:
                return False

    def _fits_length(self, value: str) -> bool:
        least, most = _bound(self.rules, "minLength"), _bound(self.rules, "maxLength")
        return (least is None or len(value) >= least) and (most is None or len(value) <= most)

    def _within(self, value: float) -> bool:
        if not math.isfinite(value):
            return False
        least, most = _bound(self.rules, "minimum"), _bound(self.rules, "maximum")
        above, below = _bound(self.rules, "exclusiveMinimum"), _bound(self.rules, "exclusiveMaximum")
        step = _bound(self.rules, "multipleOf")
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
    shape: Shape
    required: bool
    description: str = ""
    many: bool = False
    fewest: int = 0  # of a list
    most: int | None = None

    def admits(self, value: Json) -> bool:
        if not self.many:
            return self.shape.admits(value)
        if not isinstance(value, list):
            return False
        enough = len(value) >= self.fewest and (self.most is None or len(value) <= self.most)
        return enough and all(self.shape.admits(item) for item in value)


def parameters(card: ToolCard) -> tuple[Parameter, ...]:
    """The tool's parameters, the required ones first, each group in the schema's order."""
    schema = _object(card.definition.get("inputSchema"))
    needed = schema.get("required")
    listed = needed if isinstance(needed, list | tuple) else ()
    required = {name for name in listed if isinstance(name, str)}
    properties = _object(schema.get("properties"))
    # What must be given comes first, so that a long list of extras never hides it.
    names = sorted(properties, key=lambda name: name not in required)[:MOST_PARAMETERS]
    return tuple(_parameter(name, _object(properties[name]), schema, name in required) for name in names)


def _parameter(name: str, prop: JsonObject, root: JsonObject, required: bool) -> Parameter:
    described = prop.get("description")
    resolved = _resolve(prop, root)
    if not isinstance(described, str):
        described = resolved.get("description")
    many = _type(resolved) == "array"
    fewest, most = _bound(resolved, "minItems"), _bound(resolved, "maxItems")
    item = _resolve(_object(resolved.get("items")), root) if many else resolved
    return Parameter(
        name=name,
        shape=_shape(item),
        required=required,
        description=described[:600] if isinstance(described, str) else "",
        many=many,
        fewest=int(fewest or 0),
        most=None if most is None else int(most),
    )


def _shape(schema: JsonObject) -> Shape:
    kind = _type(schema)
    form = schema.get("format")
    listed = schema.get("enum")
    options: tuple[str, ...] = ()
    if isinstance(listed, list | tuple):
        options = tuple(option for option in listed if isinstance(option, str))[:MOST_OPTIONS]
        if not options:
            kind = ""  # only these will do, and none of them is a word
        elif not kind:
            kind = "string"
    if "const" in schema:
        kind = ""
    return Shape(
        type=kind if kind in ("string", "integer", "number", "boolean") else "",
        form=form if isinstance(form, str) else "",
        options=options,
        rules=schema,
    )


def _resolve(schema: JsonObject, root: JsonObject) -> JsonObject:
    """The schema itself behind references and "or null"; an empty one when it has several shapes."""
    for _ in range(_MOST_STEPS):
        reference = schema.get("$ref")
        if isinstance(reference, str):
            schema = _refer(reference, root)
            continue
        choices = schema.get("anyOf", schema.get("oneOf"))
        if not isinstance(choices, list | tuple):
            return schema
        real = [entry for choice in choices if (entry := _object(choice)).get("type") != "null"]
        if len(real) != 1:
            return _NOTHING
        schema = real[0]
    return _NOTHING


def _refer(reference: str, root: JsonObject) -> JsonObject:
    place: Json = root
    if not reference.startswith("#/"):
        return _NOTHING
    for step in reference[2:].split("/")[:_MOST_STEPS]:
        place = _object(place).get(step)
    return _object(place)


def _type(schema: JsonObject) -> str:
    named = schema.get("type")
    if isinstance(named, list | tuple):
        real = [one for one in named if one != "null"]
        named = real[0] if len(real) == 1 else ""
    return named if isinstance(named, str) else ""


def _object(value: Json) -> JsonObject:
    return value if isinstance(value, Mapping) else _NOTHING


def _bound(schema: JsonObject, name: str) -> float | None:
    value = schema.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value

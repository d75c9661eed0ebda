"""A schema as the repairer sees it: references followed, `allOf` merged, the useful parts at hand.

Only references within the schema are followed, and only so far; a part that
cannot be understood is a shape that accepts anything and is left alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import field
from enum import Enum, auto
from typing import Final

from fingerpost.call.arguments.values import is_list, is_object
from fingerpost.frozen import frozen
from fingerpost.records import Json, JsonObject

MOST_HOPS: Final = 12
NO_OBJECT: Final[JsonObject] = {}
_PLACE: Final = re.compile(r"[0-9]{1,9}")  # in a list; Python refuses to read thousands of digits


class Extras(Enum):
    """What a schema says about keys it does not list."""

    WELCOME = auto()
    UNSAID = auto()
    FORBIDDEN = auto()


@frozen(eq=False)
class Shape:
    """One schema node."""

    source: Json  # the node as the server wrote it
    node: JsonObject  # the same with references followed and `allOf` merged
    types: frozenset[str] = frozenset()
    choices: tuple[Json, ...] = ()
    branches: tuple[Json, ...] = ()
    properties: JsonObject = field(default_factory=dict[str, Json])
    required: tuple[str, ...] = ()
    extras: Extras = Extras.WELCOME
    items: Json = None

    @property
    def description(self) -> str:
        text = self.node.get("description")
        return text if isinstance(text, str) else ""

    @property
    def format(self) -> str:
        name = self.node.get("format")
        return name if isinstance(name, str) else ""

    @property
    def default(self) -> tuple[Json, ...]:
        """The value to use when none is given, if the schema settles it."""
        if "default" in self.node:
            return (self.node["default"],)
        return self.choices if "const" in self.node else ()


class Shapes:
    """The shapes of one schema, each made once."""

    def __init__(self, root: JsonObject) -> None:
        self._root = root
        self._known: dict[int, Shape] = {}

    def of(self, source: Json) -> Shape:
        known = self._known.get(id(source))
        if known is None:
            known = self._known[id(source)] = _shape(source, self._merged(source, 0))
        return known

    def _merged(self, source: Json, hops: int) -> JsonObject:
        if not is_object(source) or hops > MOST_HOPS:
            return NO_OBJECT
        if "$ref" not in source and "allOf" not in source:
            return source
        merged: dict[str, Json] = {}
        for part in self._parts(source, hops):
            _merge(merged, part)
        return merged

    def _parts(self, source: JsonObject, hops: int) -> Iterator[JsonObject]:
        """The node's own keywords first, then what it refers to."""
        yield {key: value for key, value in source.items() if key not in ("$ref", "allOf")}
        reference = source.get("$ref")
        if isinstance(reference, str):
            yield self._merged(self._target(reference), hops + 1)
        branches = source.get("allOf")
        if is_list(branches):
            for branch in branches:
                yield self._merged(branch, hops + 1)

    def _target(self, reference: str) -> Json:
        if not reference.startswith("#"):
            return None
        node: Json = self._root
        for part in reference[1:].split("/")[1:]:
            name = part.replace("~1", "/").replace("~0", "~")
            if is_object(node):
                node = node.get(name)
            elif is_list(node) and _PLACE.fullmatch(name) and int(name) < len(node):
                node = node[int(name)]
            else:
                return None
        return node


def _merge(into: dict[str, Json], part: JsonObject) -> None:
    for key, value in part.items():
        present = into.get(key)
        if key == "properties" and is_object(present) and is_object(value):
            into[key] = {**value, **present}
        elif key == "required" and is_list(present) and is_list(value):
            into[key] = [*present, *value]
        else:
            into.setdefault(key, value)


def _shape(source: Json, node: JsonObject) -> Shape:
    properties = node.get("properties")
    required = node.get("required")
    branches = node.get("anyOf", node.get("oneOf"))
    return Shape(
        source=source,
        node=node,
        types=_types(node.get("type")),
        choices=_choices(node),
        branches=tuple(branches) if is_list(branches) else (),
        properties=properties if is_object(properties) else NO_OBJECT,
        required=tuple(dict.fromkeys(name for name in required if isinstance(name, str)))
        if is_list(required)
        else (),
        extras=_extras(node),
        items=node.get("items"),
    )


def _types(value: Json) -> frozenset[str]:
    if isinstance(value, str):
        return frozenset({value})
    return frozenset(item for item in value if isinstance(item, str)) if is_list(value) else frozenset()


def _choices(node: JsonObject) -> tuple[Json, ...]:
    if "const" in node:
        return (node["const"],)
    listed = node.get("enum")
    return tuple(listed) if is_list(listed) else ()


def _extras(node: JsonObject) -> Extras:
    if "patternProperties" in node:
        return Extras.WELCOME
    said = node.get("additionalProperties", node.get("unevaluatedProperties"))
    if said is False:
        return Extras.FORBIDDEN
    return Extras.UNSAID if said is None and "properties" in node else Extras.WELCOME

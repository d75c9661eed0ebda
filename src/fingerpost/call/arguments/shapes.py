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

MAX_HOPS: Final = 12
NO_OBJECT: Final[JsonObject] = {}
_PLACE: Final = re.compile(r"[0-9]{1,9}")  # in a list; Python refuses to read thousands of digits


class ExtraKeys(Enum):
    """What a schema says about keys it does not list."""

    WELCOME = auto()
    UNSAID = auto()
    FORBIDDEN = auto()


@frozen(eq=False)
class SchemaNode:
    """One schema node."""

    source: Json  # the node as the server wrote it
    keywords: JsonObject  # the same with references followed and `allOf` merged
    types: frozenset[str] = frozenset()
    choices: tuple[Json, ...] = ()
    branches: tuple[Json, ...] = ()
    properties: JsonObject = field(default_factory=dict[str, Json])
    required: tuple[str, ...] = ()
    extras: ExtraKeys = ExtraKeys.WELCOME
    items: Json = None

    @property
    def description(self) -> str:
        text = self.keywords.get("description")
        return text if isinstance(text, str) else ""

    @property
    def format(self) -> str:
        name = self.keywords.get("format")
        return name if isinstance(name, str) else ""

    @property
    def default(self) -> tuple[Json, ...]:
        """The value to use when none is given, if the schema settles it."""
        if "default" in self.keywords:
            return (self.keywords["default"],)
        return self.choices if "const" in self.keywords else ()


class SchemaNodes:
    """The shapes of one schema, each made once."""

    def __init__(self, root: JsonObject) -> None:
        self._root = root
        self._known: dict[int, SchemaNode] = {}

    def get_node(self, source: Json) -> SchemaNode:
        known = self._known.get(id(source))
        if known is None:
            known = self._known[id(source)] = _build_node(source, self._merge_parts(source, 0))
        return known

    def _merge_parts(self, source: Json, hops: int) -> JsonObject:
        if not is_object(source) or hops > MAX_HOPS:
            return NO_OBJECT
        if "$ref" not in source and "allOf" not in source:
            return source
        merged: dict[str, Json] = {}
        for part in self._iterate_parts(source, hops):
            _merge(merged, part)
        return merged

    def _iterate_parts(self, source: JsonObject, hops: int) -> Iterator[JsonObject]:
        """The node's own keywords first, then what it refers to."""
        yield {key: value for key, value in source.items() if key not in ("$ref", "allOf")}
        reference = source.get("$ref")
        if isinstance(reference, str):
            yield self._merge_parts(self._find_target(reference), hops + 1)
        branches = source.get("allOf")
        if is_list(branches):
            for branch in branches:
                yield self._merge_parts(branch, hops + 1)

    def _find_target(self, reference: str) -> Json:
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


def _build_node(source: Json, node: JsonObject) -> SchemaNode:
    properties = node.get("properties")
    required = node.get("required")
    branches = node.get("anyOf", node.get("oneOf"))
    return SchemaNode(
        source=source,
        keywords=node,
        types=_read_types(node.get("type")),
        choices=_read_choices(node),
        branches=tuple(branches) if is_list(branches) else (),
        properties=properties if is_object(properties) else NO_OBJECT,
        required=tuple(dict.fromkeys(name for name in required if isinstance(name, str)))
        if is_list(required)
        else (),
        extras=_read_extras(node),
        items=node.get("items"),
    )


def _read_types(value: Json) -> frozenset[str]:
    if isinstance(value, str):
        return frozenset({value})
    return frozenset(item for item in value if isinstance(item, str)) if is_list(value) else frozenset()


def _read_choices(node: JsonObject) -> tuple[Json, ...]:
    if "const" in node:
        return (node["const"],)
    listed = node.get("enum")
    return tuple(listed) if is_list(listed) else ()


def _read_extras(node: JsonObject) -> ExtraKeys:
    if "patternProperties" in node:
        return ExtraKeys.WELCOME
    said = node.get("additionalProperties", node.get("unevaluatedProperties"))
    if said is False:
        return ExtraKeys.FORBIDDEN
    return ExtraKeys.UNSAID if said is None and "properties" in node else ExtraKeys.WELCOME

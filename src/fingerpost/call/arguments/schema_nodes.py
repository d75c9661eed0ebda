"""JSON values, and the nodes of a schema with references resolved and `allOf` merged."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from enum import Enum, auto
from typing import Final, TypeGuard, cast

from fingerpost.frozen import frozen
from fingerpost.records import Json, JsonObject, find_json_problem
from fingerpost.redaction import MASK, is_secret_name, scrub, scrub_json

MAX_DEPTH: Final = 32  # the library needs several stack frames per level
MAX_NODES: Final = 20_000
MAX_SHOWN_LENGTH: Final = 60
MAX_KEPT_LENGTH: Final = 400  # characters of a text in the record of a repair
MAX_SCRUBBED_LENGTH: Final = 4_000  # a secret that begins in the shown part ends within this length
MAX_KEPT_NODES: Final = 200  # values of an object or list in the record of a repair


def is_object(value: Json) -> TypeGuard[JsonObject]:
    return isinstance(value, Mapping)


def is_list(value: Json) -> TypeGuard[Sequence[Json]]:
    return isinstance(value, list | tuple)


def copy_json(value: Json) -> Json:
    """Return a deep copy made of dicts and lists."""
    if is_object(value):
        return {key: copy_json(entry) for key, entry in value.items()}
    if is_list(value):
        return [copy_json(item) for item in value]
    return value


def copy_object(value: JsonObject) -> dict[str, Json]:
    return {key: copy_json(entry) for key, entry in value.items()}


def find_excess(value: JsonObject) -> str | None:
    """Return why these arguments are too large to check, or None."""
    reason = find_json_problem(value, max_depth=MAX_DEPTH)
    if reason is not None:
        return reason
    return None if count_nodes(value) <= MAX_NODES else f"holds more than {MAX_NODES} values"


def count_nodes(value: Json) -> int:
    count, todo = 0, [value]
    while todo and count <= MAX_NODES:
        node = todo.pop()
        count += 1
        if is_object(node):
            todo.extend(node.values())
        elif is_list(node):
            todo.extend(node)
    return count


def get_json_type(value: Json) -> str:
    """Return the JSON Schema type of a value. A whole float is a number that may stand for an integer."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case _:
            return "object" if is_object(value) else "array"


def is_of_type(value: Json, types: frozenset[str]) -> bool:
    """Return whether a value has one of these types. Without types, every value does."""
    if not types:
        return True
    kind = get_json_type(value)
    if kind in types:
        return True
    if kind == "integer":
        return "number" in types
    return kind == "number" and "integer" in types and cast("float", value).is_integer()


def is_equal(one: Json, other: Json) -> bool:
    """Compare by JSON rules: `true` is not 1, but 1.0 is."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if is_object(one) and is_object(other):
        return one.keys() == other.keys() and all(is_equal(one[key], other[key]) for key in one)
    if is_list(one) and is_list(other):
        return len(one) == len(other) and all(map(is_equal, one, other))
    return one == other


def redact_value(path: str, value: Json) -> Json:
    """Return the value for the record of a repair: without secrets, and shortened."""
    if value is None or isinstance(value, bool | int | float):
        return MASK if value is not None and is_secret_name(path.rpartition(".")[2]) else value
    if is_secret_name(path.rpartition(".")[2]):
        return MASK
    if isinstance(value, str):
        text = scrub(value[:MAX_SCRUBBED_LENGTH])
        return (
            text if len(value) <= MAX_KEPT_LENGTH else f"{text[:MAX_KEPT_LENGTH]}… ({len(value)} characters)"
        )
    if count_nodes(value) > MAX_KEPT_NODES:
        return f"{'an object' if is_object(value) else 'a list'} of more than {MAX_KEPT_NODES} values"
    return cast("Json", scrub_json(_cut_texts(value)))


def _cut_texts(value: Json) -> Json:
    """Return the value with all texts cut to a length that is quick to scrub."""
    if is_object(value):
        return {key: _cut_texts(entry) for key, entry in value.items()}
    if is_list(value):
        return [_cut_texts(item) for item in value]
    if isinstance(value, str) and len(value) > MAX_KEPT_LENGTH:
        return f"{scrub(value[:MAX_SCRUBBED_LENGTH])[:MAX_KEPT_LENGTH]}… ({len(value)} characters)"
    return value


def format_value(path: str, value: Json) -> str:
    """Format a value for an error message: short, and without secrets."""
    if isinstance(value, str) and value and is_secret_name(path.rpartition(".")[2]):
        return MASK
    if isinstance(value, str):
        # Scrub more than is shown, so that a secret is not cut in half before it is recognised.
        text = scrub(value[:MAX_SCRUBBED_LENGTH])
        return json.dumps(shorten(text, MAX_SHOWN_LENGTH), ensure_ascii=False)
    if is_object(value) or is_list(value):
        noun = "object" if is_object(value) else "list"
        return (
            f"a {noun}" if len(value) == 0 else f"{noun} {shorten(_format_safely(value), MAX_SHOWN_LENGTH)}"
        )
    return to_json(value)


def _format_safely(value: Json) -> str:
    return to_json(cast("Json", scrub_json(value)))


def shorten(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"


def to_json(value: Json) -> str:
    """Return the value as JSON text."""
    return json.dumps(value, ensure_ascii=False, default=dict)


MAX_HOPS: Final = 12
NO_OBJECT: Final[JsonObject] = {}
_INDEX: Final = re.compile(r"[0-9]{1,9}")  # list index; Python refuses to parse thousands of digits


class ExtraKeys(Enum):
    """What a schema says about keys that it does not list."""

    ALLOWED = auto()
    UNSPECIFIED = auto()
    FORBIDDEN = auto()


@frozen(eq=False)
class SchemaNode:
    """One schema node."""

    source: Json  # the node as the server wrote it
    keywords: JsonObject  # with references resolved and `allOf` merged
    types: frozenset[str] = frozenset()
    choices: tuple[Json, ...] = ()
    branches: tuple[Json, ...] = ()
    properties: JsonObject = field(default_factory=dict[str, Json])
    required: tuple[str, ...] = ()
    extras: ExtraKeys = ExtraKeys.ALLOWED
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
        """The default value, if the schema defines one."""
        if "default" in self.keywords:
            return (self.keywords["default"],)
        return self.choices if "const" in self.keywords else ()


class SchemaNodes:
    """The nodes of one schema, each built once."""

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
        """Yield the node's own keywords first, then those it references."""
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
            elif is_list(node) and _INDEX.fullmatch(name) and int(name) < len(node):
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
        return ExtraKeys.ALLOWED
    extras = node.get("additionalProperties", node.get("unevaluatedProperties"))
    if extras is False:
        return ExtraKeys.FORBIDDEN
    return ExtraKeys.UNSPECIFIED if extras is None and "properties" in node else ExtraKeys.ALLOWED

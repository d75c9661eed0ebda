"""JSON Schema: its parts, local references, properties and nodes. Nothing is fetched.

A schema comes from a stranger: a keyword of the wrong type counts as absent.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from enum import Enum, auto
from typing import Any, Final, TypeAlias, TypeGuard, cast
from urllib.parse import unquote

from fingerpost.frozen import frozen
from fingerpost.records import Json, JsonObject

# The keywords whose values are schemas: by name, in a list, or one. In old drafts `items` may be a list.
_APPLIED_MAPS: Final = ("properties", "patternProperties", "dependentSchemas")
_CHECKED_MAPS: Final = (*_APPLIED_MAPS, "$defs", "definitions")
MAP_KEYWORDS: Final = (*_CHECKED_MAPS, "dependencies")  # which may also list names
LIST_KEYWORDS: Final = ("anyOf", "oneOf", "allOf", "prefixItems")
_APPLIED_PARTS: Final = ("items", "additionalProperties", "contains", "if", "then", "else")
PART_KEYWORDS: Final = (
    *_APPLIED_PARTS, "not", "propertyNames", "additionalItems", "unevaluatedItems", "unevaluatedProperties",
    "contentSchema",
)  # fmt: skip
_LISTS: Final = (list, tuple)
MAX_POINTER_LENGTH: Final = 1_000
_INDEX: Final = re.compile(r"[0-9]{1,9}")  # list index; Python refuses to parse thousands of digits


def is_object(value: Json) -> TypeGuard[JsonObject]:
    return type(value) is dict or isinstance(value, Mapping)  # the usual case first: the other is slow


def is_list(value: Json) -> TypeGuard[Sequence[Json]]:
    return type(value) is list or isinstance(value, _LISTS)


def iterate_parts(schema: JsonObject, *, applied: bool = False) -> Iterator[tuple[str, Json]]:
    """Yield the schemas directly inside this one, with their names for properties and "" for others.

    `applied`: only those that describe a value where it stands, without definitions and what must not fit.
    """
    for keyword in _APPLIED_MAPS if applied else MAP_KEYWORDS:
        if keyword in schema and is_object(named := schema[keyword]):
            yield from named.items()
    for keyword in LIST_KEYWORDS:
        if keyword in schema and is_list(listed := schema[keyword]):
            yield from (("", part) for part in listed)
    for keyword in _APPLIED_PARTS if applied else PART_KEYWORDS:
        part = schema.get(keyword)
        if part is None:
            continue
        if is_list(part):
            yield from (("", each) for each in part)
        else:
            yield "", part


def iterate_schemas(schema: Json) -> Iterator[JsonObject]:
    """Yield this schema and every schema inside it. References are not followed."""
    todo = [schema]
    while todo:
        part = todo.pop()
        if is_object(part):
            yield part
            todo.extend(inner for _, inner in iterate_parts(part))


def iterate_parameters(schema: Json) -> Iterator[tuple[str, JsonObject]]:
    """Yield the parts that describe values, outermost first, each with the parameter it belongs to.

    A reference is followed once for each parameter, so that the iteration ends; callers limit its length.
    """
    todo: deque[tuple[str, Json]] = deque([("", schema)])
    followed: set[tuple[str, str]] = set()
    while todo:
        name, part = todo.popleft()
        if not is_object(part):
            continue
        yield name, part
        todo.extend((inner_name or name, inner) for inner_name, inner in iterate_parts(part, applied=True))
        reference = part.get("$ref")
        if isinstance(reference, str) and (name, reference) not in followed:
            followed.add((name, reference))
            todo.append((name, resolve_reference(schema, reference)))


def replace_parts(schema: JsonObject, replace: Callable[[JsonObject], Json]) -> dict[str, Json]:
    """Return the schema with each schema directly inside it replaced. Its other keywords stay."""

    def replace_part(part: Json) -> Json:
        return replace(part) if is_object(part) else part

    made = dict(schema)
    for keyword, value in schema.items():
        if keyword in MAP_KEYWORDS and is_object(value):
            made[keyword] = {name: replace_part(part) for name, part in value.items()}
        elif keyword in LIST_KEYWORDS or keyword in PART_KEYWORDS:
            made[keyword] = [replace_part(part) for part in value] if is_list(value) else replace_part(value)
    return made


def resolve_reference(root: Json, reference: str) -> Json:
    """Return the target of a reference within the same schema, or None if there is none."""
    if not reference.startswith("#") or len(reference) > MAX_POINTER_LENGTH:
        return None
    node = root
    for step in unquote(reference[1:]).split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        if is_object(node):
            node = node.get(name)
        elif is_list(node) and _INDEX.fullmatch(name) and int(name) < len(node):
            node = node[int(name)]
        else:
            return None
    return node


NO_OBJECT: Final[JsonObject] = {}


def get_properties(schema: Json) -> JsonObject:
    """Return the properties that a schema lists."""
    properties = schema.get("properties") if is_object(schema) else None
    return properties if is_object(properties) else NO_OBJECT


def get_required(schema: Json) -> tuple[str, ...]:
    """Return the names that a schema requires, each once."""
    listed = schema.get("required") if is_object(schema) else None
    return tuple(dict.fromkeys(name for name in listed if isinstance(name, str))) if is_list(listed) else ()


def get_types(schema: JsonObject) -> frozenset[str]:
    """Return the types that a schema names."""
    named = schema.get("type")
    if isinstance(named, str):
        return frozenset({named})
    return frozenset(item for item in named if isinstance(item, str)) if is_list(named) else frozenset()


def get_choices(schema: JsonObject) -> tuple[Json, ...]:
    """Return the only values that a schema permits, or nothing if it does not list them."""
    if "const" in schema:
        return (schema["const"],)
    listed = schema.get("enum")
    return tuple(listed) if is_list(listed) else ()


def get_branches(schema: JsonObject) -> tuple[Json, ...]:
    """Return the alternatives of a schema."""
    listed = schema.get("anyOf", schema.get("oneOf"))
    return tuple(listed) if is_list(listed) else ()


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


MAX_HOPS: Final = 12


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
        for part in self._iterate_merged(source, hops):
            _merge(merged, part)
        return merged

    def _iterate_merged(self, source: JsonObject, hops: int) -> Iterator[JsonObject]:
        """Yield the node's own keywords first, then those it references."""
        yield {key: value for key, value in source.items() if key not in ("$ref", "allOf")}
        reference = source.get("$ref")
        if isinstance(reference, str):
            yield self._merge_parts(resolve_reference(self._root, reference), hops + 1)
        branches = source.get("allOf")
        if is_list(branches):
            for branch in branches:
                yield self._merge_parts(branch, hops + 1)


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
    return SchemaNode(
        source=source,
        keywords=node,
        types=get_types(node),
        choices=get_choices(node),
        branches=get_branches(node),
        properties=get_properties(node),
        required=get_required(node),
        extras=_read_extras(node),
        items=node.get("items"),
    )


def _read_extras(node: JsonObject) -> ExtraKeys:
    if "patternProperties" in node:
        return ExtraKeys.ALLOWED
    extras = node.get("additionalProperties", node.get("unevaluatedProperties"))
    if extras is False:
        return ExtraKeys.FORBIDDEN
    return ExtraKeys.UNSPECIFIED if extras is None and "properties" in node else ExtraKeys.ALLOWED


_TYPES: Final = frozenset({"null", "boolean", "object", "array", "number", "integer", "string"})
_PendingParts: TypeAlias = list[tuple[str, object]]  # parts still to check, with their paths


def find_schema_fault(path: str, schema: object) -> str | None:
    """Return why this is not a JSON Schema, with the path of the fault, or None."""
    todo: _PendingParts = [(path, schema)]
    while todo:
        node_path, node = todo.pop()
        if isinstance(node, bool):
            continue
        # `isinstance` with an abstract class is slow, so the exact type is checked first.
        if type(node) is not dict and not isinstance(node, Mapping):
            return f"{node_path} is {describe_kind(node)}, not a schema"
        # Only existing keywords are checked: a catalog has thousands of schema parts, most with two keywords.
        for keyword, value in cast("Mapping[str, object]", node).items():
            find_fault = _FORM_CHECKS.get(keyword)
            if (
                find_fault is not None
                and (reason := find_fault(f"{node_path}.{keyword}", value, todo)) is not None
            ):
                return reason
    return None


def describe_kind(value: object) -> str:
    """Return the kind of a JSON value as text for an error message."""
    kinds: dict[type, str] = {
        type(None): "missing", str: "text", bool: "a boolean", int: "a number", float: "a number",
        list: "a list", dict: "an object",
    }  # fmt: skip
    return kinds.get(type(value), f"a {type(value).__name__}")


def _find_type_fault(path: str, value: object, _: _PendingParts) -> str | None:
    names = cast("Sequence[object]", value) if isinstance(value, list) else [value]
    if all(isinstance(name, str) and name in _TYPES for name in names):
        return None
    return f"{path} is {value!r:.60}, which is no JSON Schema type"


def _find_required_fault(path: str, value: object, _: _PendingParts) -> str | None:
    if isinstance(value, list) and all(isinstance(name, str) for name in cast("Sequence[object]", value)):
        return None
    return None if isinstance(value, bool) else f"{path} is not a list of names"


def _find_enum_fault(path: str, value: object, _: _PendingParts) -> str | None:
    return None if isinstance(value, list) else f"{path} is not a list"


def _queue_schema(path: str, value: object, todo: _PendingParts) -> str | None:
    if not isinstance(value, list):
        todo.append((path, value))
    return None


def _queue_schema_list(path: str, value: object, todo: _PendingParts) -> str | None:
    if not isinstance(value, list):
        return f"{path} is {describe_kind(value)}, not a list"
    todo.extend((path, part) for part in cast("Sequence[object]", value))
    return None


def _queue_named_schemas(path: str, value: object, todo: _PendingParts) -> str | None:
    if not isinstance(value, Mapping):
        return f"{path} is {describe_kind(value)}, not an object"
    parts = cast("Mapping[str, object]", value).items()
    todo.extend((f"{path}.{name:.60}", part) for name, part in parts)
    return None


def _queue_schema_or_list(path: str, value: object, todo: _PendingParts) -> str | None:
    look = _queue_schema_list if isinstance(value, list) else _queue_schema
    return look(path, cast("object", value), todo)


_FORM_CHECKS: Final[dict[str, Callable[[str, Any, _PendingParts], str | None]]] = {
    "type": _find_type_fault,
    "required": _find_required_fault,
    "enum": _find_enum_fault,
    **dict.fromkeys(PART_KEYWORDS, _queue_schema),
    **dict.fromkeys(_CHECKED_MAPS, _queue_named_schemas),
    **dict.fromkeys(LIST_KEYWORDS, _queue_schema_list),
    "items": _queue_schema_or_list,
}

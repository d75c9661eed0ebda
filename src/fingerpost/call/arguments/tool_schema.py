"""Data computed once for each tool: its compiled schema, a fast check, and its one-line signature."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import islice
from threading import Lock
from types import NoneType
from typing import Final, TypeAlias, cast

from fingerpost.call.arguments.coercion import copy_object, requires_iso_date, shorten, to_json
from fingerpost.catalog.words import split_words, to_singular
from fingerpost.records import Json, JsonObject, ToolCard
from fingerpost.records.json import has_lone_surrogate
from fingerpost.schemas import SchemaNode, SchemaNodes, is_list, is_object, iterate_schemas
from fingerpost.schemas.validator import SchemaValidator

ValueCheck: TypeAlias = Callable[[object], bool]

MAX_KEYS: Final = 100
MAX_ITEMS: Final = 100
MAX_INTEGER: Final = 1 << 63

_ROOT_KEYWORDS: Final = frozenset(
    {"type", "properties", "required", "additionalProperties", "title", "description", "default", "examples",
     "$schema", "$defs", "definitions", "$comment"}
)  # fmt: skip
_ANNOTATIONS: Final = frozenset(
    {"title", "description", "default", "examples", "format", "deprecated", "$comment"}
)
_BOUNDS: Final = frozenset({"minimum", "maximum", "minLength", "maxLength"})
_TYPES: Final[dict[str, tuple[type, ...]]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (NoneType,),
}


class FastCheck:
    """A fast check of arguments against a schema with simple parameters."""

    def __init__(self, schema: JsonObject) -> None:
        self._checks: dict[str, ValueCheck] = {}
        self._required: tuple[str, ...] = ()
        self.usable = self._read_schema(schema)

    def _read_schema(self, schema: JsonObject) -> bool:
        properties, required = schema.get("properties", {}), schema.get("required", [])
        if schema.get("type") != "object" or not schema.keys() <= _ROOT_KEYWORDS:
            return False
        if not is_object(properties) or not is_list(required):
            return False
        self._required = tuple(name for name in required if isinstance(name, str))
        for name, part in properties.items():
            check = _build_check(part)
            if check is not None and not has_lone_surrogate(name):
                self._checks[name] = check
        return len(self._required) == len(required)

    def copy_if_valid(self, arguments: JsonObject) -> dict[str, Json] | None:
        """Return a copy of the arguments if they are certainly valid, or None if a full check is needed."""
        if not self.usable or len(arguments) > MAX_KEYS:
            return None
        checks = self._checks
        taken: dict[str, Json] = {}
        for name, value in arguments.items():
            check = checks.get(name)
            if check is None or not check(value):
                return None
            taken[name] = list(cast("list[Json]", value)) if type(value) is list else value
        for name in self._required:
            if name not in taken:
                return None
        return taken


def _build_check(part: Json) -> ValueCheck | None:
    """Return a check for this part of a schema, or None if the part is not simple."""
    if not is_object(part) or requires_iso_date(_get_text(part, "format"), _get_text(part, "description")):
        return None
    rest = part.keys() - _ANNOTATIONS
    if rest == {"anyOf"}:
        return _build_alternatives_check(part["anyOf"])
    if rest in ({"enum"}, {"enum", "type"}):
        return _build_choice_check(part)
    if rest in ({"items", "type"}, {"type"}) and part["type"] == "array":
        return _build_list_check(part)
    return _build_scalar_check(part) if rest - _BOUNDS == {"type"} else None


def _get_text(part: JsonObject, key: str) -> str:
    found = part.get(key)
    return found if isinstance(found, str) else ""


def _build_alternatives_check(branches: Json) -> ValueCheck | None:
    checks = [_build_check(branch) for branch in branches] if is_list(branches) else []
    known = [check for check in checks if check is not None]
    if not known or len(known) != len(checks):
        return None
    return lambda value: any([check(value) for check in known])  # noqa: C419 - a generator is slower


def _build_choice_check(part: JsonObject) -> ValueCheck | None:
    choices = part["enum"]
    if part.get("type", "string") != "string" or not is_list(choices):
        return None
    texts = frozenset(choice for choice in choices if isinstance(choice, str))
    if len(texts) != len(choices) or any(map(has_lone_surrogate, texts)):
        return None
    return lambda value: type(value) is str and value in texts


def _build_list_check(part: JsonObject) -> ValueCheck | None:
    items = part.get("items")
    check = _build_check(items)
    if check is None or (is_object(items) and items.get("type") == "array"):
        return None

    def fits(value: object) -> bool:
        if type(value) is not list:
            return False
        found = cast("list[object]", value)
        return len(found) <= MAX_ITEMS and all(map(check, found))

    return fits


def _build_scalar_check(part: JsonObject) -> ValueCheck | None:
    named = part["type"]
    names: Sequence[Json] = named if is_list(named) else [named]
    known = [_TYPES.get(name) for name in names if isinstance(name, str)]
    bounds = [part.get(name) for name in _BOUNDS if name in part]
    if not known or None in known or len(known) != len(names):
        return None
    if any(type(bound) not in (int, float) for bound in bounds):
        return None
    kinds = frozenset(kind for group in known if group is not None for kind in group)
    low, high = _get_number(part, "minimum", -math.inf), _get_number(part, "maximum", math.inf)
    shortest, longest = _get_number(part, "minLength", 0), _get_number(part, "maxLength", math.inf)

    def fits(value: object) -> bool:
        kind = type(value)
        if kind not in kinds:
            return False
        if kind is str:
            text = cast("str", value)
            return shortest <= len(text) <= longest and (text.isascii() or not has_lone_surrogate(text))
        if kind is int:
            return -MAX_INTEGER <= cast("int", value) < MAX_INTEGER and low <= cast("int", value) <= high
        return kind is not float or (
            math.isfinite(cast("float", value)) and low <= cast("float", value) <= high
        )

    return fits


def _get_number(part: JsonObject, name: str, default: float) -> float:
    found = part.get(name, default)
    return found if isinstance(found, int | float) else default


MAX_SCHEMAS: Final = 512
MAX_NOTES: Final = 8


class ToolSchema:
    """A tool's schema, prepared for use."""

    def __init__(self, card: ToolCard) -> None:
        given = card.definition.get("inputSchema")
        self.schema: JsonObject = copy_object(given) if is_object(given) else {"type": "object"}
        self.fast_check = FastCheck(self.schema)
        self.nodes = SchemaNodes(self.schema)
        self.root: SchemaNode = self.nodes.get_node(self.schema)
        # Words about the tool's topic add nothing to a parameter's name.
        self.topic = frozenset(to_singular(word) for word in split_words(card.name))
        self.names = frozenset({card.name, card.key, card.exposed_name})
        self.notes = _describe_unchecked(self.schema)
        self.signatures: dict[int, str] = {}  # signatures, by their limit

    @cached_property
    def validator(self) -> SchemaValidator:
        """The validator of whole arguments, which needs the library: see `load_validator`."""
        return SchemaValidator(self.schema)


class _ToolSchemaCache:
    def __init__(self) -> None:
        self._lock = Lock()
        self._kept: OrderedDict[tuple[str, str], ToolSchema] = OrderedDict()

    def get_schema(self, card: ToolCard) -> ToolSchema:
        name = (card.key, card.fingerprint)
        with self._lock:
            tool_schema = self._kept.get(name)
            if tool_schema is not None:
                self._kept.move_to_end(name)
                return tool_schema
        tool_schema = ToolSchema(card)
        with self._lock:
            self._kept[name] = tool_schema
            while len(self._kept) > MAX_SCHEMAS:
                self._kept.popitem(last=False)
        return tool_schema


tool_schemas = _ToolSchemaCache()


def _describe_unchecked(schema: JsonObject) -> tuple[str, ...]:
    """Describe the parts of the schema that are not checked."""
    references = (part.get("$ref") for part in iterate_schemas(schema))
    remote = (one for one in references if isinstance(one, str) and not one.startswith("#"))
    notes = (f"{one[:80]} is never fetched: what it describes is not checked here" for one in remote)
    return tuple(islice(dict.fromkeys(notes), MAX_NOTES))


MAX_SHOWN_CHOICES: Final = 8
MAX_DEFAULT_LENGTH: Final = 24
MAX_SIGNATURE_DEPTH: Final = 2


def format_signature(card: ToolCard, *, limit: int = 400) -> str:
    """Return `search(query: string, limit?: integer = 10, sort?: "asc"|"desc")`, limited in length."""
    tool_schema = tool_schemas.get_schema(card)
    known = tool_schema.signatures.get(limit)
    if known is None:
        known = tool_schema.signatures[limit] = _build_signature(tool_schema, card, limit)
    return known


def _build_signature(tool_schema: ToolSchema, card: ToolCard, limit: int) -> str:
    name = shorten(card.exposed_name, max(limit - 4, 1))
    parts = _format_parameters(tool_schema, tool_schema.root, 0)
    whole = f"{name}({', '.join(parts)})"
    if len(whole) <= limit:
        return whole
    room = limit - len(name) - len("(, … +999 more)")
    fitting: list[str] = []
    for part in parts:
        room -= len(part) + 2
        if room < 0:
            break
        fitting.append(part)
    rest = f"… +{len(parts) - len(fitting)} more"
    return shorten(f"{name}({', '.join([*fitting, rest])})", limit)


def _format_parameters(tool_schema: ToolSchema, node: SchemaNode, depth: int) -> list[str]:
    must = [name for name in node.required if name in node.properties]
    unlisted = [name for name in node.required if name not in node.properties]
    may = [name for name in node.properties if name not in node.required]
    return [
        *(_format_parameter(tool_schema, name, node.properties[name], depth) for name in must),
        *(f"{name}: any" for name in unlisted),
        *(_format_parameter(tool_schema, f"{name}?", node.properties[name], depth) for name in may),
    ]


def _format_parameter(tool_schema: ToolSchema, name: str, source: Json, depth: int) -> str:
    shape = tool_schema.nodes.get_node(source)
    default = shape.keywords.get("default")
    tail = f" = {shorten(to_json(default), MAX_DEFAULT_LENGTH)}" if default is not None else ""
    return f"{name}: {describe_expected(tool_schema, shape, depth)}{tail}"


def describe_expected(tool_schema: ToolSchema, node: SchemaNode, depth: int = 0) -> str:
    """Describe the expected value: `integer`, `"asc"|"desc"`, `list of string`, `{path, line?}`."""
    if node.choices:
        listed = [shorten(to_json(choice), 40) for choice in node.choices[:MAX_SHOWN_CHOICES]]
        more = len(node.choices) - len(listed)
        return "|".join([*listed, f"… +{more} more"] if more else listed)
    if node.branches and depth < MAX_SIGNATURE_DEPTH:
        kinds = (
            describe_expected(tool_schema, tool_schema.nodes.get_node(branch), depth + 1)
            for branch in node.branches
        )
        return "|".join(dict.fromkeys(kinds))
    return "|".join(_describe_type(tool_schema, node, name, depth) for name in sorted(node.types)) or "any"


def _describe_type(tool_schema: ToolSchema, node: SchemaNode, name: str, depth: int) -> str:
    if name == "array":
        items = node.items if is_object(node.items) else None
        inner = (
            describe_expected(tool_schema, tool_schema.nodes.get_node(items), depth + 1)
            if items and depth < MAX_SIGNATURE_DEPTH
            else "any"
        )
        return f"list of {inner}"
    if name == "object" and node.properties and depth < MAX_SIGNATURE_DEPTH:
        return f"{{{', '.join(_format_parameters(tool_schema, node, depth + 1))}}}"
    if name == "string" and node.format in ("date", "date-time", "time", "uri", "email", "uuid"):
        return node.format
    return name

"""List entries for clients: made valid for the protocol, encoded once, and split into pages."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, cast

import orjson
from mcp_types import Tool
from mcp_types.jsonrpc import INVALID_PARAMS
from pydantic import BaseModel, ValidationError

from fingerpost.catalog.cards import make_text_visible
from fingerpost.frozen import frozen
from fingerpost.records import Json, JsonObject, ToolCard
from fingerpost.schemas import get_types, is_object, replace_parts
from fingerpost.servers.definitions import may_name_headers
from fingerpost.surfaces.gateway.protocol import EncodedResult, JsonRpcError


def encode_json(value: object) -> bytes:
    """Encode `value` as JSON. Integers beyond 64 bits and lone surrogates are supported."""
    try:
        return orjson.dumps(value, default=_to_plain)
    except TypeError:
        return json.dumps(value, separators=(",", ":"), default=_to_plain).encode()


def _to_plain(value: object) -> object:
    """Convert mappings that are not dicts. Nothing else can come from JSON."""
    if isinstance(value, Mapping):
        return dict(cast("Mapping[str, object]", value))
    raise TypeError(f"a {type(value).__name__} is not JSON")


_MAX_PAGES_CACHED: Final = 16  # joining a page again is cheap


@frozen
class CacheHints:
    """Cache hints of a list, for 2026-07-28 clients."""

    milliseconds: int
    private: bool

    @property
    def encoded(self) -> bytes:
        scope = b"private" if self.private else b"public"
        return b',"resultType":"complete","ttlMs":%d,"cacheScope":"%s"' % (self.milliseconds, scope)


@dataclass(slots=True)
class ListPages:
    """The pages of one list. `names` identify the entries, in order; `bodies` are their JSON."""

    member: str
    names: Sequence[str]
    bodies: Sequence[bytes]
    size: int
    _joined: dict[tuple[int, CacheHints | None], EncodedResult] = field(
        default_factory=dict[tuple[int, "CacheHints | None"], EncodedResult]
    )
    # Index after each entry, by its cursor.
    _start_by_cursor: dict[str, int] = field(default_factory=dict[str, int])
    _fingerprint: bytes = b""

    @property
    def fingerprint(self) -> bytes:
        """A digest of the list. Equal lists have equal fingerprints."""
        if not self._fingerprint:
            digest = hashlib.blake2b(digest_size=16)
            for body in self.bodies:
                digest.update(b"%d:" % len(body))
                digest.update(body)
            self._fingerprint = digest.digest()
        return self._fingerprint

    def get_page(self, cursor: object, hints: CacheHints | None) -> EncodedResult:
        """Return the page at this cursor, for None the first one. Raises `JsonRpcError` if it is unknown."""
        start = 0 if cursor is None else self._find_start(cursor)
        page = self._joined.get((start, hints))
        if page is None:
            page = self._join_entries(start, hints)
            if start % self.size == 0 and len(self._joined) < _MAX_PAGES_CACHED:
                self._joined[start, hints] = page
        return page

    def _join_entries(self, start: int, hints: CacheHints | None) -> EncodedResult:
        end = start + self.size
        parts = [b'{"%s":[' % self.member.encode(), b",".join(self.bodies[start:end]), b"]"]
        if end < len(self.bodies):
            parts.append(b',"nextCursor":"%s"' % build_cursor(self.names[end - 1]).encode())
        if hints is not None:
            parts.append(hints.encoded)
        parts.append(b"}")
        return EncodedResult(b"".join(parts))

    def _find_start(self, cursor: object) -> int:
        if not self._start_by_cursor:
            self._start_by_cursor = {build_cursor(name): index + 1 for index, name in enumerate(self.names)}
        start = self._start_by_cursor.get(cursor) if isinstance(cursor, str) else None
        if start is None:
            message = "this cursor is not valid: the list may have changed; ask for its first page again"
            raise JsonRpcError(INVALID_PARAMS, message)
        return start


def build_cursor(name: str) -> str:
    """Return an opaque cursor for an entry. It depends only on the name."""
    digest = hashlib.blake2b(name.encode(errors="surrogatepass"), digest_size=12).digest()
    return base64.urlsafe_b64encode(digest).decode()


_NOTHING: Final[JsonObject] = {}


def conform_entry(
    entry: JsonObject, model: type[BaseModel], *, replacements: JsonObject = _NOTHING
) -> JsonObject | None:
    """Return the entry without invalid members, or None if nothing usable is left.

    `replacements` has values for required members.
    """
    made = _drop_nulls(entry)
    wrong = _find_invalid_members(made, model)
    if not wrong:
        return made
    right: dict[str, Json] = {key: value for key, value in made.items() if key not in wrong}
    right.update({key: value for key, value in replacements.items() if key in wrong})
    return None if _find_invalid_members(right, model) else right


def _find_invalid_members(entry: JsonObject, model: type[BaseModel]) -> frozenset[str]:
    try:
        model.model_validate(entry, strict=True, by_name=False)
    except ValidationError as error:
        faults = error.errors(include_url=False, include_context=False, include_input=False)
        return frozenset(str(fault["loc"][0]) for fault in faults if fault["loc"])
    return frozenset()


def _drop_nulls(entry: JsonObject) -> JsonObject:
    """Remove null members. The protocol omits missing members, and many clients reject null."""
    annotations = entry.get("annotations")
    if isinstance(annotations, Mapping) and None in annotations.values():
        present = {key: value for key, value in cast("JsonObject", annotations).items() if value is not None}
        entry = {**entry, "annotations": present}
    if None in entry.values():
        return {key: value for key, value in entry.items() if value is not None}
    return entry


_RESULT_MEMBER: Final = "result"
_RESULT_POINTER: Final = f"#/properties/{_RESULT_MEMBER}"
_REFERENCE_KEYWORDS: Final = frozenset(("$ref", "$dynamicRef"))


def needs_wrapping(schema: Json) -> bool:
    """Return whether every value of this schema is wrapped in an object.

    False if the schema also permits objects: wrapped and plain values could not be distinguished.
    """
    kinds = get_types(schema) if is_object(schema) else frozenset[str]()
    return bool(kinds) and "object" not in kinds


def wrap_result(value: Json) -> JsonObject:
    return {_RESULT_MEMBER: value}


def wrap_schema(schema: JsonObject) -> JsonObject:
    """Return the schema of the wrapper object for values of this schema."""
    inner: JsonObject = {key: value for key, value in schema.items() if key != "$schema"}
    dialect: JsonObject = {"$schema": schema["$schema"]} if "$schema" in schema else {}
    return {
        **dialect,
        "type": "object",
        "properties": {_RESULT_MEMBER: _move_references(inner)},
        "required": [_RESULT_MEMBER],
    }


def _move_references(schema: JsonObject) -> JsonObject:
    """Adjust references, because the schema is no longer the root of the document."""
    if _is_document(schema):
        return schema
    made = replace_parts(schema, _move_references)
    for keyword in _REFERENCE_KEYWORDS:
        target = made.get(keyword)
        if isinstance(target, str) and (target == "#" or target.startswith("#/")):
            made[keyword] = _RESULT_POINTER + target[1:]
    return made


def _is_document(schema: Mapping[str, Json]) -> bool:
    """Return whether the schema has its own id, so that its references are relative to itself."""
    address = schema.get("$id")
    return isinstance(address, str) and not address.startswith("#")


def build_definition(card: ToolCard, *, modern: bool) -> JsonObject:
    """Build a tool's definition for the list of tools in this era."""
    given = card.definition
    made: dict[str, Json] = {**given, "name": card.exposed_name}
    if card.description != (given.get("description") or ""):
        made["description"] = card.description  # may be replaced in the settings
    schema = given.get("inputSchema")
    if not isinstance(schema, Mapping):
        made["inputSchema"] = {"type": "object"}
    elif "type" not in schema:
        made["inputSchema"] = {"type": "object", **schema}  # implied, but many clients require it
    if not modern and "outputSchema" in made:
        _adapt_output_schema(made, made["outputSchema"])
    words = make_text_visible(made)
    made = dict(words) if isinstance(words, Mapping) else made
    # The catalog checked name and schema, so these two are always valid.
    return conform_entry(made, Tool) or {"name": card.exposed_name, "inputSchema": made["inputSchema"]}


def _adapt_output_schema(definition: dict[str, Json], output: Json) -> None:
    """Adapt an output schema for older clients. Before 2026-07-28 structured content had to be an object."""
    if isinstance(output, Mapping):
        if output.get("type") == "object":
            return
        if needs_wrapping(output):
            definition["outputSchema"] = wrap_schema(output)
            return
    del definition["outputSchema"]


@dataclass(slots=True)
class _EncodedDefinition:
    card: ToolCard
    bodies: dict[bool, bytes] = field(default_factory=dict[bool, bytes])  # by era
    has_headers: bool | None = None


class DefinitionCache:
    """Caches each encoded definition as long as the tool does not change."""

    def __init__(self) -> None:
        self._kept: dict[str, _EncodedDefinition] = {}

    def get_encoded(self, card: ToolCard, *, modern: bool) -> bytes:
        """Return the JSON of this tool's definition in this era."""
        bodies = self._get_entry(card).bodies
        body = bodies.get(modern)
        if body is None:
            body = bodies[modern] = encode_json(build_definition(card, modern=modern))
            if bodies.get(not modern) == body:
                body = bodies[modern] = bodies[not modern]  # usually equal in both eras: stored once
        return body

    def uses_headers(self, card: ToolCard) -> bool:
        """Return whether some arguments of the tool are repeated in headers (`x-mcp-header`)."""
        entry = self._get_entry(card)
        if entry.has_headers is None:
            entry.has_headers = may_name_headers(encode_json(card.definition.get("inputSchema")))
        return entry.has_headers

    def _get_entry(self, card: ToolCard) -> _EncodedDefinition:
        kept = self._kept.get(card.key)
        if kept is None or not _is_same_definition(kept.card, card):
            kept = self._kept[card.key] = _EncodedDefinition(card)
        return kept

    def keep_only(self, keys: frozenset[str]) -> None:
        """Drop cached definitions of all other tools."""
        for key in self._kept.keys() - keys:
            del self._kept[key]


def _is_same_definition(before: ToolCard, now: ToolCard) -> bool:
    return before is now or (
        before.definition is now.definition
        and before.exposed_name == now.exposed_name
        and before.description == now.description
    )

"""A tool's definition as clients get it: its server's, under the name by which it can be called here.

A member that is not what the protocol says is left out (`conforming`); everything
that keeps to the protocol goes through as it came.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from mcp_types import Tool

from fingerpost.catalog.definition import make_text_visible
from fingerpost.records import Json, JsonObject, ToolCard
from fingerpost.servers.definitions import may_name_headers
from fingerpost.surfaces.gateway.offers.boxing import needs_wrapping, wrap_schema
from fingerpost.surfaces.gateway.offers.conforming import conform_entry
from fingerpost.surfaces.gateway.offers.encoding import encode_json


def build_definition(card: ToolCard, *, modern: bool) -> JsonObject:
    """The definition for the list of tools in this era."""
    given = card.definition
    made: dict[str, Json] = {**given, "name": card.exposed_name}
    if card.description != (given.get("description") or ""):
        made["description"] = card.description  # what a person wrote in its stead
    schema = given.get("inputSchema")
    if not isinstance(schema, Mapping):
        made["inputSchema"] = {"type": "object"}
    elif "type" not in schema:
        made["inputSchema"] = {"type": "object", **schema}  # it was meant; many clients insist on it
    if not modern and "outputSchema" in made:
        _adapt_output_schema(made, made["outputSchema"])
    words = make_text_visible(made)
    made = dict(words) if isinstance(words, Mapping) else made
    # Its name and its schema are right, or it would not be in the catalog: something is always left.
    return conform_entry(made, Tool) or {"name": card.exposed_name, "inputSchema": made["inputSchema"]}


def _adapt_output_schema(definition: dict[str, Json], output: Json) -> None:
    """Before 2026-07-28 a result could only be an object, and its schema had to say so."""
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
    headers: bool | None = None


class DefinitionCache:
    """Each definition encoded once, for as long as it stays the same."""

    def __init__(self) -> None:
        self._kept: dict[str, _EncodedDefinition] = {}

    def get_encoded(self, card: ToolCard, *, modern: bool) -> bytes:
        """The JSON of this card's definition in this era."""
        bodies = self._get_entry(card).bodies
        body = bodies.get(modern)
        if body is None:
            body = bodies[modern] = encode_json(build_definition(card, modern=modern))
            if bodies.get(not modern) == body:
                body = bodies[modern] = bodies[not modern]  # mostly the same in both eras: held once
        return body

    def uses_headers(self, card: ToolCard) -> bool:
        """Whether some of the tool's arguments go into headers, too (`x-mcp-header`)."""
        entry = self._get_entry(card)
        if entry.headers is None:
            entry.headers = may_name_headers(encode_json(card.definition.get("inputSchema")))
        return entry.headers

    def _get_entry(self, card: ToolCard) -> _EncodedDefinition:
        kept = self._kept.get(card.key)
        if kept is None or not _is_same_definition(kept.card, card):
            kept = self._kept[card.key] = _EncodedDefinition(card)
        return kept

    def keep_only(self, keys: frozenset[str]) -> None:
        """Drop what is kept of tools that are gone."""
        for key in self._kept.keys() - keys:
            del self._kept[key]


def _is_same_definition(before: ToolCard, now: ToolCard) -> bool:
    return before is now or (
        before.definition is now.definition
        and before.exposed_name == now.exposed_name
        and before.description == now.description
    )

"""Definitions, listings and catalogs for the tests, built from plain records."""

from __future__ import annotations

from collections.abc import Sequence

from fingerpost.catalog import Catalog
from fingerpost.events import MemorySink
from fingerpost.records import Json, JsonObject, Listing, ToolCard
from fingerpost.settings.model import FlagSettings, ToolOverride


def tool(name: str, description: str = "Look at a thing", **parts: Json) -> dict[str, Json]:
    """A definition as a server sends it."""
    schema: dict[str, Json] = {"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]}
    return {"name": name, "description": description, "inputSchema": schema, **parts}


def create_listing(server: str, *definitions: JsonObject) -> Listing:
    return Listing(server=server, definitions=definitions)


def many(count: int) -> tuple[JsonObject, ...]:
    return tuple(tool(f"get_thing_{number:05}", f"Look at thing number {number}") for number in range(count))


def catalog(
    *listings: Listing,
    overrides: Sequence[ToolOverride] = (),
    flags: FlagSettings | None = None,
    events: MemorySink | None = None,
) -> Catalog:
    """A catalog that has taken these listings, in this order. Definitions are not scanned, whatever they say,
    unless `flags` say so.
    """
    flags = flags or FlagSettings(scan_definitions=False)
    made = Catalog(events=events or MemorySink(), overrides=overrides, flags=flags)
    for item in listings:
        made.replace_server(item)
    return made


def card(definition: JsonObject, *, server: str = "shop", overrides: Sequence[ToolOverride] = ()) -> ToolCard:
    """The one card of a catalog with this one tool."""
    (only,) = catalog(create_listing(server, definition), overrides=overrides).snapshot.cards
    return only

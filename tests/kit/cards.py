"""Cards for tests, made as the catalog makes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fingerpost.catalog import Catalog, Snapshot
from fingerpost.events import MemorySink
from fingerpost.records import Listing, ToolCard
from fingerpost.settings.model import FlagSettings


def snapshot(**servers: list[Mapping[str, Any]]) -> Snapshot:
    """A snapshot of these servers with these tool definitions."""
    catalog = Catalog(events=MemorySink(), flags=FlagSettings(scan_definitions=False))
    for server, definitions in servers.items():
        complete = tuple({"inputSchema": {"type": "object"}, **definition} for definition in definitions)
        catalog.replace_server(Listing(server=server, definitions=complete))
    return catalog.snapshot


def card(name: str = "tool", schema: Mapping[str, Any] | None = None, **more: Any) -> ToolCard:
    """One card of a server named `s`."""
    definition = {"name": name, "inputSchema": schema or {"type": "object"}, **more}
    return snapshot(s=[definition]).cards[0]

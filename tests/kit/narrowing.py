"""Catalogs and narrowers for tests, made of the real parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fingerpost.catalog import Catalog, Snapshot
from fingerpost.events import MemorySink
from fingerpost.narrow.components import build_default_components
from fingerpost.narrow.narrower import Narrower
from fingerpost.narrow.request import NarrowRequest
from fingerpost.records import Candidate, JsonObject, Listing, Narrowing
from fingerpost.settings import Settings


def tool(name: str, description: str = "", *required: str, **more: Any) -> JsonObject:
    properties = {parameter: {"type": "string"} for parameter in required}
    schema = {"type": "object", "properties": properties, "required": list(required)}
    return {"name": name, "description": description, "inputSchema": schema, **more}


def snapshot_of(servers: Mapping[str, Sequence[JsonObject]], settings: Settings | None = None) -> Snapshot:
    """These tools, as the catalog gives them out."""
    chosen = settings or Settings()
    catalog = Catalog(events=MemorySink(), overrides=chosen.tools, flags=chosen.flags)
    for server, definitions in servers.items():
        catalog.replace_server(Listing(server=server, definitions=tuple(definitions)))
    return catalog.snapshot


def settings_of(*, dense: bool = False, **sections: Any) -> Settings:
    """Settings by section; words alone unless the test is about meaning, which has to be loaded."""
    flags = {"dense_scores": dense, **sections.pop("flags", {})}
    return Settings.model_validate({"flags": flags, **sections})


def narrower_of(servers: Mapping[str, Sequence[JsonObject]], settings: Settings | None = None) -> Narrower:
    """A narrower that has seen these tools."""
    chosen = settings or settings_of()
    made = Narrower(chosen, parts=build_default_components(chosen))
    made.prepare(snapshot_of(servers, chosen))
    return made


def narrow(
    text: str,
    tools: Mapping[str, Sequence[JsonObject]],
    settings: Settings | None = None,
    **circumstances: Any,
) -> Narrowing:
    """What comes of one request over these tools."""
    return narrower_of(tools, settings).narrow(NarrowRequest(text=text, **circumstances))


def list_offered(narrowing: Narrowing) -> list[str]:
    return [candidate.tool for candidate in narrowing.shortlist.offered]


def candidate(narrowing: Narrowing, tool: str) -> Candidate:
    return next(one for one in narrowing.shortlist.candidates if one.tool == tool)

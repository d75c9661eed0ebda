"""Tools made of nothing but a schema, for the tests of arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fingerpost.records import ToolCard
from tests.kit.catalogs import card, tool

TEXT: dict[str, Any] = {"type": "string"}
WHOLE: dict[str, Any] = {"type": "integer"}
NUMBER: dict[str, Any] = {"type": "number"}
FLAG: dict[str, Any] = {"type": "boolean"}


def takes(
    properties: Mapping[str, Any] | None = None,
    *,
    required: list[str] | None = None,
    name: str = "act",
    server: str = "shop",
    defs: Mapping[str, Any] | None = None,
    **schema: Any,
) -> ToolCard:
    """A tool with these parameters, all of them required unless said otherwise."""
    known = dict(properties or {})
    must = list(known) if required is None else required
    whole = {"type": "object", "properties": known, "required": must, "$defs": dict(defs or {}), **schema}
    return card(tool(name, "Does a thing", inputSchema=whole), server=server)


def with_schema(schema: Mapping[str, Any], *, name: str = "act") -> ToolCard:
    return card(tool(name, "Does a thing", inputSchema=dict(schema)))

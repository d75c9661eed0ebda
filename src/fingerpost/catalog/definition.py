"""A tool as models are given it: the OpenAI function format, made from its card and nothing else.

The same card always gives the same bytes. The schema goes out as its server wrote
it; only what the format does not allow (parameters that are no object) is put right.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from fingerpost.catalog.names import visible
from fingerpost.records import Json, JsonObject, ToolCard

LONGEST_DESCRIPTION: Final = 4000  # characters: what a tool is about stands at the beginning
_KEPT: Final = "\n\t\r\\"


def definition_for_model(card: ToolCard) -> JsonObject:
    """The tool as a model is given it, in the OpenAI format."""
    return function_format(card.exposed_name, card.description, card.definition.get("inputSchema"))


def function_format(name: str, description: str, schema: Json) -> JsonObject:
    """Any tool in the OpenAI format. Characters nobody can see are written out in its description."""
    function: JsonObject = {
        "name": name,
        "description": _bounded(description),
        "parameters": _parameters(schema),
    }
    return {"type": "function", "function": function}


def _bounded(description: str) -> str:
    shown = visible(description[: LONGEST_DESCRIPTION + 1], keep=_KEPT)
    return shown if len(shown) <= LONGEST_DESCRIPTION else shown[: LONGEST_DESCRIPTION - 1].rstrip() + "…"


def _parameters(schema: Json) -> JsonObject:
    if not isinstance(schema, Mapping) or not schema:
        return {"type": "object", "properties": {}}
    kind = schema.get("type")
    if kind == "object":
        return schema
    if kind is None or (isinstance(kind, list | tuple) and "object" in kind):
        return {**schema, "type": "object"}
    return {"type": "object", "properties": {}}

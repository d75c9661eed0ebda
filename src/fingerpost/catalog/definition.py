"""A tool as models are given it: the OpenAI function format, made from its card and nothing else.

The same card always gives the same bytes. The schema goes out as its server wrote
it, with unseen characters in its words written out; only what the format does not
allow (parameters that are no object) is put right.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from fingerpost.catalog.names import escape_invisible
from fingerpost.records import Json, JsonObject, ToolCard

MAX_DESCRIPTION_LENGTH: Final = 4000  # characters: what a tool is about stands at the beginning
_TEXT_KEYWORDS: Final = frozenset({"description", "title", "$comment"})
_NAMED_SCHEMA_KEYWORDS: Final = frozenset(
    {"properties", "patternProperties", "dependentSchemas", "$defs", "definitions"}
)


def build_model_definition(card: ToolCard) -> JsonObject:
    """The tool as a model is given it, in the OpenAI format."""
    return build_function(card.exposed_name, card.description, card.definition.get("inputSchema"))


def build_function(name: str, description: str, schema: Json) -> JsonObject:
    """Any tool in the OpenAI format. Characters nobody can see are written out in its description."""
    function: JsonObject = {
        "name": name,
        "description": _bound_description(description),
        "parameters": _build_parameters(schema),
    }
    return {"type": "function", "function": function}


def make_text_visible(part: Json, *, named: bool = False) -> Json:
    """A definition or a schema whose words for people and models hide nothing: all else stays as it is.

    `named`: the keys of this part are names (of parameters), not words of the schema language.
    """
    if isinstance(part, Mapping):
        made: dict[str, Json] = {
            key: escape_invisible(value)
            if isinstance(value, str) and key in _TEXT_KEYWORDS and not named
            else make_text_visible(value, named=key in _NAMED_SCHEMA_KEYWORDS and not named)
            for key, value in part.items()
        }
        return part if all(made[key] is part[key] for key in part) else made
    if isinstance(part, list | tuple):
        items = [make_text_visible(item) for item in part]
        return part if all(one is other for one, other in zip(items, part, strict=True)) else items
    return part


def _bound_description(description: str) -> str:
    told = escape_invisible(description[: MAX_DESCRIPTION_LENGTH + 1])
    return told if len(told) <= MAX_DESCRIPTION_LENGTH else told[: MAX_DESCRIPTION_LENGTH - 1].rstrip() + "…"


def _build_parameters(schema: Json) -> JsonObject:
    if not isinstance(schema, Mapping) or not schema:
        return {"type": "object", "properties": {}}
    words = make_text_visible(schema)
    schema = words if isinstance(words, Mapping) else schema
    kind = schema.get("type")
    if kind == "object":
        return schema
    if kind is None or (isinstance(kind, list | tuple) and "object" in kind):
        return {**schema, "type": "object"}
    return {"type": "object", "properties": {}}

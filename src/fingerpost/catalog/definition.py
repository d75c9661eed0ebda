"""A tool as models are given it: the OpenAI function format, made from its card and nothing else.

The same card always gives the same bytes. The schema goes out as its server wrote
it, with unseen characters in its words written out; only what the format does not
allow (parameters that are no object) is put right.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from fingerpost.catalog.names import shown
from fingerpost.records import Json, JsonObject, ToolCard

LONGEST_DESCRIPTION: Final = 4000  # characters: what a tool is about stands at the beginning
_WORDS: Final = frozenset({"description", "title", "$comment"})
_NAMED: Final = frozenset({"properties", "patternProperties", "dependentSchemas", "$defs", "definitions"})


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


def shown_words(part: Json, *, named: bool = False) -> Json:
    """A definition or a schema whose words for people and models hide nothing: all else stays as it is.

    `named`: the keys of this part are names (of parameters), not words of the schema language.
    """
    if isinstance(part, Mapping):
        made: dict[str, Json] = {
            key: shown(value)
            if isinstance(value, str) and key in _WORDS and not named
            else shown_words(value, named=key in _NAMED and not named)
            for key, value in part.items()
        }
        return part if all(made[key] is part[key] for key in part) else made
    if isinstance(part, list | tuple):
        items = [shown_words(item) for item in part]
        return part if all(one is other for one, other in zip(items, part, strict=True)) else items
    return part


def _bounded(description: str) -> str:
    told = shown(description[: LONGEST_DESCRIPTION + 1])
    return told if len(told) <= LONGEST_DESCRIPTION else told[: LONGEST_DESCRIPTION - 1].rstrip() + "…"


def _parameters(schema: Json) -> JsonObject:
    if not isinstance(schema, Mapping) or not schema:
        return {"type": "object", "properties": {}}
    words = shown_words(schema)
    schema = words if isinstance(words, Mapping) else schema
    kind = schema.get("type")
    if kind == "object":
        return schema
    if kind is None or (isinstance(kind, list | tuple) and "object" in kind):
        return {**schema, "type": "object"}
    return {"type": "object", "properties": {}}

"""What a model is given to choose from: definitions, in an order and in bytes that stay the same."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import cast

from fingerpost.catalog.definition import build_model_definition
from fingerpost.choose.offer import order_cards
from fingerpost.records import JsonObject, ToolCard


def build_definitions(
    cards: Iterable[ToolCard], *, order: Sequence[str] = (), usage: Mapping[str, str] = MappingProxyType({})
) -> tuple[JsonObject, ...]:
    """The tools in the OpenAI format, by key unless `order` says otherwise (see `stable_offer`).

    `use`: what to say of a tool behind its description, by key (`describe_use`).
    """
    return tuple(_append_usage(card, usage.get(card.key, "")) for card in order_cards(cards, order))


def _append_usage(card: ToolCard, usage: str) -> JsonObject:
    definition = build_model_definition(card)
    if not usage:
        return definition
    function = _get_function(definition)
    described = f"{function['description']}\n\n{usage}".strip()
    return {**definition, "function": {**function, "description": described}}


def format_definitions(offered: Iterable[JsonObject]) -> str:
    """The same definitions as text, one to a line, for a model that takes none in its request."""
    return "\n".join(dump_stable_json(_get_function(definition)) for definition in offered)


def get_tool_names(offered: Iterable[JsonObject]) -> tuple[str, ...]:
    """What the offered tools are called."""
    found = (_get_function(definition).get("name") for definition in offered)
    return tuple(name for name in found if isinstance(name, str))


def dump_stable_json(value: object) -> str:
    """JSON in one line, the same bytes for the same value."""
    return json.dumps(value, ensure_ascii=False, default=dict)


def _get_function(definition: JsonObject) -> JsonObject:
    function = definition.get("function")
    return cast("JsonObject", function) if isinstance(function, Mapping) else {}

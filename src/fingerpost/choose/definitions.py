"""What a model is given to choose from: definitions, in an order and in bytes that stay the same."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import cast

from fingerpost.catalog.definition import definition_for_model
from fingerpost.choose.offer import arranged
from fingerpost.records import JsonObject, ToolCard


def definitions(
    cards: Iterable[ToolCard], *, order: Sequence[str] = (), use: Mapping[str, str] = MappingProxyType({})
) -> tuple[JsonObject, ...]:
    """The tools in the OpenAI format, by key unless `order` says otherwise (see `stable_offer`).

    `use`: what to say of a tool behind its description, by key (`describe_use`).
    """
    return tuple(_with_use(card, use.get(card.key, "")) for card in arranged(cards, order))


def _with_use(card: ToolCard, use: str) -> JsonObject:
    definition = definition_for_model(card)
    if not use:
        return definition
    function = _function(definition)
    described = f"{function['description']}\n\n{use}".strip()
    return {**definition, "function": {**function, "description": described}}


def listed(offered: Iterable[JsonObject]) -> str:
    """The same definitions as text, one to a line, for a model that takes none in its request."""
    return "\n".join(written(_function(definition)) for definition in offered)


def names(offered: Iterable[JsonObject]) -> tuple[str, ...]:
    """What the offered tools are called."""
    found = (_function(definition).get("name") for definition in offered)
    return tuple(name for name in found if isinstance(name, str))


def written(value: object) -> str:
    """JSON in one line, the same bytes for the same value."""
    return json.dumps(value, ensure_ascii=False, default=dict)


def _function(definition: JsonObject) -> JsonObject:
    function = definition.get("function")
    return cast("JsonObject", function) if isinstance(function, Mapping) else {}

"""The tools offered to a model: their order, their definitions, and the lookup of the names it writes."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, cast

from fingerpost.catalog import Snapshot, escape_invisible_except, get_list_place
from fingerpost.catalog.cards import build_model_definition
from fingerpost.catalog.name_resolver import NameMatch, find_reading, list_readings
from fingerpost.catalog.tool_names import FIND_TOOLS
from fingerpost.records import JsonObject, ToolCall, ToolCard
from fingerpost.redaction import scrub

# Lets a model ask for other tools when none of the offered ones fits. In the OpenAI format.
FIND_TOOLS_DEFINITION: Final[JsonObject] = {
    "type": "function",
    "function": {
        "name": FIND_TOOLS,
        "description": (
            "See other tools, once, where none of the offered ones can do what the request needs. Not needed "
            "for what you can answer yourself."
        ),
        "parameters": {
            "type": "object",
            "properties": {
                "request": {"type": "string", "description": "What is to be done, in plain words"}
            },
            "additionalProperties": False,
        },
    },
}


def order_offered_keys(
    previous: Sequence[str], current: Iterable[str], limit: int, ranked: Sequence[str] = ()
) -> tuple[str, ...]:
    """Return the keys to offer: earlier keys of the conversation in their positions, then the new ones.

    All of `current` are offered, even above `limit`. Other keys stay while `limit` allows, in the order of
    `ranked` (keys, best first).
    """
    wanted = set(current)
    places = {key: place for place, key in enumerate(ranked)}
    others = [key for key in previous if key not in wanted]
    others.sort(key=lambda key: places.get(key, len(places)))
    stay = wanted.union(others[: max(0, limit - len(wanted))])
    kept = (key for key in previous if key in stay)
    return (*kept, *sorted(wanted.difference(previous), key=get_list_place))


def order_cards(cards: Iterable[ToolCard], order: Sequence[str] = ()) -> tuple[ToolCard, ...]:
    """Return each card once: first those in `order` (keys) in that order, then the others in list order."""
    positions = {key: position for position, key in enumerate(order)}
    unique = {card.key: card for card in cards}

    def position(card: ToolCard) -> tuple[int, tuple[int, str]]:
        return positions.get(card.key, len(positions)), get_list_place(card.key)

    return tuple(sorted(unique.values(), key=position))


def build_definitions(
    cards: Iterable[ToolCard], *, order: Sequence[str] = (), usage: Mapping[str, str] = MappingProxyType({})
) -> tuple[JsonObject, ...]:
    """Build the definitions in the OpenAI format: those in `order` (see `order_offered_keys`), then the rest.

    `usage` is text to append to each description, by key (see `describe_tool_usage`).
    """
    return tuple(_build_definition(card, usage.get(card.key, "")) for card in order_cards(cards, order))


def _build_definition(card: ToolCard, usage: str) -> JsonObject:
    definition = build_model_definition(card)
    if not usage:
        return definition
    function = _get_function(definition)
    described = f"{function['description']}\n\n{usage}".strip()
    return {**definition, "function": {**function, "description": described}}


def format_definitions(offered: Iterable[JsonObject]) -> str:
    """Return the definitions as text, one per line, for a model without tool support."""
    return "\n".join(dump_stable_json(_get_function(definition)) for definition in offered)


def get_tool_names(offered: Iterable[JsonObject]) -> tuple[str, ...]:
    """Return the names of the offered tools."""
    found = (_get_function(definition).get("name") for definition in offered)
    return tuple(name for name in found if isinstance(name, str))


def dump_stable_json(value: object) -> str:
    """Return JSON on one line. The same value gives the same bytes."""
    return json.dumps(value, ensure_ascii=False, default=dict)


def _get_function(definition: JsonObject) -> JsonObject:
    function = definition.get("function")
    return cast("JsonObject", function) if isinstance(function, Mapping) else {}


_MAX_SUGGESTED_NAMES: Final = 8
_NO_TOOL_NAMES: Final = frozenset({"", "none", "null", "nil", "no tool", "no_tool", "nothing", "n/a", "-"})


class OfferedTools:
    """The offered tools, with a lookup by the name a model wrote."""

    def __init__(self, cards: Iterable[ToolCard]) -> None:
        self._snapshot = Snapshot(cards=tuple(cards))

    @property
    def cards(self) -> tuple[ToolCard, ...]:
        """The cards sorted by key, so that the order is stable."""
        return self._snapshot.cards

    def find(self, name: str) -> ToolCard | None:
        """Return the tool with exactly this name."""
        return self._snapshot.find(name)

    def resolve(self, name: str) -> NameMatch:
        """Return the tools that a name may mean."""
        return self._snapshot.resolve(name)

    def is_no_tool(self, name: str) -> bool:
        """Return whether the name means that no tool is needed."""
        bare = next(list_readings(name), None)
        return bare is not None and bare.casefold() in _NO_TOOL_NAMES and not self.resolve(name).cards

    def describe_unresolved(self, name: str) -> str:
        """Describe a name that means no single tool, for the model, with the tools it may mean."""
        shown = scrub(escape_invisible_except(name[:80])) + ("…" if len(name) > 80 else "")
        match = self.resolve(name)
        if match.is_ambiguous:
            return f'"{shown}" may mean {_format_names(match.cards)}: write one of these names'
        near = [card for key in self._snapshot.near(name) if (card := self._snapshot.get(key)) is not None]
        if name and near:
            return f'no tool called "{shown}" was offered; near is {_format_names(near)}'
        return f'no tool called "{shown}" was offered; there is {_format_names(self.cards) or "none"}'


def _format_names(cards: Sequence[ToolCard]) -> str:
    return ", ".join(card.exposed_name for card in cards[:_MAX_SUGGESTED_NAMES])


def resolve_call(
    call: ToolCall, cards: Sequence[ToolCard], *, own_names: Collection[str] = ()
) -> ToolCall | str:
    """Return the call with the key of the offered tool, or an error text if no tool matches.

    `own_names` are Fingerpost's own tools, which have no card.
    """
    offered = OfferedTools(cards)
    if call.name in own_names or offered.find(call.name) is None:
        own = find_reading(call.name, own_names)
        if own is not None:
            return ToolCall(name=own, arguments=call.arguments, reference=call.reference)
    match = offered.resolve(call.name)
    if match.card is None:
        return offered.describe_unresolved(call.name)
    arguments = match.add_operation(call.arguments)
    return ToolCall(name=match.card.key, arguments=arguments, reference=call.reference)

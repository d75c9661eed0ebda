"""The tools offered to a model: their order, their definitions, and the lookup of the names it writes."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, cast

from fingerpost.catalog import Snapshot, escape_invisible_except, get_list_place
from fingerpost.catalog.cards import build_model_definition
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
    others = sorted(
        (key for key in previous if key not in wanted), key=lambda key: places.get(key, len(places))
    )
    stay = wanted.union(others[: max(0, limit - len(wanted))])
    return (
        *(key for key in previous if key in stay),
        *sorted(wanted.difference(previous), key=get_list_place),
    )


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
    """Build the definitions in the OpenAI format: first those in `order` (see `order_offered_keys`), then the
    others in list order.

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


MAX_OFFERED_NAME_LENGTH: Final = 200
_MAX_SUGGESTED_NAMES: Final = 8
# Some models write the namespace of their prompt before the name.
_OFFERED_PREFIX: Final = re.compile(r"\A(?:functions?|tools?|mcp)(?:\.|__|/|:)", re.IGNORECASE)
_NAME_QUOTES: Final = " \t\r\n`'\"“”*"
_NO_TOOL_NAMES: Final = frozenset({"", "none", "null", "nil", "no tool", "no_tool", "nothing", "n/a", "-"})


class OfferedTools:
    """The offered tools, with a lookup by the name a model wrote."""

    def __init__(self, cards: Iterable[ToolCard]) -> None:
        self._snapshot = Snapshot(cards=tuple(cards))
        self._keys_by_folded_name: dict[str, set[str]] = {}
        for card in self.cards:
            for form in (card.key, card.exposed_name, card.name):
                self._keys_by_folded_name.setdefault(_fold_tool_name(form), set()).add(card.key)

    @property
    def cards(self) -> tuple[ToolCard, ...]:
        """The cards sorted by key, so that the order is stable."""
        return self._snapshot.cards

    def find(self, name: str) -> ToolCard | None:
        """Return the tool with this name, also in a similar spelling, or None if there is not exactly one."""
        if len(name) > MAX_OFFERED_NAME_LENGTH:
            return None
        bare = name.strip(_NAME_QUOTES)
        for written in dict.fromkeys((name, bare, _OFFERED_PREFIX.sub("", bare))):
            found = self._snapshot.find(written) or self._find_similar(written)
            if found is not None:
                return found
        return None

    def _find_similar(self, name: str) -> ToolCard | None:
        plain = _fold_tool_name(name)
        alike = self._keys_by_folded_name.get(plain, ()) if plain else ()
        return self._snapshot.get(next(iter(alike))) if len(alike) == 1 else None

    def is_no_tool(self, name: str) -> bool:
        """Return whether the name means that no tool is needed."""
        return name[:MAX_OFFERED_NAME_LENGTH].strip(_NAME_QUOTES).casefold() in _NO_TOOL_NAMES

    def describe_unknown(self, name: str) -> str:
        """Describe an unknown name for the model, with the nearest offered names."""
        shown = scrub(escape_invisible_except(name[:80])) + ("…" if len(name) > 80 else "")
        near = [self._snapshot.get(key) for key in self._snapshot.near(name)] if name else []
        names = [card.exposed_name for card in near if card is not None]
        listed = names or [card.exposed_name for card in self.cards[:_MAX_SUGGESTED_NAMES]]
        which = f"near is {', '.join(listed)}" if names else f"there is {', '.join(listed) or 'none'}"
        return f'no tool called "{shown}" was offered; {which}'


def _fold_tool_name(name: str) -> str:
    folded = unicodedata.normalize("NFKC", name[:MAX_OFFERED_NAME_LENGTH]).casefold()
    return "".join(character for character in folded if character.isalnum())


_CALL_PREFIX = re.compile(r"\A(?:functions?|tools?|mcp)(?:\.|__|/|:)", re.IGNORECASE)
_OPERATION_SEPARATORS: Final = (".", "/", "::", ":")


def remove_name_prefix(name: str) -> str:
    """Remove a namespace that some models write before the name."""
    return _CALL_PREFIX.sub("", name.strip())


def resolve_call(
    call: ToolCall, cards: Sequence[ToolCard], *, own_names: Collection[str] = ()
) -> ToolCall | str:
    """Return the call with the key of the offered tool, or an error text if no tool matches.

    `own_names` are Fingerpost's own tools, which have no card.
    """
    offered = OfferedTools(cards)
    name = call.name.strip()[: MAX_OFFERED_NAME_LENGTH + 1]
    plain = _CALL_PREFIX.sub("", name)
    for written in dict.fromkeys((name, plain)):
        if written in own_names:
            return ToolCall(name=written, arguments=call.arguments, reference=call.reference)
        if (key := _find_key(written, offered)) is not None:
            return ToolCall(name=key, arguments=call.arguments, reference=call.reference)
    return offered.describe_unknown(plain)


def _find_key(name: str, offered: OfferedTools) -> str | None:
    """Return the tool's key, with the operation appended if the name contains one, or None."""
    if (card := offered.find(name)) is not None:
        return card.key
    for separator in _OPERATION_SEPARATORS:
        base, _, operation = name.rpartition(separator)
        card = offered.find(base) if base and operation else None
        if card is not None and _has_operation_parameter(card):
            return f"{card.key}.{operation}"
    return None


def _has_operation_parameter(card: ToolCard) -> bool:
    schema = card.definition.get("inputSchema")
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    return isinstance(properties, Mapping) and "operation" in properties

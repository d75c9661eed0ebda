"""The tools offered to a model: order, definitions, and resolving the names it writes."""

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

# For a model that can take none of the tools it is offered, in the OpenAI format.
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
    previous: Sequence[str], now: Iterable[str], limit: int, ranked: Sequence[str] = ()
) -> tuple[str, ...]:
    """The keys to offer: those of the conversation so far in their places, then what is new.

    All of `now` is offered, however many that are. Of the others as many stay as `limit` leaves room for,
    first those that stand first in `ranked` (keys, best first).
    """
    wanted = set(now)
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
    """Each card once: those in `order` (keys) as they stand there, then the others as in every list."""
    places = {key: place for place, key in enumerate(order)}
    unique = {card.key: card for card in cards}

    def place(card: ToolCard) -> tuple[int, tuple[int, str]]:
        return places.get(card.key, len(places)), get_list_place(card.key)

    return tuple(sorted(unique.values(), key=place))


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


MAX_OFFERED_NAME_LENGTH: Final = 200
_MAX_SUGGESTED_NAMES: Final = 8
# Some models put the name space of their own prompt before the name.
_OFFERED_PREFIX: Final = re.compile(r"\A(?:functions?|tools?|mcp)(?:\.|__|/|:)", re.IGNORECASE)
_NAME_QUOTES: Final = " \t\r\n`'\"“”*"
_NO_TOOL_NAMES: Final = frozenset({"", "none", "null", "nil", "no tool", "no_tool", "nothing", "n/a", "-"})


class OfferedTools:
    """Finds the tool a name means among those offered."""

    def __init__(self, cards: Iterable[ToolCard]) -> None:
        self._snapshot = Snapshot(cards=tuple(cards))
        self._plain: dict[str, set[str]] = {}
        for card in self.cards:
            for form in (card.key, card.exposed_name, card.name):
                self._plain.setdefault(_fold_tool_name(form), set()).add(card.key)

    @property
    def cards(self) -> tuple[ToolCard, ...]:
        """Sorted by key: the same tools are always told in the same order."""
        return self._snapshot.cards

    def find(self, name: str) -> ToolCard | None:
        """The one tool that is meant, or None."""
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
        alike = self._plain.get(plain, ()) if plain else ()
        return self._snapshot.get(next(iter(alike))) if len(alike) == 1 else None

    def is_no_tool(self, name: str) -> bool:
        """Whether this says that no tool is wanted."""
        return name[:MAX_OFFERED_NAME_LENGTH].strip(_NAME_QUOTES).casefold() in _NO_TOOL_NAMES

    def describe_unknown(self, name: str) -> str:
        """What is wrong with a name that means no tool, and which ones are near."""
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
    """The name without what some models put before it."""
    return _CALL_PREFIX.sub("", name.strip())


def resolve_call(
    call: ToolCall, cards: Sequence[ToolCard], *, own_names: Collection[str] = ()
) -> ToolCall | str:
    """The call under the key of the offered tool it means; a text says that none is.

    `own` are names that need no card: tools of Fingerpost itself.
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


def _find_key(name: str, index: OfferedTools) -> str | None:
    """The key; with the operation behind it, as the call path reads it, where the name carries one."""
    if (card := index.find(name)) is not None:
        return card.key
    for separator in _OPERATION_SEPARATORS:
        base, _, operation = name.rpartition(separator)
        card = index.find(base) if base and operation else None
        if card is not None and _has_operation_parameter(card):
            return f"{card.key}.{operation}"
    return None


def _has_operation_parameter(card: ToolCard) -> bool:
    schema = card.definition.get("inputSchema")
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    return isinstance(properties, Mapping) and "operation" in properties

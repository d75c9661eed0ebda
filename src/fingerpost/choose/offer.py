"""In which order tools are offered, so that a prompt begins as the one before it began.

Providers know a prompt again by its beginning, and the tools stand there. A request
that needs another tool would move all of them; so a conversation keeps the tools it
has been offered where they are and gets new ones at the end; where there are too many,
those that suit the request least are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from fingerpost.catalog import get_list_place
from fingerpost.catalog.names import FIND_TOOLS
from fingerpost.records import JsonObject, ToolCard

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

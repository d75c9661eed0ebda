"""Which tools a conversation has been offered, so that the next turn's prompt begins like the last.

Several callers may write in one conversation, and one under several profiles: each is offered their own,
as what one of them may use may be hidden from another.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from fingerpost.records import Scope
from fingerpost.router.wanted import RouteOptions

MAX_KEPT_OFFERS: Final = 500  # conversations

OfferKey = tuple[str, str | None, str | None, tuple[Scope, ...]]  # conversation, caller, profile, bounds


class OfferedToolsCache:
    """The latest offer of each caller in each conversation, the least recently used forgotten first."""

    def __init__(self) -> None:
        self._offers: OrderedDict[OfferKey, tuple[str, ...]] = OrderedDict()

    def get_last(self, key: OfferKey | None) -> tuple[str, ...]:
        return () if key is None else self._offers.get(key, ())

    def keep(self, key: OfferKey | None, tools: tuple[str, ...]) -> None:
        if key is None:
            return
        self._offers[key] = tools
        self._offers.move_to_end(key)
        while len(self._offers) > MAX_KEPT_OFFERS:
            self._offers.popitem(last=False)


def build_offer_key(options: RouteOptions) -> OfferKey | None:
    """By which an offer is known again; None: the request belongs to no conversation."""
    conversation = options.get("conversation")
    if conversation is None:
        return None
    return (conversation, options.get("caller"), options.get("profile"), options.get("scopes", ()))

"""Which tools a conversation has been offered, so that the next turn's prompt begins like the last."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

KEPT: Final = 500  # conversations


class Offers:
    """The latest offer of each conversation, the least recently used forgotten first."""

    def __init__(self) -> None:
        self._offers: OrderedDict[str, tuple[str, ...]] = OrderedDict()

    def last(self, conversation: str | None) -> tuple[str, ...]:
        return () if conversation is None else self._offers.get(conversation, ())

    def keep(self, conversation: str | None, tools: tuple[str, ...]) -> None:
        if conversation is None:
            return
        self._offers[conversation] = tools
        self._offers.move_to_end(conversation)
        while len(self._offers) > KEPT:
            self._offers.popitem(last=False)

"""No two tools under one name, where tools keep the names their servers gave them.

A tool with its server's name before it never changes its name. Of tools without,
the first by key keeps its own and the others get their server's name before it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from fingerpost.catalog.names import build_free_name
from fingerpost.records import ToolCard


def make_names_unique(cards: Sequence[ToolCard], unprefixed: Collection[str]) -> list[ToolCard]:
    """These cards, each under an exposed name of its own. They are given, and come back, by key."""
    if not unprefixed:
        return list(cards)
    taken = {card.exposed_name for card in cards if card.server not in unprefixed}
    named: list[ToolCard] = []
    for card in cards:
        if card.server in unprefixed:
            name = build_free_name(card.server, card.name, taken)
            card = card if name == card.exposed_name else replace(card, exposed_name=name)
            taken.add(name)
        named.append(card)
    return named

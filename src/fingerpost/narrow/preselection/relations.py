"""Servers whose kind of work is what the request is about."""

from __future__ import annotations

from collections import Counter
from typing import Final

from fingerpost.catalog import GENERAL, Snapshot
from fingerpost.records import Signals

CLEAR_INTENT_SCORE: Final = 0.5  # an intent one plain word speaks for has this much


def find_related_servers(snapshot: Snapshot, signals: Signals) -> frozenset[str]:
    """The servers most of whose tools belong to a category the request clearly speaks for."""
    wanted = {intent.category for intent in signals.intents if intent.score >= CLEAR_INTENT_SCORE} - {GENERAL}
    if not wanted:
        return frozenset()
    kinds: dict[str, Counter[str]] = {}
    for card in snapshot.cards:
        kinds.setdefault(card.server, Counter())[card.intelligence.category.value] += 1
    return frozenset(server for server, found in kinds.items() if found.most_common(1)[0][0] in wanted)

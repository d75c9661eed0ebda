"""What definitions cost a model that is given them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable

from fingerpost.catalog.definition import build_model_definition
from fingerpost.records import ToolCard

TokenCounter = Callable[[str], int]


def estimate_tokens(text: str) -> int:
    """About four characters to a token: good enough to compare two lists by."""
    return -(-len(text) // 4)


class DefinitionCosts:
    """Tokens by tool, each counted once for as long as its definition stays the same."""

    def __init__(self, count: TokenCounter = estimate_tokens) -> None:
        self._count = count
        self._known: dict[str, tuple[str, int]] = {}

    def count_total(self, cards: Iterable[ToolCard]) -> int:
        return sum(self._count_card(card) for card in cards)

    def _count_card(self, card: ToolCard) -> int:
        known = self._known.get(card.key)
        if known is not None and known[0] == card.fingerprint:
            return known[1]
        tokens = self._count(json.dumps(build_model_definition(card), ensure_ascii=False))
        self._known[card.key] = (card.fingerprint, tokens)
        return tokens

"""Immutable snapshots of the catalog, and the differences between them.

A request can finish with its snapshot while servers change. Cards are sorted by key, so that the same tools
always give the same list and a provider's prompt cache can match it.
"""

from __future__ import annotations

import difflib
import heapq
from collections.abc import Mapping
from dataclasses import field
from typing import Final

from fingerpost.frozen import frozen
from fingerpost.records import ToolCard

# These built-in tools come first in lists for models, in this order. All others follow by key.
FIRST_LISTED: Final = ("memory/think", "collaboration/user_collaboration", "workspace/file_operations")
_LIST_PLACES: Final = {key: place for place, key in enumerate(FIRST_LISTED)}

_MAX_QUERY_LENGTH = 256
_MAX_SHORTLISTED = 40


def get_list_place(key: str) -> tuple[int, str]:
    """Return the sort key of a tool in lists for models."""
    return _LIST_PLACES.get(key, len(_LIST_PLACES)), key


@frozen
class CatalogDiff:
    """Keys of added, removed and changed tools, sorted.

    Effects of other tools, such as a new fallback, do not count as a change.
    """

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.changed)


def compute_diff(before: Mapping[str, ToolCard], after: Mapping[str, ToolCard]) -> CatalogDiff:
    """Return the differences between two states."""
    return CatalogDiff(
        added=tuple(sorted(after.keys() - before.keys())),
        removed=tuple(sorted(before.keys() - after.keys())),
        changed=tuple(
            sorted(key for key in after.keys() & before.keys() if _has_changed(before[key], after[key]))
        ),
    )


def _has_changed(before: ToolCard, after: ToolCard) -> bool:
    return before is not after and before != after


@frozen
class Snapshot:
    """All tools that may be listed and called, sorted by key."""

    version: int = 0
    cards: tuple[ToolCard, ...] = ()
    _keys: dict[str, ToolCard] = field(init=False, repr=False, compare=False)
    _exposed: dict[str, ToolCard] = field(init=False, repr=False, compare=False)
    _names: dict[str, list[ToolCard]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        cards = tuple(sorted(self.cards, key=lambda card: card.key))
        names: dict[str, list[ToolCard]] = {}
        for card in cards:
            names.setdefault(card.name, []).append(card)
        object.__setattr__(self, "cards", cards)
        object.__setattr__(self, "_keys", {card.key: card for card in cards})
        object.__setattr__(self, "_exposed", {card.exposed_name: card for card in reversed(cards)})
        object.__setattr__(self, "_names", names)

    def get(self, key: str) -> ToolCard | None:
        return self._keys.get(key)

    def by_exposed_name(self, name: str) -> ToolCard | None:
        return self._exposed.get(name)

    def by_server(self, server: str) -> tuple[ToolCard, ...]:
        return tuple(card for card in self.cards if card.server == server)

    def find_by_name(self, name: str) -> tuple[ToolCard, ...]:
        """Return every tool that its server calls `name`."""
        return tuple(self._names.get(name, ()))

    def find(self, text: str) -> ToolCard | None:
        """Find a tool by key, by exposed name, or by its own name if that is unique."""
        card = self._keys.get(text) or self._exposed.get(text)
        if card is None and len(namesakes := self._names.get(text, ())) == 1:
            card = namesakes[0]
        return card

    def near(self, text: str, n: int = 3) -> tuple[str, ...]:
        """Return the keys most similar to `text`, best first, for "did you mean"."""
        wanted = text[:_MAX_QUERY_LENGTH].casefold()
        pairs = _get_letter_pairs(wanted)
        likely = heapq.nlargest(
            _MAX_SHORTLISTED, ((_compute_overlap(pairs, card), card.key) for card in self.cards)
        )
        keys = [key for score, key in likely if score > 0]
        ranked = sorted(keys, key=lambda key: (-self._compute_similarity(wanted, key), key))
        return tuple(ranked[:n])

    def _compute_similarity(self, wanted: str, key: str) -> float:
        card = self._keys[key]
        return max(
            difflib.SequenceMatcher(None, wanted, form.casefold()[:_MAX_QUERY_LENGTH]).ratio()
            for form in (card.name, card.key, card.exposed_name)
        )

    def search(self, query: str) -> tuple[ToolCard, ...]:
        """Return tools whose key or description contains every word of `query`. Matches in the key come
        first.
        """
        words = query[:_MAX_QUERY_LENGTH].casefold().split()
        in_key: list[ToolCard] = []
        elsewhere: list[ToolCard] = []
        for card in self.cards:
            key = card.key.casefold()
            if all(word in key for word in words):
                in_key.append(card)
            elif all(word in key or word in card.description.casefold() for word in words):
                elsewhere.append(card)
        return (*in_key, *elsewhere)


def _get_letter_pairs(text: str) -> set[str]:
    return {text[index : index + 2] for index in range(len(text) - 1)} or {text}


def _compute_overlap(wanted: set[str], card: ToolCard) -> float:
    """Return the share of common letter pairs, a cheap filter before the full comparison."""
    return max(
        2 * len(wanted & pairs) / (len(wanted) + len(pairs))
        for pairs in (
            _get_letter_pairs(card.name.casefold()[:_MAX_QUERY_LENGTH]),
            _get_letter_pairs(card.key.casefold()[:_MAX_QUERY_LENGTH]),
        )
    )

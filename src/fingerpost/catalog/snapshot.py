"""Immutable snapshots of the catalog, and the differences between them.

A request can finish with its snapshot while servers change. Cards are sorted by key, so that the same tools
always give the same list and a provider's prompt cache can match it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Final

from fingerpost.catalog.name_resolver import NameMatch, ToolNameResolver
from fingerpost.frozen import build_repr, frozen
from fingerpost.records import ToolCard

# These built-in tools come first in lists for models, in this order. All others follow by key.
FIRST_LISTED: Final = ("memory/think", "collaboration/user_collaboration", "workspace/file_operations")
_LIST_PLACES: Final = {key: place for place, key in enumerate(FIRST_LISTED)}

_MAX_QUERY_LENGTH = 256


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
    """All tools that may be listed and called, sorted by key.

    Fields:
        version: number of the snapshot
        cards: the tools, sorted by key
    """

    version: int = 0
    cards: tuple[ToolCard, ...] = ()
    _resolver: ToolNameResolver = field(init=False, repr=False, compare=False)

    __repr__ = build_repr("version", "cards#")

    def __post_init__(self) -> None:
        cards = tuple(sorted(self.cards, key=lambda card: card.key))
        object.__setattr__(self, "cards", cards)
        object.__setattr__(self, "_resolver", ToolNameResolver(cards))

    def get(self, key: str) -> ToolCard | None:
        return self._resolver.get(key)

    def by_exposed_name(self, name: str) -> ToolCard | None:
        return self._resolver.by_exposed_name(name)

    def by_server(self, server: str) -> tuple[ToolCard, ...]:
        return tuple(card for card in self.cards if card.server == server)

    def find(self, text: str) -> ToolCard | None:
        """Find a tool by key, by exposed name, or by its own name if that is unique."""
        return self._resolver.find(text)

    def resolve(self, written: str) -> NameMatch:
        """Return the tools that a name may mean as a model wrote it (see `ToolNameResolver`)."""
        return self._resolver.resolve(written)

    def near(self, text: str, n: int = 3) -> tuple[str, ...]:
        """Return the keys most similar to `text`, best first, for "did you mean"."""
        return self._resolver.near(text, n)

    def search(self, query: str) -> tuple[ToolCard, ...]:
        """Return tools with every word of `query` in key or description. Matches in the key come first."""
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

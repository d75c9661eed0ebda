"""Immutable snapshots of the catalog, the links between their tools (fallbacks, conflicts), and differences.

A request can finish with its snapshot while servers change. Cards are sorted by key, so that the same tools
always give the same list and a provider's prompt cache can match it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import Final

from fingerpost.catalog.name_resolver import NameMatch, ToolNameResolver
from fingerpost.catalog.words import classify, parse_word_set, split_words, to_singular
from fingerpost.frozen import build_repr, frozen
from fingerpost.records import Effect, Known, Source, ToolCard

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
    both = after.keys() & before.keys()
    changed = (key for key in both if before[key] is not after[key] and before[key] != after[key])
    return CatalogDiff(
        added=tuple(sorted(after.keys() - before.keys())),
        removed=tuple(sorted(before.keys() - after.keys())),
        changed=tuple(sorted(changed)),
    )


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


MAX_FALLBACKS: Final = 3
MAX_LINKS: Final = 16
_MAX_CANDIDATES: Final = 32

_INTERCHANGEABLE_CATEGORIES: Final = frozenset({"web_search", "web_page", "time_place"})
_FILLER_WORDS: Final = parse_word_set("get web internet online the current tool")
# Words in a server's name that still describe the purpose of its tools.
_PURPOSE_WORDS: Final = parse_word_set(
    "browser crawl date direction fetch forecast geocode map maps news page place research scrape search"
    " time timezone weather"
)
_ENVIRONMENT_WORDS: Final = parse_word_set(
    "prod production live staging stage stg preprod dev devel development test testing qa uat sandbox demo"
    " preview canary local backup mirror replica blue green tenant"
)

_MISSING_NOTE: Final = "; not there: "
_FallbackGroup = tuple[str, frozenset[str]]


def link_cards(cards: Sequence[ToolCard]) -> tuple[ToolCard, ...]:
    """Return the cards with fallbacks and conflicts resolved to existing tools."""
    groups = _group_cards(cards)
    known = (card.intelligence for card in cards)
    has_references = any(one.hierarchy.value or one.conflicts.value for one in known)
    resolver = ToolNameResolver(cards if has_references else ())
    return tuple(_link_card(card, groups, resolver) for card in cards)


def may_have_more_fallbacks(card: ToolCard) -> bool:
    """Return whether servers that are not connected yet may have fallbacks for this tool."""
    hierarchy = card.intelligence.hierarchy
    if hierarchy.source is Source.WRITTEN:
        return _MISSING_NOTE in hierarchy.reason
    return _get_group(card) is not None


def _link_card(
    card: ToolCard, groups: dict[_FallbackGroup, list[ToolCard]], resolver: ToolNameResolver
) -> ToolCard:
    known = card.intelligence
    if known.hierarchy.source is Source.WRITTEN:
        hierarchy = _resolve_names(known.hierarchy, card.key, resolver)
    else:
        hierarchy = _infer_fallbacks(card, groups) or known.hierarchy
    conflicts = _resolve_names(known.conflicts, card.key, resolver)
    if hierarchy is known.hierarchy and conflicts is known.conflicts:
        return card
    return replace(card, intelligence=replace(known, hierarchy=hierarchy, conflicts=conflicts))


def _resolve_names(
    written: Known[tuple[str, ...]], own: str, resolver: ToolNameResolver
) -> Known[tuple[str, ...]]:
    """Resolve written names to keys. Unknown names stay in the reason, so that a typo is visible."""
    if not written.value:
        return written
    keys: dict[str, None] = {}
    missing: list[str] = []
    for name in written.value:
        found = resolver.resolve(name)
        if not found.cards or found.operation:
            missing.append(name)
        else:
            keys.update(dict.fromkeys(card.key for card in found.cards[:MAX_LINKS] if card.key != own))
    reason = f"{written.reason}{_MISSING_NOTE}{', '.join(missing)}" if missing else written.reason
    return Known(tuple(keys)[:MAX_LINKS], written.source, reason)


def _group_cards(cards: Iterable[ToolCard]) -> dict[_FallbackGroup, list[ToolCard]]:
    """Group interchangeable tools by purpose: the best of each server, best first."""
    best: dict[_FallbackGroup, dict[str, ToolCard]] = {}
    for card in cards:
        if (group := _get_group(card)) is None:
            continue
        of_server = best.setdefault(group, {})
        rival = of_server.get(card.server)
        if rival is None or _get_rank(card) < _get_rank(rival):
            of_server[card.server] = card
    return {
        group: sorted(of_server.values(), key=_get_rank)[:_MAX_CANDIDATES]
        for group, of_server in best.items()
        if len(of_server) > 1
    }


def _get_rank(card: ToolCard) -> tuple[int, str]:
    return (-card.intelligence.priority.value, card.key)


def _get_group(card: ToolCard) -> _FallbackGroup | None:
    category = card.intelligence.category.value
    if category not in _INTERCHANGEABLE_CATEGORIES or card.effect.value is not Effect.READ:
        return None
    if not _ENVIRONMENT_WORDS.isdisjoint(split_words(card.server)) or not _has_own_category(card):
        return None
    # The brand is not a purpose: `tavily-search` of server `tavily` is a search.
    brand = set(split_words(card.server)) - _PURPOSE_WORDS
    named = frozenset(to_singular(word) for word in split_words(card.name) if word not in brand)
    purpose = named - _FILLER_WORDS
    return (category, purpose) if purpose else None


def _has_own_category(card: ToolCard) -> bool:
    """Return whether the category comes from the tool or a person, not only from the server's name."""
    category = card.intelligence.category
    if category.source is not Source.INFERRED:
        return True
    return classify("", card.name, card.description)[0] == category.value


def _infer_fallbacks(
    card: ToolCard, groups: dict[_FallbackGroup, list[ToolCard]]
) -> Known[tuple[str, ...]] | None:
    group = _get_group(card) if groups else None
    if group is None or group not in groups:
        return None
    own = card.intelligence.parameters
    taken = {*own.required, *own.optional}
    keys = tuple(
        other.key
        for other in groups[group]
        if other.server != card.server and taken.issuperset(other.intelligence.parameters.required)
    )
    if not keys:
        return None
    return Known(keys[:MAX_FALLBACKS], Source.INFERRED, "reads the same kind of thing on another server")

"""A snapshot as columns: one row per tool, so that a whole catalog is weighed with a few array operations.

Everything that depends on the tools alone is worked out here, once per version
of the catalog: which server a row belongs to, which rows are the same tool on
several servers, what a person wrote about priority, order and conflicts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fingerpost.catalog import Snapshot
from fingerpost.frozen import frozen
from fingerpost.records import LatencyTier, Source, ToolCard

Rows = NDArray[np.intp]
Scores = NDArray[np.float32]

_MIDDLE_PRIORITY: Final = 50
_SLOWNESS: Final = {
    LatencyTier.FAST: 0.0,
    LatencyTier.MEDIUM: 0.15,
    LatencyTier.SLOW: 0.5,
    LatencyTier.VERY_SLOW: 1.0,
}


@frozen
class Columns:
    """The tools of one snapshot, by row."""

    version: int
    cards: tuple[ToolCard, ...]
    rows: Mapping[str, int]  # by key
    servers: tuple[str, ...]
    server_of: Rows  # a row's server, as a position in `servers`
    by_server: Mapping[str, Rows]
    by_category: Mapping[str, Rows]
    priority: Scores  # -1..1; 0 where nobody said anything
    slowness: Scores  # 0..1
    twin_of: Rows  # rows with the same number are the same tool on several servers
    ranked_pairs: tuple[tuple[int, int], ...]  # (tool, the fallback a person wrote for it)
    conflicts: Mapping[int, frozenset[int]]
    exclusive: tuple[tuple[int, str], ...]  # tools that alone are offered for an intent
    spoken_for: tuple[tuple[int, frozenset[str], float], ...]  # words a person wrote for a tool, their weight

    @property
    def size(self) -> int:
        return len(self.cards)


def columns_of(snapshot: Snapshot) -> Columns:
    """The same tools, as columns."""
    cards = snapshot.cards
    rows = {card.key: row for row, card in enumerate(cards)}
    servers = tuple(dict.fromkeys(card.server for card in cards))
    place = {server: number for number, server in enumerate(servers)}
    return Columns(
        version=snapshot.version,
        cards=cards,
        rows=rows,
        servers=servers,
        server_of=np.fromiter((place[card.server] for card in cards), np.intp, len(cards)),
        by_server=_grouped((card.server, row) for row, card in enumerate(cards)),
        by_category=_grouped((card.intelligence.category.value, row) for row, card in enumerate(cards)),
        priority=np.fromiter((_priority(card) for card in cards), np.float32, len(cards)),
        slowness=np.fromiter(
            (_SLOWNESS[card.intelligence.latency.tier] for card in cards), np.float32, len(cards)
        ),
        twin_of=_twins(cards),
        ranked_pairs=tuple(_ranked_pairs(cards, rows)),
        conflicts=_conflicts(cards, rows),
        exclusive=tuple(
            (row, intent)
            for row, card in enumerate(cards)
            if (intent := card.intelligence.signals.exclusive_intent.value)
        ),
        spoken_for=tuple(_spoken_for(cards)),
    )


def _grouped(pairs: Iterable[tuple[str, int]]) -> dict[str, Rows]:
    found: dict[str, list[int]] = {}
    for name, row in pairs:
        found.setdefault(name, []).append(row)
    return {name: np.array(rows, np.intp) for name, rows in found.items()}


def _priority(card: ToolCard) -> float:
    """What is usual for a category says nothing about one request; what a person wrote does,
    and so does a tool that calls itself deprecated."""
    known = card.intelligence.priority
    if known.source is Source.WRITTEN or known.value < _MIDDLE_PRIORITY:
        return max(-1.0, min(1.0, (known.value - _MIDDLE_PRIORITY) / _MIDDLE_PRIORITY))
    return 0.0


def _twins(cards: Sequence[ToolCard]) -> Rows:
    """The same name and the same description: the same tool, reached through several servers."""
    seen: dict[tuple[str, str], int] = {}
    return np.fromiter(
        (seen.setdefault((card.name, card.description), len(seen)) for card in cards), np.intp, len(cards)
    )


def _ranked_pairs(cards: Sequence[ToolCard], rows: Mapping[str, int]) -> Iterable[tuple[int, int]]:
    """Only what was written: an inferred fallback is an equal on another server, not a second choice."""
    for row, card in enumerate(cards):
        hierarchy = card.intelligence.hierarchy
        if hierarchy.source is Source.WRITTEN:
            yield from ((row, rows[key]) for key in hierarchy.value if key in rows)


def _conflicts(cards: Sequence[ToolCard], rows: Mapping[str, int]) -> dict[int, frozenset[int]]:
    """Both ways, whoever of the two was told."""
    found: dict[int, set[int]] = {}
    for row, card in enumerate(cards):
        for key in card.intelligence.conflicts.value:
            if (other := rows.get(key)) is not None and other != row:
                found.setdefault(row, set()).add(other)
                found.setdefault(other, set()).add(row)
    return {row: frozenset(others) for row, others in found.items()}


def _spoken_for(cards: Sequence[ToolCard]) -> Iterable[tuple[int, frozenset[str], float]]:
    """Keywords nobody wrote come from the tool's own text, which the word scorer has read already."""
    for row, card in enumerate(cards):
        signals = card.intelligence.signals
        if signals.keywords.source is Source.WRITTEN and signals.keywords.value:
            keywords = frozenset(word.casefold() for word in signals.keywords.value)
            yield row, keywords, signals.weight.value

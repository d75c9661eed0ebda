"""The tools of a snapshot as feature columns, one row per tool."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from fingerpost.catalog import Snapshot
from fingerpost.catalog.effects import find_program_parameter, find_query_language
from fingerpost.catalog.words import parse_word_set, split_words
from fingerpost.frozen import frozen
from fingerpost.records import Effect, EntityKind, LatencyTier, Source, ToolCard
from fingerpost.regex import prepare_re
from fingerpost.schemas import get_properties, get_required

Rows = NDArray[np.intp]
Scores = NDArray[np.float32]
K = TypeVar("K")

_MIDDLE_PRIORITY: Final = 50
_DESCRIPTION_LENGTH: Final = 300  # characters that describe the tool's purpose
_SLOWNESS_BY_TIER: Final = {
    LatencyTier.FAST: 0.0,
    LatencyTier.MEDIUM: 0.15,
    LatencyTier.SLOW: 0.5,
    LatencyTier.VERY_SLOW: 1.0,
}


# How strongly a tool changes something.
_CHANGE_BY_EFFECT: Final = {Effect.READ: 0.0, Effect.WRITE: 0.7, Effect.DESTROY: 1.0}
_KEEPS_NOTES: Final = prepare_re(
    r"\b(?:notes?|knowledge|memor(?:y|ies)|remember\w*|recall|minutes|wiki|handbook)\b"
    r"(?! (?:usage|size|leak|limit|footprint))",
    re.IGNORECASE,
)
_SEARCH_WORDS: Final = prepare_re(
    r"\b(?:search\w*|recall|quer(?:y|ies)|find|look(?:s|ing)? (?:up|for)|retrieve)\b", re.IGNORECASE
)
_READ_ONLY_RECALL: Final = 0.6  # relative to a search tool
# The last word of a parameter's name, by entity kind.
_PARAMETER_WORDS: Final = {
    EntityKind.PATH: parse_word_set("path file filename filepath filenames paths files pathname"),
    EntityKind.URL: parse_word_set("url uri link urls href website webpage"),
}


@frozen
class ToolColumns:
    """The tools of one snapshot as columns, indexed by row."""

    version: int
    cards: tuple[ToolCard, ...]
    rows: Mapping[str, int]  # by key
    servers: tuple[str, ...]
    server_index: Rows  # index into `servers`
    by_server: Mapping[str, Rows]
    by_category: Mapping[str, Rows]
    priority: Scores  # -1..1; 0: not set
    slowness: Scores  # 0..1
    changes: Scores  # 0..1
    reads: Scores  # 1 if it certainly only reads
    recalls: Scores  # 0..1: it searches notes or a memory
    rows_by_entity_kind: Mapping[EntityKind, Rows]  # rows of tools with a parameter for this kind
    wants_id: Scores  # 1 if a required parameter is an id
    twin_group: Rows  # the same number: the same tool on several servers
    ranked_pairs: tuple[tuple[int, int], ...]  # (tool, written fallback)
    conflicts: Mapping[int, frozenset[int]]
    exclusive: tuple[tuple[int, str], ...]  # tools that are the only ones offered for an intent
    keywords: tuple[tuple[int, frozenset[str], float], ...]  # written keywords and their weight

    @property
    def size(self) -> int:
        return len(self.cards)


def build_columns(snapshot: Snapshot) -> ToolColumns:
    """Build the columns of a snapshot."""
    cards = snapshot.cards
    rows = {card.key: row for row, card in enumerate(cards)}
    servers = tuple(dict.fromkeys(card.server for card in cards))
    server_numbers = {server: number for number, server in enumerate(servers)}
    return ToolColumns(
        version=snapshot.version,
        cards=cards,
        rows=rows,
        servers=servers,
        server_index=np.fromiter((server_numbers[card.server] for card in cards), np.intp, len(cards)),
        by_server=_group_rows((card.server, row) for row, card in enumerate(cards)),
        by_category=_group_rows((card.intelligence.category.value, row) for row, card in enumerate(cards)),
        priority=np.fromiter((_get_priority(card) for card in cards), np.float32, len(cards)),
        slowness=np.fromiter(
            (_SLOWNESS_BY_TIER[card.intelligence.latency.tier] for card in cards), np.float32, len(cards)
        ),
        reads=np.fromiter((_only_reads(card) for card in cards), np.float32, len(cards)),
        changes=np.fromiter((_get_change_strength(card) for card in cards), np.float32, len(cards)),
        recalls=np.fromiter((_get_recall_strength(card) for card in cards), np.float32, len(cards)),
        rows_by_entity_kind=_group_rows(
            (kind, row) for row, card in enumerate(cards) for kind in _find_entity_kinds(card)
        ),
        wants_id=np.fromiter((_get_id_requirement(card) for card in cards), np.float32, len(cards)),
        twin_group=_number_twins(cards),
        ranked_pairs=tuple(_find_fallback_pairs(cards, rows)),
        conflicts=_find_conflicts(cards, rows),
        exclusive=tuple(
            (row, intent)
            for row, card in enumerate(cards)
            if (intent := card.intelligence.signals.exclusive_intent.value)
        ),
        keywords=tuple(_collect_keywords(cards)),
    )


def _group_rows(pairs: Iterable[tuple[K, int]]) -> dict[K, Rows]:
    found: dict[K, list[int]] = {}
    for name, row in pairs:
        found.setdefault(name, []).append(row)
    return {name: np.array(rows, np.intp) for name, rows in found.items()}


def _get_priority(card: ToolCard) -> float:
    """Return a written priority, or one below the middle (a deprecated tool), no category's default."""
    known = card.intelligence.priority
    if known.source is Source.WRITTEN or known.value < _MIDDLE_PRIORITY:
        return max(-1.0, min(1.0, (known.value - _MIDDLE_PRIORITY) / _MIDDLE_PRIORITY))
    return 0.0


def _only_reads(card: ToolCard) -> bool:
    return card.effect.value is Effect.READ and card.effect.source is not Source.DEFAULT


def _get_change_strength(card: ToolCard) -> float:
    """Return how strongly the tool changes something; 0 if it also reads, or runs programs or queries."""
    if card.effect.source is Source.DEFAULT or Effect.READ in card.effects:
        return 0.0
    program = find_program_parameter(card.definition) or find_query_language(
        card.definition, card.description
    )
    return 0.0 if program is not None else _CHANGE_BY_EFFECT[card.effect.value]


def _get_recall_strength(card: ToolCard) -> float:
    """Return how well a tool recalls notes, a knowledge base or a memory, from 0 to 1. It is 0 for tools that
    do not only read, and 1 for search tools.
    """
    text = f"{card.name.replace('_', ' ').replace('-', ' ')} {card.description[:_DESCRIPTION_LENGTH]}"
    if card.effect.value is not Effect.READ or _KEEPS_NOTES.search(text) is None:
        return 0.0
    return 1.0 if _SEARCH_WORDS.search(text) is not None else _READ_ONLY_RECALL


def _find_entity_kinds(card: ToolCard) -> Iterable[EntityKind]:
    names = [split_words(name) for name in get_properties(card.definition.get("inputSchema"))]
    for kind, last in _PARAMETER_WORDS.items():
        if any(name and name[-1] in last and "repo" not in name for name in names):
            yield kind


def _get_id_requirement(card: ToolCard) -> float:
    required = (split_words(name) for name in get_required(card.definition.get("inputSchema")))
    return 1.0 if any(name and name[-1] == "id" for name in required) else 0.0


def _number_twins(cards: Sequence[ToolCard]) -> Rows:
    """Give tools with the same name and description the same number: they are one tool on several servers."""
    seen: dict[tuple[str, str], int] = {}
    return np.fromiter(
        (seen.setdefault((card.name, card.description), len(seen)) for card in cards), np.intp, len(cards)
    )


def _find_fallback_pairs(cards: Sequence[ToolCard], rows: Mapping[str, int]) -> Iterable[tuple[int, int]]:
    """Yield (tool, fallback) for written fallbacks only: an inferred one is an equal tool elsewhere."""
    for row, card in enumerate(cards):
        hierarchy = card.intelligence.hierarchy
        if hierarchy.source is Source.WRITTEN:
            yield from ((row, rows[key]) for key in hierarchy.value if key in rows)


def _find_conflicts(cards: Sequence[ToolCard], rows: Mapping[str, int]) -> dict[int, frozenset[int]]:
    """Return the conflicts in both directions, even if only one tool declares them."""
    found: dict[int, set[int]] = {}
    for row, card in enumerate(cards):
        for key in card.intelligence.conflicts.value:
            if (other := rows.get(key)) is not None and other != row:
                found.setdefault(row, set()).add(other)
                found.setdefault(other, set()).add(row)
    return {row: frozenset(others) for row, others in found.items()}


def _collect_keywords(cards: Sequence[ToolCard]) -> Iterable[tuple[int, frozenset[str], float]]:
    """Yield written keywords only: inferred ones are in the text of the lexical scorer."""
    for row, card in enumerate(cards):
        signals = card.intelligence.signals
        if signals.keywords.source is Source.WRITTEN and signals.keywords.value:
            keywords = frozenset(word.casefold() for word in signals.keywords.value)
            yield row, keywords, signals.weight.value

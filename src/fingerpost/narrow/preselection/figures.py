"""How well smart routing does, added up from its events."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Final

from fingerpost.events import Event, SmartRoutingEnd
from fingerpost.frozen import frozen
from fingerpost.store import Store

_PAGE: Final = 1000


@frozen
class SmartRoutingFigures:
    """Over all runs. A run falls back when every tool stays, by failure or because nothing stood out."""

    runs: int = 0
    by_model: int = 0
    success_rate: float = 0.0  # runs that came to a choice
    fallback_rate: float = 0.0  # runs after which all tools stayed
    reduction: float = 0.0  # the share of tools left out, in the mean
    p50_ms: float = 0.0
    p99_ms: float = 0.0
    tokens_saved: int = 0

    @classmethod
    def of(cls, events: Iterable[Event]) -> SmartRoutingFigures:
        """The figures of these events; others among them are passed over."""
        ends = [event for event in events if isinstance(event, SmartRoutingEnd)]
        if not ends:
            return cls()
        times = sorted(end.milliseconds for end in ends)
        return cls(
            runs=len(ends),
            by_model=sum(end.by == "model" for end in ends),
            success_rate=sum(end.success for end in ends) / len(ends),
            fallback_rate=sum(end.filtered_tools >= end.total_tools for end in ends) / len(ends),
            reduction=sum(_left_out(end) for end in ends) / len(ends),
            p50_ms=_quantile(times, 0.5),
            p99_ms=_quantile(times, 0.99),
            tokens_saved=sum(end.tokens_saved for end in ends),
        )


async def stored_figures(store: Store) -> SmartRoutingFigures:
    """The figures of everything the journal holds."""
    found: list[Event] = []
    after = 0
    while page := await store.journal.events(kinds=(SmartRoutingEnd.kind,), after_seq=after, limit=_PAGE):
        found += [recorded.event for recorded in page]
        after = page[-1].seq
    return SmartRoutingFigures.of(found)


def _left_out(end: SmartRoutingEnd) -> float:
    return 1 - end.filtered_tools / end.total_tools if end.total_tools else 0.0


def _quantile(ordered: Sequence[float], share: float) -> float:
    """The smallest value that so many are not above."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]

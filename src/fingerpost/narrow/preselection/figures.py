"""How well smart routing does, added up from its events, and thresholds that follow it."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from fingerpost.events import Event, SmartRoutingEnd
from fingerpost.frozen import frozen
from fingerpost.settings import SmartRoutingSettings
from fingerpost.store import Store

_PAGE_SIZE: Final = 1000
RECENT_RUNS: Final = 200  # choices that thresholds follow
MIN_RUNS: Final = 20  # before that, thresholds stay as they are
REFRESH_INTERVAL_S: Final = 60.0
# The thresholds are multiplied by the first factor whose line holds: at least this share of choices fell
# back, or at most this share of tools was left out. Choosing that does not pay is done later.
_RAISE_RULES: Final = ((2.0, 0.5, 0.1), (1.5, 0.25, 0.3))
# At most this share fell back and at least this share was left out: choosing that pays is done earlier.
_LOWER_RULES: Final = ((0.5, 0.05, 0.6), (0.75, 0.1, 0.45))


@frozen
class SmartRoutingStats:
    """Over all choices. One falls back when every tool stays, by failure or because nothing stood out."""

    runs: int = 0
    widened: int = 0  # how often a later turn added servers to a choice
    by_model: int = 0
    success_rate: float = 0.0  # runs that came to a choice
    fallback_rate: float = 0.0  # runs after which all tools stayed
    reduction: float = 0.0  # the share of tools left out, in the mean
    p50_ms: float = 0.0
    p99_ms: float = 0.0
    tokens_saved: int = 0

    @classmethod
    def from_events(cls, events: Iterable[Event]) -> SmartRoutingStats:
        """The figures of these events; others among them are passed over."""
        told = [event for event in events if isinstance(event, SmartRoutingEnd)]
        ends = [event for event in told if not event.widened]
        if not ends:
            return cls()
        times = sorted(end.milliseconds for end in ends)
        return cls(
            runs=len(ends),
            widened=len(told) - len(ends),
            by_model=sum(end.by == "model" for end in ends),
            success_rate=sum(end.success for end in ends) / len(ends),
            fallback_rate=sum(end.filtered_tools >= end.total_tools for end in ends) / len(ends),
            reduction=sum(_compute_share_left_out(end) for end in ends) / len(ends),
            p50_ms=_get_quantile(times, 0.5),
            p99_ms=_get_quantile(times, 0.99),
            tokens_saved=sum(end.tokens_saved for end in ends),
        )


async def read_stored_stats(store: Store) -> SmartRoutingStats:
    """The figures of everything the journal holds."""
    found: list[Event] = []
    after = 0
    while page := await store.journal.list_events(
        kinds=(SmartRoutingEnd.kind,), after_seq=after, limit=_PAGE_SIZE
    ):
        found += [recorded.event for recorded in page]
        after = page[-1].seq
    return SmartRoutingStats.from_events(found)


def _compute_share_left_out(end: SmartRoutingEnd) -> float:
    return 1 - end.filtered_tools / end.total_tools if end.total_tools else 0.0


def _get_quantile(ordered: Sequence[float], share: float) -> float:
    """The smallest value that so many are not above."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def adapt_settings(settings: SmartRoutingSettings, stats: SmartRoutingStats) -> SmartRoutingSettings:
    """The settings with thresholds moved by what choosing servers was worth: to a half or double at most."""
    if stats.runs < MIN_RUNS:
        return settings
    fell_back, left_out = stats.fallback_rate, stats.reduction
    later = (factor for factor, most, least in _RAISE_RULES if fell_back >= most or left_out <= least)
    earlier = (factor for factor, most, least in _LOWER_RULES if fell_back <= most and left_out >= least)
    factor = next(later, None) or next(earlier, 1.0)
    moved = {
        "max_tools": round(settings.max_tools * factor),
        "max_servers": round(settings.max_servers * factor),
    }
    return settings.model_copy(update=moved)


class RecentRoutingStats:
    """The figures of the newest choices in the journal, of all processes; read again now and then."""

    def __init__(self, store: Store, clock: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._clock = clock
        self._read_at = -math.inf
        self._after = 0
        self._events: deque[Event] = deque(maxlen=RECENT_RUNS)
        self.figures = SmartRoutingStats()

    async def refresh(self) -> None:
        if self._clock() - self._read_at < REFRESH_INTERVAL_S:
            return
        self._read_at = self._clock()
        journal = self._store.journal
        while page := await journal.list_events(
            kinds=(SmartRoutingEnd.kind,), after_seq=self._after, limit=_PAGE_SIZE
        ):
            self._events.extend(recorded.event for recorded in page)
            self._after = page[-1].seq
        self.figures = SmartRoutingStats.from_events(self._events)

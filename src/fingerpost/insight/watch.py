"""Figures over time, counted from the journal when somebody asks.

Once counted, steps are kept, and the next question reads only what came since.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, Literal, get_args

import anyio
import anyio.to_thread

from fingerpost.insight.counting import COUNTED_KINDS, EventCounter
from fingerpost.insight.figures import Bucket, CalibrationPoint, Counted, Figures
from fingerpost.insight.sums import (
    Aggregate,
    build_arm_figures,
    build_counted_fields,
    combine_aggregates,
    get_most_used,
    get_user_counts,
)
from fingerpost.records import ConfidenceSample, Decision, utc_now
from fingerpost.store import Store

TimeStep = Literal["minute", "hour", "day"]

STEP_SECONDS: Final[dict[TimeStep, int]] = {"minute": 60, "hour": 3_600, "day": 86_400}
MAX_STEPS: Final = 750
MAX_COUNTED_EVENTS: Final = (
    100_000  # counted for one question; older ones are left out, and `complete` says so
)
MAX_HOURS: Final = 24.0 * 366
MAX_NAMED: Final = 50
_COUNT_CHUNK: Final = 1_000
_CALIBRATION_BINS: Final = 10
_MAX_PENDING_CHECKED: Final = 200


class FiguresReader:
    """Keeps one count for each length of a step."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._counts: dict[TimeStep, _RunningCount] = {}
        self._counting = anyio.Lock()

    async def read_figures(self, *, hours: float, step: str, tools: Sequence[str]) -> Figures:
        """Raises `ValueError` for a step there is not."""
        hours = min(max(hours, 0.1), MAX_HOURS)
        chosen = choose_step(hours, step)
        until = utc_now()
        since = _floor_moment(until - timedelta(hours=hours), STEP_SECONDS[chosen])
        earlier = since - (until - since)
        async with self._counting:  # two who ask together read the journal once
            count = await self._catch_up(chosen, earlier)
            return await self._read_figures(count, chosen, since, until, tools)

    async def _catch_up(self, step: TimeStep, since: datetime) -> _RunningCount:
        journal = self._store.journal
        last = await journal.get_last_seq()
        count = self._counts.get(step)
        behind = count is not None and last - count.counter.last_seq > MAX_COUNTED_EVENTS
        if count is None or behind or (since < count.since and not count.is_truncated):
            wanted = await journal.find_seq_at(since) - 1
            first = max(wanted, last - MAX_COUNTED_EVENTS, 0)
            counting = EventCounter(STEP_SECONDS[step])
            counting.last_seq = first
            count = self._counts[step] = _RunningCount(counting, since=since, cut=first > wanted)
        while count.counter.last_seq < last:
            await self._count_next_chunk(count.counter, last)
        await self._count_expired(count.counter)
        kept = 2 * MAX_STEPS * STEP_SECONDS[step]  # nobody can ask for more: a range, and the one before it
        count.counter.discard_before(int(utc_now().timestamp()) - kept)
        return count

    async def _count_next_chunk(self, counting: EventCounter, last: int) -> None:
        end = min(counting.last_seq + _COUNT_CHUNK, last)
        events = await self._store.journal.list_events(
            kinds=COUNTED_KINDS, after_seq=counting.last_seq, up_to_seq=end, limit=_COUNT_CHUNK
        )
        await anyio.to_thread.run_sync(counting.count, events)
        counting.last_seq = end

    async def _count_expired(self, counting: EventCounter) -> None:
        for pending_id in list(counting.pending_approvals)[:_MAX_PENDING_CHECKED]:
            pending = await self._store.approvals.get(pending_id)
            if pending is None or pending.decision is Decision.EXPIRED:
                counting.count_expired(pending_id, utc_now() if pending is None else pending.expires)

    async def _read_figures(
        self, count: _RunningCount, step: TimeStep, since: datetime, until: datetime, tools: Sequence[str]
    ) -> Figures:
        used = await self._store.usage.get_profiles()
        samples = await self._store.confidences.list_recent()
        never = tuple(sorted(key for key in tools if key not in used))
        return await anyio.to_thread.run_sync(_build_figures, count, step, since, until, never, samples)


class _RunningCount:
    """One running count, and from when on it is whole."""

    def __init__(self, counting: EventCounter, *, since: datetime, cut: bool) -> None:
        self.counter = counting
        self.since = since
        self.is_truncated = cut  # the journal goes further back than was counted

    @property
    def whole_from(self) -> datetime:
        if not self.is_truncated:
            return self.since
        return self.counter.first_at or self.since


def choose_step(hours: float, wanted: str) -> TimeStep:
    """The step asked for, or one that suits; a coarser one where there would be too many."""
    steps: tuple[TimeStep, ...] = get_args(TimeStep)
    if wanted == "auto":
        return "minute" if hours <= 3 else "hour" if hours <= 96 else "day"
    if wanted not in steps:
        message = f"there is no step {wanted!r}; the steps are auto, {', '.join(steps)}"
        raise ValueError(message)
    return next(
        step
        for step in steps[steps.index(wanted) :]
        if hours * 3_600 <= STEP_SECONDS[step] * MAX_STEPS or step == steps[-1]
    )


def _build_figures(
    count: _RunningCount,
    step: TimeStep,
    since: datetime,
    until: datetime,
    never_used: tuple[str, ...],
    samples: list[ConfidenceSample],
) -> Figures:
    seconds = STEP_SECONDS[step]
    first, last = int(since.timestamp()), int(until.timestamp())
    starts = range(first, last + 1, seconds)
    by_start = count.counter.sums
    whole = combine_aggregates(by_start[start] for start in starts if start in by_start)
    earlier_from = since - (until - since)
    earlier = [by_start[s] for s in by_start if earlier_from.timestamp() <= s + seconds / 2 and s < first]
    return Figures(
        since=since,
        until=until,
        step=step,
        step_seconds=seconds,
        complete=count.whole_from <= since,
        counted_from=max(since, count.whole_from),
        totals=Counted(**build_counted_fields(whole)),
        before=Counted(**build_counted_fields(combine_aggregates(earlier)))
        if count.whole_from <= earlier_from
        else None,
        buckets=tuple(
            Bucket(
                at=datetime.fromtimestamp(start, UTC),
                **build_counted_fields(by_start.get(start) or Aggregate()),
            )
            for start in starts
        ),
        most_used=get_most_used(whole, MAX_NAMED),
        never_used=never_used,
        callers=get_user_counts(whole, "caller", MAX_NAMED),
        profiles=get_user_counts(whole, "profile", MAX_NAMED),
        calibration=compute_calibration(samples),
        rollouts=build_arm_figures(whole),
    )


def compute_calibration(samples: Sequence[ConfidenceSample]) -> tuple[CalibrationPoint, ...]:
    """How often selections were right, by how sure their makers said they were."""
    bins: defaultdict[int, list[ConfidenceSample]] = defaultdict(list)
    for sample in samples:
        bins[min(int(sample.raw * _CALIBRATION_BINS), _CALIBRATION_BINS - 1)].append(sample)
    return tuple(
        CalibrationPoint(
            claimed=sum(sample.raw for sample in held) / len(held),
            right=sum(sample.right for sample in held) / len(held),
            count=len(held),
        )
        for _, held in sorted(bins.items())
    )


def _floor_moment(moment: datetime, seconds: int) -> datetime:
    return datetime.fromtimestamp(int(moment.timestamp()) // seconds * seconds, UTC)

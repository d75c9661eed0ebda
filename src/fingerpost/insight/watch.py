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

from fingerpost.insight.counting import KINDS, Counting
from fingerpost.insight.figures import Bucket, CalibrationPoint, Counted, Figures
from fingerpost.insight.sums import Sums, arms_of, counted, most_used, together, users
from fingerpost.records import ConfidenceSample, Decision, utc_now
from fingerpost.store import Store

Step = Literal["minute", "hour", "day"]

SECONDS: Final[dict[Step, int]] = {"minute": 60, "hour": 3_600, "day": 86_400}
MOST_STEPS: Final = 750
MOST_EVENTS: Final = 100_000  # counted for one question; older ones are left out, and `complete` says so
MOST_HOURS: Final = 24.0 * 366
MOST_NAMED: Final = 50
_CHUNK: Final = 1_000
_BINS: Final = 10
_MOST_ASKED: Final = 200


class Watch:
    """Keeps one count for each length of a step."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._counts: dict[Step, _Count] = {}
        self._counting = anyio.Lock()

    async def figures(self, *, hours: float, step: str, tools: Sequence[str]) -> Figures:
        """Raises `ValueError` for a step there is not."""
        hours = min(max(hours, 0.1), MOST_HOURS)
        chosen = choose_step(hours, step)
        until = utc_now()
        since = _floor(until - timedelta(hours=hours), SECONDS[chosen])
        earlier = since - (until - since)
        async with self._counting:  # two who ask together read the journal once
            count = await self._caught_up(chosen, earlier)
            return await self._tell(count, chosen, since, until, tools)

    async def _caught_up(self, step: Step, since: datetime) -> _Count:
        journal = self._store.journal
        last = await journal.last_seq()
        count = self._counts.get(step)
        behind = count is not None and last - count.counting.last_seq > MOST_EVENTS
        if count is None or behind or (since < count.since and not count.cut):
            wanted = await journal.seq_at(since) - 1
            first = max(wanted, last - MOST_EVENTS, 0)
            counting = Counting(SECONDS[step])
            counting.last_seq = first
            count = self._counts[step] = _Count(counting, since=since, cut=first > wanted)
        while count.counting.last_seq < last:
            await self._count_on(count.counting, last)
        await self._count_expired(count.counting)
        kept = 2 * MOST_STEPS * SECONDS[step]  # nobody can ask for more: a range, and the one before it
        count.counting.forget_before(int(utc_now().timestamp()) - kept)
        return count

    async def _count_on(self, counting: Counting, last: int) -> None:
        end = min(counting.last_seq + _CHUNK, last)
        events = await self._store.journal.events(
            kinds=KINDS, after_seq=counting.last_seq, up_to_seq=end, limit=_CHUNK
        )
        await anyio.to_thread.run_sync(counting.take, events)
        counting.last_seq = end

    async def _count_expired(self, counting: Counting) -> None:
        for pending_id in list(counting.asked)[:_MOST_ASKED]:
            pending = await self._store.approvals.get(pending_id)
            if pending is None or pending.decision is Decision.EXPIRED:
                counting.expired(pending_id, utc_now() if pending is None else pending.expires)

    async def _tell(
        self, count: _Count, step: Step, since: datetime, until: datetime, tools: Sequence[str]
    ) -> Figures:
        used = await self._store.usage.profiles()
        samples = await self._store.confidences.recent()
        never = tuple(sorted(key for key in tools if key not in used))
        return await anyio.to_thread.run_sync(_figures, count, step, since, until, never, samples)


class _Count:
    """One running count, and from when on it is whole."""

    def __init__(self, counting: Counting, *, since: datetime, cut: bool) -> None:
        self.counting = counting
        self.since = since
        self.cut = cut  # the journal goes further back than was counted

    @property
    def whole_from(self) -> datetime:
        if not self.cut:
            return self.since
        return self.counting.first_at or self.since


def choose_step(hours: float, wanted: str) -> Step:
    """The step asked for, or one that suits; a coarser one where there would be too many."""
    steps: tuple[Step, ...] = get_args(Step)
    if wanted == "auto":
        return "minute" if hours <= 3 else "hour" if hours <= 96 else "day"
    if wanted not in steps:
        message = f"there is no step {wanted!r}; the steps are auto, {', '.join(steps)}"
        raise ValueError(message)
    return next(
        step
        for step in steps[steps.index(wanted) :]
        if hours * 3_600 <= SECONDS[step] * MOST_STEPS or step == steps[-1]
    )


def _figures(
    count: _Count,
    step: Step,
    since: datetime,
    until: datetime,
    never_used: tuple[str, ...],
    samples: list[ConfidenceSample],
) -> Figures:
    seconds = SECONDS[step]
    first, last = int(since.timestamp()), int(until.timestamp())
    starts = range(first, last + 1, seconds)
    by_start = count.counting.sums
    whole = together(by_start[start] for start in starts if start in by_start)
    earlier_from = since - (until - since)
    earlier = [by_start[s] for s in by_start if earlier_from.timestamp() <= s + seconds / 2 and s < first]
    return Figures(
        since=since,
        until=until,
        step=step,
        step_seconds=seconds,
        complete=count.whole_from <= since,
        counted_from=max(since, count.whole_from),
        totals=Counted(**counted(whole)),
        before=Counted(**counted(together(earlier))) if count.whole_from <= earlier_from else None,
        buckets=tuple(
            Bucket(at=datetime.fromtimestamp(start, UTC), **counted(by_start.get(start) or Sums()))
            for start in starts
        ),
        most_used=most_used(whole, MOST_NAMED),
        never_used=never_used,
        callers=users(whole, "caller", MOST_NAMED),
        profiles=users(whole, "profile", MOST_NAMED),
        calibration=calibration(samples),
        rollouts=arms_of(whole),
    )


def calibration(samples: Sequence[ConfidenceSample]) -> tuple[CalibrationPoint, ...]:
    """How often selections were right, by how sure their makers said they were."""
    bins: defaultdict[int, list[ConfidenceSample]] = defaultdict(list)
    for sample in samples:
        bins[min(int(sample.raw * _BINS), _BINS - 1)].append(sample)
    return tuple(
        CalibrationPoint(
            claimed=sum(sample.raw for sample in held) / len(held),
            right=sum(sample.right for sample in held) / len(held),
            count=len(held),
        )
        for _, held in sorted(bins.items())
    )


def _floor(moment: datetime, seconds: int) -> datetime:
    return datetime.fromtimestamp(int(moment.timestamp()) // seconds * seconds, UTC)

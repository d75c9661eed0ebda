"""What waits to be written: in order, bounded, and handed over in batches.

When the disk is stuck the backlog must not grow for ever, and whoever emits an
event must not wait. So, beyond `limit`, the oldest job that may be lost is lost
and counted, and a stand-in ("so many events are missing here") is written once
writing works again. Jobs that must be kept (audited events, anything somebody
waits for) are never dropped; when more than `kept_limit` of them wait, new ones
are refused to the caller's face instead.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Condition
from typing import Any

from sqlalchemy import Connection

from fingerpost.errors import StoreUnavailable
from fingerpost.frozen import frozen

# Writes many items of one kind, in order, and returns one result for each.
WriteFunction = Callable[[Connection, Sequence[Any]], Sequence[Any]]


@frozen(kw_only=False, eq=False)
class LossPolicy:
    """How jobs of one kind may be lost: `stand_in` makes the item that is written in their place."""

    stand_in: Callable[[int], object] | None = None


@dataclass(slots=True, eq=False, kw_only=True)  # not frozen, which takes three times as long to make
class WriteJob:
    """One item to be written. `waiter` is whoever waits for it, `loss` allows dropping it."""

    write: WriteFunction
    item: object
    waiter: asyncio.Future[Any] | None = None
    loss: LossPolicy | None = None
    stands_for: int = 0
    any_order: bool = False  # may be written after what came later, together with others of its kind


class WriteQueue:
    """A queue between the event loop (and any thread) and the one writer."""

    def __init__(self, *, gather_seconds: float, limit: int, kept_limit: int, batch_size: int) -> None:
        self._gather = gather_seconds
        self._limit = limit
        self._kept_limit = kept_limit
        self._batch = batch_size
        self._changed = Condition()
        self._jobs: dict[int, WriteJob] = {}  # by arrival; a dict because jobs also leave from the middle
        self._losable: deque[int] = deque()
        self._lost: Counter[tuple[WriteFunction, LossPolicy]] = Counter()
        self._number = 0
        self._waiters = 0
        self._since = 0.0
        self._not_before = 0.0
        self._closed = False
        self.dropped = 0

    def __len__(self) -> int:
        return len(self._jobs)

    def add(self, job: WriteJob) -> None:
        """Add a job. Never blocks; raises `StoreUnavailable` when it cannot be taken."""
        with self._changed:
            self.check_room(job)
            self._add_all((job,))

    def add_checked(self, jobs: Sequence[WriteJob]) -> None:
        """Add jobs that `check_room` let pass. Nothing waits for them."""
        with self._changed:
            self._add_all(jobs)

    def _add_all(self, jobs: Sequence[WriteJob]) -> None:
        before, waited = len(self._jobs), self._waiters
        if not before:
            self._since = time.monotonic()
        for job in jobs:
            self._add_one(job)
            self._waiters += job.waiter is not None
        self._drop_beyond_limit()
        # The writer is woken only when the news changes what it should do.
        filled = before < self._batch <= len(self._jobs)
        if not before or filled or (self._waiters and not waited):
            self._changed.notify()

    def make_due(self) -> None:
        """What waits now is due now, though nobody waits for it."""
        with self._changed:
            if self._jobs:
                self._since = -math.inf
                self._changed.notify()

    def take_batch(self, idle: float | None = None) -> list[WriteJob] | None:
        """The next batch, once it is due. Empty after `idle` seconds without one; None at the end."""
        give_up = None if idle is None else time.monotonic() + idle
        with self._changed:
            while (wait := self._get_seconds_until_due()) != 0.0:
                if self._closed and not self._jobs:
                    return None
                left = None if give_up is None else give_up - time.monotonic()
                if left is not None and left <= 0:
                    return []
                self._changed.wait(min(wait, left) if wait is not None and left is not None else wait or left)
            return self._pop_batch()

    def give_back(self, jobs: Sequence[WriteJob], *, pause: float) -> None:
        """Put a batch that failed back to the front. It is due again after `pause`, or with a waiter."""
        with self._changed:
            newer, self._jobs = self._jobs, {}
            self._losable.clear()
            for job in jobs:
                if job.stands_for and job.loss is not None:
                    self._lost[job.write, job.loss] += job.stands_for
                else:
                    self._add_one(job)
            for job in newer.values():
                self._add_one(job)
            self._drop_beyond_limit()
            self._not_before = time.monotonic() + pause

    def close(self) -> None:
        """Take no more. What is there becomes due at once."""
        with self._changed:
            self._closed = True
            self._changed.notify()

    @property
    def closed(self) -> bool:
        return self._closed

    def check_room(self, job: WriteJob, *, ahead: int = 0) -> None:
        """Raises `StoreUnavailable` when the job cannot be taken; `ahead` others come before it."""
        if self._closed:
            message = "the store is closed"
            raise StoreUnavailable(message)
        if job.loss is None and len(self._jobs) - len(self._losable) + ahead >= self._kept_limit:
            message = f"{self._kept_limit} writes wait for the database already; this one is refused"
            raise StoreUnavailable(message, hint="The disk or the database is stuck; check it.")

    def has_room(self, count: int) -> bool:
        """Whether so many would surely be taken."""
        return not self._closed and len(self._jobs) - len(self._losable) + count <= self._kept_limit

    def _add_one(self, job: WriteJob) -> None:
        self._number += 1
        self._jobs[self._number] = job
        if job.loss is not None:
            self._losable.append(self._number)

    def _drop_beyond_limit(self) -> None:
        while len(self._losable) > self._limit:
            job = self._jobs.pop(self._losable.popleft())
            assert job.loss is not None
            self._lost[job.write, job.loss] += 1
            self.dropped += 1

    def _get_seconds_until_due(self) -> float | None:
        """0.0: now. None: nothing is waiting."""
        if not self._jobs:
            return None
        full = len(self._jobs) >= self._batch and not self._not_before
        if self._waiters or self._closed or full:
            return 0.0
        return max(0.0, max(self._since + self._gather, self._not_before) - time.monotonic())

    def _pop_batch(self) -> list[WriteJob]:
        stand_ins = [
            WriteJob(write=write, item=loss.stand_in(count), loss=loss, stands_for=count)
            for (write, loss), count in self._lost.items()
            if loss.stand_in is not None
        ]
        self._lost.clear()
        numbers = list(self._jobs)[: self._batch]
        jobs = [self._jobs.pop(number) for number in numbers]
        while self._losable and self._losable[0] <= numbers[-1]:
            self._losable.popleft()
        self._waiters -= sum(job.waiter is not None for job in jobs)
        self._since = self._not_before = 0.0  # what stays behind has waited long enough
        return stand_ins + jobs

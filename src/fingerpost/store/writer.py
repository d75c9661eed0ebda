"""The single writer thread, which groups many writes into one commit, and its bounded queue."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from threading import Condition, Thread, get_ident
from typing import Any, Concatenate, ParamSpec, TypeVar

import anyio
import anyio.to_thread
from sqlalchemy import Connection, Executable, Row, Table
from sqlalchemy.exc import DBAPIError

from fingerpost.errors import StoreUnavailable
from fingerpost.frozen import frozen
from fingerpost.store.database import (
    ColumnChange,
    Database,
    build_upsert,
    explain,
    explain_without_location,
    get_cause,
    is_database_failure,
)

# Writes many items of one kind, in order, and returns one result for each.
WriteFunction = Callable[[Connection, Sequence[Any]], Sequence[Any]]


@frozen(kw_only=False, eq=False)
class LossPolicy:
    """How jobs of one kind may be dropped. `stand_in` builds an item for the sum of their `count`."""

    stand_in: Callable[[int], object] | None = None
    count: Callable[[Any], int] = lambda _: 1


# Not frozen, because creating a frozen object takes three times as long.
@dataclass(slots=True, eq=False, kw_only=True)
class WriteJob:
    """One item to write. `waiter` is set if a task waits for it, `loss` allows dropping it."""

    write: WriteFunction
    item: object
    waiter: asyncio.Future[Any] | None = None
    loss: LossPolicy | None = None
    stands_for: int = 0
    any_order: bool = False  # may be written later than its successors, grouped with others of its kind


class WriteQueue:
    """A queue from the event loop (and any thread) to the writer."""

    def __init__(self, *, gather_seconds: float, limit: int, kept_limit: int, batch_size: int) -> None:
        self._gather_seconds = gather_seconds
        self._limit = limit
        self._kept_limit = kept_limit
        self._batch_size = batch_size
        self._changed = Condition()
        # By arrival; a dict, because jobs are also removed from the middle.
        self._jobs: dict[int, WriteJob] = {}
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
        """Add a job without blocking. Raises `StoreUnavailable` if the queue is full or closed."""
        with self._changed:
            self.check_room(job)
            self._add_all((job,))

    def add_checked(self, jobs: Sequence[WriteJob]) -> None:
        """Add jobs that passed `check_room`. No task waits for them."""
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
        # The writer is woken only if this changes what it should do.
        filled = before < self._batch_size <= len(self._jobs)
        if not before or filled or (self._waiters and not waited):
            self._changed.notify()

    def make_due(self) -> None:
        """Make all queued jobs due now."""
        with self._changed:
            if self._jobs:
                self._since = -math.inf
                self._changed.notify()

    def take_batch(self, idle: float | None = None) -> list[WriteJob] | None:
        """Return the next due batch; an empty one after `idle` seconds, None when closed and empty."""
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
        """Put a failed batch back at the front, due after `pause` or with a new waiter."""
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
        """Accept no more jobs. Queued jobs become due at once."""
        with self._changed:
            self._closed = True
            self._changed.notify()

    @property
    def closed(self) -> bool:
        return self._closed

    def check_room(self, job: WriteJob, *, ahead: int = 0) -> None:
        """Raise `StoreUnavailable` if the job cannot be accepted after `ahead` other jobs."""
        if self._closed:
            message = "the store is closed"
            raise StoreUnavailable(message)
        if job.loss is None and len(self._jobs) - len(self._losable) + ahead >= self._kept_limit:
            message = f"{self._kept_limit} writes wait for the database already; this one is refused"
            raise StoreUnavailable(message, hint="The disk or the database is stuck; check it.")

    def has_room(self, count: int) -> bool:
        """Return whether this number of jobs would certainly be accepted."""
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
            self._lost[job.write, job.loss] += job.loss.count(job.item)
            self.dropped += 1

    def _get_seconds_until_due(self) -> float | None:
        """Return the seconds until jobs are due: 0.0 if now, None if there are none."""
        if not self._jobs:
            return None
        full = len(self._jobs) >= self._batch_size and not self._not_before
        if self._waiters or self._closed or full:
            return 0.0
        return max(0.0, max(self._since + self._gather_seconds, self._not_before) - time.monotonic())

    def _pop_batch(self) -> list[WriteJob]:
        stand_ins = [
            WriteJob(write=write, item=loss.stand_in(count), loss=loss, stands_for=count)
            for (write, loss), count in self._lost.items()
            if loss.stand_in is not None
        ]
        self._lost.clear()
        numbers = list(self._jobs)[: self._batch_size]
        jobs = [self._jobs.pop(number) for number in numbers]
        while self._losable and self._losable[0] <= numbers[-1]:
            self._losable.popleft()
        self._waiters -= sum(job.waiter is not None for job in jobs)
        self._since = self._not_before = 0.0  # the remaining jobs have waited long enough
        return stand_ins + jobs


P = TypeVar("P")
R = TypeVar("R")
A = ParamSpec("A")

logger = logging.getLogger("fingerpost.store")

BATCH_SIZE = 1000
MAX_GATHERED_WRITES = 32  # writes collected until the end of an event loop iteration
UPKEEP_SECONDS = 1.0
_FIRST_PAUSE, _MAX_PAUSE = 0.1, 2.0
_MARGIN_SECONDS = 20.0  # in addition to the lock timeout, for a slow disk


@frozen
class WriterStatistics:
    """Statistics of the writer."""

    commits: int
    written: int
    failed_commits: int
    rejected: int  # background writes that could never succeed
    dropped: int  # background writes dropped because too many waited
    backlog: int
    refused: bool  # whether the last commit failed; queued writes wait for the next attempt
    largest_batch: int


class StoreWriter:
    """Owns the only connection for writing."""

    def __init__(
        self,
        database: Database,
        *,
        flush_ms: float,
        lock_wait: float,
        backlog: int,
        upkeep: Callable[[], None],
    ) -> None:
        self._database = database
        self._backlog = WriteQueue(
            gather_seconds=flush_ms / 1000, limit=backlog, kept_limit=10 * backlog, batch_size=BATCH_SIZE
        )
        self._max_wait = lock_wait + _MARGIN_SECONDS
        self._upkeep = upkeep
        self._upkeep_due: float | None = None
        self._connection: Connection | None = None
        self._pause = _FIRST_PAUSE
        self._last_logged = ""  # the last failure that was logged
        self._last_failure: StoreUnavailable | None = None  # since the last commit, without the location
        self._commits = self._written = self._failed_commits = self._rejected = self._largest = 0
        self._refused = False
        self._unwritten: StoreUnavailable | None = None
        self.loop = asyncio.get_running_loop()
        self.loop_thread = get_ident()
        self._gathered: list[WriteJob] = []  # collected in this event loop iteration
        self._late: deque[WriteJob] = deque(maxlen=backlog)
        self._thread = Thread(target=self._run, name="fingerpost-store", daemon=True)

    @property
    def statistics(self) -> WriterStatistics:
        self._enqueue_gathered()
        return WriterStatistics(
            commits=self._commits,
            written=self._written,
            failed_commits=self._failed_commits,
            rejected=self._rejected,
            dropped=self._backlog.dropped,
            backlog=len(self._backlog),
            refused=self._refused,
            largest_batch=self._largest,
        )

    def start(self) -> None:
        self._thread.start()

    async def write(self, write: Callable[[Connection, Sequence[P]], Sequence[R]], item: P) -> R:
        """Write `item` and return the result when it is on disk."""
        waiter: asyncio.Future[R] = self.loop.create_future()
        self._enqueue_gathered()
        self._backlog.add(WriteJob(write=write, item=item, waiter=waiter))
        with anyio.move_on_after(self._max_wait):
            return await waiter
        message = f"did not confirm a write within {self._max_wait:g} s"
        logger.warning("the database %s %s", self._database.location.label, message)
        message = f"the database {message}"
        if self._last_failure is not None:
            message = f"{message}: {self._last_failure}"
        raise StoreUnavailable(message, hint="The disk or the database is stuck; the write may still arrive.")

    def write_soon(
        self,
        write: Callable[[Connection, Sequence[P]], Sequence[Any]],
        item: P,
        *,
        loss: LossPolicy | None = None,
        any_order: bool = False,
    ) -> None:
        """Write `item` soon. Returns at once, from any thread."""
        job = WriteJob(write=write, item=item, loss=loss, any_order=any_order)
        if get_ident() != self.loop_thread:
            self._backlog.add(job)
            return
        self._backlog.check_room(job, ahead=len(self._gathered))
        self._gathered.append(job)
        if len(self._gathered) >= MAX_GATHERED_WRITES:
            self._enqueue_gathered()
        elif len(self._gathered) == 1:
            self.loop.call_soon(self._enqueue_gathered)

    def write_all_soon(
        self,
        write: Callable[[Connection, Sequence[P]], Sequence[Any]],
        items: Sequence[tuple[P, LossPolicy | None]],
    ) -> None:
        """Write these soon, in order. If one is refused, raise after the others were accepted."""
        if get_ident() == self.loop_thread and self._backlog.has_room(len(self._gathered) + len(items)):
            if not self._gathered:
                self.loop.call_soon(self._enqueue_gathered)
            self._gathered += [WriteJob(write=write, item=item, loss=loss) for item, loss in items]
            if len(self._gathered) >= MAX_GATHERED_WRITES:
                self._enqueue_gathered()
            return
        refused: StoreUnavailable | None = None
        for item, loss in items:
            try:
                self.write_soon(write, item, loss=loss)
            except StoreUnavailable as error:
                refused = error
        if refused is not None:
            raise refused

    def write_late(
        self, write: Callable[[Connection, Sequence[P]], Sequence[Any]], item: P, *, loss: LossPolicy
    ) -> None:
        """Write `item` within about a second, with others. If too many wait, the oldest are dropped."""
        if not self._late:
            # Starts a batch, after which the late items are taken.
            self.write_soon(_write_nothing, None, loss=loss, any_order=True)
        self._late.append(WriteJob(write=write, item=item, loss=loss, any_order=True))

    def _enqueue_gathered(self) -> None:
        if self._gathered:
            jobs, self._gathered = self._gathered, []
            self._backlog.add_checked(jobs)

    def flush_soon(self) -> None:
        """Write all queued items now. Returns at once, from any thread."""
        if get_ident() == self.loop_thread:
            self._enqueue_gathered()
        self._backlog.make_due()

    async def close(self) -> None:
        """Write the remaining items and stop. Raises `StoreUnavailable` if some could not be written."""
        self._enqueue_gathered()
        self._backlog.close()
        await anyio.to_thread.run_sync(self._thread.join, self._max_wait)
        if self._thread.is_alive():
            message = f"the database {self._database.location.label} is stuck; closed without its last writes"
            raise StoreUnavailable(message)
        if self._unwritten is not None:
            raise self._unwritten

    # All methods below run in the writer's thread.

    def _run(self) -> None:
        while (jobs := self._backlog.take_batch(self._get_seconds_until_upkeep())) is not None:
            if not jobs or any(job.waiter is not None for job in jobs):
                jobs += self._take_late()
            if jobs:
                self._write_jobs(jobs)
            self._run_upkeep(at_once=False)
        if late := self._take_late():
            self._write_jobs(late)
        self._run_upkeep(at_once=True)
        self._disconnect()

    def _take_late(self) -> list[WriteJob]:
        late: list[WriteJob] = []
        while self._late:
            late.append(self._late.popleft())
        return late

    def _write_jobs(self, jobs: list[WriteJob]) -> None:
        try:
            results = self._commit_jobs(jobs)
        except Exception as error:  # noqa: BLE001 - every waiter must get the error
            if is_database_failure(error):
                self._requeue(jobs, error)
            elif len(jobs) == 1:
                self._reject(jobs[0], error)
            else:
                self._write_singly(jobs)
        else:
            self._pause, self._last_logged, self._last_failure = _FIRST_PAUSE, "", None
            self._resolve_waiters([(job.waiter, result) for job, result in zip(jobs, results, strict=True)])

    def _write_singly(self, jobs: list[WriteJob]) -> None:
        """Write the jobs one at a time to find the invalid one, so that the others succeed."""
        for index, job in enumerate(jobs):
            try:
                results = self._commit_jobs([job])
            except Exception as error:  # noqa: BLE001 - as in `_write_jobs`
                if is_database_failure(error):
                    self._requeue(jobs[index:], error)
                    return
                self._reject(job, error)
            else:
                self._resolve_waiters([(job.waiter, results[0])])

    def _reject(self, job: WriteJob, error: Exception) -> None:
        """Report a write that can never succeed."""
        self._rejected += 1
        if job.waiter is None:
            logger.error("a write was given up: %s", self._explain(error))
        self._resolve_waiters(
            [
                (
                    job.waiter,
                    self._explain_without_location(error)
                    if isinstance(error, DBAPIError)
                    else get_cause(error),
                )
            ]
        )

    def _commit_jobs(self, jobs: list[WriteJob]) -> list[Any]:
        try:
            results = self._execute(jobs)
        except DBAPIError as error:
            # The database server restarted since the last batch. Nothing of this batch was committed yet.
            if not error.connection_invalidated:
                raise
            self._disconnect()
            results = self._execute(jobs)
        connection = self._connection
        assert connection is not None
        connection.commit()
        self._refused = False
        self._commits += 1
        self._written += len(jobs)
        self._largest = max(self._largest, len(jobs))
        if self._upkeep_due is None:
            self._upkeep_due = time.monotonic() + UPKEEP_SECONDS
        return results

    def _execute(self, jobs: list[WriteJob]) -> list[Any]:
        self._database.check_writable()
        if self._connection is None:
            self._connection = self._database.connect_to_write()
        connection = self._connection
        results: list[Any] = [None] * len(jobs)
        # Items without a required order go last, so that they do not split groups.
        order = sorted(range(len(jobs)), key=lambda index: jobs[index].any_order)
        try:
            connection.begin()
            for write, run in groupby(order, key=lambda index: jobs[index].write):
                indexes = list(run)
                made = write(connection, [jobs[index].item for index in indexes])
                for index, result in zip(indexes, made, strict=True):
                    results[index] = result
        except BaseException:
            self._roll_back()
            raise
        return results

    def _requeue(self, jobs: list[WriteJob], error: Exception) -> None:
        """Handle a database failure: report it to waiters and queue the other jobs again."""
        self._failed_commits += 1
        self._disconnect()
        self._last_failure = self._explain_without_location(error)
        if (reason := str(self._explain(error))) != self._last_logged:  # logged once, not for every retry
            self._last_logged = reason
            logger.warning("%s", reason)
        self._resolve_waiters([(job.waiter, self._explain_without_location(error)) for job in jobs])
        without_waiter = [job for job in jobs if job.waiter is None]
        if not without_waiter:
            return
        if self._backlog.closed:
            self._unwritten = (
                self._explain(error) if len(without_waiter) == len(jobs) else self._write_last(without_waiter)
            )
        else:
            self._refused = True
            self._backlog.give_back(without_waiter, pause=self._pause)
            self._pause = min(2 * self._pause, _MAX_PAUSE)

    def _write_last(self, jobs: list[WriteJob]) -> StoreUnavailable | None:
        """Try these jobs once more at close, because the failure may concern only the writes with waiters."""
        try:
            self._commit_jobs(jobs)
        except Exception as error:  # noqa: BLE001 - as in `_write_jobs`
            return self._explain(error)
        return None

    def _explain(self, error: BaseException) -> StoreUnavailable:
        return explain(error, self._database.location)

    def _explain_without_location(self, error: BaseException) -> StoreUnavailable:
        return explain_without_location(error, self._database.location)

    def _resolve_waiters(self, outcomes: list[tuple[asyncio.Future[Any] | None, Any]]) -> None:
        waited = [(waiter, outcome) for waiter, outcome in outcomes if waiter is not None]
        if waited:
            try:
                self.loop.call_soon_threadsafe(_resolve, waited)
            except RuntimeError:  # the loop is closed, so no task waits any more
                logger.debug("the event loop is closed; %d write results were not delivered", len(waited))

    def _get_seconds_until_upkeep(self) -> float | None:
        return None if self._upkeep_due is None else max(0.0, self._upkeep_due - time.monotonic())

    def _run_upkeep(self, *, at_once: bool) -> None:
        """Run the periodic work after commits. Its failure does not affect writes."""
        if self._upkeep_due is None or not (at_once or time.monotonic() >= self._upkeep_due):
            return
        self._upkeep_due = None
        try:
            self._upkeep()
        except (StoreUnavailable, OSError) as error:
            logger.warning("the audit anchor was not written: %s", error)
            self._last_failure = error if isinstance(error, StoreUnavailable) else self._last_failure
            self._upkeep_due = time.monotonic() + UPKEEP_SECONDS

    def _roll_back(self) -> None:
        try:
            if self._connection is not None:
                self._connection.rollback()
        except DBAPIError:
            self._disconnect()

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            try:
                connection.invalidate()
                connection.close()
            except DBAPIError:
                logger.debug("a broken connection did not close cleanly", exc_info=True)


def _write_nothing(_: Connection, items: Sequence[None]) -> Sequence[None]:
    return items


def _resolve(outcomes: list[tuple[asyncio.Future[Any], Any]]) -> None:
    for waiter, outcome in outcomes:
        if waiter.done():  # cancelled meanwhile
            continue
        if isinstance(outcome, Exception):
            waiter.set_exception(outcome)
        else:
            waiter.set_result(outcome)


class StorePart:
    """A part of the store: rows that are read from the database and written by the writer."""

    def __init__(self, database: Database, writer: StoreWriter) -> None:
        self._database = database
        self._writer = writer
        self._loss = LossPolicy()  # for rows that nothing waits for

    async def _read_rows(self, query: Executable) -> Sequence[Row[Any]]:
        return await self._database.read(lambda connection: connection.execute(query).all())

    async def _read_records(self, query: Executable, build: Callable[[Row[Any]], R]) -> list[R]:
        """Return the record of each row, built in the reader's thread."""
        return await self._database.read(lambda connection: [build(row) for row in connection.execute(query)])

    async def _read_mappings(self, query: Executable) -> list[dict[str, Any]]:
        """Return the values of each row by column."""
        return await self._database.read(
            lambda connection: [
                {str(name): value for name, value in row.items()}
                for row in connection.execute(query).mappings()
            ]
        )

    async def _read_value(self, query: Executable) -> Any:
        """Return the first column of the first row, or None if there is none."""
        return await self._database.read(lambda connection: connection.execute(query).scalar())

    async def _write(
        self, function: Callable[Concatenate[Connection, A], R], /, *args: A.args, **named: A.kwargs
    ) -> R:
        """Call `function` in the next transaction. Return its result when the transaction is on disk.

        Write transactions are serialized: what the function reads, no other process changes meanwhile.
        """

        def call(connection: Connection) -> R:
            return function(connection, *args, **named)

        return await self._writer.write(_call_all, call)

    async def _execute(self, statement: Executable, *rows: dict[str, Any]) -> int:
        """Execute a statement, with the values of each row. Return how many rows it changed."""

        def execute(connection: Connection) -> int:
            return connection.execute(statement, list(rows) or None).rowcount

        return await self._write(execute)

    def _write_soon(
        self, function: Callable[Concatenate[Connection, A], object], /, *args: A.args, **named: A.kwargs
    ) -> None:
        """Call `function` soon, in any order. Returns at once. May be lost while the disk is blocked."""

        def call(connection: Connection) -> object:
            return function(connection, *args, **named)

        self._writer.write_soon(_call_all, call, loss=self._loss, any_order=True)

    def _upsert(self, table: Table, change: ColumnChange | None = None) -> Executable:
        """Return an INSERT that updates an existing row to the new values, or as `change` says."""
        return build_upsert(self._database.dialect, table, change)


def _call_all(connection: Connection, functions: Sequence[Callable[[Connection], R]]) -> list[R]:
    return [function(connection) for function in functions]

"""Deadlines, slots per server, parallel jobs and background calls."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Collection, Sequence
from enum import StrEnum
from types import TracebackType
from typing import Final, Generic, TypeVar

import anyio

from fingerpost.call.execution.failure import AttemptRefused, Failure
from fingerpost.call.execution.upstream import ProgressReporter, TimeSource
from fingerpost.errors import CallError, LimitReached
from fingerpost.frozen import frozen
from fingerpost.records import CallContext, Effect, ErrorKind, create_id
from fingerpost.redaction import scrub
from fingerpost.servers.requests import RequestClock
from fingerpost.tasks import TaskOwner, create_cancel_scope

# The clock of asyncio event loops. Looking up the running loop costs a system call each time.
loop_time = time.monotonic


class ToolDeadline:
    """The deadline of one tool: its own timeout, limited by the caller's deadline.

    The tool's timeout does not run while its call waits for a slot, because this queue says nothing about the
    server. The total wait has the same limit as the timeout.
    """

    __slots__ = ("_own", "_seconds", "_waiting", "until")

    def __init__(self, seconds: float, *, until: float) -> None:
        self._seconds = seconds
        self._own = loop_time() + seconds
        self._waiting = seconds
        self.until = until  # the caller's deadline

    def renew(self) -> None:
        """Start the full timeout again, within the same caller's deadline."""
        self._own = loop_time() + self._seconds
        self._waiting = self._seconds

    @property
    def expires_at(self) -> float:
        """The earlier of the two deadlines."""
        return min(self._own, self.until)

    @property
    def remaining(self) -> float:
        return max(0.0, self.expires_at - loop_time())

    @property
    def is_cut_short(self) -> bool:
        """Whether the caller's deadline has passed before the tool's own timeout."""
        return self.until < self._own and loop_time() >= self.until

    def get_wait_deadline(self, now: float) -> float:
        """Return until when a call that starts to wait for a slot now may wait."""
        return min(now + self._waiting, self.until)

    def add_wait(self, seconds: float) -> None:
        self._own += seconds
        self._waiting -= seconds


MAX_WAITING_PER_CALLER = 256  # calls of one caller to one server
MAX_WAITING = 4096  # calls to one server
MAX_LENT = 256  # slots of one server; beyond that, a call that waits for a person keeps its slot


class NoSlotAvailable(AttemptRefused):
    """No slot became free in time."""


@frozen(kw_only=False)
class SlotOwner:
    """The caller and conversation that use a slot."""

    caller: str = ""
    conversation: str = ""

    @classmethod
    def from_context(cls, context: CallContext) -> SlotOwner:
        """Return the owner of a call's slot. The conversation tells apart local programs of one name."""
        return cls(context.caller or "", context.conversation or "")


UNKNOWN_OWNER: Final = SlotOwner()


class _SlotQueue:
    """The slots of one server, and the queue for them."""

    __slots__ = ("_served", "_turns", "free", "lent", "number_waiting", "running", "waiting")

    def __init__(self, free: int) -> None:
        self.free = free  # negative while calls with reclaimed slots run beside their borrowers
        self.lent = 0
        self.waiting: dict[str, dict[str, deque[asyncio.Future[bool]]]] = {}  # by caller and conversation
        self.number_waiting: Counter[str] = Counter()  # by caller
        self.running: Counter[str | SlotOwner] = Counter()  # by caller, and by caller and conversation
        self._turns = 0
        self._served: dict[str | SlotOwner, int] = {}  # the last turn of each waiting owner

    def begin(self, owner: SlotOwner) -> None:
        """Count a running call of this owner."""
        self.running[owner.caller] += 1
        self.running[owner] += 1

    def end(self, owner: SlotOwner) -> None:
        """Stop counting a call of this owner, permanently or while its slot is lent."""
        for key in (owner.caller, owner):
            self.running[key] -= 1
            if not self.running[key]:
                del self.running[key]

    def release(self, owner: SlotOwner) -> None:
        """Give the slot to the next waiter, unless more calls run than there are slots."""
        self.end(owner)
        while self.waiting and self.free >= 0:
            caller = min(self.waiting, key=self._get_priority)
            owners = [SlotOwner(caller, conversation) for conversation in self.waiting[caller]]
            chosen = min(owners, key=self._get_priority)
            waiter = self.waiting[caller][chosen.conversation][0]
            if waiter.cancelled():  # its caller was, in this turn of the event loop
                self._remove(waiter, chosen)
                continue
            self._turns += 1
            self._served[caller] = self._served[chosen] = self._turns
            self._remove(waiter, chosen)
            self.begin(chosen)
            waiter.set_result(True)
            return
        self.free += 1

    def _get_priority(self, key: str | SlotOwner) -> tuple[int, int]:
        return self.running[key], self._served.get(key, 0)

    def add(self, waiter: asyncio.Future[bool], owner: SlotOwner) -> None:
        self.waiting.setdefault(owner.caller, {}).setdefault(owner.conversation, deque()).append(waiter)
        self.number_waiting[owner.caller] += 1

    def _remove(self, waiter: asyncio.Future[bool], owner: SlotOwner) -> None:
        """Remove a waiter from the queue."""
        conversations = self.waiting[owner.caller]
        line = conversations[owner.conversation]
        line.remove(waiter)
        self.number_waiting[owner.caller] -= 1
        if not line:
            del conversations[owner.conversation]
            self._served.pop(owner, None)
        if not conversations:
            del self.waiting[owner.caller]
            del self.number_waiting[owner.caller]
            self._served.pop(owner.caller, None)

    def withdraw(self, waiter: asyncio.Future[bool], owner: SlotOwner) -> None:
        """Remove a waiter that gave up. A slot granted at the same moment goes to the next waiter."""
        if waiter.done() and not waiter.cancelled() and waiter.result():
            self.release(owner)
        elif waiter in self.waiting.get(owner.caller, {}).get(owner.conversation, ()):
            self._remove(waiter, owner)


class SlotPool:
    """The slots of all servers."""

    def __init__(
        self,
        *,
        per_server: int,
        max_waiting: int = MAX_WAITING_PER_CALLER,
        max_lent: int = MAX_LENT,
        unbounded: Collection[str] = (),
    ) -> None:
        """Calls to `unbounded` servers start other calls, so they need no slot: they would deadlock."""
        self._unbounded = frozenset(unbounded)
        self._per_server = per_server
        self._max_waiting = max_waiting
        self._max_lent = max_lent
        self._queues: dict[str, _SlotQueue] = {}

    async def acquire(self, server: str, owner: SlotOwner = UNKNOWN_OWNER, *, until: float) -> None:
        """Acquire a slot of this server. Raises `NoSlotAvailable` if none is free before `until`."""
        if server in self._unbounded:
            return
        queue = self._queues.get(server)
        if queue is None:
            queue = self._queues[server] = _SlotQueue(self._per_server)
        if queue.free > 0:
            queue.free -= 1  # there are no waiters while a slot is free
            queue.begin(owner)
        elif not await self._wait(server, queue, owner, until):
            raise NoSlotAvailable(
                _build_busy_failure(server, f"all {self._per_server} parallel calls were in use")
            )

    def release(self, server: str, owner: SlotOwner = UNKNOWN_OWNER) -> None:
        if server not in self._unbounded:
            self._queues[server].release(owner)

    def lend_slot(self, server: str, owner: SlotOwner = UNKNOWN_OWNER) -> bool:
        """Lend the slot to other calls. Return False if too many slots are lent already."""
        queue = self._queues.get(server)
        if queue is None or queue.lent >= self._max_lent:
            return False
        queue.lent += 1
        queue.release(owner)
        return True

    def reclaim(self, server: str, owner: SlotOwner = UNKNOWN_OWNER) -> None:
        """Take back a lent slot immediately."""
        queue = self._queues[server]
        queue.lent -= 1
        queue.free -= 1
        queue.begin(owner)

    async def _wait(self, server: str, queue: _SlotQueue, owner: SlotOwner, until: float) -> bool:
        """Return whether a slot became free in time. A plain future is fast: under load most calls wait."""
        waiting_of_caller = queue.number_waiting[owner.caller]
        if waiting_of_caller >= self._max_waiting or (
            waiting_of_caller and queue.number_waiting.total() >= MAX_WAITING
        ):
            raise NoSlotAvailable(
                _build_busy_failure(server, f"{waiting_of_caller} calls of this caller already wait for it")
            )
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[bool] = loop.create_future()
        queue.add(waiter, owner)
        timer = None if math.isinf(until) else loop.call_at(until, _expire_waiter, queue, waiter, owner)
        try:
            return await waiter
        except BaseException:
            queue.withdraw(waiter, owner)
            raise
        finally:
            if timer is not None:
                timer.cancel()


class SlotClock(RequestClock):
    """The clock of a call with a slot. The slot is lent while the clock is paused for a person."""

    def __init__(
        self,
        slots: SlotPool,
        server: str,
        owner: SlotOwner,
        *,
        timeout: float,
        until: float,
    ) -> None:
        scope = create_cancel_scope(min(loop_time() + timeout, until))
        super().__init__(scope, timeout=timeout, deadline=until)
        self._slots = slots
        self._server = server
        self._owner = owner
        self._lent = False
        self._over = False

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        """End the call and reclaim its slot for release, even if a question is still open."""
        try:
            return super().__exit__(kind, error, trace)
        finally:
            self._over = True
            self._reclaim()

    def pause(self) -> None:
        super().pause()
        self._lent = not self._over and self._slots.lend_slot(self._server, self._owner)

    def resume(self) -> None:
        super().resume()
        self._reclaim()

    def _reclaim(self) -> None:
        if self._lent:
            self._lent = False
            self._slots.reclaim(self._server, self._owner)


def _expire_waiter(queue: _SlotQueue, waiter: asyncio.Future[bool], owner: SlotOwner) -> None:
    if not waiter.done():
        queue.withdraw(waiter, owner)
        waiter.set_result(False)


def _build_busy_failure(server: str, reason: str) -> Failure:
    return Failure(
        kind=ErrorKind.UNAVAILABLE,
        detail=f"{server} is busy: {reason}",
        hint="try again later, or raise call.concurrency if the server can handle more",
    )


T = TypeVar("T")

MAX_PARALLEL = 16


@frozen(kw_only=False)
class ParallelJob(Generic[T]):
    """Work on one server."""

    server: str
    effect: Effect
    work: Callable[[], Awaitable[T]]


async def run_in_parallel(
    jobs: Sequence[ParallelJob[T]], *, max_parallel: int = MAX_PARALLEL
) -> tuple[T, ...]:
    """Return the results of all jobs in order. If one raises, the others are cancelled."""
    results: dict[int, T] = {}
    limit = anyio.Semaphore(max_parallel)

    async def work_through(lane: list[int]) -> None:
        for index in lane:
            async with limit:
                results[index] = await jobs[index].work()

    async with anyio.create_task_group() as tasks:
        for lane in _group_in_lanes(jobs):
            tasks.start_soon(work_through, lane)
    return tuple(results[index] for index in range(len(jobs)))


def _group_in_lanes(jobs: Sequence[ParallelJob[T]]) -> list[list[int]]:
    """Group jobs that must run in sequence: writes to one server. Every read is its own group."""
    lanes: list[list[int]] = []
    writes: dict[str, list[int]] = {}
    for index, job in enumerate(jobs):
        if job.effect is Effect.READ:
            lanes.append([index])
        elif job.server in writes:
            writes[job.server].append(index)
        else:
            writes[job.server] = [index]
            lanes.append(writes[job.server])
    return lanes


logger = logging.getLogger("fingerpost.call")


MAX_RUNNING = 32
MAX_KEPT_RESULTS = 200
KEEP_SECONDS = 3600.0


class BackgroundState(StrEnum):
    RUNNING = "running"
    DONE = "done"
    CANCELLED = "cancelled"
    FAILED = "failed"  # an internal error: a tool's error is an ordinary result


@frozen
class BackgroundStatus:
    """The progress of a background call."""

    handle: str
    tool: str
    state: BackgroundState
    seconds: float
    progress: float | None = None
    total: float | None = None
    message: str = ""


class _BackgroundJob(Generic[T]):
    """One background call."""

    def __init__(self, handle: str, tool: str, owner: str | None, began: float) -> None:
        self.handle = handle
        self.tool = tool
        self.owner = owner
        self.began = began
        self.ended: float | None = None
        self.state = BackgroundState.RUNNING
        self.progress: tuple[float | None, float | None, str] = (None, None, "")
        self.result: T | None = None
        self.scope = anyio.CancelScope()
        self.over = anyio.Event()

    async def report_progress(self, progress: float, total: float | None, message: str | None) -> None:
        self.progress = (progress, total, scrub(message or ""))


class BackgroundCalls(TaskOwner, Generic[T]):
    """Running background calls and recent results. Leaving the context cancels all calls."""

    def __init__(
        self,
        *,
        max_running: int = MAX_RUNNING,
        max_kept: int = MAX_KEPT_RESULTS,
        keep_seconds: float = KEEP_SECONDS,
        clock: TimeSource = time.monotonic,
    ) -> None:
        self._max_running = max_running
        self._max_kept = max_kept
        self._keep_seconds = keep_seconds
        self._clock = clock
        self._jobs: dict[str, _BackgroundJob[T]] = {}

    def start(
        self, work: Callable[[ProgressReporter], Awaitable[T]], *, tool: str, owner: str | None = None
    ) -> str:
        """Start the work and return its handle at once. Only `owner` may use the handle."""
        if self._tasks is None:
            message = "background work is started inside `async with BackgroundCalls()`"
            raise RuntimeError(message)
        self._remove_expired()
        running = sum(job.state is BackgroundState.RUNNING for job in self._jobs.values())
        if running >= self._max_running:
            message = f"{running} calls already run in the background"
            raise LimitReached(message, hint="wait for one of them, or cancel one")
        job = _BackgroundJob[T](create_id("bgr"), tool, owner, self._clock())
        self._jobs[job.handle] = job
        self._tasks.start_soon(self._run, job, work)
        return job.handle

    def poll(self, handle: str, *, owner: str | None = None) -> BackgroundStatus:
        """Return the status. Raises `CallError` if the handle is unknown or expired."""
        job = self._find(handle, owner)
        ended = self._clock() if job.ended is None else job.ended
        progress, total, message = job.progress
        return BackgroundStatus(
            handle=handle,
            tool=job.tool,
            state=job.state,
            seconds=ended - job.began,
            progress=progress,
            total=total,
            message=message,
        )

    async def result(self, handle: str, *, timeout: float = 0.0, owner: str | None = None) -> T | None:
        """Wait up to `timeout` seconds and return the result, or None if there is none (see `poll`)."""
        job = self._find(handle, owner)
        with anyio.move_on_after(timeout):
            await job.over.wait()
        return job.result

    async def cancel(self, handle: str, *, timeout: float = 10.0, owner: str | None = None) -> bool:
        """Cancel the call and wait until it has ended. Return False if it had ended already."""
        job = self._find(handle, owner)
        if job.over.is_set():
            return False
        job.scope.cancel()
        with anyio.move_on_after(timeout):
            await job.over.wait()
        return job.state is BackgroundState.CANCELLED

    async def _run(self, job: _BackgroundJob[T], work: Callable[[ProgressReporter], Awaitable[T]]) -> None:
        state = BackgroundState.CANCELLED
        try:
            with job.scope:
                job.result = await work(job.report_progress)
                state = BackgroundState.DONE
        except Exception:
            # A failed job must not cancel the others.
            logger.exception("background work on %s failed", job.tool)
            state = BackgroundState.FAILED
        finally:
            job.state = state
            job.ended = self._clock()
            job.over.set()

    def _find(self, handle: str, owner: str | None) -> _BackgroundJob[T]:
        self._remove_expired()
        job = self._jobs.get(handle)
        if job is None or job.owner != owner:
            message = f"there is no background call {handle}"
            raise CallError(message, hint="results are kept for a limited time; start the call again")
        return job

    def _remove_expired(self) -> None:
        now = self._clock()
        over = [job for job in self._jobs.values() if job.ended is not None]
        surplus = len(over) - self._max_kept
        for index, job in enumerate(over):
            if index < surplus or (job.ended is not None and now - job.ended >= self._keep_seconds):
                del self._jobs[job.handle]

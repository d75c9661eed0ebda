"""How many calls one server gets at once. Who came first goes first.

The queue is bounded: behind a stuck server a thousand callers would only wait
for their own deadlines.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Collection

from fingerpost.call.execution.clock import loop_time
from fingerpost.call.execution.failure import Failure
from fingerpost.records import ErrorKind

MOST_WAITING = 256  # callers of one server


class NoSlot(Exception):
    """There was no slot in time. Carries the failure to report."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.detail)
        self.failure = failure


class _Queue:
    """The slots of one server, and who waits for one."""

    __slots__ = ("free", "waiting")

    def __init__(self, free: int) -> None:
        self.free = free
        self.waiting: deque[asyncio.Future[bool]] = deque()

    def give_back(self) -> None:
        """To whoever has waited longest and still does."""
        while self.waiting:
            waiter = self.waiting.popleft()
            if not waiter.done():
                waiter.set_result(True)
                return
        self.free += 1

    def leave(self, waiter: asyncio.Future[bool]) -> None:
        """Somebody waits no more. A slot that came in the same moment goes to the next."""
        if waiter.done() and not waiter.cancelled() and waiter.result():
            self.give_back()
        elif waiter in self.waiting:
            self.waiting.remove(waiter)


class Slots:
    """The slots of all servers."""

    def __init__(
        self, *, each: int, most_waiting: int = MOST_WAITING, unbounded: Collection[str] = ()
    ) -> None:
        """Servers that are `unbounded` have calls begin others of their own, which must not wait for them."""
        self._unbounded = frozenset(unbounded)
        self._each = each
        self._most_waiting = most_waiting
        self._queues: dict[str, _Queue] = {}

    async def take(self, server: str, *, until: float) -> None:
        """Take a slot of this server, to be given back. Raises `NoSlot` when none is free before `until`."""
        if server in self._unbounded:
            return
        queue = self._queues.get(server)
        if queue is None:
            queue = self._queues[server] = _Queue(self._each)
        if queue.free > 0 and loop_time() < until:
            queue.free -= 1  # nobody waits while one is free
        elif not await self._wait(server, queue, until):
            raise NoSlot(_busy(server, f"none of its {self._each} slots came free in time"))

    def give_back(self, server: str) -> None:
        if server not in self._unbounded:
            self._queues[server].give_back()

    async def _wait(self, server: str, queue: _Queue, until: float) -> bool:
        """Whether there was one in time. A plain future and a timer: under load nearly every call waits."""
        if len(queue.waiting) >= self._most_waiting:
            raise NoSlot(_busy(server, f"{len(queue.waiting)} calls already wait for it"))
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[bool] = loop.create_future()
        queue.waiting.append(waiter)
        timer = None if math.isinf(until) else loop.call_at(until, _too_late, queue, waiter)
        try:
            return await waiter
        except BaseException:
            queue.leave(waiter)
            raise
        finally:
            if timer is not None:
                timer.cancel()


def _too_late(queue: _Queue, waiter: asyncio.Future[bool]) -> None:
    if not waiter.done():
        queue.leave(waiter)
        waiter.set_result(False)


def _busy(server: str, reason: str) -> Failure:
    return Failure(
        kind=ErrorKind.UNAVAILABLE,
        detail=f"{server} is busy: {reason}",
        hint="try again later, or raise call.concurrency if the server can take more",
    )

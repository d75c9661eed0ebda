"""How many calls one server gets at once. Who came first goes first.

The queue is bounded: behind a stuck server a thousand callers would only wait
for their own deadlines.

A call that waits for a person lends its slot: the server has nothing to do for
it, and a person may take minutes. When the answer comes it goes on at once,
whether or not a slot is free, since the server is at work on it already.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Collection

import anyio

from fingerpost.call.execution.failure import Failure
from fingerpost.records import ErrorKind
from fingerpost.servers.clock import Clock

MOST_WAITING = 256  # callers of one server
MOST_LENT = 256  # slots of one server; a call that waits for a person beyond that keeps its own


class NoSlot(Exception):
    """There was no slot in time. Carries the failure to report."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.detail)
        self.failure = failure


class _Queue:
    """The slots of one server, and who waits for one."""

    __slots__ = ("free", "lent", "waiting")

    def __init__(self, free: int) -> None:
        self.free = free  # below zero while calls that had lent theirs run beside those who got it
        self.lent = 0
        self.waiting: deque[asyncio.Future[bool]] = deque()

    def give_back(self) -> None:
        """To whoever has waited longest and still does, unless more run than there are slots."""
        while self.waiting and self.free >= 0:
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
        self,
        *,
        each: int,
        most_waiting: int = MOST_WAITING,
        most_lent: int = MOST_LENT,
        unbounded: Collection[str] = (),
    ) -> None:
        """Servers that are `unbounded` have calls begin others of their own, which must not wait for them."""
        self._unbounded = frozenset(unbounded)
        self._each = each
        self._most_waiting = most_waiting
        self._most_lent = most_lent
        self._queues: dict[str, _Queue] = {}

    async def take(self, server: str, *, until: float) -> None:
        """Take a slot of this server, to be given back. Raises `NoSlot` when none is free before `until`."""
        if server in self._unbounded:
            return
        queue = self._queues.get(server)
        if queue is None:
            queue = self._queues[server] = _Queue(self._each)
        if queue.free > 0:
            queue.free -= 1  # nobody waits while one is free
        elif not await self._wait(server, queue, until):
            raise NoSlot(_busy(server, f"none of its {self._each} slots came free in time"))

    def give_back(self, server: str) -> None:
        if server not in self._unbounded:
            self._queues[server].give_back()

    def lend(self, server: str) -> bool:
        """Let others have the slot for now. False: so many do that already that this one stays taken."""
        queue = self._queues.get(server)
        if queue is None or queue.lent >= self._most_lent:
            return False
        queue.lent += 1
        queue.give_back()
        return True

    def take_back(self, server: str) -> None:
        """Have a lent slot again, at once."""
        queue = self._queues[server]
        queue.lent -= 1
        queue.free -= 1

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


class SlotClock(Clock):
    """The clock of a call that has a slot: while it stands still for a person, the slot is lent."""

    def __init__(
        self, scope: anyio.CancelScope, slots: Slots, server: str, *, patience: float, until: float
    ) -> None:
        super().__init__(scope, patience=patience, until=until)
        self._slots = slots
        self._server = server
        self._lent = False
        self._over = False

    def stand(self) -> None:
        super().stand()
        self._lent = not self._over and self._slots.lend(self._server)

    def go_on(self) -> None:
        super().go_on()
        self._take_back()

    def end(self) -> None:
        """The call is over, and has its slot to give back, though a question of it may still be open."""
        self._over = True
        self._take_back()

    def _take_back(self) -> None:
        if self._lent:
            self._lent = False
            self._slots.take_back(self._server)


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

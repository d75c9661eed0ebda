"""How many calls one server gets at once. Who came first goes first.

The queue is bounded: behind a stuck server a thousand callers would only wait
for their own deadlines.
"""

from __future__ import annotations

import anyio

from fingerpost.call.execution.clock import loop_time
from fingerpost.call.execution.failure import Failure
from fingerpost.records import ErrorKind

MOST_WAITING = 256  # callers of one server


class NoSlot(Exception):
    """There was no slot in time. Carries the failure to report."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.detail)
        self.failure = failure


class Slots:
    """The slots of all servers."""

    def __init__(self, *, each: int, most_waiting: int = MOST_WAITING) -> None:
        self._each = each
        self._most_waiting = most_waiting
        self._free: dict[str, anyio.Semaphore] = {}
        self._waiting: dict[str, int] = {}

    async def take(self, server: str, *, until: float) -> None:
        """Take a slot of this server, to be given back. Raises `NoSlot` when none is free before `until`."""
        free = self._free.get(server)
        if free is None:
            free = self._free[server] = anyio.Semaphore(self._each)
        if free.value > 0 and loop_time() < until:
            free.acquire_nowait()  # who waits is served when a slot is given back: none is free meanwhile
        else:
            await self._acquire(server, free, until)

    def give_back(self, server: str) -> None:
        self._free[server].release()

    async def _acquire(self, server: str, free: anyio.Semaphore, until: float) -> None:
        waiting = self._waiting.get(server, 0)
        if free.value == 0 and waiting >= self._most_waiting:
            raise NoSlot(_busy(server, f"{waiting} calls already wait for it"))
        self._waiting[server] = waiting + 1
        try:
            with anyio.move_on_at(until):
                await free.acquire()
                return
        finally:
            self._waiting[server] -= 1
        raise NoSlot(_busy(server, f"none of its {self._each} slots came free in time"))


def _busy(server: str, reason: str) -> Failure:
    return Failure(
        kind=ErrorKind.UNAVAILABLE,
        detail=f"{server} is busy: {reason}",
        hint="try again later, or raise call.concurrency if the server can take more",
    )

"""How many calls one server gets at once, shared by its callers.

A slot that comes free goes to the waiting caller who has the fewest calls running
there, and among those to the one who was served longest ago; within one caller the
same holds for conversations, and within a conversation who came first goes first.
A caller that sends many calls at once delays its own, not those of others.

The queue is bounded for each caller: behind a stuck server a thousand calls would
only wait for their own deadlines.

A call that waits for a person lends its slot: the server has nothing to do for
it, and a person may take minutes. When the answer comes it goes on at once,
whether or not a slot is free, since the server is at work on it already.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter, deque
from collections.abc import Collection
from typing import Final

import anyio

from fingerpost.call.execution.failure import Failure
from fingerpost.frozen import frozen
from fingerpost.records import CallContext, ErrorKind
from fingerpost.servers.clock import RequestClock

MAX_WAITING_PER_SERVER = 256  # calls of one caller to one server
MAX_WAITING = 4096  # calls to one server
MAX_LENT = 256  # slots of one server; a call that waits for a person beyond that keeps its own


class NoSlotAvailable(Exception):
    """There was no slot in time. Carries the failure to report."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.detail)
        self.failure = failure


@frozen(kw_only=False)
class SlotOwner:
    """For whom a slot is taken: a caller, and which of their conversations."""

    caller: str = ""
    conversation: str = ""


def get_slot_owner(context: CallContext) -> SlotOwner:
    """Local programs have one name: their sessions tell them apart."""
    return SlotOwner(context.caller or "", context.conversation or "")


UNKNOWN_OWNER: Final = SlotOwner()


class _SlotQueue:
    """The slots of one server, and who waits for one."""

    __slots__ = ("_served", "_turns", "free", "lent", "number_waiting", "running", "waiting")

    def __init__(self, free: int) -> None:
        self.free = free  # below zero while calls that had lent theirs run beside those who got it
        self.lent = 0
        self.waiting: dict[str, dict[str, deque[asyncio.Future[bool]]]] = {}  # by caller and conversation
        self.number_waiting: Counter[str] = Counter()  # by caller
        self.running: Counter[str | SlotOwner] = Counter()  # by caller, and by caller and conversation
        self._turns = 0
        self._served: dict[str | SlotOwner, int] = {}  # the last turn of each who waits

    def begin(self, owner: SlotOwner) -> None:
        """A call of theirs has a slot."""
        self.running[owner.caller] += 1
        self.running[owner] += 1

    def end(self, owner: SlotOwner) -> None:
        """It has none any more, for good or for now."""
        for key in (owner.caller, owner):
            self.running[key] -= 1
            if not self.running[key]:
                del self.running[key]

    def release(self, owner: SlotOwner) -> None:
        """To the next in turn, unless more run than there are slots."""
        self.end(owner)
        if not self.waiting or self.free < 0:
            self.free += 1
            return
        caller = min(self.waiting, key=self._get_priority)
        owners = [SlotOwner(caller, conversation) for conversation in self.waiting[caller]]
        chosen = min(owners, key=self._get_priority)
        self._turns += 1
        self._served[caller] = self._served[chosen] = self._turns
        waiter = self.waiting[caller][chosen.conversation][0]
        self._remove(waiter, chosen)
        self.begin(chosen)
        waiter.set_result(True)

    def _get_priority(self, key: str | SlotOwner) -> tuple[int, int]:
        return self.running[key], self._served.get(key, 0)

    def add(self, waiter: asyncio.Future[bool], owner: SlotOwner) -> None:
        self.waiting.setdefault(owner.caller, {}).setdefault(owner.conversation, deque()).append(waiter)
        self.number_waiting[owner.caller] += 1

    def _remove(self, waiter: asyncio.Future[bool], owner: SlotOwner) -> None:
        """Remove the entry of a caller that waits no more."""
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
        """Somebody waits no more. A slot that came in the same moment goes to the next."""
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
        max_waiting: int = MAX_WAITING_PER_SERVER,
        max_lent: int = MAX_LENT,
        unbounded: Collection[str] = (),
    ) -> None:
        """Servers that are `unbounded` have calls begin others of their own, which must not wait for them."""
        self._unbounded = frozenset(unbounded)
        self._each = per_server
        self._most_waiting = max_waiting
        self._most_lent = max_lent
        self._queues: dict[str, _SlotQueue] = {}

    async def acquire(self, server: str, owner: SlotOwner = UNKNOWN_OWNER, *, until: float) -> None:
        """Take a slot of this server, to be given back. Raises `NoSlotAvailable` when none is free before
        `until`.
        """
        if server in self._unbounded:
            return
        queue = self._queues.get(server)
        if queue is None:
            queue = self._queues[server] = _SlotQueue(self._each)
        if queue.free > 0:
            queue.free -= 1  # nobody waits while one is free
            queue.begin(owner)
        elif not await self._wait(server, queue, owner, until):
            raise NoSlotAvailable(
                _build_busy_failure(server, f"none of its {self._each} slots came free in time")
            )

    def release(self, server: str, owner: SlotOwner = UNKNOWN_OWNER) -> None:
        if server not in self._unbounded:
            self._queues[server].release(owner)

    def lend_slot(self, server: str, owner: SlotOwner = UNKNOWN_OWNER) -> bool:
        """Let others have the slot for now. False: so many do that already that this one stays taken."""
        queue = self._queues.get(server)
        if queue is None or queue.lent >= self._most_lent:
            return False
        queue.lent += 1
        queue.release(owner)
        return True

    def reclaim(self, server: str, owner: SlotOwner = UNKNOWN_OWNER) -> None:
        """Have a lent slot again, at once."""
        queue = self._queues[server]
        queue.lent -= 1
        queue.free -= 1
        queue.begin(owner)

    async def _wait(self, server: str, queue: _SlotQueue, owner: SlotOwner, until: float) -> bool:
        """Whether there was one in time. A plain future and a timer: under load nearly every call waits."""
        theirs = queue.number_waiting[owner.caller]
        if theirs >= self._most_waiting or (theirs and queue.number_waiting.total() >= MAX_WAITING):
            raise NoSlotAvailable(
                _build_busy_failure(server, f"{theirs} calls of this caller already wait for it")
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
    """The clock of a call that has a slot: while it stands still for a person, the slot is lent."""

    def __init__(
        self,
        scope: anyio.CancelScope,
        slots: SlotPool,
        server: str,
        owner: SlotOwner,
        *,
        timeout: float,
        until: float,
    ) -> None:
        super().__init__(scope, timeout=timeout, deadline=until)
        self._slots = slots
        self._server = server
        self._owner = owner
        self._lent = False
        self._over = False

    def pause(self) -> None:
        super().pause()
        self._lent = not self._over and self._slots.lend_slot(self._server, self._owner)

    def resume(self) -> None:
        super().resume()
        self._reclaim()

    def end(self) -> None:
        """The call is over, and has its slot to give back, though a question of it may still be open."""
        self._over = True
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
        hint="try again later, or raise call.concurrency if the server can take more",
    )

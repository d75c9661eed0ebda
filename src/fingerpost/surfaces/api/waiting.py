"""How many calls wait for a person, counted once for all who watch."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

import anyio

from fingerpost.call.approvals import Approvals
from fingerpost.events import ApprovalDecided, ApprovalRequested, Event, Fanout

FRESH_S = 0.2


class Change:
    """Wakes somebody who waits for the count to change."""

    def __init__(self) -> None:
        self._event = anyio.Event()

    def ring(self) -> None:
        self._event.set()

    async def wait(self, seconds: float) -> None:
        """Until something may have changed, but no longer than this."""
        with anyio.move_on_after(seconds):
            await self._event.wait()
        self._event = anyio.Event()


class Waiting:
    """An event sink: what is asked and decided in this process is known at once."""

    def __init__(self, approvals: Approvals, events: Fanout) -> None:
        self._approvals = approvals
        self._watchers: set[Change] = set()
        self._lock = anyio.Lock()
        self._callers: tuple[str | None, ...] = ()
        self._at = -FRESH_S
        events.add(self)

    def emit(self, event: Event) -> None:
        if isinstance(event, ApprovalRequested | ApprovalDecided):
            self._at = -FRESH_S
            for watcher in tuple(self._watchers):
                watcher.ring()

    @contextmanager
    def changes(self) -> Generator[Change]:
        """For one who watches."""
        watcher = Change()
        self._watchers.add(watcher)
        try:
            yield watcher
        finally:
            self._watchers.discard(watcher)

    async def count(self, own: str | None) -> int:
        """How many wait, all or those of one caller."""
        async with self._lock:
            now = anyio.current_time()
            if now - self._at >= FRESH_S:
                self._at = now
                self._callers = tuple(one.caller for one in await self._approvals.waiting())
        return sum(own in (None, caller) for caller in self._callers)

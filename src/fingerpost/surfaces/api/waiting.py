"""How many calls wait for a person, counted once for all who watch."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

import anyio

from fingerpost.call.approvals import CallApprovals
from fingerpost.events import ApprovalDecided, ApprovalRequested, Event, Fanout

COUNT_FRESH_S = 0.2


class CountChange:
    """Wakes somebody who waits for the count to change."""

    def __init__(self) -> None:
        self._event = anyio.Event()

    def notify(self) -> None:
        self._event.set()

    async def wait(self, seconds: float) -> None:
        """Until something may have changed, but no longer than this."""
        with anyio.move_on_after(seconds):
            await self._event.wait()
        self._event = anyio.Event()


class PendingCounter:
    """An event sink: what is asked and decided in this process is known at once."""

    def __init__(self, approvals: CallApprovals, events: Fanout) -> None:
        self._approvals = approvals
        self._watchers: set[CountChange] = set()
        self._lock = anyio.Lock()
        self._callers: tuple[str | None, ...] = ()
        self._at = -COUNT_FRESH_S
        events.add(self)

    def emit(self, event: Event) -> None:
        if isinstance(event, ApprovalRequested | ApprovalDecided):
            self._at = -COUNT_FRESH_S
            for watcher in tuple(self._watchers):
                watcher.notify()

    @contextmanager
    def watch_changes(self) -> Generator[CountChange]:
        """For one who watches."""
        watcher = CountChange()
        self._watchers.add(watcher)
        try:
            yield watcher
        finally:
            self._watchers.discard(watcher)

    async def count_pending(self, own: str | None) -> int:
        """How many wait, all or those of one caller."""
        async with self._lock:
            now = anyio.current_time()
            if now - self._at >= COUNT_FRESH_S:
                self._at = now
                self._callers = tuple(one.caller for one in await self._approvals.list_waiting())
        return sum(own in (None, caller) for caller in self._callers)

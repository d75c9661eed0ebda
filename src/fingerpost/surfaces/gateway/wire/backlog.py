"""News on their way to one client: kept in order, bounded, and for a while after they were sent."""

from __future__ import annotations

from collections import deque
from typing import Final

import anyio

from fingerpost.surfaces.gateway.wire.audience import LOG_LEVEL_METHODS, Notification

MAX_NOTIFICATIONS: Final = 64


class NotificationBacklog:
    """Numbered news of one session. What was sent stays for a client that lost its stream."""

    __slots__ = ("_kept", "_last", "_sent", "_woken", "closed")

    def __init__(self) -> None:
        self._kept: deque[tuple[int, Notification]] = deque(maxlen=MAX_NOTIFICATIONS)
        self._last = 0
        self._sent = 0
        self._woken: anyio.Event | None = None
        self.closed = False

    def add(self, notification: Notification) -> None:
        """Keep it; the oldest goes where there are too many."""
        if notification.method in LOG_LEVEL_METHODS and any(
            number > self._sent and kept.message == notification.message for number, kept in self._kept
        ):
            return
        self._last += 1
        self._kept.append((self._last, notification))
        self.wake()

    def close(self) -> None:
        self.closed = True
        self.wake()

    def resume_after(self, number: int) -> None:
        """The client has everything up to `number` and nothing after."""
        self._sent = max(0, min(number, self._last))

    def take_unsent(self) -> list[tuple[int, bytes]]:
        """What is to be sent now; it counts as sent."""
        due = [(number, news.message) for number, news in self._kept if number > self._sent]
        self._sent = self._last
        return due

    async def wait(self) -> None:
        """Until there may be something to send, or the session ended."""
        if self.closed or self._sent < self._last:
            return
        self._woken = anyio.Event()
        await self._woken.wait()

    def wake(self) -> None:
        if self._woken is not None:
            self._woken.set()

"""Who was not let in, for the audit trail: bounded, since each is a write to disk."""

from __future__ import annotations

from fingerpost.events import AccessRefused, EventSink
from fingerpost.surfaces.web.access.tries import FailedAttempts


class RefusalLog:
    """Tells of those who were refused, of each remote only so many a minute."""

    def __init__(self, events: EventSink) -> None:
        self._events = events
        self._told = FailedAttempts()

    def record(self, remote: str, *, endpoint: str, reason: str, principal: str | None = None) -> None:
        if self._told.get_wait(remote) > 0:
            return
        self._told.add_failure(remote)
        self._events.emit(AccessRefused(endpoint=endpoint, reason=reason, principal=principal))

"""How often somebody may fail before they are told to wait.

Guessing a key is hopeless anyway: it has 256 random bits. The bound is there to
tell a client that goes on and on with a wrong one, and to keep the audit trail
from growing without end. It is for those who fail: behind a proxy everybody
comes from one address, so a good credential is let in whatever was tried there.
"""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Final

MAX_FAILURES: Final = 20
WINDOW_S: Final = 60.0
_MAX_REMOTES: Final = 10_000


class FailedAttempts:
    """Counts failures by where they came from, over the last minute."""

    def __init__(
        self,
        *,
        limit: int = MAX_FAILURES,
        seconds: float = WINDOW_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._limit = limit
        self._seconds = seconds
        self._clock = clock
        self._failures: OrderedDict[str, deque[float]] = OrderedDict()

    def get_wait(self, remote: str) -> float:
        """How many seconds this remote has to wait; 0 when it may fail once more."""
        failures = self._failures.get(remote)
        if failures is None or len(failures) < self._limit:
            return 0.0
        return max(0.0, failures[0] + self._seconds - self._clock())

    def add_failure(self, remote: str) -> None:
        """One more failure. Who is forgotten for want of room is whoever failed longest ago."""
        failures = self._failures.pop(remote, None) or deque[float](maxlen=self._limit)
        failures.append(self._clock())
        self._failures[remote] = failures
        if len(self._failures) > _MAX_REMOTES:
            self._failures.popitem(last=False)

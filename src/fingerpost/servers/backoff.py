"""How long to wait before trying a server again."""

from __future__ import annotations

import random
from collections import deque

from fingerpost.servers.lifeline import RetryPace

FIRST_DELAY = 0.5
MIN_DELAY = 0.05
STABLE_SECONDS = 30.0  # a connection that held this long was a good one: waits start small again
MAX_IMMEDIATE_RETRIES = 10  # new handshakes a server may ask for in that time before it has to wait for them


class Backoff:
    """When to try one server again, after all that happened to it so far.

    A new handshake the server itself asked for is granted at once: it is there, and answers. Only one
    that keeps asking waits like any other.
    """

    def __init__(self, *, max_delay: float) -> None:
        self._longest = max_delay
        self._granted: deque[float] = deque(maxlen=MAX_IMMEDIATE_RETRIES)
        self.failures = 0  # in a row

    def get_delay(self, pace: RetryPace, *, began: float, now: float) -> float:
        """Seconds to wait now that the connection tried for at `began` is over."""
        if now - began >= STABLE_SECONDS:
            self.failures = 0
        if pace is RetryPace.NOW and self._may_retry_now(now):
            self._granted.append(now)
            self.failures = 0
            return 0.0
        self.failures += 1
        return compute_delay(self.failures, pace=pace, max_delay=self._longest)

    def _may_retry_now(self, now: float) -> bool:
        return len(self._granted) < MAX_IMMEDIATE_RETRIES or now - self._granted[0] >= STABLE_SECONDS


def compute_delay(attempt: int, *, pace: RetryPace, max_delay: float) -> float:
    """Seconds before the next try, after `attempt` failures in a row (1 is the first).

    Doubling with full jitter, so that many clients of one restarted server do
    not come back in step. What needs a person is looked at rarely.
    """
    if pace is RetryPace.SLOW:
        return random.uniform(max_delay / 2, max_delay)  # noqa: S311 - spreading load, not guarding a secret
    ceiling = min(max_delay, FIRST_DELAY * 2 ** min(attempt - 1, 30))
    return max(min(MIN_DELAY, max_delay), random.uniform(0, ceiling))  # noqa: S311 - as above

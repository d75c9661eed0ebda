"""How long to wait before trying a server again."""

from __future__ import annotations

import random
from collections import deque

from fingerpost.servers.lifeline import Pace

FIRST_WAIT = 0.5
LEAST_WAIT = 0.05
STEADY_SECONDS = 30.0  # a connection that held this long was a good one: waits start small again
AT_ONCE = 10  # new handshakes a server may ask for in that time before it has to wait for them


class Backoff:
    """When to try one server again, after all that happened to it so far.

    A new handshake the server itself asked for is granted at once: it is there, and answers. Only one
    that keeps asking waits like any other.
    """

    def __init__(self, *, longest: float) -> None:
        self._longest = longest
        self._granted: deque[float] = deque(maxlen=AT_ONCE)
        self.failures = 0  # in a row

    def after(self, pace: Pace, *, began: float, now: float) -> float:
        """Seconds to wait now that the connection tried for at `began` is over."""
        if now - began >= STEADY_SECONDS:
            self.failures = 0
        if pace is Pace.NOW and self._may_grant(now):
            self._granted.append(now)
            self.failures = 0
            return 0.0
        self.failures += 1
        return wait_before(self.failures, pace=pace, longest=self._longest)

    def _may_grant(self, now: float) -> bool:
        return len(self._granted) < AT_ONCE or now - self._granted[0] >= STEADY_SECONDS


def wait_before(attempt: int, *, pace: Pace, longest: float) -> float:
    """Seconds before the next try, after `attempt` failures in a row (1 is the first).

    Doubling with full jitter, so that many clients of one restarted server do
    not come back in step. What needs a person is looked at rarely.
    """
    if pace is Pace.SLOW:
        return random.uniform(longest / 2, longest)  # noqa: S311 - spreading load, not guarding a secret
    ceiling = min(longest, FIRST_WAIT * 2 ** min(attempt - 1, 30))
    return max(min(LEAST_WAIT, longest), random.uniform(0, ceiling))  # noqa: S311 - as above

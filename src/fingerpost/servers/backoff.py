"""How long to wait before trying a server again."""

from __future__ import annotations

import random

from fingerpost.servers.lifeline import Pace

FIRST_WAIT = 0.5
LEAST_WAIT = 0.05


def wait_before(attempt: int, *, pace: Pace, longest: float) -> float:
    """Seconds before the next try, after `attempt` failures in a row (1 is the first).

    Doubling with full jitter, so that many clients of one restarted server do
    not come back in step. A new handshake the server asked for is granted once,
    at once; what needs a person is looked at rarely.
    """
    if pace is Pace.NOW and attempt <= 1:
        return 0.0
    if pace is Pace.SLOW:
        return random.uniform(longest / 2, longest)  # noqa: S311 - spreading load, not guarding a secret
    ceiling = min(longest, FIRST_WAIT * 2 ** min(attempt - 1, 30))
    return max(min(LEAST_WAIT, longest), random.uniform(0, ceiling))  # noqa: S311 - as above

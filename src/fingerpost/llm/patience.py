"""How long to wait before a model is asked again, and when not to."""

from __future__ import annotations

import random
from typing import Final

import anyio

FIRST_DELAY: Final = 0.5
MAX_DELAY: Final = 10.0  # a server that asks for more patience than this is not waited for


def compute_delay(tries: int, requested: float | None) -> float | None:
    """Seconds to wait after so many failed tries; None where there is no point in waiting.

    `asked` is what the server asked for. A wait that would outlast the deadline around us is
    pointless: the reason for the failure is worth more than a time-out.
    """
    wait = _compute_backoff(tries) if requested is None else requested
    left = anyio.current_effective_deadline() - anyio.current_time()
    return wait if wait <= MAX_DELAY and wait < left else None


def _compute_backoff(tries: int) -> float:
    """Twice as long each time, and not the same for everybody: those who failed together
    should not come back together."""
    longest = min(FIRST_DELAY * 2 ** (tries - 1), MAX_DELAY)
    return random.uniform(longest / 2, longest)  # noqa: S311 - spreading load, not guarding a secret

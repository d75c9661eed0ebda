"""How long to wait before a model is asked again, and when not to."""

from __future__ import annotations

import random
from typing import Final

import anyio

FIRST_WAIT: Final = 0.5
LONGEST_WAIT: Final = 10.0  # a server that asks for more patience than this is not waited for


def pause(tries: int, asked: float | None) -> float | None:
    """Seconds to wait after so many failed tries; None where there is no point in waiting.

    `asked` is what the server asked for. A wait that would outlast the deadline around us is
    pointless: the reason for the failure is worth more than a time-out.
    """
    wait = _moment(tries) if asked is None else asked
    left = anyio.current_effective_deadline() - anyio.current_time()
    return wait if wait <= LONGEST_WAIT and wait < left else None


def _moment(tries: int) -> float:
    """Twice as long each time, and not the same for everybody: those who failed together
    should not come back together."""
    longest = min(FIRST_WAIT * 2 ** (tries - 1), LONGEST_WAIT)
    return random.uniform(longest / 2, longest)  # noqa: S311 - spreading load, not guarding a secret

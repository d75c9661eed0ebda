"""When to repeat a failed attempt, and after how long.

Repeating is safe only when the first try cannot have taken effect: the tool
reads, or the call was never sent. What the tool itself reports is its answer
and is not asked for again. Annotations such as `idempotentHint` are claims of
the server and allow nothing here.
"""

from __future__ import annotations

from fingerpost.call.execution.failure import Failure

FIRST_WAIT = 0.2
LONGEST_WAIT = 5.0
LONGEST_ASKED = 30.0  # what a server may ask us to wait; who wants more is not asked again


def may_repeat(failure: Failure, *, failures: int, retries: int, pause: float = 0.0) -> bool:
    """Whether the same call may be tried once more, after `failures` failed tries and a `pause`.

    Never sooner than the server asked for.
    """
    soon = failure.retry_after is not None and failure.retry_after > pause
    return failures <= retries and failure.transient and not failure.effect_possible and not soon


def wait_before(failures: int, *, chance: float, asked: float | None = None) -> float:
    """Seconds to wait after `failures` failed tries; `chance` is a random number from 0 to 1.

    Full jitter: callers that failed together do not come back together. `asked` is how long the server
    wants to be left alone; it is not waited for where that is too long.
    """
    jitter = chance * min(LONGEST_WAIT, FIRST_WAIT * 2 ** min(failures - 1, 30))
    return jitter if asked is None or asked > LONGEST_ASKED else asked + jitter

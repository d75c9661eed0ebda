"""When to repeat a failed attempt, and after how long.

How often and after what is set for each tool (`retries`, `retry_on` under `[[tools]]`); by default a
call is repeated when the server could not be reached. Repeating is safe only when the first try cannot
have taken effect: the tool reads, or the call was never sent; or when a person wrote that twice does
the same as once (`repeatable`). Annotations such as `idempotentHint` are claims of the server and
allow nothing here.
"""

from __future__ import annotations

from fingerpost.call.execution.failure import Failure
from fingerpost.records import ErrorKind, RetryRule

FIRST_WAIT_SECONDS = 0.2
MAX_WAIT_SECONDS = 5.0
MAX_RETRY_AFTER_SECONDS = 30.0  # what a server may ask us to wait; who wants more is not asked again


def may_retry(failure: Failure, rule: RetryRule, *, failures: int, retries: int, pause: float = 0.0) -> bool:
    """Whether the same call may be tried once more, after `failures` failed tries and a `pause`.

    Never sooner than the server asked for.
    """
    soon = failure.retry_after is not None and failure.retry_after > pause
    if failures > retries or soon or (failure.effect_possible and not rule.repeatable.value):
        return False
    if failure.cause is None:  # it was refused before it was tried: the breaker, the slots
        return failure.transient
    if failure.transient and failure.cause is ErrorKind.EXECUTION_FAILED:
        return True  # the tool's question could not be put to anybody, and it asks no more when called again
    wanted = failure.cause.value in rule.conditions.value
    return wanted and (failure.transient or failure.cause is ErrorKind.EXECUTION_FAILED)


def compute_retry_wait(failures: int, *, chance: float, retry_after: float | None = None) -> float:
    """Seconds to wait after `failures` failed tries; `chance` is a random number from 0 to 1.

    Full jitter: callers that failed together do not come back together. `asked` is how long the server
    wants to be left alone; it is not waited for where that is too long.
    """
    jitter = chance * min(MAX_WAIT_SECONDS, FIRST_WAIT_SECONDS * 2 ** min(failures - 1, 30))
    return jitter if retry_after is None or retry_after > MAX_RETRY_AFTER_SECONDS else retry_after + jitter

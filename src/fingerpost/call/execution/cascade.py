"""When another tool may take over, and which.

A fallback must never do more than was asked, nor act on top of a call that may
have taken effect. Each tool gets one turn, so a hierarchy that goes in circles
comes to an end.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from itertools import islice

from fingerpost.call.execution.door import Alternatives
from fingerpost.call.execution.emptiness import is_empty
from fingerpost.call.execution.failure import Failure
from fingerpost.frozen import frozen
from fingerpost.records import Attempt, Call, Effect, ErrorKind, Execution, JsonObject

logger = logging.getLogger("fingerpost.call")

MOST_FALLBACKS = 8
MOST_NAMED = 100  # alternatives looked at, should the hierarchy never end

_FALLS_BACK = frozenset(
    {
        ErrorKind.TIMEOUT,
        ErrorKind.EXECUTION_FAILED,
        ErrorKind.UNAVAILABLE,
        ErrorKind.OPERATION_NOT_SUPPORTED,
    }
)
_STRENGTH = {Effect.READ: 0, Effect.WRITE: 1, Effect.DESTROY: 2}


@frozen(kw_only=False)
class Turn:
    """What one tool's turn came to."""

    call: Call
    outcome: JsonObject | Failure

    @property
    def failure(self) -> Failure | None:
        return self.outcome if isinstance(self.outcome, Failure) else None

    def execution(self, attempts: tuple[Attempt, ...]) -> Execution:
        if isinstance(self.outcome, Failure):
            failure = self.outcome
            return Execution(
                call=self.call,
                attempts=attempts,
                result=failure.result,
                error=failure.kind,
                detail=failure.detail,
                hint=failure.hint,
                code=failure.code,
                data=failure.data,
            )
        return Execution(call=self.call, attempts=attempts, result=self.outcome)


def reason_to_fall_back(turn: Turn) -> str | None:
    """Why another tool should have a turn, or None when this outcome stands."""
    if isinstance(turn.outcome, Failure):
        failure = turn.outcome
        stands = failure.effect_possible or failure.kind not in _FALLS_BACK
        return None if stands else f"{failure.kind}: {failure.detail}"
    if turn.call.effect is Effect.READ and is_empty(turn.outcome):
        return "it found nothing"
    return None


def candidates(asked: Call, alternatives: Alternatives) -> Iterator[Call]:
    """The tools that could take over, each once, in order; never the asked one."""
    seen = {asked.tool}
    try:
        for call in islice(alternatives(asked), MOST_NAMED):
            if call.tool in seen:
                continue
            seen.add(call.tool)
            yield call
            if len(seen) > MOST_FALLBACKS:
                return
    except Exception:
        # The asked call has failed already; a broken hierarchy must not hide why.
        logger.exception("the alternatives of %s could not be found", asked.tool)


def does_more(call: Call, *, than: Call) -> bool:
    """Whether `call` could change what the asked call would leave alone."""
    return _STRENGTH[call.effect] > _STRENGTH[than.effect]


def best(turns: list[Turn]) -> Turn:
    """The turn to report: what may have taken effect, else the first result, else the first failure."""
    if len(turns) == 1:
        return turns[0]
    for turn in turns:
        if turn.failure is not None and turn.failure.effect_possible:
            return turn
    full = [turn for turn in turns if not isinstance(turn.outcome, Failure) and not is_empty(turn.outcome)]
    empty = [turn for turn in turns if turn.failure is None]
    return next(iter(full or empty or turns))

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
from fingerpost.call.execution.emptiness import is_empty_result
from fingerpost.call.execution.failure import Failure
from fingerpost.frozen import frozen
from fingerpost.records import Attempt, Call, Effect, ErrorKind, Execution, JsonObject

logger = logging.getLogger("fingerpost.call")

MAX_FALLBACKS = 8
MAX_ALTERNATIVES = 100  # alternatives looked at, should the hierarchy never end

_FALLBACK_ERRORS = frozenset(
    {
        ErrorKind.TIMEOUT,
        ErrorKind.EXECUTION_FAILED,
        ErrorKind.UNAVAILABLE,
        ErrorKind.OPERATION_NOT_SUPPORTED,
    }
)
_STRENGTH = {Effect.READ: 0, Effect.WRITE: 1, Effect.DESTROY: 2}


@frozen(kw_only=False)
class ToolRunResult:
    """What one tool's turn came to."""

    call: Call
    outcome: JsonObject | Failure

    @property
    def failure(self) -> Failure | None:
        return self.outcome if isinstance(self.outcome, Failure) else None

    def to_execution(self, attempts: tuple[Attempt, ...]) -> Execution:
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


def get_fallback_reason(tool_result: ToolRunResult) -> str | None:
    """Why another tool should have a turn, or None when this outcome stands."""
    if isinstance(tool_result.outcome, Failure):
        failure = tool_result.outcome
        stands = failure.effect_possible or failure.kind not in _FALLBACK_ERRORS
        return None if stands else f"{failure.kind}: {failure.detail}"
    if tool_result.call.effect is Effect.READ and is_empty_result(tool_result.outcome):
        return "it found nothing"
    return None


def iterate_candidates(asked: Call, alternatives: Alternatives) -> Iterator[Call]:
    """The tools that could take over, each once, in order; never the asked one."""
    seen = {asked.tool}
    try:
        for call in islice(alternatives(asked), MAX_ALTERNATIVES):
            if call.tool in seen:
                continue
            seen.add(call.tool)
            yield call
            if len(seen) > MAX_FALLBACKS:
                return
    except Exception:
        # The asked call has failed already; a broken hierarchy must not hide why.
        logger.exception("the alternatives of %s could not be found", asked.tool)


def does_more(call: Call, *, than: Call) -> bool:
    """Whether `call` could change what the asked call would leave alone."""
    return _STRENGTH[call.effect] > _STRENGTH[than.effect]


def choose_best_result(results: list[ToolRunResult]) -> ToolRunResult:
    """The turn to report: what may have taken effect, else the first result, else the first failure."""
    if len(results) == 1:
        return results[0]
    for turn in results:
        if turn.failure is not None and turn.failure.effect_possible:
            return turn
    full = [
        turn
        for turn in results
        if not isinstance(turn.outcome, Failure) and not is_empty_result(turn.outcome)
    ]
    empty = [turn for turn in results if turn.failure is None]
    return next(iter(full or empty or results))

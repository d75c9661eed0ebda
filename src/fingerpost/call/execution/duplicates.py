"""Identical writes that look like an accident are refused, with the reason.

A repeated write is a new write, and the result of one call is never given as the result of
another. In two cases a repetition within one conversation is more likely an accident than
meant:

- the same write is still running: a client lost patience and sent it again;
- the caller of the same write left before its end, so that nobody was told that its outcome is
  unknown. The refusal tells it, once: who calls again after that knows, and the call runs.

Calls with an idempotency key are not looked at here: the key says what is meant. Two approvals
by a person are two calls.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from fingerpost.call.execution.door import TimeSource
from fingerpost.call.execution.journey import AttemptLog
from fingerpost.call.execution.plan import CallPlan
from fingerpost.records import Call, Effect, ErrorKind, Execution

REMEMBERED_SECONDS: Final = 60.0  # how long an interrupted write is remembered
MAX_REMEMBERED: Final = 1000

DuplicateKey = tuple[str, str, str | None, str]


def build_duplicate_key(plan: CallPlan) -> DuplicateKey | None:
    """What two identical writes of one conversation have in common; None: the call is not looked at."""
    call, context = plan.call, plan.context
    where = context.conversation or context.packet_id or context.asker
    if (
        call.effect is Effect.READ
        or where is None
        or plan.is_continuation
        or context.idempotency_key is not None
    ):
        return None
    return (call.fingerprint, where, context.caller, plan.permit.given_by)


class DuplicateGuard:
    """The writes that run now, and those whose caller left before their end."""

    def __init__(self, *, clock: TimeSource) -> None:
        self._clock = clock
        self._running: set[DuplicateKey] = set()
        self._interrupted: dict[DuplicateKey, float] = {}

    def check_duplicate(self, key: DuplicateKey, call: Call) -> Execution | None:
        """Why this call is not run, or None when it may."""
        if key in self._running:
            return _build_duplicate_refusal(
                call,
                f"the same call of {call.tool} is still running in this conversation; this one was not run",
                hint="wait for the first; if a second one is meant, make it after the first has ended",
            )
        at = self._interrupted.pop(key, None)
        if at is not None and self._clock() - at < REMEMBERED_SECONDS:
            return _build_duplicate_refusal(
                call,
                f"the same call of {call.tool} was interrupted {self._clock() - at:.0f} s ago while the "
                "tool was at work, so it may have taken effect; this one was not run",
                hint="check what the first one did; a further call is made",
            )
        return None

    @contextmanager
    def track_running(self, key: DuplicateKey, attempt_log: AttemptLog) -> Generator[None]:
        """Around a write that runs."""
        self._running.add(key)
        try:
            yield
        except BaseException:
            if attempt_log.in_flight is not None:
                self._interrupted[key] = self._clock()
                if len(self._interrupted) > MAX_REMEMBERED:
                    del self._interrupted[next(iter(self._interrupted))]
            raise
        finally:
            self._running.discard(key)


def _build_duplicate_refusal(call: Call, detail: str, *, hint: str) -> Execution:
    return Execution(call=call, attempts=(), error=ErrorKind.DUPLICATE, detail=detail, hint=hint)

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

from fingerpost.call.execution.door import Clock
from fingerpost.call.execution.journey import Journey
from fingerpost.call.execution.plan import Plan
from fingerpost.records import Call, Effect, ErrorKind, Execution

REMEMBERED_SECONDS: Final = 60.0  # how long an interrupted write is remembered
MOST_REMEMBERED: Final = 1000

Key = tuple[str, str, str | None, str]


def duplicate_key(plan: Plan) -> Key | None:
    """What two identical writes of one conversation have in common; None: the call is not looked at."""
    call, context = plan.call, plan.context
    where = context.conversation or context.packet_id or context.asker
    if call.effect is Effect.READ or where is None or plan.continues or context.idempotency_key is not None:
        return None
    return (call.fingerprint, where, context.caller, plan.permit.given_by)


class Duplicates:
    """The writes that run now, and those whose caller left before their end."""

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self._running: set[Key] = set()
        self._interrupted: dict[Key, float] = {}

    def refusal(self, key: Key, call: Call) -> Execution | None:
        """Why this call is not run, or None when it may."""
        if key in self._running:
            return _refused(
                call,
                f"the same call of {call.tool} is still running in this conversation; this one was not run",
                hint="wait for the first; if a second one is meant, make it after the first has ended",
            )
        at = self._interrupted.pop(key, None)
        if at is not None and self._clock() - at < REMEMBERED_SECONDS:
            return _refused(
                call,
                f"the same call of {call.tool} was interrupted {self._clock() - at:.0f} s ago while the "
                "tool was at work, so it may have taken effect; this one was not run",
                hint="check what the first one did; a further call is made",
            )
        return None

    @contextmanager
    def running(self, key: Key, journey: Journey) -> Generator[None]:
        """Around a write that runs."""
        self._running.add(key)
        try:
            yield
        except BaseException:
            if journey.in_flight is not None:
                self._interrupted[key] = self._clock()
                if len(self._interrupted) > MOST_REMEMBERED:
                    del self._interrupted[next(iter(self._interrupted))]
            raise
        finally:
            self._running.discard(key)


def _refused(call: Call, detail: str, *, hint: str) -> Execution:
    return Execution(call=call, attempts=(), error=ErrorKind.DUPLICATE, detail=detail, hint=hint)

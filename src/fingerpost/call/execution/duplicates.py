"""The same write, asked for twice, runs once.

Clients that lose patience, and protocols without sessions, issue a call again
while the first is still at work. Whoever asks again while it runs, or within a
few seconds after, gets the outcome of the first. A new approval by a person is
a new call: who permitted it is part of what makes two calls the same.

A call that surely did nothing may be asked for again at once.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace

import anyio

from fingerpost.call.execution.dialogue import awaits_input
from fingerpost.call.execution.door import Clock
from fingerpost.records import Call, CallContext, Effect, ErrorKind, Execution, Permit

SECONDS = 5.0
MOST_KEPT = 1000
RAN_ONCE = "the same call was asked for twice; it ran once, and this is what came of it"

Key = tuple[str, str, str | None, str]


@dataclass(slots=True)
class _First:
    over: anyio.Event = field(default_factory=anyio.Event)
    execution: Execution | None = None  # None when it came to nothing that counts
    ended: float | None = None


def duplicate_key(call: Call, permit: Permit, context: CallContext) -> Key | None:
    """What two issues of one call have in common; None when nothing ties this call to another."""
    where = context.conversation or context.packet_id or context.caller
    if call.effect is Effect.READ or where is None:
        return None
    return (call.fingerprint, where, context.caller, permit.given_by)


class Duplicates:
    """The writes at work, and those that ended just now."""

    def __init__(self, *, clock: Clock, seconds: float = SECONDS) -> None:
        self._clock = clock
        self._seconds = seconds
        self._firsts: dict[Key, _First] = {}

    async def once(
        self,
        key: Key,
        run: Callable[[], Awaitable[Execution]],
        *,
        until: float,
        given_up: Callable[[], Execution | None],
        remember: bool = True,
    ) -> Execution | None:
        """What `run` comes to, or what the same call came to before. None: not known by `until`.

        `given_up` says what is left when `run` is cancelled: a call in flight has an outcome too.
        Without `remember` only that is kept: whoever got an answer and asks again means to.
        """
        self._clear_old()
        while (first := self._firsts.get(key)) is not None:
            with anyio.move_on_at(until):
                await first.over.wait()
            if not first.over.is_set():
                return None
            if first.execution is not None:
                # Without its attempts: they were made, and counted, once.
                return replace(first.execution, attempts=(), detail=first.execution.detail or RAN_ONCE)
            if self._firsts.get(key) is first:
                del self._firsts[key]
        return await self._lead(key, run, given_up, remember=remember)

    async def _lead(
        self,
        key: Key,
        run: Callable[[], Awaitable[Execution]],
        given_up: Callable[[], Execution | None],
        *,
        remember: bool,
    ) -> Execution:
        self._firsts[key] = first = _First()
        left: Execution | None = None
        try:
            execution = await run()
            left = execution if _counts(execution) else None
            return execution
        except BaseException:
            remember, left = True, given_up()
            raise
        finally:
            first.execution = left
            first.ended = self._clock()
            first.over.set()
            if (left is None or not remember) and self._firsts.get(key) is first:
                del self._firsts[key]

    def _clear_old(self) -> None:
        now = self._clock()
        old = [key for key, first in self._firsts.items() if first.ended is not None]
        surplus = len(old) - MOST_KEPT
        for index, key in enumerate(old):
            ended = self._firsts[key].ended
            if index < surplus or (ended is not None and now - ended >= self._seconds):
                del self._firsts[key]


def _counts(execution: Execution) -> bool:
    """Whether the call took effect, or may have. One that asks for more input has not."""
    if execution.error is None:
        return execution.result is None or not awaits_input(execution.result)
    return execution.error is ErrorKind.UNKNOWN

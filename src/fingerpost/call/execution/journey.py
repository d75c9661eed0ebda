"""One run of a call on its way: its attempts so far, and telling of each.

Every attempt in the record has one `AttemptFinished`, whatever became of it. An
`AttemptStarted` goes before only where something is sent.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from fingerpost.call.execution.cache import Cached
from fingerpost.call.execution.clock import Allowance, loop_time
from fingerpost.call.execution.dialogue import Dialogue
from fingerpost.call.execution.door import Progress
from fingerpost.call.execution.failure import Failure
from fingerpost.events import AttemptFinished, AttemptStarted, Event, FallbackTaken, Teller
from fingerpost.frozen import frozen
from fingerpost.records import Attempt, Call, CallContext, Effect, ErrorKind, Permit, utc_now
from fingerpost.servers.caller import Passage


@frozen
class Leg:
    """One tool's turn in a run: the call, the leave to make it, and the time it has."""

    call: Call
    permit: Permit
    time: Allowance  # over all attempts of this tool
    fallback: bool = False
    on_progress: Progress | None = None
    passage: Passage | None = None
    dialogue: Dialogue | None = None  # with the caller, watched

    @property
    def in_dialogue(self) -> bool:
        """Whether caller and server are talking already: then nothing of it may begin anew."""
        if self.passage is not None and self.passage.continues:
            return True
        return self.dialogue is not None and self.dialogue.begun

    @property
    def brings_credentials(self) -> bool:
        """Whether the caller's own credentials may go to the server: its answers are theirs alone."""
        if self.dialogue is not None:
            return self.dialogue.authorization is not None
        return self.passage is not None and self.passage.authorization is not None

    def with_new_time(self) -> Leg:
        """The same, with the tool's whole time again."""
        return replace(self, time=self.time.renewed())


@dataclass(slots=True, kw_only=True)
class Try:
    """An attempt under way."""

    number: int
    began: datetime = field(default_factory=utc_now)
    waited: float = 0.0  # for a slot, or before repeating
    asked_at: float | None = None  # when the server's own time began; None when it was never asked
    sent: bool = False


class Journey:
    """The attempts of one run."""

    def __init__(self, context: CallContext, *, events: Teller) -> None:
        self.context = context
        self._events = events
        self._attempts: list[Attempt] = []
        self.in_flight: Call | None = None  # a call that is not a read, and of which no end is known

    @property
    def attempts(self) -> tuple[Attempt, ...]:
        return tuple(self._attempts)

    def begin(self, *, waited: float = 0.0) -> Try:
        return Try(number=len(self._attempts) + 1, waited=waited)

    def started(self, leg: Leg, attempt: Try) -> AttemptStarted:
        """The event that goes before a call is sent; not told yet."""
        return AttemptStarted(**self._start(leg, attempt))

    def tell_started(self, leg: Leg, attempt: Try) -> None:
        """Tell that a call is about to be sent."""
        self._events.tell(AttemptStarted, **self._start(leg, attempt))

    def _start(self, leg: Leg, attempt: Try) -> dict[str, Any]:
        return {
            "packet_id": self._packet_id,
            "call_id": self.context.call_id,
            "tool": leg.call.tool,
            "number": attempt.number,
            "call_fingerprint": leg.call.fingerprint,
            "permit": leg.permit.given_by,
            "fallback": leg.fallback,
        }

    def sending(self, leg: Leg, attempt: Try) -> None:
        attempt.sent = True
        if leg.call.effect is not Effect.READ:
            self.in_flight = leg.call

    def finished(
        self, call: Call, attempt: Try, failure: Failure | None, *, cached: Cached | None = None
    ) -> None:
        if failure is None or failure.kind is not ErrorKind.UNKNOWN:
            self.in_flight = None
        elapsed = 0.0 if attempt.asked_at is None else loop_time() - attempt.asked_at
        done = Attempt(
            tool=call.tool,
            number=attempt.number,
            began=attempt.began,
            milliseconds=elapsed * 1000,
            error=None if failure is None else failure.kind,
            detail="" if failure is None else failure.detail,
            waited_ms=attempt.waited * 1000,
            cached=cached is not None,
            age_ms=0.0 if cached is None else cached.age * 1000,
        )
        self._attempts.append(done)
        call_id = self.context.call_id
        self._events.tell(AttemptFinished, packet_id=self._packet_id, call_id=call_id, attempt=done)

    def skipped(self, call: Call, reason: str) -> None:
        """A fallback that was not even tried."""
        self.finished(call, self.begin(), Failure(kind=ErrorKind.DENIED, detail=reason))

    def falls_back(self, to: Call, *, instead_of: Call, reason: str) -> None:
        self._events.tell(
            FallbackTaken,
            packet_id=self._packet_id,
            call_id=self.context.call_id,
            tool=to.tool,
            instead_of=instead_of.tool,
            reason=reason,
        )

    def tell(self, event: Event) -> None:
        self._events.emit(event)

    @property
    def _packet_id(self) -> str:
        return self.context.packet_id or self.context.call_id

"""One run of a call: its plan, the tools it uses, and the log of its attempts."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from fingerpost.call.execution.concurrency import ToolDeadline, loop_time
from fingerpost.call.execution.failure import Failure
from fingerpost.call.execution.results import CachedResult
from fingerpost.call.execution.upstream import (
    Alternatives,
    BeforeFallback,
    GetLatency,
    PermitFallback,
    ProgressReporter,
    WatchedCaller,
    do_nothing_before_fallback,
    find_no_alternatives,
    permit_no_fallback,
)
from fingerpost.events import AttemptFinished, AttemptStarted, Event, EventRecorder, FallbackTaken
from fingerpost.frozen import frozen
from fingerpost.records import Attempt, Call, CallContext, Effect, ErrorKind, LatencyProfile, Permit, utc_now
from fingerpost.servers.requests import RequestContext


@frozen
class CallPlan:
    """A permitted call, whose it is, how long it may take, and what may stand in for it."""

    call: Call
    permit: Permit
    context: CallContext
    latency: LatencyProfile
    alternatives: Alternatives = find_no_alternatives
    before_fallback: BeforeFallback = do_nothing_before_fallback  # has the tools that could take over arrive
    permitting: PermitFallback = permit_no_fallback
    on_progress: ProgressReporter | None = None
    latency_of: GetLatency | None = None
    request_context: RequestContext | None = None  # what goes between caller and server beside it

    @property
    def is_continuation(self) -> bool:
        """Whether this is a further round of a call already begun."""
        return self.request_context is not None and self.request_context.is_continuation

    @property
    def is_proxied(self) -> bool:
        """Whether a caller of their own stands behind it, whom we only pass on.

        They get every answer of the server itself, and may repeat a call as often as they mean to.
        """
        return self.request_context is not None and self.request_context.caller is not None

    @property
    def has_no_session(self) -> bool:
        """Whether the caller speaks the protocol without sessions: nothing ties one call to the next."""
        passage = self.request_context
        return passage is not None and passage.caller is not None and passage.caller.accepts_input_required


@frozen
class ToolRun:
    """One tool's turn in a run: the call, the leave to make it, and the time it has."""

    call: Call
    permit: Permit
    time: ToolDeadline  # over all attempts of this tool
    fallback: bool = False
    on_progress: ProgressReporter | None = None
    request_context: RequestContext | None = None
    dialogue: WatchedCaller | None = None  # with the caller, watched

    @property
    def has_begun_dialogue(self) -> bool:
        """Whether caller and server are talking already: then nothing of it may begin anew."""
        if self.request_context is not None and self.request_context.is_continuation:
            return True
        return self.dialogue is not None and self.dialogue.begun

    @property
    def has_caller_credentials(self) -> bool:
        """Whether the caller's own credentials may go to the server: its answers are theirs alone."""
        if self.dialogue is not None:
            return self.dialogue.authorization is not None
        return self.request_context is not None and self.request_context.authorization is not None

    def renew_deadline(self) -> ToolRun:
        """The same, with the tool's whole time again."""
        return replace(self, time=self.time.renew())


@dataclass(slots=True, kw_only=True)
class RunningAttempt:
    """An attempt under way."""

    number: int
    began: datetime = field(default_factory=utc_now)
    waited: float = 0.0  # for a slot, or before repeating
    asked_at: float | None = None  # when the server's own time began; None when it was never asked
    sent: bool = False


class AttemptLog:
    """The attempts of one run."""

    def __init__(self, context: CallContext, *, events: EventRecorder) -> None:
        self.context = context
        self._events = events
        self._attempts: list[Attempt] = []
        self.in_flight: Call | None = None  # a call that is not a read, and of which no end is known

    @property
    def attempts(self) -> tuple[Attempt, ...]:
        return tuple(self._attempts)

    def begin(self, *, waited: float = 0.0) -> RunningAttempt:
        return RunningAttempt(number=len(self._attempts) + 1, waited=waited)

    def build_started_event(self, tool_run: ToolRun, attempt: RunningAttempt) -> AttemptStarted:
        """The event that goes before a call is sent; not told yet."""
        return AttemptStarted(**self._get_start_fields(tool_run, attempt))

    def emit_started(self, tool_run: ToolRun, attempt: RunningAttempt) -> None:
        """Tell that a call is about to be sent."""
        self._events.record(AttemptStarted, **self._get_start_fields(tool_run, attempt))

    def _get_start_fields(self, tool_run: ToolRun, attempt: RunningAttempt) -> dict[str, Any]:
        return {
            "packet_id": self._packet_id,
            "call_id": self.context.call_id,
            "tool": tool_run.call.tool,
            "number": attempt.number,
            "call_fingerprint": tool_run.call.fingerprint,
            "permit": tool_run.permit.given_by,
            "fallback": tool_run.fallback,
        }

    def mark_sent(self, tool_run: ToolRun, attempt: RunningAttempt) -> None:
        attempt.sent = True
        if tool_run.call.effect is not Effect.READ:
            self.in_flight = tool_run.call

    def record_finished(
        self,
        call: Call,
        attempt: RunningAttempt,
        failure: Failure | None,
        *,
        cached: CachedResult | None = None,
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
        self._events.record(AttemptFinished, packet_id=self._packet_id, call_id=call_id, attempt=done)

    def record_skipped(self, call: Call, reason: str) -> None:
        """A fallback that was not even tried."""
        self.record_finished(call, self.begin(), Failure(kind=ErrorKind.DENIED, detail=reason))

    def emit_fallback(self, to: Call, *, instead_of: Call, reason: str) -> None:
        self._events.record(
            FallbackTaken,
            packet_id=self._packet_id,
            call_id=self.context.call_id,
            tool=to.tool,
            instead_of=instead_of.tool,
            reason=reason,
        )

    def emit(self, event: Event) -> None:
        self._events.emit(event)

    @property
    def _packet_id(self) -> str:
        return self.context.packet_id or self.context.call_id

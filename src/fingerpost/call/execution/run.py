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
    """A permitted call with its context, timeout and possible fallbacks."""

    call: Call
    permit: Permit
    context: CallContext
    latency: LatencyProfile
    alternatives: Alternatives = find_no_alternatives
    before_fallback: BeforeFallback = do_nothing_before_fallback  # connects servers of possible fallbacks
    permitting: PermitFallback = permit_no_fallback
    on_progress: ProgressReporter | None = None
    latency_of: GetLatency | None = None
    request_context: RequestContext | None = None  # data exchanged between caller and server beside the call

    @property
    def is_continuation(self) -> bool:
        """Whether this is a later round of a call."""
        return self.request_context is not None and self.request_context.is_continuation

    @property
    def is_proxied(self) -> bool:
        """Whether the call is proxied for an MCP client.

        Such a client gets every result of the server itself and may repeat calls intentionally.
        """
        return self.request_context is not None and self.request_context.caller is not None

    @property
    def has_no_session(self) -> bool:
        """Whether the caller uses the protocol without sessions, so that its calls are unrelated."""
        request_context = self.request_context
        return (
            request_context is not None
            and request_context.caller is not None
            and request_context.caller.accepts_input_required
        )


@frozen
class ToolRun:
    """One tool in a run: the call, its permit and its deadline."""

    call: Call
    permit: Permit
    time: ToolDeadline  # for all attempts of this tool
    fallback: bool = False
    on_progress: ProgressReporter | None = None
    request_context: RequestContext | None = None
    dialogue: WatchedCaller | None = None  # the caller's side, with a record of questions

    @property
    def has_started_dialogue(self) -> bool:
        """Whether the server has asked the caller something. Then the call must not be restarted."""
        if self.request_context is not None and self.request_context.is_continuation:
            return True
        return self.dialogue is not None and self.dialogue.was_asked

    @property
    def has_caller_credentials(self) -> bool:
        """Whether the caller's own credentials may be sent. Then the results belong to this caller only."""
        if self.dialogue is not None:
            return self.dialogue.authorization is not None
        return self.request_context is not None and self.request_context.authorization is not None

    def renew_deadline(self) -> ToolRun:
        """Return the run with the tool's full timeout again."""
        return replace(self, time=self.time.renew())


@dataclass(slots=True, kw_only=True)
class RunningAttempt:
    """A running attempt."""

    number: int
    began: datetime = field(default_factory=utc_now)
    waited: float = 0.0  # for a slot, or before a retry
    asked_at: float | None = None  # when the server was asked; None if it was not
    sent: bool = False


class AttemptLog:
    """The attempts of one run."""

    def __init__(self, context: CallContext, *, events: EventRecorder) -> None:
        self.context = context
        self._events = events
        self._attempts: list[Attempt] = []
        self.in_flight: Call | None = None  # a write whose outcome is not known

    @property
    def attempts(self) -> tuple[Attempt, ...]:
        return tuple(self._attempts)

    def begin(self, *, waited: float = 0.0) -> RunningAttempt:
        return RunningAttempt(number=len(self._attempts) + 1, waited=waited)

    def build_started_event(self, tool_run: ToolRun, attempt: RunningAttempt) -> AttemptStarted:
        """Build the event that precedes the sending of a call, without emitting it."""
        return AttemptStarted(**self._get_start_fields(tool_run, attempt))

    def emit_started(self, tool_run: ToolRun, attempt: RunningAttempt) -> None:
        """Record that a call is about to be sent."""
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
        """Record a fallback that was not tried."""
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

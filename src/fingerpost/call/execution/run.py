"""One running call: what was permitted, the tool in use, its deadline, and the attempts made."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass, field
from datetime import datetime

from fingerpost.call.execution.concurrency import SlotOwner, ToolDeadline, loop_time
from fingerpost.call.execution.failure import Failure
from fingerpost.call.execution.results import CachedResult
from fingerpost.call.execution.upstream import NO_FALLBACKS, FallbackSource, ProgressReporter
from fingerpost.records import Attempt, Call, CallContext, Effect, ErrorKind, LatencyProfile, Permit, utc_now
from fingerpost.servers.requests import CallerChannel, RequestContext


@dataclass(slots=True, eq=False)
class CallRun:
    """The state of one running call. Every step of its execution reads and changes this object.

    `request_context` holds data exchanged between the caller and the server beside the call.
    """

    call: Call  # as requested
    permit: Permit
    context: CallContext
    _: KW_ONLY
    latency: LatencyProfile | None
    fallbacks: FallbackSource = NO_FALLBACKS
    on_progress: ProgressReporter | None = None
    request_context: RequestContext | None = None
    owner: SlotOwner = field(init=False)
    until: float = field(init=False)
    attempts: list[Attempt] = field(init=False, default_factory=list[Attempt])
    in_flight: Call | None = field(init=False, default=None)  # a write whose outcome is not known
    asked_caller: bool = field(init=False, default=False)  # the server has asked the caller something
    # The tool in use: the requested one or a fallback, and the time for all its attempts.
    tool: Call = field(init=False)
    tool_permit: Permit = field(init=False)
    time: ToolDeadline = field(init=False)
    # The current attempt.
    began: datetime = field(init=False, default_factory=utc_now)
    waited: float = field(init=False, default=0.0)  # for a slot, or before a retry
    asked_at: float | None = field(init=False, default=None)  # when the server was asked, if it was
    sent: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        self.owner = SlotOwner.from_context(self.context)
        self.until = math.inf if self.context.seconds is None else loop_time() + self.context.seconds
        self.begin_tool(self.call, self.permit, seconds=math.inf)

    @property
    def caller(self) -> CallerChannel | None:
        return None if self.request_context is None else self.request_context.caller

    @property
    def packet_id(self) -> str:
        return self.context.packet_id or self.context.call_id

    @property
    def is_continuation(self) -> bool:
        """Whether this is a later round of a call."""
        return self.request_context is not None and self.request_context.is_continuation

    @property
    def is_proxied(self) -> bool:
        """Whether the call is proxied for an MCP client.

        Such a client gets every result of the server itself and may repeat calls intentionally.
        """
        return self.caller is not None

    @property
    def has_no_session(self) -> bool:
        """Whether the caller uses the protocol without sessions, so that its calls are unrelated."""
        return self.caller is not None and self.caller.accepts_input_required

    @property
    def takes_rounds(self) -> bool:
        """Whether the caller, or the running request, can answer the server's questions in a later round."""
        return self.context.packet_id is not None if self.caller is None else self.has_no_session

    @property
    def has_started_dialogue(self) -> bool:
        """Whether the server has asked the caller something. Then the call must not be restarted."""
        return self.asked_caller or self.is_continuation

    @property
    def has_caller_credentials(self) -> bool:
        """Whether the caller's own credentials may be sent. Then the results belong to this caller only."""
        given = self.request_context
        return given is not None and (given.credentials is not None or given.user is not None)

    @property
    def is_fallback(self) -> bool:
        return self.tool is not self.call

    @property
    def attempt_number(self) -> int:
        return len(self.attempts) + 1

    def begin_tool(self, call: Call, permit: Permit, *, seconds: float) -> None:
        """Use this tool from now on, with `seconds` for all its attempts."""
        self.tool = call
        self.tool_permit = permit
        self.time = ToolDeadline(seconds, until=self.until)

    def begin_attempt(self, *, waited: float = 0.0) -> None:
        self.began = utc_now()
        self.waited = waited
        self.asked_at = None
        self.sent = False

    def mark_sent(self) -> None:
        self.sent = True
        if self.tool.effect is not Effect.READ:
            self.in_flight = self.tool

    def finish_attempt(self, failure: Failure | None, *, cached: CachedResult | None = None) -> Attempt:
        return self._add_attempt(self.tool, failure, cached)

    def skip_fallback(self, call: Call, reason: str) -> Attempt:
        """Note a fallback that was not tried."""
        self.begin_attempt()
        return self._add_attempt(call, Failure(kind=ErrorKind.DENIED, detail=reason), None)

    def _add_attempt(self, call: Call, failure: Failure | None, cached: CachedResult | None) -> Attempt:
        if failure is None or failure.kind is not ErrorKind.UNKNOWN:
            self.in_flight = None
        attempt = Attempt(
            tool=call.tool,
            number=self.attempt_number,
            began=self.began,
            milliseconds=0.0 if self.asked_at is None else (loop_time() - self.asked_at) * 1000,
            error=None if failure is None else failure.kind,
            detail="" if failure is None else failure.detail,
            waited_ms=self.waited * 1000,
            cached=cached is not None,
            age_ms=0.0 if cached is None else cached.age * 1000,
        )
        self.attempts.append(attempt)
        return attempt

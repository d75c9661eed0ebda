"""What happens to a call. All events of one call carry its id; together they are its trace.

`packet_id` is the packet's, or the call's own id when no packet asked for it.
"""

from __future__ import annotations

from typing import ClassVar

from fingerpost.events.base import Event
from fingerpost.frozen import frozen
from fingerpost.records import (
    Attempt,
    Decision,
    ErrorKind,
    JsonObject,
    ParameterError,
    Repair,
    Verdict,
)


@frozen
class CallEvent(Event):
    """A fact about one call."""

    call_id: str


@frozen
class CallReceived(CallEvent):
    """Somebody asked for a tool, in their own words."""

    name: str
    arguments: JsonObject
    caller: str | None = None
    conversation: str | None = None
    dry_run: bool = False
    idempotency_key: str | None = None
    instance: str | None = None  # the process that makes it, where no request asked for it

    def summary(self) -> str:
        return f"{self.name} was asked for"


@frozen
class CallPrepared(CallEvent):
    """The name led to a tool and the arguments fit its schema, after these repairs."""

    tool: str
    operation: str
    arguments: JsonObject
    fingerprint: str
    repairs: tuple[Repair, ...] = ()

    def summary(self) -> str:
        return f"{self.tool}, {len(self.repairs)} repairs"


@frozen
class CallRefused(CallEvent):
    """The call went no further: no such tool, arguments beyond repair, a rule, a loop."""

    error: ErrorKind
    reason: str
    parameter_errors: tuple[ParameterError, ...] = ()

    def summary(self) -> str:
        return f"{self.error}: {self.reason}"


@frozen
class CallRuled(CallEvent):
    """What the policy says."""

    audited: ClassVar[bool] = True

    tool: str
    verdict: Verdict
    reason: str
    rule: str

    def summary(self) -> str:
        return f"{self.tool}: {self.verdict} ({self.reason}; {self.rule})"


@frozen
class ApprovalRequested(CallEvent):
    """The call waits for a person."""

    audited: ClassVar[bool] = True

    pending_id: str
    tool: str
    call_fingerprint: str
    reason: str

    def summary(self) -> str:
        return f"{self.tool} waits for a person as {self.pending_id}: {self.reason}"


@frozen
class ApprovalDecided(CallEvent):
    """A person decided."""

    audited: ClassVar[bool] = True

    pending_id: str
    decision: Decision
    decided_by: str
    reason: str | None = None
    edited: bool = False

    def summary(self) -> str:
        why = f": {self.reason}" if self.reason else ""
        edited = " (edited)" if self.edited else ""
        return f"{self.pending_id} {self.decision} by {self.decided_by}{why}{edited}"


@frozen
class AttemptStarted(CallEvent):
    """A tool is about to be called. On disk before anything that is not a read is sent."""

    audited: ClassVar[bool] = True

    tool: str
    number: int
    call_fingerprint: str
    permit: str
    fallback: bool = False

    def summary(self) -> str:
        return f"{self.tool}, attempt {self.number}" + (" (fallback)" if self.fallback else "")


@frozen
class AttemptFinished(CallEvent):
    """The tool answered, failed, or was given up on."""

    audited: ClassVar[bool] = True

    attempt: Attempt

    def summary(self) -> str:
        made = self.attempt
        outcome = "succeeded" if made.error is None else f"{made.error}: {made.detail}"
        return f"{made.tool}, attempt {made.number}: {outcome} in {made.milliseconds:.0f} ms"


@frozen
class FallbackTaken(CallEvent):
    """The next tool in line takes over."""

    tool: str
    instead_of: str
    reason: str

    def summary(self) -> str:
        return f"{self.tool} instead of {self.instead_of}: {self.reason}"


@frozen
class CallReplayed(CallEvent):
    """The call was made before under the same idempotency key: it was not run, its outcome is that one's."""

    tool: str
    first_call_id: str

    def summary(self) -> str:
        return f"{self.tool} was not run again: this is the outcome of {self.first_call_id}"


@frozen
class CallProgressed(CallEvent):
    """The tool is at work: shown to a person who waits."""

    tool: str
    message: str
    seconds: float
    progress: float | None = None  # of total, as the server reports it
    total: float | None = None
    expected_seconds: float | None = None

    def summary(self) -> str:
        return f"{self.message} ({self.seconds:.0f} s)"


@frozen
class ResultDigested(CallEvent):
    """The result was cut to what fits."""

    tokens: int
    original_tokens: int
    dropped: tuple[str, ...] = ()
    handle: str | None = None

    def summary(self) -> str:
        cut = f", cut from {self.original_tokens}" if self.dropped else ""
        return f"{self.tokens} tokens{cut}"


@frozen
class CallFinished(CallEvent):
    """The call is over, one way or another."""

    audited: ClassVar[bool] = True

    tool: str
    success: bool
    error: ErrorKind | None = None
    detail: str = ""
    milliseconds: float = 0.0

    def summary(self) -> str:
        return f"{self.tool}: " + ("succeeded" if self.success else f"{self.error} {self.detail}".rstrip())


@frozen
class BreakerMoved(Event):
    """A server's circuit breaker opened, half-opened or closed."""

    server: str
    state: str
    reason: str

    def summary(self) -> str:
        return f"{self.server}: {self.state} ({self.reason})"

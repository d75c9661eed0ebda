"""Events of a call. All events of one call carry its id and form its trace.

`packet_id` is the id of the packet, or the call's id if there is no packet.
"""

from __future__ import annotations

from fingerpost.events.base import Event, StepEvent
from fingerpost.frozen import frozen
from fingerpost.records import Attempt, Decision, ErrorKind, JsonObject, ParameterError, Repair, Verdict


@frozen
class CallEvent(StepEvent):
    """An event of one call."""

    call_id: str


@frozen
class CallReceived(CallEvent):
    """A tool was requested, with the name and arguments as given."""

    name: str
    arguments: JsonObject
    caller: str | None = None
    conversation: str | None = None
    dry_run: bool = False
    idempotency_key: str | None = None
    instance: str | None = None  # the process that makes the call, if it belongs to no request

    def summary(self) -> str:
        return f"{self.name} was asked for"


@frozen
class CallPrepared(CallEvent):
    """The name was resolved to a tool, and the arguments match its schema after these repairs."""

    tool: str
    operation: str
    arguments: JsonObject
    fingerprint: str
    repairs: tuple[Repair, ...] = ()

    def summary(self) -> str:
        return f"{self.tool}, {len(self.repairs)} repairs"


@frozen
class CallRefused(CallEvent):
    """The call was refused: unknown tool, invalid arguments, a rule, or a loop."""

    error: ErrorKind
    reason: str
    parameter_errors: tuple[ParameterError, ...] = ()

    def summary(self) -> str:
        return f"{self.error}: {self.reason}"


@frozen
class CallRuled(CallEvent, audited=True):
    """The decision of the policy."""

    tool: str
    verdict: Verdict
    reason: str
    rule: str

    def summary(self) -> str:
        return f"{self.tool}: {self.verdict} ({self.reason}; {self.rule})"


@frozen
class ApprovalRequested(CallEvent, audited=True):
    """The call waits for approval."""

    pending_id: str
    tool: str
    call_fingerprint: str
    reason: str

    def summary(self) -> str:
        return f"{self.tool} needs approval ({self.pending_id}): {self.reason}"


@frozen
class ApprovalDecided(CallEvent, audited=True):
    """A person approved or denied the call."""

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
class AttemptStarted(CallEvent, audited=True):
    """A tool is about to be called. Written to disk first, unless the call only reads."""

    tool: str
    number: int
    call_fingerprint: str
    permit: str
    fallback: bool = False

    def summary(self) -> str:
        return f"{self.tool}, attempt {self.number}" + (" (fallback)" if self.fallback else "")


@frozen
class AttemptFinished(CallEvent, audited=True):
    """The tool returned a result, failed, or timed out."""

    attempt: Attempt

    def summary(self) -> str:
        attempt = self.attempt
        outcome = "succeeded" if attempt.error is None else f"{attempt.error}: {attempt.detail}"
        return f"{attempt.tool}, attempt {attempt.number}: {outcome} in {attempt.milliseconds:.0f} ms"


@frozen
class FallbackTaken(CallEvent):
    """The next fallback tool is used."""

    tool: str
    instead_of: str
    reason: str

    def summary(self) -> str:
        return f"{self.tool} instead of {self.instead_of}: {self.reason}"


@frozen
class CallReplayed(CallEvent):
    """The idempotency key was used before. The call did not run, and the earlier outcome is returned."""

    tool: str
    first_call_id: str

    def summary(self) -> str:
        return f"{self.tool} was not run again: this is the outcome of {self.first_call_id}"


@frozen
class CallProgressed(CallEvent):
    """The tool reported progress."""

    tool: str
    message: str
    seconds: float
    progress: float | None = None  # of `total`, as reported by the server
    total: float | None = None
    expected_seconds: float | None = None

    def summary(self) -> str:
        return f"{self.message} ({self.seconds:.0f} s)"


@frozen
class ResultDigested(CallEvent):
    """The result was shortened to fit."""

    tokens: int
    original_tokens: int
    dropped: tuple[str, ...] = ()
    handle: str | None = None

    def summary(self) -> str:
        cut = f", cut from {self.original_tokens}" if self.dropped else ""
        return f"{self.tokens} tokens{cut}"


@frozen
class ResultMarked(CallEvent, audited=True):
    """The result contains text that addresses the model or is hidden. It counts as untrusted."""

    tool: str
    signs: tuple[str, ...]

    def summary(self) -> str:
        return f"the result of {self.tool} may contain instructions: it {'; '.join(self.signs)}"


@frozen
class CallFinished(CallEvent, audited=True):
    """The call ended, with any outcome."""

    tool: str
    success: bool
    error: ErrorKind | None = None
    detail: str = ""
    milliseconds: float = 0.0
    dry_run: bool = False  # nothing was called; `success`: it could have been

    @property
    def is_last(self) -> bool:
        return self.packet_id == self.call_id

    def summary(self) -> str:
        if self.dry_run and self.success:
            return f"{self.tool}: not called (dry run)"
        return f"{self.tool}: " + ("succeeded" if self.success else f"{self.error} {self.detail}".rstrip())


@frozen
class BreakerMoved(Event):
    """A server's circuit breaker opened, half-opened or closed."""

    server: str
    state: str
    reason: str

    def summary(self) -> str:
        return f"{self.server}: {self.state} ({self.reason})"

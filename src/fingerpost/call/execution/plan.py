"""Everything `CallRunner` needs to know to run one call."""

from __future__ import annotations

from fingerpost.call.execution.door import (
    Alternatives,
    BeforeFallback,
    GetLatency,
    PermitFallback,
    ProgressReporter,
    do_nothing_before_fallback,
    find_no_alternatives,
    permit_no_fallback,
)
from fingerpost.frozen import frozen
from fingerpost.records import Call, CallContext, LatencyProfile, Permit
from fingerpost.servers.caller import RequestContext


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

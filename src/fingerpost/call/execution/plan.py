"""Everything `Runner` needs to know to run one call."""

from __future__ import annotations

from fingerpost.call.execution.door import (
    Alternatives,
    BeforeFallback,
    LatencyOf,
    Permitting,
    Progress,
    is_ready,
    no_alternatives,
    permit_none,
)
from fingerpost.frozen import frozen
from fingerpost.records import Call, CallContext, LatencyProfile, Permit
from fingerpost.servers.caller import Passage


@frozen
class Plan:
    """A permitted call, whose it is, how long it may take, and what may stand in for it."""

    call: Call
    permit: Permit
    context: CallContext
    latency: LatencyProfile
    alternatives: Alternatives = no_alternatives
    before_fallback: BeforeFallback = is_ready  # has the tools that could take over arrive
    permitting: Permitting = permit_none
    on_progress: Progress | None = None
    latency_of: LatencyOf | None = None
    passage: Passage | None = None  # what goes between caller and server beside it

    @property
    def continues(self) -> bool:
        """Whether this is a further round of a call already begun."""
        return self.passage is not None and self.passage.continues

    @property
    def is_passed_on(self) -> bool:
        """Whether a caller of their own stands behind it, whom we only pass on.

        They get every answer of the server itself, and may repeat a call as often as they mean to.
        """
        return self.passage is not None and self.passage.caller is not None

    @property
    def has_no_session(self) -> bool:
        """Whether the caller speaks the protocol without sessions: nothing ties one call to the next."""
        passage = self.passage
        return passage is not None and passage.caller is not None and passage.caller.takes_rounds

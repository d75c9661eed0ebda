"""Everything `Runner` needs to know to run one call."""

from __future__ import annotations

from dataclasses import dataclass

from fingerpost.call.execution.door import (
    Alternatives,
    LatencyOf,
    Permitting,
    Progress,
    no_alternatives,
    permit_none,
)
from fingerpost.records import Call, CallContext, LatencyProfile, Permit


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A permitted call, whose it is, how long it may take, and what may stand in for it."""

    call: Call
    permit: Permit
    context: CallContext
    latency: LatencyProfile
    alternatives: Alternatives = no_alternatives
    permitting: Permitting = permit_none
    on_progress: Progress | None = None
    latency_of: LatencyOf | None = None

"""Everything known about a tool, weakest source first, each layer over the one before.

    default < inferred from the definition < shipped with Fingerpost < learned from use < written by a person

The effect is judged apart from this (`effects`): it decides who is asked, so it
cannot be switched off or learned.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from fingerpost.catalog.inference import infer, latency, uninformed
from fingerpost.catalog.knowledge import shipped
from fingerpost.catalog.overrides import Written, write_over
from fingerpost.records import (
    Effect,
    Intelligence,
    JsonObject,
    Known,
    LatencyProfile,
    Source,
    UsageProfile,
)

LEAST_CALLS: Final = 5  # fewer calls than this teach nothing yet


def gather(
    server: str,
    name: str,
    description: str,
    definition: JsonObject,
    effect: Effect,
    *,
    inferring: bool = True,
    usage: UsageProfile | None = None,
    written: Written | None = None,
) -> Intelligence:
    """What is known of this tool, from all sources."""
    first = known = (
        infer(server, name, description, definition, effect) if inferring else uninformed(definition)
    )
    if inferring and (hints := shipped(name)) is not None:
        known = write_over(known, hints, lambda _field: "shipped knowledge of this tool")
    if usage is not None and usage.calls >= LEAST_CALLS:
        known = _learned(known, usage)
    if written is not None:
        known = write_over(known, written.fields, written.reason)
    return known if known is first else replace(known, latency=_consistent(known.latency))


def _learned(base: Intelligence, usage: UsageProfile) -> Intelligence:
    """Rounded, so that one more call does not make a new version of the catalog."""
    reason = f"median of {_rounded(usage.calls, 1)} or more calls"
    return replace(
        base,
        latency=replace(base.latency, typical=Known(_rounded(usage.typical_ms, 2), Source.LEARNED, reason)),
        response=replace(
            base.response,
            typical_tokens=Known(_rounded(usage.typical_tokens, 2), Source.LEARNED, reason),
        ),
    )


def _rounded(value: float, digits: int) -> int:
    """Down to so many leading digits: 1284 → 1200."""
    whole = max(0, int(value))
    unit = 10 ** max(0, len(str(whole)) - digits)
    return whole // unit * unit


def _consistent(profile: LatencyProfile) -> LatencyProfile:
    """Time-out and feedback follow from the typical latency, where nobody wrote them."""
    derived = latency(profile.typical)
    return replace(
        derived,
        timeout=profile.timeout if profile.timeout.source is Source.WRITTEN else derived.timeout,
        feedback_delay=(
            profile.feedback_delay
            if profile.feedback_delay.source is Source.WRITTEN
            else derived.feedback_delay
        ),
    )

"""Everything known about a tool, weakest source first, each layer over the one before.

    default < inferred from the definition < shipped with Fingerpost < learned from use < written by a person

The effect is judged apart from this (`effects`): it decides who is asked, so it
cannot be switched off or learned.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from fingerpost.catalog.inference import build_defaults, build_latency, infer
from fingerpost.catalog.knowledge import get_shipped_override
from fingerpost.catalog.overrides import WrittenOverride, apply_override
from fingerpost.records import (
    Effect,
    Intelligence,
    JsonObject,
    Known,
    LatencyProfile,
    Source,
    UsageProfile,
)

MIN_CALLS: Final = 5  # fewer calls than this teach nothing yet


def gather_intelligence(
    server: str,
    name: str,
    description: str,
    definition: JsonObject,
    effect: Effect,
    *,
    inferring: bool = True,
    usage: UsageProfile | None = None,
    written: WrittenOverride | None = None,
) -> Intelligence:
    """What is known of this tool, from all sources."""
    first = known = (
        infer(server, name, description, definition, effect) if inferring else build_defaults(definition)
    )
    if inferring and (hints := get_shipped_override(name)) is not None:
        known = apply_override(known, hints, lambda _field: "shipped knowledge of this tool")
    if usage is not None and usage.calls >= MIN_CALLS:
        known = _apply_usage(known, usage)
    if written is not None:
        known = apply_override(known, written.fields, written.get_reason)
    return known if known is first else replace(known, latency=_make_consistent(known.latency))


def _apply_usage(base: Intelligence, usage: UsageProfile) -> Intelligence:
    """Rounded, so that one more call does not make a new version of the catalog."""
    reason = f"median of {_round_down(usage.calls, 1)} or more calls"
    return replace(
        base,
        latency=replace(
            base.latency, typical=Known(_round_down(usage.typical_ms, 2), Source.LEARNED, reason)
        ),
        response=replace(
            base.response,
            typical_tokens=Known(_round_down(usage.typical_tokens, 2), Source.LEARNED, reason),
        ),
    )


def _round_down(value: float, digits: int) -> int:
    """Down to so many leading digits: 1284 → 1200."""
    whole = max(0, int(value))
    unit = 10 ** max(0, len(str(whole)) - digits)
    return whole // unit * unit


def _make_consistent(profile: LatencyProfile) -> LatencyProfile:
    """Time-out and feedback follow from the typical latency, where nobody wrote them."""
    derived = build_latency(profile.typical)
    return replace(
        derived,
        timeout=profile.timeout if profile.timeout.source is Source.WRITTEN else derived.timeout,
        feedback_delay=(
            profile.feedback_delay
            if profile.feedback_delay.source is Source.WRITTEN
            else derived.feedback_delay
        ),
    )

"""What recorded use adds to the instructions, in a few coarse steps.

Coarse on purpose: one call more or less must not change a prompt.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from fingerpost.records import ToolCard, UsageProfile

MIN_CALLS: Final = 10
MANY_CALLS: Final = 50
MOSTLY_FAILS_SHARE: Final = 0.5
OFTEN_FAILS_SHARE: Final = 0.2
RARELY_FAILS_SHARE: Final = 0.05


def describe_reliability(card: ToolCard, usage: UsageProfile, before: Sequence[ToolCard] = ()) -> str:
    """One line about how the tool has done here, or nothing."""
    if usage.calls < MIN_CALLS:
        return ""
    failing = usage.failures / usage.calls
    if failing >= OFTEN_FAILS_SHARE:
        often = "fails more often than not" if failing >= MOSTLY_FAILS_SHARE else "often fails"
        return f"it {often} here" + _find_preferred_fallback(card, before)
    return (
        "it is used a lot here and works"
        if usage.calls >= MANY_CALLS and failing < RARELY_FAILS_SHARE
        else ""
    )


def _find_preferred_fallback(card: ToolCard, before: Sequence[ToolCard]) -> str:
    """The tool to prefer: the first in the line behind this one that is offered already."""
    offered = {other.key: other.exposed_name for other in before}
    better = next((offered[key] for key in card.intelligence.hierarchy.value if key in offered), None)
    return f"; prefer {better}" if better else ""

"""A threshold that follows measured results, within bounds.

Every selection that came to an end says how sure we were and whether we were right.
Where those above the threshold are wrong too often, it rises; where those just below
it, which a person had to look at, were right as often as we want, it falls. Few
outcomes move nothing, and no outcome moves it further than it may go.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from fingerpost.choose.calibration import Calibration
from fingerpost.frozen import frozen
from fingerpost.records import ConfidenceSample

THRESHOLD_STEP: Final = 0.01
MIN_MOVE: Final = 0.02  # less than this is noise
MIN_SAMPLES_BETWEEN: Final = 10  # outcomes in the stretch that would be let through


@frozen
class ThresholdBounds:
    """What a threshold is set to, how far it may move, and what it takes."""

    base: float
    max_move: float
    min_samples: int
    target_accuracy: float  # the share of calls let through that must be right

    @property
    def lowest(self) -> float:
        return max(0.0, round(self.base - self.max_move, 2))

    @property
    def highest(self) -> float:
        return min(1.0, round(self.base + self.max_move, 2))


@frozen
class AdaptedThreshold:
    """Where the threshold should be, and why."""

    value: float
    reason: str
    samples: int


def adapt_threshold(
    samples: Sequence[ConfidenceSample], calibration: Calibration, bounds: ThresholdBounds
) -> AdaptedThreshold:
    """The threshold these outcomes ask for; the setting itself while they are too few to ask for another."""
    seen = [(min(one.raw, calibration.get_probability(one.raw)), one.right) for one in samples]
    if len(seen) < bounds.min_samples:
        few = f"{len(seen)} outcomes are too few to move it"
        return AdaptedThreshold(value=bounds.base, reason=few, samples=len(seen))
    share, _ = _compute_share_right(seen, bounds.base, 1.1)
    value = (
        _find_raised_threshold(seen, bounds)
        if share < bounds.target_accuracy
        else _find_lowered_threshold(seen, bounds)
    )
    if abs(value - bounds.base) < MIN_MOVE:
        kept = f"{share:.0%} of the calls above it were right"
        return AdaptedThreshold(value=bounds.base, reason=kept, samples=len(seen))
    if value > bounds.base:
        why = f"of the calls above {bounds.base:.2f} only {share:.0%} were right"
    else:
        between, count = _compute_share_right(seen, value, bounds.base)
        why = f"{between:.0%} of {count} calls between {value:.2f} and {bounds.base:.2f} were right"
    return AdaptedThreshold(value=value, reason=why, samples=len(seen))


def _find_raised_threshold(seen: Sequence[tuple[float, bool]], bounds: ThresholdBounds) -> float:
    """The first place above the setting from which on enough are right; the highest where there is none."""
    for place in _list_thresholds(bounds.base, bounds.highest):
        share, count = _compute_share_right(seen, place, 1.1)
        if count and share >= bounds.target_accuracy:
            return place
    return bounds.highest


def _find_lowered_threshold(seen: Sequence[tuple[float, bool]], bounds: ThresholdBounds) -> float:
    """The furthest place below the setting down to which every stretch was right often enough."""
    best = bounds.base
    for place in reversed(_list_thresholds(bounds.lowest, bounds.base)):
        share, count = _compute_share_right(seen, place, bounds.base)
        if count >= MIN_SAMPLES_BETWEEN and share >= bounds.target_accuracy:
            best = place
        elif count >= MIN_SAMPLES_BETWEEN:
            break
    return best


def _list_thresholds(low: float, high: float) -> list[float]:
    steps = round((high - low) / THRESHOLD_STEP)
    return [round(low + THRESHOLD_STEP * step, 2) for step in range(steps + 1)]


def _compute_share_right(seen: Sequence[tuple[float, bool]], low: float, high: float) -> tuple[float, int]:
    """How many of those between were right, as if one more had been each way; and how many there were."""
    right = [was_right for score, was_right in seen if low <= score < high]
    return (sum(right) + 1) / (len(right) + 2), len(right)

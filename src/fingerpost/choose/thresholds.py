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

STEP: Final = 0.01
LEAST_MOVE: Final = 0.02  # less than this is noise
ENOUGH_BETWEEN: Final = 10  # outcomes in the stretch that would be let through


@frozen
class Bounds:
    """What a threshold is set to, how far it may move, and what it takes."""

    base: float
    reach: float
    samples: int
    right: float  # the share of calls let through that must be right

    @property
    def lowest(self) -> float:
        return max(0.0, round(self.base - self.reach, 2))

    @property
    def highest(self) -> float:
        return min(1.0, round(self.base + self.reach, 2))


@frozen
class Adapted:
    """Where the threshold should be, and why."""

    value: float
    reason: str
    samples: int


def adapt(samples: Sequence[ConfidenceSample], calibration: Calibration, bounds: Bounds) -> Adapted:
    """The threshold these outcomes ask for; the setting itself while they are too few to ask for another."""
    seen = [(min(one.raw, calibration.probability(one.raw)), one.right) for one in samples]
    if len(seen) < bounds.samples:
        few = f"{len(seen)} outcomes are too few to move it"
        return Adapted(value=bounds.base, reason=few, samples=len(seen))
    share, _ = _share(seen, bounds.base, 1.1)
    value = _raised(seen, bounds) if share < bounds.right else _lowered(seen, bounds)
    if abs(value - bounds.base) < LEAST_MOVE:
        kept = f"{share:.0%} of the calls above it were right"
        return Adapted(value=bounds.base, reason=kept, samples=len(seen))
    if value > bounds.base:
        why = f"of the calls above {bounds.base:.2f} only {share:.0%} were right"
    else:
        between, count = _share(seen, value, bounds.base)
        why = f"{between:.0%} of {count} calls between {value:.2f} and {bounds.base:.2f} were right"
    return Adapted(value=value, reason=why, samples=len(seen))


def _raised(seen: Sequence[tuple[float, bool]], bounds: Bounds) -> float:
    """The first place above the setting from which on enough are right; the highest where there is none."""
    for place in _places(bounds.base, bounds.highest):
        share, count = _share(seen, place, 1.1)
        if count and share >= bounds.right:
            return place
    return bounds.highest


def _lowered(seen: Sequence[tuple[float, bool]], bounds: Bounds) -> float:
    """The furthest place below the setting down to which every stretch was right often enough."""
    best = bounds.base
    for place in reversed(_places(bounds.lowest, bounds.base)):
        share, count = _share(seen, place, bounds.base)
        if count >= ENOUGH_BETWEEN and share >= bounds.right:
            best = place
        elif count >= ENOUGH_BETWEEN:
            break
    return best


def _places(low: float, high: float) -> list[float]:
    steps = round((high - low) / STEP)
    return [round(low + STEP * step, 2) for step in range(steps + 1)]


def _share(seen: Sequence[tuple[float, bool]], low: float, high: float) -> tuple[float, int]:
    """How many of those between were right, as if one more had been each way; and how many there were."""
    right = [was_right for score, was_right in seen if low <= score < high]
    return (sum(right) + 1) / (len(right) + 2), len(right)

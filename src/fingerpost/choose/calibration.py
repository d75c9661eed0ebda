"""Confidence that means something: of the selections shown at 80 %, about 80 % turn out right.

Models are more sure of themselves than they should be, and each in its own way. What
they said and how it turned out is recorded, and a curve is fitted to it that only ever
rises: it changes what a score is worth, never which of two scores is higher.

The fit is isotonic (adjacent violators are pooled) over the samples and a few imagined
ones on the diagonal. Those keep the curve near "as claimed" where little was seen, and
are outvoted where much was.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import fsum
from typing import Final

from fingerpost.frozen import frozen
from fingerpost.records import ConfidenceSample

MIN_SAMPLES: Final = 30  # samples
MIN_SAMPLES_PER_OUTCOME: Final = 5  # right ones, wrong ones
_PRIOR_SAMPLES: Final = 11  # places on the diagonal, 0.0, 0.1, … 1.0
_PRIOR_WEIGHT: Final = 4.0  # as many samples each of them counts for

_CurvePoint = tuple[float, float]


@frozen
class Calibration:
    """A rising curve from raw scores to probabilities, drawn straight between its points."""

    points: tuple[
        _CurvePoint, ...
    ] = ()  # none falls behind the one before; none at all: every score is what it claims to be
    samples: int = 0

    @property
    def is_calibrated(self) -> bool:
        return bool(self.points)

    @classmethod
    def create_identity(cls) -> Calibration:
        """Takes every score at its word."""
        return cls()

    @classmethod
    def fit(cls, samples: Iterable[ConfidenceSample]) -> Calibration:
        """The curve these outcomes ask for; the identity while they are too few to ask for one."""
        kept = [(_clamp_score(sample.raw), sample.right) for sample in samples if sample.raw == sample.raw]
        right = sum(was_right for _, was_right in kept)
        if len(kept) < MIN_SAMPLES or min(right, len(kept) - right) < MIN_SAMPLES_PER_OUTCOME:
            return cls.create_identity()
        return cls(points=_pool_adjacent_violators(_group_by_score(kept)), samples=len(kept))

    def get_probability(self, raw: float) -> float:
        """What a raw score is worth. A higher one is never worth less."""
        raw = _clamp_score(raw)
        if not self.points:
            return raw
        above = bisect_right(self.points, raw, key=lambda point: point[0])
        if above == 0:
            return self.points[0][1]
        if above == len(self.points):
            return self.points[-1][1]
        (left, low), (right, high) = self.points[above - 1], self.points[above]
        return min(high, max(low, low + (high - low) * ((raw - left) / (right - left))))


@frozen
class ReliabilityBin:
    """The selections shown within one stretch of confidence: what was said, and what was true."""

    low: float
    high: float
    count: int = 0
    mean_confidence: float = 0.0  # mean probability
    share_right: float = 0.0  # share that turned out right


def compute_reliability(
    samples: Iterable[ConfidenceSample], calibration: Calibration, *, bins: int = 10
) -> tuple[ReliabilityBin, ...]:
    """The samples by what the calibration makes of them, in equal stretches from 0 to 1."""
    said: list[list[float]] = [[] for _ in range(bins)]
    right = [0] * bins
    for sample in samples:
        probability = calibration.get_probability(sample.raw)
        place = min(bins - 1, int(probability * bins))
        said[place].append(probability)
        right[place] += sample.right
    return tuple(
        ReliabilityBin(
            low=place / bins,
            high=(place + 1) / bins,
            count=len(values),
            mean_confidence=fsum(values) / len(values) if values else 0.0,
            share_right=right[place] / len(values) if values else 0.0,
        )
        for place, values in enumerate(said)
    )


def compute_expected_calibration_error(
    samples: Sequence[ConfidenceSample], calibration: Calibration, *, bins: int = 10
) -> float:
    """How far, on average over the samples, what is said lies from what is true; 0 without samples."""
    if not samples:
        return 0.0
    found = compute_reliability(samples, calibration, bins=bins)
    return sum(each.count * abs(each.mean_confidence - each.share_right) for each in found) / len(samples)


def _clamp_score(raw: float) -> float:
    """Within 0 and 1; what is no number at all is worth nothing."""
    return min(1.0, max(0.0, raw)) if raw == raw else 0.0


@dataclass(slots=True)
class _IsotonicBlock:
    """Samples of neighbouring scores that are given one probability together."""

    low: float
    high: float
    weight: float
    right: float  # by weight

    @property
    def value(self) -> float:
        return min(1.0, self.right / self.weight)


def _group_by_score(samples: Sequence[tuple[float, bool]]) -> list[_IsotonicBlock]:
    """One block for each raw score, lowest first, the imagined samples among them."""
    counts: dict[float, tuple[int, int]] = {}
    for raw, was_right in samples:
        count, right = counts.get(raw, (0, 0))
        counts[raw] = (count + 1, right + was_right)
    places = {place / (_PRIOR_SAMPLES - 1) for place in range(_PRIOR_SAMPLES)}
    blocks: list[_IsotonicBlock] = []
    for raw in sorted(places | counts.keys()):
        count, right = counts.get(raw, (0, 0))
        extra = _PRIOR_WEIGHT if raw in places else 0.0
        weight = count + extra
        blocks.append(_IsotonicBlock(raw, raw, weight, right + extra * raw))
    return blocks


def _pool_adjacent_violators(blocks: Iterable[_IsotonicBlock]) -> tuple[_CurvePoint, ...]:
    """Neighbours of which the lower score has the higher share are put together until none are left."""
    stack: list[_IsotonicBlock] = []
    for block in blocks:
        stack.append(block)
        while len(stack) > 1 and stack[-2].value >= stack[-1].value:
            last = stack.pop()
            stack[-1].high = last.high
            stack[-1].weight += last.weight
            stack[-1].right += last.right
    edges = ((raw, block.value) for block in stack for raw in (block.low, block.high))
    return tuple(dict.fromkeys(edges))

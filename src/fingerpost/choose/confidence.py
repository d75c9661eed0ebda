"""Confidence in a selection: score, calibration, thresholds and the gate verdict."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import fsum
from typing import Final

from fingerpost.frozen import frozen
from fingerpost.records import (
    Candidate,
    Confidence,
    ConfidenceSample,
    GateVerdict,
    Review,
    Selection,
    Shortlist,
)
from fingerpost.settings import Settings


@frozen
class GateEvidence:
    """What the gate looks at."""

    raw: float  # never above the opinion that leads
    score: float  # what the calibration makes of it
    claim: float
    review: Review | None  # None: there was to be none

    @property
    def opinion(self) -> float:
        """The one that leads: the review's, or the model's own where there is no review."""
        return self.claim if self.review is None else self.review.confidence

    @property
    def is_approved(self) -> bool:
        return self.review is None or self.review.approved

    @property
    def effective_score(self) -> float:
        """Past outcomes may make us more careful than the models are, never less."""
        return min(self.raw, self.score)


def decide_gate_verdict(
    evidence: GateEvidence, *, threshold: float, decline_below: float
) -> tuple[GateVerdict, str]:
    """The verdict and why. Without approval, or with a review below the threshold, it is never GO."""
    if evidence.review is not None and evidence.review.failed:
        return GateVerdict.ASK, "the review failed, so a person decides"
    lead = _describe_opinion(evidence)
    if not evidence.effective_score >= decline_below:
        left = (
            ""
            if evidence.effective_score == evidence.opinion
            else f", which leaves {evidence.effective_score:.2f}"
        )
        return GateVerdict.DECLINE, f"{lead}{left}; below {decline_below:.2f} it is not even asked about"
    doubt = _explain_doubt(evidence, threshold)
    if doubt:
        return GateVerdict.ASK, lead + doubt
    return GateVerdict.GO, f"{lead}; {threshold:.2f} is enough"


def _explain_doubt(evidence: GateEvidence, threshold: float) -> str:
    """Why a person has to look; empty when nobody has to. The first reason is the weightiest."""
    # Written as "not at least", so that what is no number is never enough.
    if not evidence.is_approved:
        return "; what is not approved needs a person"
    if not evidence.opinion >= threshold:
        return f"; below {threshold:.2f} a person decides"
    if not evidence.raw >= threshold:
        return f", but {_describe_objection(evidence)} lowers that to {evidence.raw:.2f}"
    if not evidence.score >= threshold:
        return f", but such selections were right only {evidence.score:.0%} of the time"
    return ""


def _describe_opinion(evidence: GateEvidence) -> str:
    if evidence.review is None:
        return f"the model claims {evidence.claim:.2f}, and there is no review"
    said = "approves" if evidence.is_approved else "does not approve"
    return f"the review {said}, at {evidence.opinion:.2f}"


def _describe_objection(evidence: GateEvidence) -> str:
    if evidence.review is not None and evidence.claim < 0.5:
        return f"the selecting model's own claim of {evidence.claim:.2f}"
    return "how poorly the search found the tool"


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


MAX_CLAIM_PENALTY: Final = 0.35  # so much of the review, when the model claims nothing at all
SUFFICIENT_CLAIM: Final = 0.5
MAX_SEARCH_PENALTY: Final = 0.15
SUFFICIENT_SUPPORT: Final = 0.25
MAX_UNAPPROVED_CONFIDENCE: Final = 0.5  # the most a review is worth that does not approve


def score_confidence(
    selection: Selection,
    review: Review | None,
    shortlist: Shortlist,
    *,
    calibration: Calibration,
    settings: Settings,
) -> Confidence:
    """The confidence in a selection and what follows from it. No review: there was to be none."""
    review = None if review is None else cap_review_confidence(review)
    claim = clamp_to_unit(selection.confidence)
    raw = _compute_raw_score(claim, review, compute_support(selection.tool, shortlist))
    used = calibration if settings.flags.calibration else Calibration.create_identity()
    evidence = GateEvidence(raw=raw, score=used.get_probability(raw), claim=claim, review=review)
    verdict, reason = decide_gate_verdict(
        evidence,
        threshold=settings.tool_routing.confidence_threshold,
        decline_below=settings.choose.decline_below,
    )
    return Confidence(
        claim=claim,
        review=0.0 if review is None else review.confidence,
        margin=compute_margin(selection.tool, shortlist),
        score=evidence.score,
        calibrated=used.is_calibrated,
        verdict=verdict,
        reason=reason,
        raw=raw,
    )


def cap_review_confidence(review: Review) -> Review:
    """The review with a confidence between 0 and 1, and at most `MAX_UNAPPROVED_CONFIDENCE` where it does not
    approve.
    """
    confidence = clamp_to_unit(review.confidence)
    return replace(
        review, confidence=confidence if review.approved else min(confidence, MAX_UNAPPROVED_CONFIDENCE)
    )


def _compute_raw_score(claim: float, review: Review | None, supported: float) -> float:
    """The score before calibration, 0..1: never above the opinion that leads."""
    unsupported = _compute_shortfall(supported, SUFFICIENT_SUPPORT)
    if review is None:
        return claim * (1.0 - MAX_SEARCH_PENALTY * unsupported)
    unclaimed = _compute_shortfall(claim, SUFFICIENT_CLAIM)
    return review.confidence * (1.0 - MAX_CLAIM_PENALTY * unclaimed - MAX_SEARCH_PENALTY * unsupported)


def compute_margin(tool: str, shortlist: Shortlist) -> float:
    """How far the tool stands above the next one offered for the same need: 1 when there is no other."""
    own, best_other = _get_tool_and_rival_scores(tool, shortlist)
    if own <= 0.0:
        return 0.0
    return clamp_to_unit((own - max(0.0, best_other)) / own)


def compute_support(tool: str, shortlist: Shortlist) -> float:
    """What the search says for the tool: that something fits at all, that it is this one, and by how much."""
    own, best_other = _get_tool_and_rival_scores(tool, shortlist)
    if own <= 0.0:
        return 0.0
    standing = clamp_to_unit(own / max(own, best_other))
    return clamp_to_unit(shortlist.fit) * (standing + compute_margin(tool, shortlist)) / 2


def clamp_to_unit(value: float) -> float:
    """Within 0 and 1; what is no number counts nothing."""
    return min(1.0, max(0.0, value)) if value == value else 0.0


def _get_tool_and_rival_scores(tool: str, shortlist: Shortlist) -> tuple[float, float]:
    """The tool's score and that of the best other one offered for the same need."""
    found = next((each for each in shortlist.candidates if each.tool == tool), None)
    if found is None or not math.isfinite(found.score):
        return 0.0, 0.0
    others = [each.score for each in shortlist.offered if _serves_same_need(each, found)]
    return found.score, max(others, default=0.0)


def _serves_same_need(one: Candidate, other: Candidate) -> bool:
    return one.tool != other.tool and one.need == other.need and math.isfinite(one.score)


def _compute_shortfall(value: float, sufficient: float) -> float:
    """0 when there is enough, 1 when there is nothing."""
    return max(0.0, (sufficient - value) / sufficient)

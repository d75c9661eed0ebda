"""Confidence in a selection: score, calibration, thresholds and the gate verdict."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from fingerpost.frozen import frozen
from fingerpost.records import (
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
    """The confidence values the gate decides on."""

    raw: float  # never above the confidence of the review, or of the model without one
    score: float  # calibrated
    claim: float
    review: Review | None  # None: no review was planned

    @property
    def opinion(self) -> float:
        """The confidence of the review, or of the model itself without a review."""
        return self.claim if self.review is None else self.review.confidence

    @property
    def is_approved(self) -> bool:
        return self.review is None or self.review.approved

    @property
    def effective_score(self) -> float:
        """The score for the gate. Calibration can lower the models' confidence but never raise it."""
        return min(self.raw, self.score)


def decide_gate_verdict(
    evidence: GateEvidence, *, threshold: float, decline_below: float
) -> tuple[GateVerdict, str]:
    """Return the verdict and the reason. It is never GO if a review does not approve or is too unsure."""
    if evidence.review is not None and evidence.review.failed:
        return GateVerdict.ASK, "the review failed, so a person decides"
    lead = _describe_opinion(evidence)
    score = evidence.effective_score
    if not score >= decline_below:
        left = "" if score == evidence.opinion else f", which leaves {score:.2f}"
        return GateVerdict.DECLINE, f"{lead}{left}; below {decline_below:.2f} it is not even asked about"
    if doubt := _explain_doubt(evidence, threshold):
        return GateVerdict.ASK, lead + doubt
    return GateVerdict.GO, f"{lead}; {threshold:.2f} is enough"


def _explain_doubt(evidence: GateEvidence, threshold: float) -> str:
    """Return the most important reason why a person must review the call, or an empty string."""
    # Written as "not at least" so that NaN is never sufficient.
    if not evidence.is_approved:
        return "; a person decides"
    if not evidence.opinion >= threshold:
        return f"; below {threshold:.2f} a person decides"
    if not evidence.raw >= threshold:
        return f", but {_describe_objection(evidence)} lowers that to {evidence.raw:.2f}"
    if not evidence.score >= threshold:
        return f", but such selections were right only {100 * evidence.score:.0f} % of the time"
    return ""


def _describe_opinion(evidence: GateEvidence) -> str:
    if evidence.review is None:
        return f"the model claims {evidence.claim:.2f}, and there is no review"
    verdict = "agrees" if evidence.is_approved else "does not agree"
    return f"the review {verdict}, at {evidence.opinion:.2f}"


def _describe_objection(evidence: GateEvidence) -> str:
    if evidence.review is not None and evidence.claim < 0.5:
        return f"the selecting model's own claim of {evidence.claim:.2f}"
    return "the low search score of the tool"


MIN_SAMPLES: Final = 30
MIN_SAMPLES_PER_OUTCOME: Final = 5  # of the right ones and of the wrong ones
_PRIOR_SAMPLES: Final = 11  # points on the diagonal: 0.0, 0.1, … 1.0
_PRIOR_WEIGHT: Final = 4.0  # samples that each point counts for

_CurvePoint = tuple[float, float]


@frozen
class Calibration:
    """A monotonic, piecewise linear curve from raw scores to probabilities."""

    points: tuple[_CurvePoint, ...] = ()  # never decreasing; empty: the identity
    samples: int = 0

    @property
    def is_calibrated(self) -> bool:
        return bool(self.points)

    @classmethod
    def fit(cls, samples: Iterable[ConfidenceSample]) -> Calibration:
        """Fit the curve to these outcomes. Return the identity when there are too few of them."""
        kept = [(clamp_to_unit(sample.raw), sample.right) for sample in samples if sample.raw == sample.raw]
        right = sum(was_right for _, was_right in kept)
        if len(kept) < MIN_SAMPLES or min(right, len(kept) - right) < MIN_SAMPLES_PER_OUTCOME:
            return cls()
        return cls(points=_pool_adjacent_violators(_group_by_score(kept)), samples=len(kept))

    def get_probability(self, raw: float) -> float:
        """Return the probability for a raw score. A higher score never has a lower probability."""
        raw = clamp_to_unit(raw)
        if not self.points:
            return raw
        above = bisect_right(self.points, raw, key=lambda point: point[0])
        if above == 0:
            return self.points[0][1]
        if above == len(self.points):
            return self.points[-1][1]
        (left, low), (right, high) = self.points[above - 1], self.points[above]
        return min(high, max(low, low + (high - low) * ((raw - left) / (right - left))))


@dataclass(slots=True)
class _IsotonicBlock:
    """Samples of neighbouring scores that share one probability."""

    low: float
    high: float
    weight: float
    right: float  # weight of the right samples

    @property
    def value(self) -> float:
        return min(1.0, self.right / self.weight)


def _group_by_score(samples: Sequence[tuple[float, bool]]) -> list[_IsotonicBlock]:
    """Return one block for each raw score, lowest first, including the prior samples."""
    counts: dict[float, tuple[int, int]] = {}
    for raw, was_right in samples:
        count, right = counts.get(raw, (0, 0))
        counts[raw] = (count + 1, right + was_right)
    prior_scores = {place / (_PRIOR_SAMPLES - 1) for place in range(_PRIOR_SAMPLES)}
    blocks: list[_IsotonicBlock] = []
    for raw in sorted(prior_scores | counts.keys()):
        count, right = counts.get(raw, (0, 0))
        extra = _PRIOR_WEIGHT if raw in prior_scores else 0.0
        weight = count + extra
        blocks.append(_IsotonicBlock(raw, raw, weight, right + extra * raw))
    return blocks


def _pool_adjacent_violators(blocks: Iterable[_IsotonicBlock]) -> tuple[_CurvePoint, ...]:
    """Merge neighbouring blocks until a higher score never has a lower share of right outcomes."""
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
MIN_MOVE: Final = 0.02  # a smaller change is noise
MIN_SAMPLES_BETWEEN: Final = 10  # outcomes in the interval that would be allowed


@frozen
class ThresholdBounds:
    """The configured threshold, how far it may move, and the evidence a move needs."""

    base: float
    max_move: float
    min_samples: int
    target_accuracy: float  # share of allowed calls that must be right

    @property
    def lowest(self) -> float:
        return max(0.0, round(self.base - self.max_move, 2))

    @property
    def highest(self) -> float:
        return min(1.0, round(self.base + self.max_move, 2))


@frozen
class AdaptedThreshold:
    """The threshold to use, with the reason."""

    value: float
    reason: str
    samples: int


def adapt_threshold(
    samples: Sequence[ConfidenceSample], calibration: Calibration, bounds: ThresholdBounds
) -> AdaptedThreshold:
    """Return the threshold these outcomes suggest, or the configured one when there are too few of them."""
    seen = [(min(one.raw, calibration.get_probability(one.raw)), one.right) for one in samples]
    if len(seen) < bounds.min_samples:
        few = f"{len(seen)} outcomes are too few to move it"
        return AdaptedThreshold(value=bounds.base, reason=few, samples=len(seen))
    share, _ = _compute_share_right(seen, bounds.base, 1.1)
    find = _find_raised_threshold if share < bounds.target_accuracy else _find_lowered_threshold
    value = find(seen, bounds)
    if abs(value - bounds.base) < MIN_MOVE:
        kept = f"{100 * share:.0f} % of the calls above it were right"
        return AdaptedThreshold(value=bounds.base, reason=kept, samples=len(seen))
    if value > bounds.base:
        why = f"of the calls above {bounds.base:.2f} only {100 * share:.0f} % were right"
    else:
        between, count = _compute_share_right(seen, value, bounds.base)
        why = f"{100 * between:.0f} % of {count} calls between {value:.2f} and {bounds.base:.2f} were right"
    return AdaptedThreshold(value=value, reason=why, samples=len(seen))


def _find_raised_threshold(seen: Sequence[tuple[float, bool]], bounds: ThresholdBounds) -> float:
    """Return the lowest threshold above the configured one that reaches the target, or the highest one."""
    for threshold in _list_thresholds(bounds.base, bounds.highest):
        share, count = _compute_share_right(seen, threshold, 1.1)
        if count and share >= bounds.target_accuracy:
            return threshold
    return bounds.highest


def _find_lowered_threshold(seen: Sequence[tuple[float, bool]], bounds: ThresholdBounds) -> float:
    """Return the lowest threshold down to which every interval reaches the target accuracy."""
    best = bounds.base
    for threshold in reversed(_list_thresholds(bounds.lowest, bounds.base)):
        share, count = _compute_share_right(seen, threshold, bounds.base)
        if count >= MIN_SAMPLES_BETWEEN and share >= bounds.target_accuracy:
            best = threshold
        elif count >= MIN_SAMPLES_BETWEEN:
            break
    return best


def _list_thresholds(low: float, high: float) -> list[float]:
    steps = round((high - low) / THRESHOLD_STEP)
    return [round(low + THRESHOLD_STEP * step, 2) for step in range(steps + 1)]


def _compute_share_right(seen: Sequence[tuple[float, bool]], low: float, high: float) -> tuple[float, int]:
    """Return the share of right outcomes from `low` to `high`, smoothed by one of each, and their number."""
    right = [was_right for score, was_right in seen if low <= score < high]
    return (sum(right) + 1) / (len(right) + 2), len(right)


MAX_CLAIM_PENALTY: Final = 0.35  # share of the review's confidence that is lost when the model claims 0
SUFFICIENT_CLAIM: Final = 0.5
MAX_SEARCH_PENALTY: Final = 0.15
SUFFICIENT_SUPPORT: Final = 0.25
MAX_UNAPPROVED_CONFIDENCE: Final = 0.5  # limit for a review that does not approve


def score_confidence(
    selection: Selection,
    review: Review | None,
    shortlist: Shortlist,
    *,
    calibration: Calibration,
    settings: Settings,
) -> Confidence:
    """Compute the confidence in a selection and the verdict. `review` is None when none was planned."""
    review = None if review is None else cap_review_confidence(review)
    claim = clamp_to_unit(selection.confidence)
    raw = _compute_raw_score(claim, review, compute_support(selection.tool, shortlist))
    used = calibration if settings.flags.calibration else Calibration()
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
    """Return the review with a confidence in 0..1, limited if it does not approve."""
    limit = 1.0 if review.approved else MAX_UNAPPROVED_CONFIDENCE
    return replace(review, confidence=min(clamp_to_unit(review.confidence), limit))


def _compute_raw_score(claim: float, review: Review | None, supported: float) -> float:
    """Return the score before calibration, 0..1: at most the confidence of the review, or of the model."""
    unsupported = _compute_shortfall(supported, SUFFICIENT_SUPPORT)
    if review is None:
        return claim * (1.0 - MAX_SEARCH_PENALTY * unsupported)
    unclaimed = _compute_shortfall(claim, SUFFICIENT_CLAIM)
    return review.confidence * (1.0 - MAX_CLAIM_PENALTY * unclaimed - MAX_SEARCH_PENALTY * unsupported)


def compute_margin(tool: str, shortlist: Shortlist) -> float:
    """Return how far the tool's score is above the next tool for the same need: 1 when there is no other."""
    own, best_other = _get_tool_and_rival_scores(tool, shortlist)
    if own <= 0.0:
        return 0.0
    return clamp_to_unit((own - max(0.0, best_other)) / own)


def compute_support(tool: str, shortlist: Shortlist) -> float:
    """Return how well the search supports the tool: fit of the shortlist, the tool's rank and margin."""
    own, best_other = _get_tool_and_rival_scores(tool, shortlist)
    if own <= 0.0:
        return 0.0
    standing = clamp_to_unit(own / max(own, best_other))
    return clamp_to_unit(shortlist.fit) * (standing + compute_margin(tool, shortlist)) / 2


def clamp_to_unit(value: float) -> float:
    """Limit the value to 0..1. NaN becomes 0."""
    return min(1.0, max(0.0, value)) if value == value else 0.0


def _get_tool_and_rival_scores(tool: str, shortlist: Shortlist) -> tuple[float, float]:
    """Return the tool's score and the best score of another tool offered for the same need."""
    found = next((each for each in shortlist.candidates if each.tool == tool), None)
    if found is None or not math.isfinite(found.score):
        return 0.0, 0.0
    others = (each for each in shortlist.offered if each.tool != tool and each.need == found.need)
    return found.score, max((each.score for each in others if math.isfinite(each.score)), default=0.0)


def _compute_shortfall(value: float, sufficient: float) -> float:
    """Return 0 when the value is sufficient and 1 when it is 0."""
    return max(0.0, (sufficient - value) / sufficient)

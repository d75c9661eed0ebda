"""How sure we are of a selection: what the reviewer says, less what speaks against it.

One opinion leads: the review, or, where reviews are switched off, the selecting
model's claim. The other evidence can only take away from it. A claim under one half
takes up to `MAX_CLAIM_PENALTY`, a search that hardly found the tool up to `MAX_SEARCH_PENALTY`; a
claim of one half or more and a search that found it well leave the review as it is.
So a review below the threshold stays below, whatever the others say, and nothing
runs on it without a person.

The calibration then says how often such a score was right in the past. It is what is
shown. For the gate it can only make us more careful: the lower of the two counts.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final

from fingerpost.choose.calibration import Calibration
from fingerpost.choose.gate import GateEvidence, decide_gate_verdict
from fingerpost.records import Candidate, Confidence, Review, Selection, Shortlist
from fingerpost.settings import Settings

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

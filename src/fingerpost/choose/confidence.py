"""How sure we are of a selection: what the reviewer says, less what speaks against it.

One opinion leads: the review, or, where reviews are switched off, the selecting
model's claim. The other evidence can only take away from it. A claim under one half
takes up to `CLAIM_TAKES`, a search that hardly found the tool up to `SEARCH_TAKES`; a
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
from fingerpost.choose.gate import Evidence, decide
from fingerpost.records import Candidate, Confidence, Review, Selection, Shortlist
from fingerpost.settings import Settings

CLAIM_TAKES: Final = 0.35  # so much of the review, when the model claims nothing at all
ENOUGH_CLAIM: Final = 0.5
SEARCH_TAKES: Final = 0.15
ENOUGH_SUPPORT: Final = 0.25
UNAPPROVED: Final = 0.5  # the most a review is worth that does not approve


def judge(
    selection: Selection,
    review: Review | None,
    shortlist: Shortlist,
    *,
    calibration: Calibration,
    settings: Settings,
) -> Confidence:
    """The confidence in a selection and what follows from it. No review: there was to be none."""
    review = None if review is None else capped(review)
    claim = bounded(selection.confidence)
    raw = _raw(claim, review, support(selection.tool, shortlist))
    used = calibration if settings.flags.calibration else Calibration.identity()
    evidence = Evidence(raw=raw, score=used.probability(raw), claim=claim, review=review)
    verdict, reason = decide(
        evidence,
        threshold=settings.tool_routing.confidence_threshold,
        decline_below=settings.choose.decline_below,
    )
    return Confidence(
        claim=claim,
        review=0.0 if review is None else review.confidence,
        margin=margin(selection.tool, shortlist),
        score=evidence.score,
        calibrated=used.calibrated,
        verdict=verdict,
        reason=reason,
        raw=raw,
    )


def capped(review: Review) -> Review:
    """The review with a confidence between 0 and 1, and at most `UNAPPROVED` where it does not approve."""
    confidence = bounded(review.confidence)
    return replace(review, confidence=confidence if review.approved else min(confidence, UNAPPROVED))


def _raw(claim: float, review: Review | None, supported: float) -> float:
    """The score before calibration, 0..1: never above the opinion that leads."""
    unsupported = _short_of(supported, ENOUGH_SUPPORT)
    if review is None:
        return claim * (1.0 - SEARCH_TAKES * unsupported)
    unclaimed = _short_of(claim, ENOUGH_CLAIM)
    return review.confidence * (1.0 - CLAIM_TAKES * unclaimed - SEARCH_TAKES * unsupported)


def margin(tool: str, shortlist: Shortlist) -> float:
    """How far the tool stands above the next one offered for the same need: 1 when there is no other."""
    own, best_other = _scores(tool, shortlist)
    if own <= 0.0:
        return 0.0
    return bounded((own - max(0.0, best_other)) / own)


def support(tool: str, shortlist: Shortlist) -> float:
    """What the search says for the tool: that something fits at all, that it is this one, and by how much."""
    own, best_other = _scores(tool, shortlist)
    if own <= 0.0:
        return 0.0
    standing = bounded(own / max(own, best_other))
    return bounded(shortlist.fit) * (standing + margin(tool, shortlist)) / 2


def bounded(value: float) -> float:
    """Within 0 and 1; what is no number counts nothing."""
    return min(1.0, max(0.0, value)) if value == value else 0.0


def _scores(tool: str, shortlist: Shortlist) -> tuple[float, float]:
    """The tool's score and that of the best other one offered for the same need."""
    found = next((each for each in shortlist.candidates if each.tool == tool), None)
    if found is None or not math.isfinite(found.score):
        return 0.0, 0.0
    others = [each.score for each in shortlist.offered if _rivals(each, found)]
    return found.score, max(others, default=0.0)


def _rivals(one: Candidate, other: Candidate) -> bool:
    return one.tool != other.tool and one.need == other.need and math.isfinite(one.score)


def _short_of(value: float, enough: float) -> float:
    """0 when there is enough, 1 when there is nothing."""
    return max(0.0, (enough - value) / enough)

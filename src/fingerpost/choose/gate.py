"""Go, ask a person, or leave it: what a confidence leads to, in words a person understands."""

from __future__ import annotations

from fingerpost.frozen import frozen
from fingerpost.records import GateVerdict, Review


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

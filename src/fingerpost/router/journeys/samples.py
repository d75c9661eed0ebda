"""What outcomes teach about confidence."""

from __future__ import annotations

from typing import Final

from fingerpost.records import ConfidenceSample, ErrorKind, Outcome, utc_now
from fingerpost.router.journeys.journey import Journey

# What says that the choice was wrong. A server that is down says nothing about the choice.
_WRONG: Final = (
    ErrorKind.INVALID_PARAMETERS,
    ErrorKind.TOOL_NOT_FOUND,
    ErrorKind.OPERATION_NOT_SUPPORTED,
    ErrorKind.EXECUTION_FAILED,
    ErrorKind.CANCELLED,
)


def note_outcome(journey: Journey, outcome: Outcome) -> None:
    """Remember whether we were right to be so sure. A person's no counts as well as an error."""
    if journey.confidence is not None and (outcome.success or outcome.error in _WRONG):
        sample = ConfidenceSample(raw=journey.confidence.raw, right=outcome.success, tool=outcome.tool)
        journey.house.store.confidences.note(sample, utc_now())

"""What outcomes teach about confidence."""

from __future__ import annotations

from typing import Final

from fingerpost.records import ConfidenceSample, ErrorKind, Outcome, utc_now
from fingerpost.router.journeys.journey import RunState

# What says that the choice was wrong. A server that is down says nothing about the choice.
_WRONG_CHOICE_ERRORS: Final = (
    ErrorKind.INVALID_PARAMETERS,
    ErrorKind.TOOL_NOT_FOUND,
    ErrorKind.OPERATION_NOT_SUPPORTED,
    ErrorKind.EXECUTION_FAILED,
    ErrorKind.CANCELLED,
)


def record_confidence_sample(run: RunState, outcome: Outcome) -> None:
    """Remember whether we were right to be so sure. A person's no counts as well as an error."""
    if run.confidence is not None and (outcome.success or outcome.error in _WRONG_CHOICE_ERRORS):
        sample = ConfidenceSample(raw=run.confidence.raw, right=outcome.success, tool=outcome.tool)
        run.deps.store.confidences.record_soon(sample, utc_now())

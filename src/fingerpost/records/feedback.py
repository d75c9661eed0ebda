"""Choices made for requests, feedback on them, and what was learned."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Final

from fingerpost.frozen import frozen


class FeedbackVerdict(StrEnum):
    """Whether the right tool was used."""

    GOOD = "good"
    BAD = "bad"


@frozen
class Feedback:
    """One person's feedback on one request. `should_have` is the tool that would have been right."""

    packet_id: str
    by: str
    verdict: FeedbackVerdict
    request: str
    at: datetime
    tool: str | None = None  # the judged tool; None: no specific one
    should_have: str | None = None
    comment: str = ""

    @property
    def right(self) -> str | None:
        """The tool that this feedback supports."""
        return self.tool if self.verdict is FeedbackVerdict.GOOD else self.should_have

    @property
    def wrong(self) -> str | None:
        """The tool that this feedback rejects."""
        return None if self.verdict is FeedbackVerdict.GOOD else self.tool


@frozen
class Threshold:
    """A setting that follows measured results: its value, its base, and the reason for the change."""

    name: str
    base: float
    value: float
    at: datetime
    reason: str = ""
    samples: int = 0


@frozen
class LearnedCorrection:
    """All feedback for one tool over another."""

    right: str | None  # the supported tool
    wrong: str | None  # the rejected tool
    times: int
    by: tuple[str, ...]
    latest: datetime
    requests: tuple[str, ...] = ()  # the latest requests that the reader may see


@frozen
class LearnedUse:
    """How often a tool succeeded and failed for the stored requests."""

    tool: str
    worked: int
    failed: int


@frozen
class Preference:
    """A tool that one person prefers, and the tools of the same category that they use less."""

    person: str
    tool: str
    weight: float  # in uses; older ones count less
    category: str = ""
    over: tuple[str, ...] = ()


@frozen
class LearningCheck:
    """The last evaluation of learning from feedback on this installation's own requests."""

    at: datetime
    verdict: str  # "would help", "no loss", "loses" or "too little to say"
    requests: int
    reason: str = ""


@frozen
class Learned:
    """All learned data that one person may see."""

    flags: dict[str, bool]
    corrections: tuple[LearnedCorrection, ...] = ()
    uses: tuple[LearnedUse, ...] = ()
    preferences: tuple[Preference, ...] = ()
    decisions: int = 0  # stored requests with their servers
    thresholds: tuple[Threshold, ...] = ()
    check: LearningCheck | None = None


@frozen
class Choice:
    """One tool used for a request, and whether it succeeded."""

    request: str
    tool: str
    worked: bool
    at: datetime
    conversation: str | None = None
    caller: str | None = None  # the caller, if known


@frozen
class ToolFollower:
    """How often `then` was the next successful tool after `tool` in the same conversation."""

    tool: str
    then: str
    times: int


EVERYBODY: Final = ""  # the person of a mark for all


@frozen
class LearningMark:
    """Learning data of kind `what` counts only from `at` on, for one person or for everyone."""

    what: str
    person: str
    at: datetime

"""Choices made for requests, feedback on them, and what was learned."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

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
    """A setting that follows measured results: what it is now, what it was set to, and why it moved."""

    name: str
    base: float
    value: float
    at: datetime
    reason: str = ""
    samples: int = 0


@frozen
class LearnedCorrection:
    """What people said of one tool beside another, over all requests."""

    right: str | None  # the supported tool
    wrong: str | None  # the rejected tool
    times: int
    by: tuple[str, ...]
    latest: datetime
    requests: tuple[str, ...] = ()  # the latest requests that the reader may see


@frozen
class LearnedUse:
    """How often a tool worked and failed for the requests that are remembered."""

    tool: str
    worked: int
    failed: int


@frozen
class Preference:
    """A tool one person is used to, and what others of its category they use less."""

    person: str
    tool: str
    weight: float  # in uses; older ones count less
    category: str = ""
    over: tuple[str, ...] = ()


@frozen
class LearningCheck:
    """What the last comparison on one's own requests said of learning from feedback."""

    at: datetime
    verdict: str  # "would help", "no loss", "loses" or "too little to say"
    requests: int
    reason: str = ""


@frozen
class Learned:
    """Everything that was learned, as one person may see it."""

    flags: dict[str, bool]
    corrections: tuple[LearnedCorrection, ...] = ()
    uses: tuple[LearnedUse, ...] = ()
    preferences: tuple[Preference, ...] = ()
    decisions: int = 0  # stored requests with their servers
    thresholds: tuple[Threshold, ...] = ()
    check: LearningCheck | None = None


@frozen
class Choice:
    """One tool used for a request, and whether it was the right one."""

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

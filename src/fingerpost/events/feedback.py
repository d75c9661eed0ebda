"""Events of feedback and learning."""

from __future__ import annotations

from typing import ClassVar

from fingerpost.events.base import Event
from fingerpost.frozen import frozen
from fingerpost.records import FeedbackVerdict


@frozen
class FeedbackGiven(Event):
    """A person reported whether the right tool was used, and which one should have been."""

    audited: ClassVar[bool] = True

    verdict: FeedbackVerdict
    by: str
    tool: str | None = None  # the judged tool
    should_have: str | None = None
    comment: str = ""

    def summary(self) -> str:
        text = f"{self.by} said {self.verdict.value}" + (f" of {self.tool}" if self.tool else "")
        return text + (f": should have used {self.should_have}" if self.should_have else "")


@frozen
class LearningForgotten(Event):
    """A person deleted learned data."""

    audited: ClassVar[bool] = True

    what: str
    by: str
    person: str | None = None  # the person whose data it is; None: everyone
    count: int = 0

    def summary(self) -> str:
        owner = f" of {self.person}" if self.person is not None else ""
        return f"{self.what}{owner} forgotten by {self.by}"


@frozen
class ThresholdMoved(Event):
    """A threshold was adjusted to measured results, within its limits."""

    audited: ClassVar[bool] = True

    name: str
    before: float
    after: float
    base: float  # the value in the settings
    reason: str
    samples: int

    def summary(self) -> str:
        return f"{self.name}: {self.before:.2f} → {self.after:.2f}, {self.reason}"

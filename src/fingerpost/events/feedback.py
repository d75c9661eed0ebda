"""What people said of the tools they were given, and what changed because of it."""

from __future__ import annotations

from typing import ClassVar

from fingerpost.events.base import Event
from fingerpost.frozen import frozen
from fingerpost.records import FeedbackVerdict


@frozen
class FeedbackGiven(Event):
    """A person said whether the right tool was used, and which one would have been."""

    audited: ClassVar[bool] = True

    verdict: FeedbackVerdict
    by: str
    tool: str | None = None  # the one that is judged
    should_have: str | None = None
    comment: str = ""

    def summary(self) -> str:
        said = f"{self.by} said {self.verdict.value}" + (f" of {self.tool}" if self.tool else "")
        return said + (f": should have used {self.should_have}" if self.should_have else "")


@frozen
class LearningForgotten(Event):
    """A person had something that was learned forgotten."""

    audited: ClassVar[bool] = True

    what: str
    by: str
    person: str | None = None  # whose; None: everybody's
    count: int = 0

    def summary(self) -> str:
        whose = f" of {self.person}" if self.person is not None else ""
        return f"{self.what}{whose} forgotten by {self.by}"


@frozen
class ThresholdMoved(Event):
    """A threshold followed measured results, within its bounds."""

    audited: ClassVar[bool] = True

    name: str
    before: float
    after: float
    base: float  # what the settings say
    reason: str
    samples: int

    def summary(self) -> str:
        return f"{self.name}: {self.before:.2f} → {self.after:.2f}, {self.reason}"

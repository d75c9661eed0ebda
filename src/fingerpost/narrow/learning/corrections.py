"""What people said of tools, and how it tips the scales for requests like theirs.

A word from a person counts more than an outcome, fades with a half-life, and is
bounded: one correction lends half of what many do, and speaking against a tool
takes half of what speaking for one gives, because a tool that was wrong once is
right for something else. Where three corrections agree on a request, they are not
weighed any more: the tool they name comes first, whatever its text says.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

import numpy as np

from fingerpost.frozen import frozen
from fingerpost.narrow.experience.similar import Floats
from fingerpost.narrow.learning.bearing import SAME_REQUEST_SIMILARITY, RequestSimilarity
from fingerpost.records import Feedback, FeedbackVerdict

MAX_CORRECTIONS: Final = 2_000
SETTLED_COUNT: Final = 3  # corrections of one request that agree
MIN_WORTH: Final = 0.25  # of a correction, after two half-lives: older ones settle nothing
NEGATIVE_WEIGHT: Final = 0.5
_CORRECTION_PRIOR: Final = 1.0
_MAX_NAMED_PEOPLE: Final = 3  # people


@frozen
class Correction:
    """What is remembered of one tool for one request, by likeness and age."""

    right: float = 0.0
    wrong: float = 0.0
    times: int = 0  # corrections to this tool
    praised: int = 0
    blamed: int = 0
    by: tuple[str, ...] = ()
    settled: bool = False
    settled_for: str = ""  # all words of the requests that settle it; for comparing, not to be shown

    @property
    def score(self) -> float:
        """-AGAINST (always wrong) to 1 (always right); 0 without evidence."""
        net = self.right - self.wrong
        score = net / (self.right + self.wrong + _CORRECTION_PRIOR)
        return score if score > 0 else NEGATIVE_WEIGHT * score

    def describe(self, reader: str | None) -> str:
        """For the explanation. It tells no words, and others' names only to whoever runs the house."""
        said = [
            f"{text} {_format_times(count)}"
            for count, text in ((self.times, "corrected"), (self.praised, "called right"))
            if count
        ]
        if self.blamed and not said:
            said = [f"called wrong {_format_times(self.blamed)}"]
        return f"{', '.join(said)}{_format_names(self.by, reader)}" if said else ""


def _format_times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _format_names(authors: Sequence[str], person: str | None) -> str:
    known = [name for name in authors if person in (None, name)]
    named = known[:_MAX_NAMED_PEOPLE]
    others = len(authors) - len(named)
    if others:
        named.append(f"{others} more" if named else "others")
    return f" by {', '.join(named)}" if named else ""


@dataclass(slots=True)
class _CorrectionTally:
    right: float = 0.0
    wrong: float = 0.0
    times: int = 0
    praised: int = 0
    blamed: int = 0
    same: list[str] = field(default_factory=list[str])  # this very request, as often as it was corrected
    by: dict[str, None] = field(default_factory=dict[str, None])


@frozen
class _CorrectionSnapshot:
    """Everything known at one moment; replaced as a whole, so that no reader sees half of a change."""

    feedback: tuple[Feedback, ...] = ()
    worth: Floats = field(default_factory=lambda: np.zeros(0, np.float32))  # by age
    similarity: RequestSimilarity = field(default_factory=lambda: RequestSimilarity(()))


class Corrections:
    """Weighs tools by what people said. Safe to read while it learns."""

    def __init__(self, *, shared: bool = True) -> None:
        """`shared`: what one person said counts for everybody, else for themselves."""
        self._shared = shared
        self._memory = _CorrectionSnapshot()

    @property
    def uses_vectors(self) -> bool:
        return self._memory.similarity.uses_vectors

    def learn(
        self,
        feedback: Sequence[Feedback],
        *,
        now: datetime,
        half_life: timedelta,
        vectors: Floats | None = None,
    ) -> None:
        """This is what people said, newest first; whatever was known before is forgotten."""
        kept = tuple(feedback[:MAX_CORRECTIONS])
        ages = [max(0.0, (now - one.at) / half_life) for one in kept]
        self._memory = _CorrectionSnapshot(
            feedback=kept,
            worth=np.exp2(-np.array(ages, np.float32)),
            similarity=RequestSimilarity(
                [one.request for one in kept], None if vectors is None else vectors[:MAX_CORRECTIONS]
            ),
        )

    def find_corrections(
        self, text: str, vector: Floats | None = None, *, person: str | None = None
    ) -> Mapping[str, Correction]:
        """What bears on this request of this person, by tool; None: of whoever runs the house."""
        memory = self._memory
        only = None if self._shared else person
        tallies: defaultdict[str, _CorrectionTally] = defaultdict(_CorrectionTally)
        alike = memory.similarity.compute_weights(text, vector)
        for place in np.flatnonzero(alike):
            said = memory.feedback[int(place)]
            if only is None or said.by == only:
                _count_feedback(tallies, said, float(alike[place]), float(memory.worth[place]))
        return {tool: _build_correction(tally) for tool, tally in tallies.items()}


def _count_feedback(
    tallies: defaultdict[str, _CorrectionTally], feedback: Feedback, similarity: float, worth: float
) -> None:
    if feedback.right is not None:
        tally = tallies[feedback.right]
        tally.right += similarity * worth
        tally.by[feedback.by] = None
        if feedback.verdict is FeedbackVerdict.GOOD:
            tally.praised += 1
        else:
            tally.times += 1
            if similarity >= SAME_REQUEST_SIMILARITY and worth >= MIN_WORTH:
                tally.same.append(feedback.request)
    if feedback.wrong is not None:
        tally = tallies[feedback.wrong]
        tally.wrong += similarity * worth
        tally.blamed += 1
        tally.by[feedback.by] = None


def _build_correction(tally: _CorrectionTally) -> Correction:
    return Correction(
        right=tally.right,
        wrong=tally.wrong,
        times=tally.times,
        praised=tally.praised,
        blamed=tally.blamed,
        by=tuple(tally.by),
        settled=len(tally.same) >= SETTLED_COUNT and tally.right > tally.wrong,
        settled_for="\n".join(dict.fromkeys(tally.same)).casefold(),
    )

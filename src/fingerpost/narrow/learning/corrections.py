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
from fingerpost.narrow.learning.bearing import SAME, Bearing
from fingerpost.records import Feedback, FeedbackVerdict

MOST: Final = 2_000
SETTLED: Final = 3  # corrections of one request that agree
STILL_COUNTS: Final = 0.25  # of a correction, after two half-lives: older ones settle nothing
AGAINST: Final = 0.5
_DOUBT: Final = 1.0
_NAMED: Final = 3  # people


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
        score = net / (self.right + self.wrong + _DOUBT)
        return score if score > 0 else AGAINST * score

    def note(self, person: str | None) -> str:
        """For the explanation. It tells no words, and others' names only to whoever runs the house."""
        said = [
            f"{text} {_times(count)}"
            for count, text in ((self.times, "corrected"), (self.praised, "called right"))
            if count
        ]
        if self.blamed and not said:
            said = [f"called wrong {_times(self.blamed)}"]
        return f"{', '.join(said)}{_names(self.by, person)}" if said else ""


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _names(by: Sequence[str], person: str | None) -> str:
    known = [name for name in by if person in (None, name)]
    named = known[:_NAMED]
    others = len(by) - len(named)
    if others:
        named.append(f"{others} more" if named else "others")
    return f" by {', '.join(named)}" if named else ""


@dataclass(slots=True)
class _Tally:
    right: float = 0.0
    wrong: float = 0.0
    times: int = 0
    praised: int = 0
    blamed: int = 0
    same: list[str] = field(default_factory=list[str])  # this very request, as often as it was corrected
    by: dict[str, None] = field(default_factory=dict[str, None])


@frozen
class _Memory:
    """Everything known at one moment; replaced as a whole, so that no reader sees half of a change."""

    said: tuple[Feedback, ...] = ()
    worth: Floats = field(default_factory=lambda: np.zeros(0, np.float32))  # by age
    bearing: Bearing = field(default_factory=lambda: Bearing(()))


class Corrections:
    """Weighs tools by what people said. Safe to read while it learns."""

    def __init__(self, *, shared: bool = True) -> None:
        """`shared`: what one person said counts for everybody, else for themselves."""
        self._shared = shared
        self._memory = _Memory()

    @property
    def by_meaning(self) -> bool:
        return self._memory.bearing.by_meaning

    def learn(
        self,
        said: Sequence[Feedback],
        *,
        now: datetime,
        half_life: timedelta,
        vectors: Floats | None = None,
    ) -> None:
        """This is what people said, newest first; whatever was known before is forgotten."""
        kept = tuple(said[:MOST])
        ages = [max(0.0, (now - one.at) / half_life) for one in kept]
        self._memory = _Memory(
            said=kept,
            worth=np.exp2(-np.array(ages, np.float32)),
            bearing=Bearing([one.request for one in kept], None if vectors is None else vectors[:MOST]),
        )

    def evidence(
        self, text: str, vector: Floats | None = None, *, person: str | None = None
    ) -> Mapping[str, Correction]:
        """What bears on this request of this person, by tool; None: of whoever runs the house."""
        memory = self._memory
        only = None if self._shared else person
        tallies: defaultdict[str, _Tally] = defaultdict(_Tally)
        alike = memory.bearing.weights(text, vector)
        for place in np.flatnonzero(alike):
            said = memory.said[int(place)]
            if only is None or said.by == only:
                _count(tallies, said, float(alike[place]), float(memory.worth[place]))
        return {tool: _correction(tally) for tool, tally in tallies.items()}


def _count(tallies: defaultdict[str, _Tally], said: Feedback, alike: float, worth: float) -> None:
    if said.right is not None:
        tally = tallies[said.right]
        tally.right += alike * worth
        tally.by[said.by] = None
        if said.verdict is FeedbackVerdict.GOOD:
            tally.praised += 1
        else:
            tally.times += 1
            if alike >= SAME and worth >= STILL_COUNTS:
                tally.same.append(said.request)
    if said.wrong is not None:
        tally = tallies[said.wrong]
        tally.wrong += alike * worth
        tally.blamed += 1
        tally.by[said.by] = None


def _correction(tally: _Tally) -> Correction:
    return Correction(
        right=tally.right,
        wrong=tally.wrong,
        times=tally.times,
        praised=tally.praised,
        blamed=tally.blamed,
        by=tuple(tally.by),
        settled=len(tally.same) >= SETTLED and tally.right > tally.wrong,
        settled_for="\n".join(dict.fromkeys(tally.same)).casefold(),
    )

"""What people taught about one request, as shares of the tools' scores.

Like every adjustment these are bounded and have their own lines in an explanation:
`corrected` for what people said, `preference` for one person's habit between equals.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final

import numpy as np

from fingerpost.frozen import frozen
from fingerpost.narrow.base import Query
from fingerpost.narrow.columns import Columns, Rows, Scores
from fingerpost.narrow.experience.similar import Floats
from fingerpost.narrow.learning.corrections import Correction, Corrections
from fingerpost.narrow.learning.preferences import Preferences
from fingerpost.narrow.request import NarrowRequest
from fingerpost.narrow.shares import Share

CORRECTED: Final = 0.25  # at most, for; half of it against
PREFERRED: Final = 0.05
EQUALS: Final = 0.05  # so near the best one's score a habit decides
_HABIT_DOUBT: Final = 2.0
_STEP: Final = 0.001
_NO_WORDS: Final[Mapping[str, Correction]] = MappingProxyType({})
_NO_HABITS: Final[Mapping[str, float]] = MappingProxyType({})


@frozen
class Taught:
    """By row: what people said, and what this person is used to."""

    corrections: Mapping[int, Correction]
    habits: Mapping[int, float]
    person: str | None = None
    barred: frozenset[int] = frozenset()  # may not be put first: their server cannot be used now
    named: tuple[str, ...] = ()  # words by which the request names tools itself

    @classmethod
    def of(
        cls,
        query: Query,
        request: NarrowRequest,
        columns: Columns,
        corrections: Corrections | None,
        preferences: Preferences | None,
        *,
        vector: Floats | None = None,
    ) -> Taught:
        """What bears on this request, as far as it is about tools there are."""
        said = (
            _NO_WORDS
            if corrections is None
            else corrections.evidence(query.text, vector, person=request.person)
        )
        habits = _NO_HABITS if preferences is None else preferences.of(request.person)
        rows = columns.rows
        unusable = (columns.by_server[name] for name in request.health if name in columns.by_server)
        return cls(
            corrections={rows[key]: one for key, one in said.items() if key in rows},
            habits={rows[key]: weight for key, weight in habits.items() if key in rows},
            person=request.person,
            barred=frozenset(int(row) for some in unusable for row in some),
            named=tuple(one.text.casefold() for one in query.signals.mentions if one.kind == "tool"),
        )

    @property
    def settled(self) -> frozenset[int]:
        """The tools that corrections agree on."""
        return frozenset(row for row, said in self.corrections.items() if said.settled)

    def weighed(self, columns: Columns) -> Iterator[Share]:
        """What people said, for and against."""
        points = np.zeros(columns.size, np.float32)
        for row, said in self.corrections.items():
            points[row] = CORRECTED * said.score
        if points.any():
            notes = {row: said.note(self.person) for row, said in self.corrections.items()}
            yield Share(signal="corrected", points=points, notes=notes)

    def decided(self, columns: Columns, scores: Scores, eligible: Rows) -> Iterator[Share]:
        """What stands above the scores: the tool that corrections agree on, and a habit between equals."""
        yield from self._settled(columns, scores, eligible)
        yield from self._preferred(columns, scores, eligible)

    def _settled(self, columns: Columns, scores: Scores, eligible: Rows) -> Iterator[Share]:
        agreed = [row for row in self.settled if row not in self.barred and row in eligible]
        if not agreed:
            return
        first = max(agreed, key=lambda row: self.corrections[row].right - self.corrections[row].wrong)
        # Naming a tool is the last word, unless the same name stood there when people corrected it.
        if any(name not in self.corrections[first].settled_for for name in self.named):
            return
        others = eligible[eligible != first]
        gap = float(scores[others].max() - scores[first]) if len(others) else -1.0
        if gap >= 0:
            points = np.zeros(columns.size, np.float32)
            points[first] = gap + _STEP
            note = f"comes first: {self.corrections[first].note(self.person)}"
            yield Share(signal="corrected", points=points, notes={first: note})

    def _preferred(self, columns: Columns, scores: Scores, eligible: Rows) -> Iterator[Share]:
        if not self.habits or not len(eligible):
            return
        best = float(scores[eligible].max())
        equals = [row for row in self.habits if row in eligible and scores[row] >= best - EQUALS]
        used = sum(self.habits[row] for row in equals)
        points = np.zeros(columns.size, np.float32)
        for row in equals:
            points[row] = PREFERRED * self.habits[row] / (used + _HABIT_DOUBT)
        if points.any():
            yield Share(signal="preference", points=points, note=f"what {self.person} usually takes")


NOTHING: Final = Taught(corrections={}, habits={})

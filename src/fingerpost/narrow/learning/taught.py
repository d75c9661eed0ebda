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
from fingerpost.narrow.base import ScorerQuery
from fingerpost.narrow.columns import Rows, Scores, ToolColumns
from fingerpost.narrow.experience.similar import Floats
from fingerpost.narrow.learning.corrections import Correction, Corrections
from fingerpost.narrow.learning.preferences import Preferences
from fingerpost.narrow.request import NarrowRequest
from fingerpost.narrow.shares import ScoreContribution

CORRECTION_POINTS: Final = 0.25  # at most, for; half of it against
PREFERENCE_POINTS: Final = 0.05
EQUAL_SCORE_MARGIN: Final = 0.05  # so near the best one's score a habit decides
_HABIT_PRIOR: Final = 2.0
_SCORE_STEP: Final = 0.001
_NO_CORRECTIONS: Final[Mapping[str, Correction]] = MappingProxyType({})
_NO_HABITS: Final[Mapping[str, float]] = MappingProxyType({})


@frozen
class FeedbackAdjustments:
    """By row: what people said, and what this person is used to."""

    corrections: Mapping[int, Correction]
    habits: Mapping[int, float]
    person: str | None = None
    excluded_rows: frozenset[int] = frozenset()  # may not be put first: their server cannot be used now
    mentioned_tools: tuple[str, ...] = ()  # words by which the request names tools itself

    @classmethod
    def from_request(
        cls,
        query: ScorerQuery,
        request: NarrowRequest,
        columns: ToolColumns,
        corrections: Corrections | None,
        preferences: Preferences | None,
        *,
        vector: Floats | None = None,
    ) -> FeedbackAdjustments:
        """What bears on this request, as far as it is about tools there are."""
        said = (
            _NO_CORRECTIONS
            if corrections is None
            else corrections.find_corrections(query.text, vector, person=request.person)
        )
        habits = _NO_HABITS if preferences is None else preferences.get_for(request.person)
        rows = columns.rows
        unusable = (columns.by_server[name] for name in request.health if name in columns.by_server)
        return cls(
            corrections={rows[key]: one for key, one in said.items() if key in rows},
            habits={rows[key]: weight for key, weight in habits.items() if key in rows},
            person=request.person,
            excluded_rows=frozenset(int(row) for some in unusable for row in some),
            mentioned_tools=tuple(
                one.text.casefold() for one in query.signals.mentions if one.kind == "tool"
            ),
        )

    @property
    def settled_rows(self) -> frozenset[int]:
        """The tools that corrections agree on."""
        return frozenset(row for row, said in self.corrections.items() if said.settled)

    def compute_correction_points(self, columns: ToolColumns) -> Iterator[ScoreContribution]:
        """What people said, for and against."""
        points = np.zeros(columns.size, np.float32)
        for row, said in self.corrections.items():
            points[row] = CORRECTION_POINTS * said.score
        if points.any():
            notes = {row: said.describe(self.person) for row, said in self.corrections.items()}
            yield ScoreContribution(signal="corrected", points=points, notes=notes)

    def compute_decisive_points(
        self, columns: ToolColumns, scores: Scores, eligible: Rows
    ) -> Iterator[ScoreContribution]:
        """What stands above the scores: the tool that corrections agree on, and a habit between equals."""
        yield from self._compute_settled_points(columns, scores, eligible)
        yield from self._compute_preference_points(columns, scores, eligible)

    def _compute_settled_points(
        self, columns: ToolColumns, scores: Scores, eligible: Rows
    ) -> Iterator[ScoreContribution]:
        agreed = [row for row in self.settled_rows if row not in self.excluded_rows and row in eligible]
        if not agreed:
            return
        first = max(agreed, key=lambda row: self.corrections[row].right - self.corrections[row].wrong)
        # Naming a tool is the last word, unless the same name stood there when people corrected it.
        if any(name not in self.corrections[first].settled_for for name in self.mentioned_tools):
            return
        others = eligible[eligible != first]
        gap = float(scores[others].max() - scores[first]) if len(others) else -1.0
        if gap >= 0:
            points = np.zeros(columns.size, np.float32)
            points[first] = gap + _SCORE_STEP
            note = f"comes first: {self.corrections[first].describe(self.person)}"
            yield ScoreContribution(signal="corrected", points=points, notes={first: note})

    def _compute_preference_points(
        self, columns: ToolColumns, scores: Scores, eligible: Rows
    ) -> Iterator[ScoreContribution]:
        if not self.habits or not len(eligible):
            return
        best = float(scores[eligible].max())
        equals = [row for row in self.habits if row in eligible and scores[row] >= best - EQUAL_SCORE_MARGIN]
        used = sum(self.habits[row] for row in equals)
        points = np.zeros(columns.size, np.float32)
        for row in equals:
            points[row] = PREFERENCE_POINTS * self.habits[row] / (used + _HABIT_PRIOR)
        if points.any():
            yield ScoreContribution(
                signal="preference", points=points, note=f"what {self.person} usually takes"
            )


NO_FEEDBACK: Final = FeedbackAdjustments(corrections={}, habits={})

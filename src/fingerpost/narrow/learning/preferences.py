"""Which of several tools that suit about equally one person is used to.

Only their own use and their own words count, and only between tools that nothing
else tells apart: a habit is no reason to take a tool that suits less.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Final

from fingerpost.records import Choice, Feedback

MAX_PEOPLE: Final = 1_000
MAX_PREFERRED_TOOLS: Final = 200  # of one person
_FEEDBACK_WEIGHT: Final = 3.0  # as many uses one word counts for
_EARLIEST: Final = datetime.min.replace(tzinfo=UTC)
_NO_PREFERENCES: Final[Mapping[str, float]] = MappingProxyType({})


class Preferences:
    """Habits by person: how much each of them uses which tool."""

    def __init__(self) -> None:
        self._habits: Mapping[str, Mapping[str, float]] = {}

    def learn(
        self,
        choices: Iterable[Choice],
        feedback: Iterable[Feedback],
        *,
        now: datetime,
        half_life: timedelta,
        marks: Mapping[str, datetime],
    ) -> None:
        """From what was chosen and said after a person's mark, and after everybody's (the one of "")."""
        counted: dict[str, Counter[str]] = {}
        everybody = marks.get("", _EARLIEST)

        def add(person: str | None, tool: str | None, at: datetime, weight: float) -> None:
            if person is None or tool is None or at <= max(everybody, marks.get(person, _EARLIEST)):
                return
            habits = counted.setdefault(person, Counter())
            habits[tool] += weight * 0.5 ** max(0.0, (now - at) / half_life)

        for choice in choices:
            add(choice.caller, choice.tool, choice.at, 1.0 if choice.worked else -1.0)
        for one in feedback:
            add(one.by, one.right, one.at, _FEEDBACK_WEIGHT)
            add(one.by, one.wrong, one.at, -_FEEDBACK_WEIGHT)
        self._habits = {
            person: {tool: weight for tool, weight in habits.most_common(MAX_PREFERRED_TOOLS) if weight > 0}
            for person, habits in list(counted.items())[:MAX_PEOPLE]
        }

    def get_for(self, person: str | None) -> Mapping[str, float]:
        """Their tools, each with how much they use it; nobody's where nobody is named."""
        return _NO_PREFERENCES if person is None else self._habits.get(person, _NO_PREFERENCES)

    @property
    def people(self) -> tuple[str, ...]:
        return tuple(person for person, habits in self._habits.items() if habits)

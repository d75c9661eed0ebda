"""How much work the arguments of one call may make, counted in steps.

The schema is a stranger's, and so often are the arguments: together they can ask for
hours. Whatever looks at a part of a schema and a part of the arguments spends a step, or
as many as it takes that many times as long. Steps and not seconds, so that the same call
always comes to the same end.
"""

from __future__ import annotations

from typing import Final, cast

from fingerpost.call.arguments.patterns import SchemaPattern
from fingerpost.records import Json

MAX_STEPS: Final = 60_000  # a quarter of a second on a slow machine
STEPS_FOR_CHECKING: Final = 20_000  # of these, out of reach for repairs
_LETTERS_PER_STEP: Final = 64  # of a text, for one step
_NODES_PER_STEP: Final = 8  # values inside of a value


class StepBudgetExceeded(Exception):
    """The steps are used up: nothing more can be found out, neither yes nor no."""


class StepBudget:
    """The steps left for one call. First for repairs; `begin_checking` frees what was kept back."""

    __slots__ = ("_kept_back", "_left", "patterns")

    def __init__(self, limit: int = MAX_STEPS, reserved: int = STEPS_FOR_CHECKING) -> None:
        self._kept_back = min(limit, reserved)
        self._left = limit - self._kept_back
        self.patterns: dict[str, SchemaPattern | None] = {}  # that were met; None: it cannot be run

    @property
    def left(self) -> int:
        return self._left + self._kept_back

    def spend(self, steps: int) -> None:
        """Take so many steps. Raises `StepBudgetExceeded` when there are no more, and from then on always."""
        self._left -= steps
        if self._left < 0:
            self._left = -1
            raise StepBudgetExceeded

    def begin_checking(self) -> None:
        """From here on all that is left is for checking."""
        self._left = max(self._left, 0) + self._kept_back
        self._kept_back = 0


def estimate_steps(value: Json) -> int:
    """How many steps it takes to go through a value once: all of it, where others look at the top of it."""
    if isinstance(value, str):
        return len(value) // _LETTERS_PER_STEP
    if not isinstance(value, dict | list):
        return 0
    nodes, letters = 0, 0
    todo: list[Json] = [cast("Json", value)]
    while todo:
        node = todo.pop()
        nodes += 1
        if isinstance(node, str):
            letters += len(node)
        elif isinstance(node, dict):
            todo.extend(node.values())
        elif isinstance(node, list):
            todo.extend(node)
    return nodes // _NODES_PER_STEP + letters // _LETTERS_PER_STEP


def estimate_comparison_steps(value: Json, others: int) -> int:
    """How many steps it takes to find out whether a value is one of so many others."""
    if isinstance(value, dict | list):
        return others * (1 + 4 * estimate_steps(cast("Json", value)))
    return others // 4

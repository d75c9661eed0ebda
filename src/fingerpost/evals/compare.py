"""Is one run better than another, or is it chance? Answered query by query.

Both runs saw the same queries, so the same queries are drawn again and again
for both, and the middle 95 % of the differences is the interval. It covers the
choice of queries, not the choice of sets: a gain on one set is one set's gain.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from fingerpost.evals.measures import EvalMeasure
from fingerpost.frozen import frozen

BOOTSTRAP_DRAWS: Final = 1000
BOOTSTRAP_SEED: Final = 20261115


@frozen
class MeasureDifference:
    """A measure in two runs: what it was, what it is, and the interval of what it changed by."""

    name: str
    before: float
    after: float
    low: float
    high: float
    queries: int
    better: int = 1

    @property
    def change(self) -> float:
        return self.after - self.before

    @property
    def verdict(self) -> str:
        """`better` or `worse` only when the whole interval says so."""
        if self.low > 0 or self.high < 0:
            return "better" if (self.change > 0) == (self.better > 0) else "worse"
        return "no clear difference"


def compare_runs(
    before: Sequence[EvalMeasure], after: Sequence[EvalMeasure], *, draws: int = BOOTSTRAP_DRAWS
) -> list[MeasureDifference]:
    """Every measure both runs have, over the queries both answered."""
    later = {measure.name: measure for measure in after}
    return [
        _compare_measure(measure, later[measure.name], draws)
        for measure in before
        if measure.name in later and set(measure.ids) & set(later[measure.name].ids)
    ]


def _compare_measure(before: EvalMeasure, after: EvalMeasure, draws: int) -> MeasureDifference:
    places = {name: place for place, name in enumerate(after.ids)}
    shared = [(place, places[name]) for place, name in enumerate(before.ids) if name in places]
    old = before.rows[[one for one, _ in shared]]
    new = after.rows[[other for _, other in shared]]
    chance = np.random.default_rng(BOOTSTRAP_SEED)
    changes = np.empty(draws)
    for draw in range(draws):
        drawn = chance.integers(len(shared), size=len(shared))
        changes[draw] = after.aggregate(new[drawn]) - before.aggregate(old[drawn])
    changes = changes[~np.isnan(changes)]
    low, high = np.quantile(changes, (0.025, 0.975)) if len(changes) else (np.nan, np.nan)
    return MeasureDifference(
        name=before.name,
        before=before.aggregate(old),
        after=after.aggregate(new),
        low=float(low),
        high=float(high),
        queries=len(shared),
        better=before.better,
    )

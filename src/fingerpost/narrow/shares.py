"""A score as a sum of shares, each of which can be shown.

Nothing adds to a tool's score that is not a share, so what an explanation lists
always adds up to the score it explains.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field

import numpy as np

from fingerpost.frozen import frozen
from fingerpost.narrow.columns import Scores
from fingerpost.records import Part


@frozen
class ScoreContribution:
    """What one signal adds to or takes from every tool, and why."""

    signal: str
    points: Scores  # by row
    note: str = ""  # for all rows that have points
    notes: Mapping[int, str] = field(default_factory=dict[int, str])  # or for one row

    def get_part(self, row: int) -> Part | None:
        """This share of one tool's score, if it has any."""
        points = float(self.points[row])
        if points == 0:
            return None
        return Part(signal=self.signal, points=round(points, 4), note=self.notes.get(row, self.note))


def sum_contributions(shares: Iterable[ScoreContribution], size: int) -> Scores:
    """Their sum, by row."""
    score = np.zeros(size, np.float32)
    for share in shares:
        score += share.points
    return score


def list_score_parts(shares: Iterable[ScoreContribution], row: int) -> tuple[Part, ...]:
    """How one tool's score came about; shares of the same signal and reason stand as they came."""
    found = (share.get_part(row) for share in shares)
    return tuple(part for part in found if part is not None)

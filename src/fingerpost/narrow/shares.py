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
class Share:
    """What one signal adds to or takes from every tool, and why."""

    signal: str
    points: Scores  # by row
    note: str = ""  # for all rows that have points
    notes: Mapping[int, str] = field(default_factory=dict[int, str])  # or for one row

    def part(self, row: int) -> Part | None:
        """This share of one tool's score, if it has any."""
        points = float(self.points[row])
        if points == 0:
            return None
        return Part(signal=self.signal, points=round(points, 4), note=self.notes.get(row, self.note))


def total(shares: Iterable[Share], size: int) -> Scores:
    """Their sum, by row."""
    score = np.zeros(size, np.float32)
    for share in shares:
        score += share.points
    return score


def parts_of(shares: Iterable[Share], row: int) -> tuple[Part, ...]:
    """How one tool's score came about; shares of the same signal and reason stand as they came."""
    found = (share.part(row) for share in shares)
    return tuple(part for part in found if part is not None)

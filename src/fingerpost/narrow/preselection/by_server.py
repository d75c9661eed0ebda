"""The tools' scores for one request, by server: what `pick_by_scores` is given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fingerpost.narrow.columns import Rows, ToolColumns
from fingerpost.narrow.scoring import ScoredTools


def group_scores_by_server(
    scored: ScoredTools, columns: ToolColumns, eligible: Rows
) -> Mapping[str, Sequence[float]]:
    """Each tool as it suits best: for the request as a whole, or for one of its needs."""
    best = np.max(np.stack((scored.whole, *scored.by_need)), axis=0)
    found: dict[str, list[float]] = {}
    for row in eligible:
        found.setdefault(columns.servers[columns.server_of[row]], []).append(float(best[row]))
    return found

"""The tools' scores for one request, by server: what `pick_by_scores` is given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fingerpost.catalog import Snapshot
from fingerpost.narrow.columns import Columns, Rows, columns_of
from fingerpost.narrow.parts import Parts
from fingerpost.narrow.request import NarrowRequest, bounded
from fingerpost.narrow.scoring import Scored, Scoring
from fingerpost.settings.model import FlagSettings


def by_server(scored: Scored, columns: Columns, eligible: Rows) -> Mapping[str, Sequence[float]]:
    """Each tool as it suits best: for the request as a whole, or for one of its needs."""
    best = np.max(np.stack((scored.whole, *scored.by_need)), axis=0)
    found: dict[str, list[float]] = {}
    for row in eligible:
        found.setdefault(columns.servers[columns.server_of[row]], []).append(float(best[row]))
    return found


def server_scores(
    parts: Parts, flags: FlagSettings, snapshot: Snapshot, request: NarrowRequest
) -> Mapping[str, Sequence[float]]:
    """The scores of every tool of `snapshot`, for which the parts must have been prepared."""
    text = bounded(request.text)
    columns = columns_of(snapshot)
    everything = np.arange(columns.size, dtype=np.intp)
    if not text or not columns.size:
        return {}
    signals = parts.reader.read(text)
    scored = Scoring(parts=parts, flags=flags).score(text, signals, request, columns, everything)
    return by_server(scored, columns, everything)

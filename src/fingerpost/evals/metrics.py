"""How good one ranking is, and how well one score tells two kinds of queries apart.

Small, plain functions, each checked against examples worked out by hand.
Groups: a query may need several tools, and for each of them several may do; a
group is one such need. A tool in the ranking satisfies the groups it is in.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


def compute_gains(ranking: Sequence[str], groups: Sequence[frozenset[str]]) -> list[int]:
    """For every place of the ranking, how many groups it is the first to satisfy."""
    waiting = list(groups)
    gained: list[int] = []
    for tool in ranking:
        left = [group for group in waiting if tool not in group]
        gained.append(len(waiting) - len(left))
        waiting = left
    return gained


def compute_recall(gained: Sequence[int], needed: int, k: int) -> float:
    """The share of the groups that the first `k` places satisfy."""
    return sum(gained[:k]) / needed


def compute_ndcg(gained: Sequence[int], needed: int, k: int) -> float:
    """Gains discounted by their place, as a share of the best possible ranking's."""
    found = sum(gain / math.log2(place + 2) for place, gain in enumerate(gained[:k]))
    best = sum(1 / math.log2(place + 2) for place in range(min(needed, k)))
    return min(found / best, 1.0)


def compute_reciprocal_rank(gained: Sequence[int]) -> float:
    """1 over the place of the first right tool; 0 when there is none."""
    return next((1 / place for place, gain in enumerate(gained, start=1) if gain), 0.0)


def compute_auc(scores: Floats, labels: Flags) -> float:
    """How often a query with the label scores above one without; ties count half. NaN without both kinds."""
    positives = int(labels.sum())
    negatives = len(labels) - positives
    if not positives or not negatives:
        return math.nan
    _, group, counts = np.unique(scores, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    ranks = (last - (counts - 1) / 2)[group]
    above = float(ranks[labels].sum()) - positives * (positives + 1) / 2
    return above / (positives * negatives)


def compute_calibration_error(confidence: Floats, right: Floats, bins: int = 10) -> float:
    """How far confidence and the share of right answers are apart, over equal steps of confidence."""
    if not len(confidence):
        return math.nan
    group = np.minimum((confidence * bins).astype(np.int64), bins - 1)
    apart = np.bincount(group, weights=confidence - right, minlength=bins)
    return float(np.abs(apart).sum()) / len(confidence)


def compute_risk_by_coverage(confidence: Floats, wrong: Floats) -> Floats:
    """The share of wrong answers among the n most confident, for n = 1, 2, … all.

    Answers of equal confidence cannot be told apart, so each counts with their mean.
    """
    _, group, counts = np.unique(confidence, return_inverse=True, return_counts=True)
    mean = np.bincount(group, weights=wrong) / counts
    order = np.argsort(-confidence, kind="stable")
    return np.cumsum(mean[group][order]) / np.arange(1, len(wrong) + 1)


def get_risk_at(risks: Floats, coverage: float) -> float:
    """The share of wrong answers when the least confident are withheld, so that `coverage` remain."""
    return float(risks[max(math.ceil(coverage * len(risks)), 1) - 1])


def compute_percentile(values: Floats, share: float) -> float:
    """The smallest value that `share` of the values do not exceed."""
    return float(np.sort(values)[max(math.ceil(share * len(values)), 1) - 1])

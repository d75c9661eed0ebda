"""Which terms stand in which tools, and how much each weighs there.

Terms weigh by tf-idf: how often a term stands in a tool's text (by its logarithm)
times how rare it is in the catalog. Each tool's weights are divided by their length,
three quarters its own and one quarter the mean, so that long texts are neither
favoured nor buried. Terms are numbers; a term's tools lie side by side in memory, so
a query touches only the tools that share a term with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fingerpost.frozen import frozen

TermNumbers = NDArray[np.int32]
TermWeights = NDArray[np.float32]

OWN_LENGTH_WEIGHT: Final = 0.75


@frozen(kw_only=False)
class TermBag:
    """The different terms of one tool, with how often each stands there."""

    terms: TermNumbers
    counts: TermWeights


@frozen(kw_only=False)
class TermIndex:
    """The tools of one moment, by term. Never changed: a new catalog gets a new one."""

    size: int  # tools
    # Lists, not arrays: a query reads them one by one.
    rarity: list[float]  # by term; how much one mention of it weighs
    starts: list[int]  # where a term's tools begin in the two below
    rows: TermNumbers
    weights: TermWeights

    def is_used(self, term: int) -> bool:
        """Whether any tool has it: terms of tools that are gone keep their numbers for a while."""
        return term < len(self.rarity) and self.starts[term] < self.starts[term + 1]

    def sum_weights(self, terms: Sequence[int], weights: Sequence[float]) -> TermWeights:
        """The sum over these terms, by tool."""
        if not terms or not self.size:
            return np.zeros(self.size, np.float32)
        spans = [slice(self.starts[term], self.starts[term + 1]) for term in terms]
        rows = np.concatenate([self.rows[span] for span in spans])
        shares = np.concatenate(
            [self.weights[span] * np.float32(weight) for span, weight in zip(spans, weights, strict=True)]
        )
        return np.bincount(rows, shares, self.size).astype(np.float32)


def build_term_index(bags: Sequence[TermBag], terms: int) -> TermIndex:
    """An index of these tools, in their order; `terms` is how many terms there are numbers for."""
    size = len(bags)
    lengths = np.fromiter((len(bag.terms) for bag in bags), np.int64, size)
    numbers = np.concatenate([bag.terms for bag in bags]) if bags else np.zeros(0, np.int32)
    counts = np.concatenate([bag.counts for bag in bags]) if bags else np.zeros(0, np.float32)
    rows = np.repeat(np.arange(size, dtype=np.int32), lengths)
    tools = np.bincount(numbers, minlength=terms)
    rarity = (np.log((1 + size) / (1 + tools)) + 1).astype(np.float32)
    weights = (1 + np.log(np.maximum(counts, 1))) * rarity[numbers]
    weights = weights / _compute_lengths(rows, weights, size)[rows]
    order = np.argsort(numbers, kind="stable")
    return TermIndex(
        size=size,
        rarity=rarity.tolist(),
        starts=[0, *np.cumsum(tools).tolist()],
        rows=rows[order],
        weights=weights[order].astype(np.float32),
    )


def _compute_lengths(rows: TermNumbers, weights: TermWeights, size: int) -> NDArray[np.float64]:
    own = np.sqrt(np.bincount(rows, weights.astype(np.float64) ** 2, size))
    usual = own.mean() if own.any() else 1.0
    return OWN_LENGTH_WEIGHT * own + (1 - OWN_LENGTH_WEIGHT) * usual

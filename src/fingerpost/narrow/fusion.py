"""From what each scorer says to one score per tool.

    base  = share of meaning · meaning + the rest · words
    score = base + server bonus + adjustments

Meaning and words are the two independent witnesses; everything else may only
tip the scales between tools they put close together (see `adjustments`). All
weights stand in the table below. They are the same for every catalog: figures
on eight public sets moved by less than half a point around these values, so
none is fitted to one of them.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from fingerpost.frozen import frozen
from fingerpost.narrow.columns import Columns, Rows, Scores
from fingerpost.narrow.shares import Share
from fingerpost.records import Signals

# The share of meaning. The encoder was trained on English: it counts less for a request in another
# language, and for one known only by the English words of its vocabulary (a gloss).
MEANING_IN_ENGLISH: Final = 0.55
MEANING_OF_A_GLOSS: Final = 0.5
MEANING_ELSEWHERE: Final = 0.25

# A tool gains from able neighbours: this much of the mean of its server's best few.
SERVER_SHARE: Final = 0.2
SERVER_BEST: Final = 3

# Meaning as words would suggest it, for a catalog whose vectors are still being made.
_USUAL_LEVEL: Final = 0.15
_USUAL_SLOPE: Final = 0.9
_TRUST: Final = 0.5  # in what is usual, as much as in so large a sum of squares of what was seen


@frozen
class Evidence:
    """What the text of each tool says about one need, by row."""

    words: Scores
    meaning: Scores | None  # None: words alone
    share: float  # of meaning

    @property
    def base(self) -> Scores:
        if self.meaning is None:
            return self.words
        return _mix(self.words, self.meaning, self.share)

    def with_part_of(self, own: Evidence, part: float) -> Evidence:
        """This evidence with so much of another: a need seen before the background of its request."""
        if self.meaning is None or own.meaning is None:
            return Evidence(words=_mix(self.words, own.words, part), meaning=None, share=0.0)
        return Evidence(
            words=_mix(self.words, own.words, part),
            meaning=_mix(self.meaning, own.meaning, part),
            share=self.share,
        )

    def shares(self) -> tuple[Share, ...]:
        """The two witnesses, each with what it adds to the base."""
        if self.meaning is None:
            return (Share(signal="words", points=self.words),)
        return (
            Share(signal="meaning", points=np.asarray(self.share * self.meaning, np.float32)),
            Share(signal="words", points=np.asarray((1 - self.share) * self.words, np.float32)),
        )


def _mix(whole: Scores, own: Scores, part: float) -> Scores:
    return np.asarray((1 - part) * whole + part * own, np.float32)


def share_of_meaning(signals: Signals) -> float:
    """How far the encoder can be trusted with this request."""
    if signals.language in ("en", "und"):
        return MEANING_IN_ENGLISH
    return MEANING_OF_A_GLOSS if signals.gloss else MEANING_ELSEWHERE


def blend(words: Scores, meaning: Scores | None, share: float) -> Evidence:
    """Both witnesses. Where the meaning of a tool is not known yet, its words stand in for it."""
    unknown = np.isnan(meaning) if meaning is not None else None
    if meaning is None or unknown is None or unknown.all():
        return Evidence(words=words, meaning=None, share=0.0)
    if unknown.any():
        meaning = np.where(unknown, _expected(words, meaning, ~unknown), meaning).astype(np.float32)
    return Evidence(words=words, meaning=meaning, share=share)


def _expected(words: Scores, meaning: Scores, known: NDArray[np.bool_]) -> Scores:
    """A straight line: the usual one, bent by the tools that have both.

    Tools whose words all say little bend it little. They are those of one server, say, whose vectors
    were made first, and what lies far from them is not to be guessed from them.
    """
    x, y = words[known], meaning[known] - _USUAL_LEVEL
    slope = (_TRUST * _USUAL_SLOPE + float(x @ y)) / (_TRUST + float(x @ x))
    return np.asarray(_USUAL_LEVEL + min(max(slope, 0.0), 2 * _USUAL_SLOPE) * words, np.float32)


def server_bonus(base: Scores, columns: Columns, eligible: Rows) -> Share:
    """What a tool gains from its server: nothing where there is but one.

    Only tools that may be found count, so that a hidden one cannot be felt.
    """
    points = np.zeros(columns.size, np.float32)
    owners = columns.server_of[eligible]
    # Rows are sorted by server, so each server's tools lie side by side.
    starts = np.flatnonzero(np.diff(owners, prepend=-1))
    if len(starts) > 1:
        mean = _mean_of_best(base[eligible], starts)
        points[eligible] = SERVER_SHARE * np.repeat(mean, np.diff(starts, append=len(owners)))
    return Share(signal="server", points=points, note="its server suits the request")


def _mean_of_best(scores: Scores, starts: Rows) -> Scores:
    """The mean of the best few of each stretch; equal scores count once."""
    left = scores.copy()
    lengths = np.diff(starts, append=len(scores))
    total = np.zeros(len(starts), np.float32)
    count = np.zeros(len(starts), np.float32)
    for _ in range(SERVER_BEST):
        best = np.maximum.reduceat(left, starts)
        there = best > -np.inf
        total[there] += best[there]
        count[there] += 1
        left[left == np.repeat(best, lengths)] = -np.inf
    return total / count

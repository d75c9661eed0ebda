"""Combine the scores of all signals into one score per tool, and estimate whether any tool fits."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from functools import cache
from importlib.resources import files
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fingerpost.frozen import frozen
from fingerpost.narrow.features import Rows, Scores, ToolColumns
from fingerpost.records import Part


@frozen
class ScoreContribution:
    """The points that one signal adds to or subtracts from each tool, with the reason."""

    signal: str
    points: Scores  # by row
    note: str = ""  # for all rows with points
    notes: Mapping[int, str] = field(default_factory=dict[int, str])  # for single rows

    def get_part(self, row: int) -> Part | None:
        """Return the part of one tool's score, or None if it has no points."""
        points = float(self.points[row])
        if points == 0:
            return None
        return Part(signal=self.signal, points=round(points, 4), note=self.notes.get(row, self.note))


def sum_contributions(contributions: Iterable[ScoreContribution], size: int) -> Scores:
    """Return the sum by row."""
    score = np.zeros(size, np.float32)
    for contribution in contributions:
        score += contribution.points
    return score


def list_score_parts(contributions: Iterable[ScoreContribution], row: int) -> tuple[Part, ...]:
    """Return the parts of one tool's score in order. Parts with the same signal are not merged."""
    found = (contribution.get_part(row) for contribution in contributions)
    return tuple(part for part in found if part is not None)


# A tool gains this share of the mean of its server's best scores.
SERVER_WEIGHT: Final = 0.2
# A long request is about few servers and needs several tools of each: the lead of the best one counts more.
LONG_REQUEST_WORDS: Final = (60, 100)  # where the weight begins to rise, and where it is highest
MAX_LEAD_WEIGHT: Final = 2.0
SERVER_BEST_COUNT: Final = 3

# Meaning estimated from words, while the vectors are being computed.
_PRIOR_LEVEL: Final = 0.15
_PRIOR_SLOPE: Final = 0.9
_PRIOR_STRENGTH: Final = 0.5  # weight of the prior, as a sum of squares of word scores


@frozen
class TextEvidence:
    """The text scores of each tool for one need, by row."""

    words: Scores
    meaning: Scores | None  # None: words only
    meaning_weight: float

    @property
    def base(self) -> Scores:
        if self.meaning is None:
            return self.words
        return _mix_scores(self.words, self.meaning, self.meaning_weight)

    def mix_with(self, own: TextEvidence, part: float) -> TextEvidence:
        """Mix in a share `part` of other evidence: the scores of a need with those of the whole request."""
        if self.meaning is None or own.meaning is None:
            return TextEvidence(
                words=_mix_scores(self.words, own.words, part), meaning=None, meaning_weight=0.0
            )
        return TextEvidence(
            words=_mix_scores(self.words, own.words, part),
            meaning=_mix_scores(self.meaning, own.meaning, part),
            meaning_weight=self.meaning_weight,
        )

    def to_contributions(self) -> tuple[ScoreContribution, ...]:
        """Return the contributions of words and meaning to the base score."""
        if self.meaning is None:
            return (ScoreContribution(signal="words", points=self.words),)
        return (
            ScoreContribution(
                signal="meaning", points=np.asarray(self.meaning_weight * self.meaning, np.float32)
            ),
            ScoreContribution(
                signal="words", points=np.asarray((1 - self.meaning_weight) * self.words, np.float32)
            ),
        )


def _mix_scores(whole: Scores, own: Scores, part: float) -> Scores:
    return np.asarray((1 - part) * whole + part * own, np.float32)


def fuse_scores(words: Scores, meaning: Scores | None, meaning_weight: float) -> TextEvidence:
    """Combine word and meaning scores. The meaning of a tool without a vector is estimated from words."""
    unknown = np.isnan(meaning) if meaning is not None else None
    if meaning is None or unknown is None or unknown.all():
        return TextEvidence(words=words, meaning=None, meaning_weight=0.0)
    if unknown.any():
        meaning = np.where(unknown, _estimate_meaning(words, meaning, ~unknown), meaning).astype(np.float32)
    return TextEvidence(words=words, meaning=meaning, meaning_weight=meaning_weight)


def _estimate_meaning(words: Scores, meaning: Scores, known: NDArray[np.bool_]) -> Scores:
    """Estimate meaning as a linear function of the word score, fitted to the tools that have both.

    The prior slope dominates while the known word scores are small. This happens when only the vectors of one
    server are ready, which say little about other tools.
    """
    x, y = words[known], meaning[known] - _PRIOR_LEVEL
    slope = (_PRIOR_STRENGTH * _PRIOR_SLOPE + float(x @ y)) / (_PRIOR_STRENGTH + float(x @ x))
    return np.asarray(_PRIOR_LEVEL + min(max(slope, 0.0), 2 * _PRIOR_SLOPE) * words, np.float32)


def compute_server_bonus(
    base: Scores, columns: ToolColumns, eligible: Rows, *, words: int = 0
) -> ScoreContribution:
    """Compute what each tool gains from the best tools of its server. It is 0 when there is only one server.

    `words` is the length of the whole request: in a long one, tools of servers behind the best one lose.
    Only eligible tools count, so that a hidden tool has no visible effect.
    """
    points = np.zeros(columns.size, np.float32)
    owners = columns.server_index[eligible]
    # Rows are sorted by server, so the tools of a server are adjacent.
    starts = np.flatnonzero(np.concatenate(([True], owners[1:] != owners[:-1])))
    if len(starts) > 1:
        lengths = np.diff(starts, append=len(owners))
        mean = _average_best(base[eligible], starts, lengths)
        lead = float(np.interp(words, LONG_REQUEST_WORDS, (SERVER_WEIGHT, MAX_LEAD_WEIGHT)))
        best = float(mean.max())
        gained = np.asarray(SERVER_WEIGHT * best + lead * (mean - best), np.float32)
        points[eligible] = np.repeat(gained, lengths)
    return ScoreContribution(signal="server", points=points, note="its server fits the request")


def _average_best(scores: Scores, starts: Rows, lengths: Rows) -> Scores:
    """Return the mean of the best few scores of each server. Equal scores count once."""
    left = scores.copy()
    total = np.maximum.reduceat(left, starts)
    count = np.ones(len(starts), np.float32)
    best = total
    for _ in range(SERVER_BEST_COUNT - 1):
        left[left == np.repeat(best, lengths)] = -np.inf
        best = np.maximum.reduceat(left, starts)
        there = best > -np.inf
        total = np.where(there, total + best, total)
        count += there
    return np.asarray(total / count, np.float32)


FIT_FEATURES: Final = ("meaning", "words", "tools")
_MAX_LOG_ODDS: Final = 30.0  # beyond this, a probability rounds to 0 or 1


@frozen(kw_only=False)
class LogisticModel:
    """A logistic model over named features."""

    bias: float
    coefficients: Mapping[str, float]

    def predict_probability(self, features: Mapping[str, float]) -> float:
        log_odds = self.bias + sum(weight * features[name] for name, weight in self.coefficients.items())
        return 1 / (1 + math.exp(-max(-_MAX_LOG_ODDS, min(_MAX_LOG_ODDS, log_odds))))


@frozen(kw_only=False)
class FitModels:
    """The model for words and meaning, and the one for words alone."""

    both: LogisticModel
    words: LogisticModel

    def estimate_fit(self, evidence: TextEvidence, eligible: Rows) -> float:
        """Return the probability that one of the eligible tools suits the request."""
        if not len(eligible):
            return 0.0
        model = self.words if evidence.meaning is None else self.both
        return model.predict_probability(compute_fit_features(evidence, eligible))


def compute_fit_features(evidence: TextEvidence, eligible: Rows) -> dict[str, float]:
    """Compute the features of the fit models."""
    meaning = evidence.meaning
    return {
        "meaning": 0.0 if meaning is None else float(np.max(meaning[eligible])),
        "words": float(np.max(evidence.words[eligible])),
        "tools": math.log(len(eligible)),
    }


@cache
def load_fit_models() -> FitModels:
    """Load the fitted models."""
    written = json.loads((files("fingerpost.narrow") / "fit.json").read_text(encoding="utf-8"))
    return FitModels(both=_parse_model(written["both"]), words=_parse_model(written["words"]))


def _parse_model(written: Mapping[str, float]) -> LogisticModel:
    names: Sequence[str] = [name for name in FIT_FEATURES if name in written]
    return LogisticModel(float(written["bias"]), {name: float(written[name]) for name in names})

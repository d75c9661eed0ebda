"""Is there a suitable tool here at all?

Apart from whether a tool is needed: a request for live data may need one and
find none. The answer is a probability, from three figures: how near the nearest
tool is in meaning, how many of the request's words the best one shares, and how
many tools there were to choose from (of ten thousand strangers one will look
familiar). More was tried and added nothing: the share of the request that a
tool's text covers, how much of its name is said, the request's length. While
there are no vectors a second, rougher model judges by words alone.

Both are fitted by `training/fit_fit.py` on requests whose tool was there, and on
the same requests with that tool taken away.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Final

import numpy as np

from fingerpost.frozen import frozen
from fingerpost.narrow.columns import Rows
from fingerpost.narrow.fusion import TextEvidence

FIT_FEATURES: Final = ("meaning", "words", "tools")
_MAX_LOG_ODDS: Final = 30.0  # log odds; beyond, a probability is 0 or 1 in print


@frozen(kw_only=False)
class LogisticModel:
    """A logistic model over the figures it names."""

    bias: float
    coefficients: Mapping[str, float]

    def predict_probability(self, features: Mapping[str, float]) -> float:
        odds = self.bias + sum(weight * features[name] for name, weight in self.coefficients.items())
        return 1 / (1 + math.exp(-max(-_MAX_LOG_ODDS, min(_MAX_LOG_ODDS, odds))))


@frozen(kw_only=False)
class FitModels:
    """The model for when meaning is known, and the one for words alone."""

    both: LogisticModel
    words: LogisticModel

    def estimate_fit(self, evidence: TextEvidence, eligible: Rows) -> float:
        """The probability that one of the eligible tools suits the request."""
        if not len(eligible):
            return 0.0
        model = self.words if evidence.meaning is None else self.both
        return model.predict_probability(compute_fit_features(evidence, eligible))


def compute_fit_features(evidence: TextEvidence, eligible: Rows) -> dict[str, float]:
    """What the models look at."""
    meaning = evidence.meaning
    return {
        "meaning": 0.0 if meaning is None else float(np.max(meaning[eligible])),
        "words": float(np.max(evidence.words[eligible])),
        "tools": math.log(len(eligible)),
    }


@cache
def load_fit_models() -> FitModels:
    """The models as they were fitted."""
    written = json.loads((files("fingerpost.narrow") / "fit.json").read_text(encoding="utf-8"))
    return FitModels(both=_parse_model(written["both"]), words=_parse_model(written["words"]))


def _parse_model(written: Mapping[str, float]) -> LogisticModel:
    names: Sequence[str] = [name for name in FIT_FEATURES if name in written]
    return LogisticModel(float(written["bias"]), {name: float(written[name]) for name in names})

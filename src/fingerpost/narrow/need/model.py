"""The fitted part: weights for cues, words and, when there is one, the request's vector.

Logistic regression, twice: `words` for a request alone, `meaning` for one with
the encoder's vector. With a vector both are asked and their log odds averaged,
which is steadier on requests unlike ours than either. The file is written by
`training/fit_need.py`.
"""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from fingerpost.frozen import frozen
from fingerpost.narrow.need.cues import CUE_POSITION, CUES
from fingerpost.narrow.need.reading import FEATURE_SLOTS, NeedFeatures

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Vector = NDArray[np.float32]

MIN_EXPLAINED_POINTS: Final = 0.15  # log odds; what moved the score less is no reason
WEIGHTS_FILE: Final = Path(__file__).with_name("weights.npz")


@frozen(kw_only=False)
class CueContribution:
    """What one cue, or the words it has none for, added to the score (as log odds)."""

    cue: str  # "" for words, "vector" for the meaning as a whole
    text: str
    points: float


@frozen(kw_only=False)
class LinearHead:
    """One set of weights."""

    bias: float
    cues: tuple[float, ...]
    words: tuple[float, ...]
    vector: Vector | None = None
    centre: Vector | None = None

    def compute_contributions(
        self, reading: NeedFeatures, vector: Vector | None = None
    ) -> tuple[float, list[CueContribution]]:
        """The log odds that a tool is needed, and what of them is worth naming."""
        odds = self.bias
        shares: list[CueContribution] = []
        for name, text in reading.cues.items():
            points = self.cues[CUE_POSITION[name]]
            odds += points
            shares.append(CueContribution(name, text, points))
        scale = 1 / math.sqrt(len(reading.features) or 1)
        for slot, text in reading.features:
            points = self.words[slot] * scale
            odds += points
            if abs(points) >= MIN_EXPLAINED_POINTS:
                shares.append(CueContribution("", text, points))
        if vector is not None and self.vector is not None and self.centre is not None:
            points = float(np.dot(vector - self.centre, self.vector))
            odds += points
            shares.append(CueContribution("vector", "", points))
        return odds, shares


@frozen(kw_only=False)
class NeedModel:
    """Both heads."""

    words: LinearHead
    meaning: LinearHead | None

    def compute_contributions(
        self, reading: NeedFeatures, vector: Vector | None = None
    ) -> tuple[float, list[CueContribution]]:
        if vector is None or self.meaning is None:
            return self.words.compute_contributions(reading)
        first, by_words = self.words.compute_contributions(reading)
        second, by_meaning = self.meaning.compute_contributions(reading, vector)
        halves = [
            CueContribution(share.cue, share.text, share.points / 2) for share in (*by_words, *by_meaning)
        ]
        return (first + second) / 2, halves


@cache
def load_need_model(path: Path = WEIGHTS_FILE) -> NeedModel:
    """The weights that came with the package. Read once."""
    with np.load(path, allow_pickle=False) as file:
        names = [str(name) for name in file["names"]]
        if names != [cue.name for cue in CUES] or file["words"].shape != (FEATURE_SLOTS,):
            message = f"{path.name} was fitted for other cues; run `python -m training.fit_need`"
            raise ValueError(message)

        def head(prefix: str) -> LinearHead:
            vector = file.get(f"{prefix}vector")
            return LinearHead(
                bias=float(file[f"{prefix}bias"]),
                cues=tuple(float(value) for value in file[f"{prefix}cues"]),
                words=tuple(float(value) for value in file[f"{prefix}words"]),
                vector=vector,
                centre=file[f"{prefix}centre"] if vector is not None else None,
            )

        return NeedModel(head(""), head("meaning_") if "meaning_bias" in file else None)

"""The vectors of a catalog's tools, one row per different text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fingerpost.narrow.dense.encoder import DIMENSIONS, Vector

WHOLE_REQUEST_WEIGHT: Final = 0.5  # how much the whole request counts where its best sentence counts too


class VectorMatrix:
    """Rows are filled in while they are being read: a row counts from the moment `known` says so."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        self._place = {key: place for place, key in enumerate(dict.fromkeys(keys))}
        self._rows = np.fromiter((self._place[key] for key in keys), np.intp, len(keys))
        self._vectors = np.zeros((len(self._place), DIMENSIONS), np.float32)
        self._known = np.zeros(len(self._place), np.bool_)
        self.keys = tuple(keys)

    @property
    def missing(self) -> list[bytes]:
        """The texts without a vector, in the order of the tools."""
        return [key for key, known in zip(self._place, self._known.tolist(), strict=True) if not known]

    def get_missing(self, rows: Sequence[int]) -> list[bytes]:
        """The texts of these tools that have no vector yet."""
        return [self.keys[row] for row in rows if not self._known[self._rows[row]]]

    @property
    def is_blank(self) -> bool:
        return not self._known.any()

    @property
    def ready(self) -> float:
        """The share of tools that have their vector."""
        return float(self._known[self._rows].mean()) if len(self._rows) else 1.0

    def get(self, key: bytes) -> Vector | None:
        place = self._place.get(key)
        return self._vectors[place] if place is not None and self._known[place] else None

    def fill(self, vectors: Mapping[bytes, Vector]) -> None:
        """These are known now; texts that are not in the catalog are passed over."""
        for key, vector in vectors.items():
            if (place := self._place.get(key)) is not None:
                self._vectors[place] = vector
                self._known[place] = True

    def build_unknown_scores(self) -> NDArray[np.float32]:
        """The scores when nothing can be said."""
        return np.full(len(self._rows), np.nan, np.float32)

    def compare(self, whole: Vector, sentences: Sequence[Vector] = ()) -> NDArray[np.float32]:
        """The cosine of each tool with a request and its best sentence; NaN where the tool is not known."""
        known = self._known.copy()  # before the product: a row filled meanwhile waits for the next request
        cosines = self._compute_cosines(whole)
        if sentences:
            best = self._compute_cosines(sentences[0])
            for sentence in sentences[1:]:
                np.maximum(best, self._compute_cosines(sentence), out=best)
            cosines = np.asarray(
                WHOLE_REQUEST_WEIGHT * cosines + (1 - WHOLE_REQUEST_WEIGHT) * best, np.float32
            )
        cosines[~known] = np.nan
        return cosines[self._rows]

    def _compute_cosines(self, vector: Vector) -> NDArray[np.float32]:
        # Row by row, not as a matrix product: that would wake all the threads of the linear algebra
        # library, which on a busy machine costs thirty times as much, and other threads their turn.
        return np.vecdot(self._vectors, vector)

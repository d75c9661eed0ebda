"""The meanings of remembered requests: made a few at a time, kept while the process runs.

They are never written to disk: a vector of somebody's words would outlive the words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Final

import numpy as np

from fingerpost.errors import FingerpostError
from fingerpost.narrow.experience.similar import Floats

MAX_KEPT_VECTORS: Final = 4_000
BATCH_SIZE: Final = 32  # a request waits for them, some milliseconds each


class RequestVectors:
    """Vectors by text. `encode` is the encoder's; it may be missing, and then there are none."""

    def __init__(self, encode: Callable[[str], Floats]) -> None:
        self._encode = encode
        self._known: dict[str, Floats] = {}
        self._broken = False

    def fill(self, texts: Iterable[str], most: int = BATCH_SIZE) -> bool:
        """Make some that are missing, the first ones first. Whether all are there now."""
        wanted = list(dict.fromkeys(texts))[:MAX_KEPT_VECTORS]
        missing = [text for text in wanted if text not in self._known]
        for text in islice(missing, most):
            if self._broken:
                return True
            try:
                self._known[text] = self._encode(text)
            except FingerpostError:  # the scorer tells about it, once
                self._broken = True
        if len(self._known) > MAX_KEPT_VECTORS:
            kept = set(wanted)
            self._known = {text: vector for text, vector in self._known.items() if text in kept}
        return self._broken or len(missing) <= most

    @property
    def known(self) -> Mapping[str, Floats]:
        return self._known

    def get_rows(self, texts: Sequence[str]) -> Floats | None:
        """One row each, zeros where it is not known; None where none is."""
        return build_rows(texts, self._known)


def build_rows(texts: Sequence[str], known: Mapping[str, Floats]) -> Floats | None:
    """One row for each text, zeros where it is not known; None where none is."""
    found = next((known[text] for text in texts if text in known), None)
    if found is None:
        return None
    blank = np.zeros_like(found)
    return np.stack([known.get(text, blank) for text in texts]).astype(np.float32, copy=False)

"""How much what was said of one request bears on another.

What people teach counts for more than an outcome does, so it is held to requests that
are closer to it than outcomes are. Two requests of the same words may still want
opposite things: a request to delete says nothing about one to read, and "on" nothing
about "off". Where vectors are there, words count only as far as the meaning agrees.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import numpy as np

from fingerpost.catalog.verbs import STRONG_DESTROY_VERBS
from fingerpost.catalog.words import parse_word_set
from fingerpost.narrow.experience.similar import MAX_PAST_REQUEST_LENGTH, Floats, PastRequests

MIN_WORD_SIMILARITY: Final = 0.5
MIN_MEANING_SIMILARITY: Final = 0.7
# Between these, words count more and more; below, the same words mean something else.
MAX_UNRELATED_SIMILARITY: Final = 0.5
AGREED_SIMILARITY: Final = 0.75
SAME_REQUEST_SIMILARITY: Final = 0.6  # from here on two requests are one request said twice

_SIMILARITY_WORD: Final = re.compile(r"[^\W_]+")
_DESTROY_WORDS: Final = STRONG_DESTROY_VERBS | parse_word_set("cancel clear reset revoke undo trash")
_OPPOSITE_WORDS: Final = (
    ("on", "off"), ("in", "out"), ("up", "down"), ("before", "after"), ("first", "last"),
    ("open", "close"), ("add", "remove"), ("start", "stop"), ("enable", "disable"), ("lock", "unlock"),
    ("mute", "unmute"), ("buy", "sell"), ("follow", "unfollow"), ("subscribe", "unsubscribe"),
    ("archive", "unarchive"), ("pin", "unpin"), ("block", "unblock"), ("approve", "reject"),
    ("accept", "decline"), ("push", "pull"), ("upload", "download"), ("import", "export"),
    ("encrypt", "decrypt"), ("send", "receive"), ("sent", "received"), ("increase", "decrease"),
    ("deposit", "withdraw"), ("connect", "disconnect"), ("read", "write"), ("show", "hide"),
)  # fmt: skip


class RequestSimilarity:
    """Past requests, and how much each bears on a new one. `vectors` has a row each; zeros: not known."""

    def __init__(self, texts: Sequence[str], vectors: Floats | None = None) -> None:
        self._texts = tuple(texts)
        self._past = PastRequests(self._texts, by_rarity=False)  # ten requests alike do not make them less so
        self._vectors = vectors
        self._known = None if vectors is None else vectors.any(axis=1)

    @property
    def uses_vectors(self) -> bool:
        return self._vectors is not None

    def compute_weights(self, text: str, vector: Floats | None = None) -> Floats:
        """0 for most; 1 for the same words."""
        if not self._texts:
            return np.zeros(0, np.float32)
        words = self._past.compute_similarity(text)
        weights = _rescale_between(words, MIN_WORD_SIMILARITY, 1.0)
        if vector is not None and self._vectors is not None and self._known is not None:
            meaning = self._vectors @ vector
            agreed = np.where(
                self._known, _rescale_between(meaning, MAX_UNRELATED_SIMILARITY, AGREED_SIMILARITY), 1.0
            )
            near = np.where(self._known, _rescale_between(meaning, MIN_MEANING_SIMILARITY, 1.0), 0.0)
            weights = np.maximum(weights * agreed, near).astype(np.float32, copy=False)
        for place in np.flatnonzero(weights):
            if are_opposed(self._texts[int(place)], text):
                weights[place] = 0.0
        return weights


def are_opposed(one: str, other: str) -> bool:
    """Whether two requests, alike as they may be, want opposite things."""
    ours, theirs = _find_opposite_sides(one), _find_opposite_sides(other)
    if ours == theirs:
        return False
    if ("destroys" in ours) != ("destroys" in theirs):
        return True
    return any(
        (left in ours and right in theirs and right not in ours and left not in theirs)
        or (right in ours and left in theirs and left not in ours and right not in theirs)
        for left, right in _OPPOSITE_WORDS
    )


_OPPOSITE_SIDES: Final = frozenset(word for pair in _OPPOSITE_WORDS for word in pair)


@lru_cache(maxsize=4096)
def _find_opposite_sides(text: str) -> frozenset[str]:
    words = set(_SIMILARITY_WORD.findall(text[:MAX_PAST_REQUEST_LENGTH].casefold()))
    return frozenset(words & _OPPOSITE_SIDES | ({"destroys"} if words & _DESTROY_WORDS else set()))


def _rescale_between(values: Floats, low: float, high: float) -> Floats:
    """0 up to `low`, rising to 1 at `high`."""
    return np.clip((values - low) / (high - low), 0.0, 1.0).astype(np.float32, copy=False)

"""Past requests, and how like each of them a new one is.

Words alone would miss inflected Hebrew, compound German and every slip of the
keyboard, so letter triples count beside the words; in scripts written without
spaces, letter pairs stand for the words. Words that carry no topic count
little: with few requests in memory, their frequency does not show it yet.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fingerpost.catalog.words import STOP_WORDS, parse_word_set

MAX_PAST_REQUEST_LENGTH: Final = 500  # what the store keeps of a request
_PAST_WORD = re.compile(r"[^\W_]+")
_UNSPACED_SCRIPT = re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]")
_TRIGRAM_WEIGHT: Final = 1.0  # together, against 1 for the word itself
_COMMON_WORD_WEIGHT: Final = 0.15
_COMMON_WORDS: Final = STOP_WORDS | parse_word_set(
    """
    i me my we please show tell find give make add let thanks hi hello
    של את על לי אני אנחנו זה זאת מה איך האם כל גם לא כן עם או אם יש אין בבקשה תן תני תראה הראה
    """
)

Floats = NDArray[np.float32]


def extract_text_features(text: str) -> dict[str, float]:
    """The words of a text, whole and in triples, each with how much it counts there."""
    counted: Counter[str] = Counter()
    for word in _PAST_WORD.findall(text[:MAX_PAST_REQUEST_LENGTH].casefold()):
        counted.update(_extract_word_features(word))
    return {name: 1 + math.log(count) if count > 1 else count for name, count in counted.items()}


def _extract_word_features(word: str) -> dict[str, float]:
    if _UNSPACED_SCRIPT.search(word):
        pairs = [word[index : index + 2] for index in range(max(len(word) - 1, 1))]
        return dict.fromkeys(pairs, 1.0)
    if word in _COMMON_WORDS:
        return {word: _COMMON_WORD_WEIGHT}
    found = {word: 1.0}
    if len(word) > 3:
        edged = f"<{word}>"
        triples = {f"#{edged[index : index + 3]}" for index in range(len(edged) - 2)}
        share = _TRIGRAM_WEIGHT / math.sqrt(len(triples))
        found |= dict.fromkeys(triples, share)
    return found


class PastRequests:
    """An index over some thousand short texts: one pass over the features of a query.

    `by_rarity`: words that few of them hold count more. Without it, two requests are as alike
    however many others like them there are.
    """

    def __init__(self, texts: Sequence[str], *, by_rarity: bool = True) -> None:
        self.count = len(texts)
        found = [extract_text_features(text) for text in texts]
        frequency = Counter(name for one in found for name in one)
        self._rarity = {
            name: math.log1p(self.count / times) if by_rarity else 1.0 for name, times in frequency.items()
        }
        self._unseen = math.log1p(max(self.count, 1)) if by_rarity else 1.0
        places: defaultdict[str, list[int]] = defaultdict(list)
        values: defaultdict[str, list[float]] = defaultdict(list)
        for row, one in enumerate(found):
            length = self._compute_norm(one)
            for name, value in one.items():
                places[name].append(row)
                values[name].append(value * self._rarity[name] / length)
        self._postings = {
            name: (np.array(rows, np.intp), np.array(values[name], np.float32))
            for name, rows in places.items()
        }

    def compute_similarity(self, text: str) -> Floats:
        """0 (nothing in common) to 1 (the same words) for every past request, in their order."""
        alike = np.zeros(self.count, np.float32)
        asked = extract_text_features(text)
        length = self._compute_norm(asked)
        for name, value in asked.items():
            if (posting := self._postings.get(name)) is not None:
                rows, weights = posting
                alike[rows] += weights * np.float32(value * self._rarity[name] / length)
        return np.minimum(alike, 1.0)

    def _compute_norm(self, found: dict[str, float]) -> float:
        rarity, unseen = self._rarity, self._unseen
        return math.sqrt(sum((value * rarity.get(name, unseen)) ** 2 for name, value in found.items())) or 1.0

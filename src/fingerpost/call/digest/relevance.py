"""What a request asks about, as stems to look for in a long result.

Plain overlap of words, on purpose: it costs microseconds, needs no model and can
be explained. A stem is matched anywhere inside a word, so `invoice` finds
`Invoices`, and a Hebrew word is also looked for without the letters Hebrew glues to
its front (`בשעות` finds `שעות`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from fingerpost.catalog.words import STOP_WORDS, distinct, singular, word_set, words

MOST_STEMS: Final = 16
_SHORTEST: Final = 2

_GLUED: Final = "הובלמשכ"
_HEBREW_STOP_WORDS: Final = word_set(
    "של את על עם זה זו זאת מה מי איך כמה הוא היא הם אני אתה לי לך יש אין כל או גם לא כן אם אל אבל רק עוד "
    "איפה מתי למה איזה בבקשה תן תני אפשר"
)
_REQUEST_WORDS: Final = STOP_WORDS | _HEBREW_STOP_WORDS | word_set("me my find show tell give please are did")


def stems(request: str) -> tuple[str, ...]:
    """The telling words of a request, shortened to what their other forms share."""
    said = request.lower()
    spoken = [word for word in words(request) if len(word) >= _SHORTEST or word.isdigit()]
    telling = [word for word in spoken if word not in _REQUEST_WORDS] or spoken
    # Words that stand together are worth more together: `order 4711` is not any order.
    pairs = [f"{one} {singular(other)}" for one, other in pairwise(telling) if f"{one} {other}" in said]
    return distinct([*map(_stem, telling), *pairs], MOST_STEMS)


def _stem(word: str) -> str:
    if word[0] in _GLUED and len(word) > 3:
        return word[1:]
    plain = singular(word)
    for ending in ("ing", "ed"):
        if len(plain) - len(ending) >= 4 and plain.endswith(ending):
            return plain.removesuffix(ending)
    return plain


def scores(texts: Sequence[str], looked_for: Sequence[str]) -> list[float]:
    """How near each text is to the request: what few texts mention counts more than what all do."""
    found = [[stem in text for text in texts] for stem in looked_for]
    weights = [math.log1p(len(texts) / (1 + sum(hits))) if any(hits) else 0.0 for hits in found]
    return [
        sum(weight for weight, hits in zip(weights, found, strict=True) if hits[index])
        for index in range(len(texts))
    ]

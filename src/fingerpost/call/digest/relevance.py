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

from fingerpost.catalog.words import STOP_WORDS, parse_word_set, split_words, take_distinct, to_singular

MAX_STEMS: Final = 16
_MIN_WORD_LENGTH: Final = 2

_HEBREW_PREFIXES: Final = "הובלמשכ"
_HEBREW_STOP_WORDS: Final = parse_word_set(
    "של את על עם זה זו זאת מה מי איך כמה הוא היא הם אני אתה לי לך יש אין כל או גם לא כן אם אל אבל רק עוד "
    "איפה מתי למה איזה בבקשה תן תני אפשר"
)
_REQUEST_WORDS: Final = (
    STOP_WORDS | _HEBREW_STOP_WORDS | parse_word_set("me my find show tell give please are did")
)


def extract_stems(request: str) -> tuple[str, ...]:
    """The telling words of a request, shortened to what their other forms share."""
    said = request.lower()
    spoken = [word for word in split_words(request) if len(word) >= _MIN_WORD_LENGTH or word.isdigit()]
    telling = [word for word in spoken if word not in _REQUEST_WORDS] or spoken
    # Words that stand together are worth more together: `order 4711` is not any order.
    pairs = [f"{one} {to_singular(other)}" for one, other in pairwise(telling) if f"{one} {other}" in said]
    return take_distinct([*map(_shorten_word, telling), *pairs], MAX_STEMS)


def _shorten_word(word: str) -> str:
    if word[0] in _HEBREW_PREFIXES and len(word) > 3:
        return word[1:]
    plain = to_singular(word)
    for ending in ("ing", "ed"):
        if len(plain) - len(ending) >= 4 and plain.endswith(ending):
            return plain.removesuffix(ending)
    return plain


def score_texts(texts: Sequence[str], stems: Sequence[str]) -> list[float]:
    """How near each text is to the request: what few texts mention counts more than what all do."""
    found = [[stem in text for text in texts] for stem in stems]
    weights = [math.log1p(len(texts) / (1 + sum(hits))) if any(hits) else 0.0 for hits in found]
    return [
        sum(weight for weight, hits in zip(weights, found, strict=True) if hits[index])
        for index in range(len(texts))
    ]

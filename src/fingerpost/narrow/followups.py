"""Requests that lean on what was said before.

"And in Paris?" names neither weather nor forecast; "cancel it" does not say
what. Such a request is looked for together with the person's last turns, which
count less the more the request says by itself.
"""

from __future__ import annotations

import re
from typing import Final

from fingerpost.catalog.words import STOP_WORDS, word_set

# How much an earlier turn may count beside the request, at most.
MOST_WEIGHT: Final = 0.4
_LATE_TURN: Final = 0.5  # each turn before the last counts this much of the one after it
_LONG_ENOUGH: Final = 8  # content words with which a request speaks for itself

_OPENING: Final = re.compile(
    r"^\s*(?:and|also|or|but|then|now|what|how)\s+(?:about|for|in|on|at|with|the|if|that|this)\b"
    r"|^\s*(?:and|or|but|same|again|instead|another|more|yes|ok|okay|sure|go\s+ahead)\b"
    r"|^\s*(?:ומה|ואיך|ואם|ומתי|ואיפה|וגם|אותו|אותה|עוד|שוב|כן|ו?ב\S+\?$)",
    re.IGNORECASE,
)
_POINTING: Final = re.compile(
    r"\b(?:it|its|that|this|those|these|them|they|he|she|him|her|there|one|ones|same|former|latter|previous|"
    r"last|first|second|third|above|again|instead|earlier|just)\b"
    r"|(?<!\w)(?:אותו|אותה|אותם|אותן|זה|זאת|זו|אלה|אלו|שם|הקודם|הקודמת|הראשון|הראשונה|"
    r"השני|השנייה|האחרון|האחרונה|שוב)"
    r"(?!\w)",
    re.IGNORECASE,
)
_WORD: Final = re.compile(r"[^\W\d_]{2,}")
_SAYS_LITTLE: Final = STOP_WORDS | word_set(
    """
    am again ahead and another back can check could do doing done else go give great help hey instead it
    just kindly know let like look lot make me mind more my now ok okay one please proceed really same see
    show sure tell thank thanks that them there thing things this those too try want we well what would yes
    אותו אותה אני את בבקשה גם האם הזה הזאת יש כן לא לי מה עוד על עם של שוב תודה
    """
)


def leaning(text: str) -> float:
    """0: the request speaks for itself; up to 1: it says nothing without what came before."""
    content = sum(1 for word in _WORD.findall(text) if word.casefold() not in _SAYS_LITTLE)
    silence = max(0.0, 1 - content / _LONG_ENOUGH)
    pointing = _OPENING.search(text) is not None or _POINTING.search(text) is not None
    if content <= 1:
        return 1.0
    return silence if pointing else silence / 2


def weights_of_earlier(text: str, turns: int) -> tuple[float, ...]:
    """How much each earlier turn counts beside the request, the latest first."""
    first = MOST_WEIGHT * leaning(text)
    return tuple(first * _LATE_TURN**place for place in range(turns))

"""The small words Hebrew glues to the front of a word: and, that, when, the, in, as, to, from.

They come in a fixed order (`ו` + `כש` + `מ` + `ה`), so all that can come are
listed once and a word is split where its beginning is one of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

_MIN_REST_LENGTH: Final = 2

PREFIXES: Final = frozenset(
    conjunction + relative + preposition
    for conjunction in ("", "ו")
    for relative in ("", "ש", "כש", "מש", "לכש")
    for preposition in ("", "ה", "ב", "כ", "ל", "מ", "מה", "לה", "בה", "כה")
) - {""}
_MAX_PREFIX_LENGTH: Final = max(map(len, PREFIXES))
_PREFIX_COST: Final = 2  # more than a common form costs, less than a rare one
_RARE_PREFIX_COST: Final = 1  # "as" is the one that is seldom meant


def split_prefixes(word: str) -> Iterator[tuple[int, str]]:
    """The word itself, then what remains of it behind each prefix it may have, with what that costs."""
    yield 0, word
    for length in range(1, min(_MAX_PREFIX_LENGTH, len(word) - _MIN_REST_LENGTH) + 1):
        if (prefix := word[:length]) in PREFIXES:
            yield _PREFIX_COST + length + _RARE_PREFIX_COST * prefix.count("כ"), word[length:]

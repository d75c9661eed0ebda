"""The small words Hebrew glues to the front of a word: and, that, when, the, in, as, to, from.

They come in a fixed order (`ו` + `כש` + `מ` + `ה`), so all that can come are
listed once and a word is split where its beginning is one of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

_SHORTEST_REST: Final = 2

PREFIXES: Final = frozenset(
    conjunction + relative + preposition
    for conjunction in ("", "ו")
    for relative in ("", "ש", "כש", "מש", "לכש")
    for preposition in ("", "ה", "ב", "כ", "ל", "מ", "מה", "לה", "בה", "כה")
) - {""}
_LONGEST: Final = max(map(len, PREFIXES))
_COST: Final = 2  # more than a common form costs, less than a rare one
_SELDOM: Final = 1  # "as" is the one that is seldom meant


def splits(word: str) -> Iterator[tuple[int, str]]:
    """The word itself, then what remains of it behind each prefix it may have, with what that costs."""
    yield 0, word
    for length in range(1, min(_LONGEST, len(word) - _SHORTEST_REST) + 1):
        if (prefix := word[:length]) in PREFIXES:
            yield _COST + length + _SELDOM * prefix.count("כ"), word[length:]

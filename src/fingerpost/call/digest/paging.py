"""Where the pages of a long text begin.

Tokens have to be counted for it, so a page deep in a text is far away from its start. Readers go
page by page: what was found for one page is remembered for the next.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from threading import Lock
from typing import Final

from fingerpost.call.digest.tokens import count_tokens, reach

COUNTED_UP_TO: Final = 500_000  # characters; of longer texts the number of pages is estimated
MOST_TEXTS: Final = 64  # whose pages are remembered

Starts = tuple[int, ...]  # of the pages from the first on, as many as were looked for; the end comes last


class Bookmarks:
    """The beginnings of pages that were found so far, of the texts read last."""

    def __init__(self) -> None:
        self._starts: OrderedDict[object, Starts] = OrderedDict()
        self._lock = Lock()  # pages are read in threads

    def of(self, text: object) -> Starts:
        return self._starts.get(text, (0,))

    def put(self, text: object, starts: Starts) -> None:
        """They come in any order: what went further counts."""
        with self._lock:
            self._starts[text] = max(starts, self.of(text), key=len)
            self._starts.move_to_end(text)
            while len(self._starts) > MOST_TEXTS:
                self._starts.popitem(last=False)


def found(text: str, page: int, tokens: int, known: Starts) -> Starts | None:
    """The beginnings of pages up to the end of this one at least; None where there is no such page.

    Callers give any number: what is behind the end for certain is not looked for, and nothing further.
    """
    if page < 1 or page - 1 > len(text) // fewest(tokens):
        return None
    starts = list(known)
    while len(starts) <= page and (starts[-1] < len(text) or len(starts) == 1):  # an empty text has one page
        starts.append(page_end(text, starts[-1], tokens))
    return tuple(starts) if len(starts) > page else None


def counted(text: str, page: int, tokens: int, known: Starts) -> tuple[int, Starts]:
    """How many pages there are, and what was found on the way.

    Counted where that is quick, else estimated; never fewer than there are for certain.
    """
    starts = list(known)
    if len(text) - starts[-1] > COUNTED_UP_TO:
        left = max(1, math.ceil(count_tokens(text[starts[page] :]) / tokens))
        return max(page + left, len(starts)), known
    while starts[-1] < len(text):
        starts.append(page_end(text, starts[-1], tokens))
    return len(starts) - 1, tuple(starts)


def fewest(tokens: int) -> int:
    """How many characters every page but the last has at least.

    None costs more than 10.5 tokens, and a page goes at least half as far as these would take it.
    """
    return max(1, tokens // 42)


def page_end(text: str, start: int, tokens: int) -> int:
    """Where the page from `start` ends: after a line where possible, always within `tokens`."""
    end = reach(text, start, tokens)
    if end < len(text):
        end = text.rfind("\n", (start + end) // 2, end) + 1 or end
    return max(end, min(start + 1, len(text)))

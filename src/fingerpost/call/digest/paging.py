"""Where the pages of a long text begin.

Tokens have to be counted for it, so a page deep in a text is far away from its start. Readers go
page by page: what was found for one page is remembered for the next.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from threading import Lock
from typing import Final

from fingerpost.call.digest.tokens import count_tokens, find_reach

MAX_COUNTED_LENGTH: Final = 500_000  # characters; of longer texts the number of pages is estimated
MAX_TEXTS: Final = 64  # whose pages are remembered

PageStarts = tuple[int, ...]  # of the pages from the first on, as many as were looked for; the end comes last


class PageStartCache:
    """The beginnings of pages that were found so far, of the texts read last."""

    def __init__(self) -> None:
        self._starts: OrderedDict[object, PageStarts] = OrderedDict()
        self._lock = Lock()  # pages are read in threads

    def get_starts(self, text: object) -> PageStarts:
        return self._starts.get(text, (0,))

    def keep_starts(self, text: object, starts: PageStarts) -> None:
        """They come in any order: what went further counts."""
        with self._lock:
            self._starts[text] = max(starts, self.get_starts(text), key=len)
            self._starts.move_to_end(text)
            while len(self._starts) > MAX_TEXTS:
                self._starts.popitem(last=False)


def find_page_starts(text: str, page: int, tokens: int, known: PageStarts) -> PageStarts | None:
    """The beginnings of pages up to the end of this one at least; None where there is no such page.

    Callers give any number: what is behind the end for certain is not looked for, and nothing further.
    """
    if page < 1 or page - 1 > len(text) // compute_min_page_length(tokens):
        return None
    starts = list(known)
    while len(starts) <= page and (starts[-1] < len(text) or len(starts) == 1):  # an empty text has one page
        starts.append(find_page_end(text, starts[-1], tokens))
    return tuple(starts) if len(starts) > page else None


def count_pages(text: str, page: int, tokens: int, known: PageStarts) -> tuple[int, PageStarts]:
    """How many pages there are, and what was found on the way.

    Counted where that is quick, else estimated; never fewer than there are for certain.
    """
    starts = list(known)
    if len(text) - starts[-1] > MAX_COUNTED_LENGTH:
        left = max(1, math.ceil(count_tokens(text[starts[page] :]) / tokens))
        return max(page + left, len(starts)), known
    while starts[-1] < len(text):
        starts.append(find_page_end(text, starts[-1], tokens))
    return len(starts) - 1, tuple(starts)


def compute_min_page_length(tokens: int) -> int:
    """How many characters every page but the last has at least.

    None costs more than 10.5 tokens, and a page goes at least half as far as these would take it.
    """
    return max(1, tokens // 42)


def find_page_end(text: str, start: int, tokens: int) -> int:
    """Where the page from `start` ends: after a line where possible, always within `tokens`."""
    end = find_reach(text, start, tokens)
    if end < len(text):
        end = text.rfind("\n", (start + end) // 2, end) + 1 or end
    return max(end, min(start + 1, len(text)))

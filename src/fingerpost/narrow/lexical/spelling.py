"""The nearest known words to one nobody knows: `wether` for `weather`, `webpage` for `web page`.

Only words outside the vocabulary come here, so a correctly written request never
pays for it and is never bent. Candidates share three-letter pieces with the word;
they count if they begin alike (slips hardly ever strike the first letter, names of people
and places are bent otherwise) and one slip, or two in a long word, leads from one to the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

import numpy as np

from fingerpost.catalog.slips import slips

SHORTEST: Final = 5  # below, one slip leads from anything to anything
LONG: Final = 8  # from here on, two slips are forgiven
SHORTEST_PART: Final = 3
LEAST_SHARED: Final = 0.35
MOST_CANDIDATES: Final = 12
MOST_FOUND: Final = 2


def pieces(word: str) -> set[str]:
    """The three-letter pieces of a word, its edges marked."""
    marked = f"^^{word}$"
    return {marked[place : place + 3] for place in range(len(marked) - 2)}


class Spelling:
    """Known words by their pieces. Words are only ever added, each under its number."""

    def __init__(self) -> None:
        self._by_piece: dict[str, list[int]] = {}
        self._words: list[str] = []
        self._counts: list[int] = []  # of pieces

    def add(self, words: Iterable[str]) -> None:
        """These words follow those already known."""
        for word in words:
            number = len(self._words)
            own = pieces(word) if _correctable(word) else ()
            self._words.append(word)
            self._counts.append(len(own))
            for piece in own:
                self._by_piece.setdefault(piece, []).append(number)

    def nearest(self, word: str, is_used: Callable[[int], bool]) -> list[tuple[int, float]]:
        """The numbers of the nearest words in use, each with how near it is (below 1)."""
        if not _correctable(word):
            return []
        most = 2 if len(word) >= LONG else 1
        far = {
            number: slips(word, self._words[number], most=most) for number in self._candidates(word, is_used)
        }
        least = min(far.values(), default=most + 1)
        if least > most:
            return []
        nearest = [number for number, slipped in far.items() if slipped == least]
        return [(number, 1 - least / len(word)) for number in nearest[:MOST_FOUND]]

    def _candidates(self, word: str, is_used: Callable[[int], bool]) -> list[int]:
        """Words that begin alike and share pieces, most alike first, equals by the alphabet."""
        own = pieces(word)
        lists = [np.array(numbers, np.int64) for piece in own if (numbers := self._by_piece.get(piece))]
        if not lists:
            return []
        found, counts = np.unique(np.concatenate(lists), return_counts=True)
        places: list[int] = found.tolist()
        shared: list[int] = counts.tolist()
        ranked: list[tuple[float, str, int]] = []
        for number, common in zip(places, shared, strict=True):
            likeness = 2 * common / (self._counts[number] + len(own))
            known = self._words[number]
            if likeness >= LEAST_SHARED and known.startswith(word[0]) and is_used(number):
                ranked.append((-likeness, known, number))
        return [number for _, _, number in sorted(ranked)[:MOST_CANDIDATES]]


def _correctable(word: str) -> bool:
    """A word of an alphabet; not a number, not a pair of Chinese characters."""
    return len(word) >= SHORTEST and word.isalpha()


def parts(word: str, is_known: Callable[[str], bool]) -> tuple[str, str] | None:
    """`webpage` as `web` and `page`, when both are known; the first long enough wins."""
    for place in range(SHORTEST_PART, len(word) - SHORTEST_PART + 1):
        if is_known(word[:place]) and is_known(word[place:]):
            return word[:place], word[place:]
    return None

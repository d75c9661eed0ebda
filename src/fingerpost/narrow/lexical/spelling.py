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

from fingerpost.catalog.slips import count_edits

MIN_CORRECTED_LENGTH: Final = 5  # below, one slip leads from anything to anything
LONG_WORD_LENGTH: Final = 8  # from here on, two slips are forgiven
MIN_COMPOUND_PART: Final = 3
MIN_SHARED_TRIGRAM_SHARE: Final = 0.35
MAX_CANDIDATES: Final = 12
MAX_SPELLING_MATCHES: Final = 2


def get_trigrams(word: str) -> set[str]:
    """The three-letter pieces of a word, its edges marked."""
    marked = f"^^{word}$"
    return {marked[place : place + 3] for place in range(len(marked) - 2)}


class SpellingIndex:
    """Known words by their pieces. Words are only ever added, each under its number."""

    def __init__(self) -> None:
        self._by_piece: dict[str, list[int]] = {}
        self._words: list[str] = []
        self._counts: list[int] = []  # of pieces

    def add(self, words: Iterable[str]) -> None:
        """These words follow those already known."""
        for word in words:
            number = len(self._words)
            own = get_trigrams(word) if _is_correctable(word) else ()
            self._words.append(word)
            self._counts.append(len(own))
            for piece in own:
                self._by_piece.setdefault(piece, []).append(number)

    def find_nearest(self, word: str, is_used: Callable[[int], bool]) -> list[tuple[int, float]]:
        """The numbers of the nearest words in use, each with how near it is (below 1)."""
        if not _is_correctable(word):
            return []
        most = 2 if len(word) >= LONG_WORD_LENGTH else 1
        far = {
            number: count_edits(word, self._words[number], limit=most)
            for number in self._find_candidates(word, is_used)
        }
        least = min(far.values(), default=most + 1)
        if least > most:
            return []
        nearest = [number for number, slipped in far.items() if slipped == least]
        return [(number, 1 - least / len(word)) for number in nearest[:MAX_SPELLING_MATCHES]]

    def _find_candidates(self, word: str, is_used: Callable[[int], bool]) -> list[int]:
        """Words that begin alike and share pieces, most alike first, equals by the alphabet."""
        own = get_trigrams(word)
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
            if likeness >= MIN_SHARED_TRIGRAM_SHARE and known.startswith(word[0]) and is_used(number):
                ranked.append((-likeness, known, number))
        return [number for _, _, number in sorted(ranked)[:MAX_CANDIDATES]]


def _is_correctable(word: str) -> bool:
    """A word of an alphabet; not a number, not a pair of Chinese characters."""
    return len(word) >= MIN_CORRECTED_LENGTH and word.isalpha()


def split_compound(word: str, is_known: Callable[[str], bool]) -> tuple[str, str] | None:
    """`webpage` as `web` and `page`, when both are known; the first long enough wins."""
    for place in range(MIN_COMPOUND_PART, len(word) - MIN_COMPOUND_PART + 1):
        if is_known(word[:place]) and is_known(word[place:]):
            return word[:place], word[place:]
    return None

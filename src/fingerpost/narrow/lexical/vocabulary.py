"""A request in the words of the catalog.

What the request says itself counts in full. What it may mean counts less: synonyms,
words written apart or together, and the nearest spelling of a word no tool knows.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice, pairwise
from typing import Final

from fingerpost.frozen import frozen
from fingerpost.narrow.lexical.index import TermIndex
from fingerpost.narrow.lexical.spelling import SpellingIndex, split_compound
from fingerpost.narrow.lexical.stems import stem_word
from fingerpost.narrow.lexical.synonyms import build_synonym_map
from fingerpost.narrow.lexical.words import iterate_terms
from fingerpost.narrow.text import MAX_REQUEST_LENGTH, clean_line

SYNONYM_WEIGHT: Final = 0.35
COMPOUND_WEIGHT: Final = 0.7
CORRECTED_WEIGHT: Final = 0.8

MAX_REQUEST_TERMS: Final = 256  # different terms of one request
MAX_UNKNOWN_WORDS: Final = 12  # words of one request that are looked up by spelling


@frozen(kw_only=False)
class TermVocabulary:
    """The terms of the tools of one moment. `numbers` and `spelling` may already know more than the index."""

    index: TermIndex
    numbers: Mapping[str, int]
    spelling: SpellingIndex

    def get_number(self, term: str) -> int | None:
        """The number of a term some tool has."""
        number = self.numbers.get(term)
        return number if number is not None and self.index.is_used(number) else None

    def has_word(self, word: str) -> bool:
        return self.get_number(stem_word(word)) is not None

    def weigh_terms(self, text: str, gloss: str = "") -> dict[int, float]:
        """The terms of a request by number, with their weights."""
        said = tuple(iterate_terms(clean_line(text, MAX_REQUEST_LENGTH)))
        counts = dict(
            islice(
                Counter((*said, *iterate_terms(clean_line(gloss, MAX_REQUEST_LENGTH)))).items(),
                MAX_REQUEST_TERMS,
            )
        )
        rarity = self.index.rarity
        weights: dict[int, float] = {}
        unknown: list[str] = []
        for term, count in counts.items():
            number = self.get_number(term)
            if number is None:
                unknown.append(term)
            else:
                weights[number] = (1 + math.log(count)) * rarity[number]
        meant: dict[int, float] = {}
        for number, weight in self._iterate_weighted_terms(counts, said[:MAX_REQUEST_TERMS], unknown):
            if number not in weights:
                meant[number] = max(meant.get(number, 0.0), weight)
        return weights | meant

    def _iterate_weighted_terms(
        self, terms: Iterable[str], said: Sequence[str], unknown: Sequence[str]
    ) -> Iterator[tuple[int, float]]:
        rarity = self.index.rarity
        for left, right in pairwise(said):
            if (joined := self.get_number(stem_word(left + right))) is not None:
                yield joined, COMPOUND_WEIGHT * rarity[joined]
        for number, share in self._iterate_corrections(unknown):
            yield number, share * rarity[number]
        yield from self._iterate_synonyms(terms)

    def _iterate_synonyms(self, terms: Iterable[str]) -> Iterator[tuple[int, float]]:
        rarity, table = self.index.rarity, build_synonym_map()
        for term in terms:
            others = table.get(term)
            if others is None:
                continue
            own = self.get_number(term)
            most = math.inf if own is None else rarity[own]  # a rare synonym says no more than the word did
            for other in others:
                if (number := self.get_number(other)) is not None:
                    yield number, SYNONYM_WEIGHT * min(rarity[number], most)

    def _iterate_corrections(self, unknown: Sequence[str]) -> Iterator[tuple[int, float]]:
        for word in unknown[:MAX_UNKNOWN_WORDS]:
            if (cut := split_compound(word, self.has_word)) is not None:
                for part in cut:
                    if (number := self.get_number(stem_word(part))) is not None:
                        yield number, COMPOUND_WEIGHT
                continue
            for number, near in self.spelling.find_nearest(word, self.index.is_used):
                yield number, CORRECTED_WEIGHT * near

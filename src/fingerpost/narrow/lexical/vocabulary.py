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
from fingerpost.narrow.lexical.index import Index
from fingerpost.narrow.lexical.spelling import Spelling, parts
from fingerpost.narrow.lexical.stems import stem
from fingerpost.narrow.lexical.synonyms import related
from fingerpost.narrow.lexical.words import terms_of
from fingerpost.narrow.text import LONGEST_REQUEST, clean

SYNONYM: Final = 0.35
COMPOUND: Final = 0.7
CORRECTED: Final = 0.8

MOST_TERMS: Final = 256  # different terms of one request
MOST_UNKNOWN: Final = 12  # words of one request that are looked up by spelling


@frozen(kw_only=False)
class Vocabulary:
    """The terms of the tools of one moment. `numbers` and `spelling` may already know more than the index."""

    index: Index
    numbers: Mapping[str, int]
    spelling: Spelling

    def number(self, term: str) -> int | None:
        """The number of a term some tool has."""
        number = self.numbers.get(term)
        return number if number is not None and self.index.is_used(number) else None

    def knows(self, word: str) -> bool:
        return self.number(stem(word)) is not None

    def weigh(self, text: str, gloss: str = "") -> dict[int, float]:
        """The terms of a request by number, with their weights."""
        said = tuple(terms_of(clean(text, LONGEST_REQUEST)))
        counts = dict(islice(Counter((*said, *terms_of(clean(gloss, LONGEST_REQUEST)))).items(), MOST_TERMS))
        rarity = self.index.rarity
        weights: dict[int, float] = {}
        unknown: list[str] = []
        for term, count in counts.items():
            number = self.number(term)
            if number is None:
                unknown.append(term)
            else:
                weights[number] = (1 + math.log(count)) * rarity[number]
        meant: dict[int, float] = {}
        for number, weight in self._meant(counts, said[:MOST_TERMS], unknown):
            if number not in weights:
                meant[number] = max(meant.get(number, 0.0), weight)
        return weights | meant

    def _meant(
        self, terms: Iterable[str], said: Sequence[str], unknown: Sequence[str]
    ) -> Iterator[tuple[int, float]]:
        rarity = self.index.rarity
        for left, right in pairwise(said):
            if (joined := self.number(stem(left + right))) is not None:
                yield joined, COMPOUND * rarity[joined]
        for number, share in self._respelt(unknown):
            yield number, share * rarity[number]
        yield from self._synonyms(terms)

    def _synonyms(self, terms: Iterable[str]) -> Iterator[tuple[int, float]]:
        rarity, table = self.index.rarity, related()
        for term in terms:
            others = table.get(term)
            if others is None:
                continue
            own = self.number(term)
            most = math.inf if own is None else rarity[own]  # a rare synonym says no more than the word did
            for other in others:
                if (number := self.number(other)) is not None:
                    yield number, SYNONYM * min(rarity[number], most)

    def _respelt(self, unknown: Sequence[str]) -> Iterator[tuple[int, float]]:
        for word in unknown[:MOST_UNKNOWN]:
            if (cut := parts(word, self.knows)) is not None:
                for part in cut:
                    if (number := self.number(stem(part))) is not None:
                        yield number, COMPOUND
                continue
            for number, near in self.spelling.nearest(word, self.index.is_used):
                yield number, CORRECTED * near

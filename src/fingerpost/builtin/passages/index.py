"""Passages by what they say: tf-idf over stemmed words, as tools are found.

Not for an event loop: reading and searching take their time. Safe to use from several threads.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from threading import Lock

import numpy as np

from fingerpost.builtin.passages.records import Hit, Passage
from fingerpost.narrow.lexical.index import Bag, Index, build
from fingerpost.narrow.lexical.words import terms_of


class PassageIndex:
    """All passages of some sources. A source is put in as a whole, and replaced as a whole."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._numbers: dict[str, int] = {}
        self._sources: dict[str, list[tuple[Passage, Bag]]] = {}
        self._built: tuple[Index, tuple[Passage, ...]] | None = None

    def put(self, source: str, passages: Sequence[Passage]) -> None:
        """These are the passages of the source now."""
        with self._lock:
            self._sources[source] = [(passage, self._bag(passage)) for passage in passages]
            self._built = None

    def remove(self, source: str) -> None:
        """The source is gone."""
        with self._lock:
            if self._sources.pop(source, None) is not None:
                self._built = None

    @property
    def sources(self) -> tuple[str, ...]:
        with self._lock:
            return tuple(self._sources)

    def search(
        self, query: str, limit: int = 10, *, within: Callable[[str], bool] | None = None
    ) -> tuple[Hit, ...]:
        """The best passages for a query, best first; `within` says which sources count."""
        with self._lock:
            index, passages = self._ready()
            numbers = self._numbers
            weights = {
                numbers[term]: (1 + math.log(count)) * index.rarity[numbers[term]]
                for term, count in Counter(terms_of(query)).items()
                if term in numbers and index.is_used(numbers[term])
            }
        length = math.sqrt(sum(weight * weight for weight in weights.values())) or 1.0
        scores = index.add_up(list(weights), [weight / length for weight in weights.values()])
        found: list[Hit] = []
        for place in np.argsort(-scores, kind="stable"):
            score = float(scores[place])
            if score <= 0 or len(found) >= limit:
                break
            passage = passages[int(place)]
            if within is None or within(passage.source):
                found.append(Hit(passage=passage, score=score, words=score))
        return tuple(found)

    def _ready(self) -> tuple[Index, tuple[Passage, ...]]:
        if self._built is None:
            rows = [row for source in self._sources.values() for row in source]
            index = build([bag for _, bag in rows], len(self._numbers))
            self._built = (index, tuple(passage for passage, _ in rows))
        return self._built

    def _bag(self, passage: Passage) -> Bag:
        counts = Counter(terms_of(f"{passage.heading}\n{passage.text}"))
        numbers = [self._numbers.setdefault(term, len(self._numbers)) for term in counts]
        return Bag(np.array(numbers, np.int32), np.fromiter(counts.values(), np.float32, len(counts)))

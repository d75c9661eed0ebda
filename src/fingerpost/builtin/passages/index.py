"""Passages by what they say: the words they share with a query, and what both mean.

Words are tf-idf over stems, as tools are found, with everyday synonyms and a spelling help; they count
from the first moment. Meanings come in the background (see `meanings`); until a passage has its own, its
words stand in for it. Not for an event loop: reading and searching take their time. Safe to use from
several threads.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from itertools import islice
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fingerpost.builtin.passages.meanings import Meanings, windows
from fingerpost.builtin.passages.records import Hit, Passage
from fingerpost.frozen import frozen
from fingerpost.narrow.dense.encoder import TextEncoder, shared_encoder
from fingerpost.narrow.fusion import blend
from fingerpost.narrow.language import language_of
from fingerpost.narrow.lexical.index import Bag, build
from fingerpost.narrow.lexical.spelling import Spelling
from fingerpost.narrow.lexical.vocabulary import Vocabulary
from fingerpost.narrow.lexical.words import terms_of

Scores = NDArray[np.float32]

IN_HEADING: Final = 1.5  # how much a mention there counts, beside one in the text
# The share of meaning, measured on the questions of `python -m benchmarks knowledge`: from 0.55 on it hardly
# matters there, and names are found by their words. The encoder knows English.
MEANING_IN_ENGLISH: Final = 0.6
MEANING_ELSEWHERE: Final = 0.2
# A passage that shares no word with the query must at least mean something like it.
LEAST_MEANING: Final = 0.3
DEAD_TERMS: Final = 50_000  # numbers of terms nobody uses any more, before they are given out anew


@frozen(kw_only=False)
class _Row:
    """A passage as it is compared."""

    passage: Passage
    bag: Bag


@frozen(kw_only=False)
class _Built:
    """All passages of one moment."""

    vocabulary: Vocabulary
    passages: tuple[Passage, ...]

    def words(self, query: str) -> Scores:
        weights = self.vocabulary.weigh(query)
        length = math.sqrt(sum(weight * weight for weight in weights.values())) or 1.0
        return self.vocabulary.index.add_up(list(weights), [weight / length for weight in weights.values()])


class PassageIndex:
    """All passages of some sources. A source is put in as a whole, and replaced as a whole.

    Having one costs nothing: the encoder is loaded, and vectors are made, from the first search (or
    `refresh`) on. `vectors` is the folder they are kept in between runs (None: nowhere); `meaning` set to
    false compares words alone; `share` is how much meaning counts, by default as was measured.
    """

    def __init__(
        self,
        *,
        meaning: bool = True,
        vectors: Path | None = None,
        encoder: TextEncoder | None = None,
        share: float | None = None,
    ) -> None:
        self._lock = Lock()
        self._forget()
        self._sources: dict[str, list[_Row]] = {}
        self._size = 0
        self._built: _Built | None = None
        self._share = share
        self._meanings = Meanings(encoder or shared_encoder(), vectors) if meaning else None

    def _forget(self) -> None:
        self._numbers: dict[str, int] = {}
        self._spelling = Spelling()
        self._spelt = 0  # how many of the terms the spelling help knows

    def __enter__(self) -> PassageIndex:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def put(self, source: str, passages: Sequence[Passage]) -> None:
        """These are the passages of the source now."""
        with self._lock:
            self._size += len(passages) - len(self._sources.get(source, ()))
            self._sources[source] = [_Row(passage, self._bag(passage)) for passage in passages]
            self._built = None

    def remove(self, source: str) -> None:
        """The source is gone."""
        with self._lock:
            if (gone := self._sources.pop(source, None)) is not None:
                self._size -= len(gone)
                self._built = None

    @property
    def sources(self) -> tuple[str, ...]:
        with self._lock:
            return tuple(self._sources)

    def all(self) -> dict[str, tuple[Passage, ...]]:
        """Every passage, by source."""
        with self._lock:
            return {source: tuple(row.passage for row in rows) for source, rows in self._sources.items()}

    @property
    def size(self) -> int:
        """How many passages there are."""
        return self._size

    @property
    def ready(self) -> float:
        """The share of passages found by meaning too, 0..1, as of the last search."""
        return 1.0 if self._meanings is None else self._meanings.ready

    @property
    def waiting(self) -> int:
        """How many texts have no vector yet, as of the last search."""
        return 0 if self._meanings is None else self._meanings.waiting

    def refresh(self) -> None:
        """Make ready for searching what was put in: the next search need not."""
        with self._lock:
            self._ready()

    def settle(self, seconds: float) -> bool:
        """Whether all passages can be found by meaning too, at most so long from now."""
        self.refresh()
        return self._meanings is None or (self._meanings.wait(seconds) and self._meanings.ready == 1.0)

    def close(self) -> None:
        """Stop working in the background. What is known can still be searched."""
        if self._meanings is not None:
            self._meanings.close()

    def search(
        self, query: str, limit: int = 10, *, within: Callable[[str], bool] | None = None
    ) -> tuple[Hit, ...]:
        """The best passages for a query, best first; `within` says which sources count."""
        with self._lock:
            built = self._ready()
        if not built.passages or limit < 1:
            return ()
        words = built.words(query)
        meaning = None if self._meanings is None else self._meanings.compare(query, len(built.passages))
        scores = blend(words, meaning, self._share_of_meaning(query)).base
        good = words > 0 if meaning is None else (words > 0) | (np.nan_to_num(meaning) >= LEAST_MEANING)
        counts = cache(within or _everything)  # asked once for each source
        order: list[int] = np.argsort(-np.where(good, scores, -np.inf), kind="stable").tolist()
        best = (place for place in order[: int(good.sum())] if counts(built.passages[place].source))
        return tuple(
            Hit(
                passage=built.passages[place],
                score=float(scores[place]),
                words=float(words[place]),
                meaning=None if meaning is None or math.isnan(meaning[place]) else float(meaning[place]),
            )
            for place in islice(best, limit)
        )

    def _share_of_meaning(self, query: str) -> float:
        if self._share is not None:
            return self._share
        return MEANING_IN_ENGLISH if language_of(query) in ("en", "und") else MEANING_ELSEWHERE

    def _ready(self) -> _Built:
        if self._built is None:
            rows = self._rows()
            index = build([row.bag for row in rows], len(self._numbers))
            if len(self._numbers) - int(np.count_nonzero(np.diff(index.starts))) > DEAD_TERMS:
                self._read_again()
                rows = self._rows()
                index = build([row.bag for row in rows], len(self._numbers))
            self._spelling.add(islice(self._numbers, self._spelt, None))
            self._spelt = len(self._numbers)
            passages = tuple(row.passage for row in rows)
            self._built = _Built(Vocabulary(index, self._numbers, self._spelling), passages)
            if self._meanings is not None:
                self._meanings.prepare([windows(passage.heading, passage.text) for passage in passages])
        return self._built

    def _rows(self) -> list[_Row]:
        return [row for source in self._sources.values() for row in source]

    def _read_again(self) -> None:
        """With numbers for those terms alone that are still in use."""
        self._forget()
        for source, rows in self._sources.items():
            self._sources[source] = [_Row(row.passage, self._bag(row.passage)) for row in rows]

    def _bag(self, passage: Passage) -> Bag:
        counts: dict[str, float] = {}
        for text, weight in ((passage.heading, IN_HEADING), (passage.text, 1.0)):
            for term in terms_of(text):
                counts[term] = counts.get(term, 0.0) + weight
        numbers = [self._numbers.setdefault(term, len(self._numbers)) for term in counts]
        return Bag(np.array(numbers, np.int32), np.fromiter(counts.values(), np.float32, len(counts)))


def _everything(source: str) -> bool:
    return True

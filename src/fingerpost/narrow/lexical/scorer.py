"""Tools by the words they share with the request.

Ready at once, in any language the tools are described in, and exact: a name said
outright is found. Meaning beyond the words is the dense scorer's part; here a short
list of everyday synonyms and a spelling help go a little way, each counting less
than the words themselves.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import islice
from threading import Lock
from typing import TYPE_CHECKING, Final

import numpy as np

from fingerpost.narrow.base import Query
from fingerpost.narrow.lexical.index import Bag, Index, build
from fingerpost.narrow.lexical.spelling import Spelling
from fingerpost.narrow.lexical.vocabulary import Vocabulary
from fingerpost.narrow.lexical.words import terms_of
from fingerpost.narrow.text import ToolText, tool_text
from fingerpost.records import ToolCard

if TYPE_CHECKING:
    from fingerpost.narrow.base import Scores

# How much a mention counts by where it stands.
IN_SERVER: Final = 1.5
IN_NAME: Final = 2.0
IN_DESCRIPTION: Final = 1.0
IN_PARAMETER: Final = 1.0
IN_PARAMETER_TEXT: Final = 0.5

MOST_TERMS_OF_A_TOOL: Final = 400
DEAD_TERMS: Final = 20_000  # numbers of terms nobody uses any more, before they are given out anew


class LexicalScorer:
    """Scores by words. Safe to use from several threads at once."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._forget()
        self._vocabulary = Vocabulary(build((), 0), self._numbers, self._spelling)

    def _forget(self) -> None:
        self._numbers: dict[str, int] = {}
        self._spelling = Spelling()
        self._bags: dict[tuple[str, str, str], Bag] = {}

    @property
    def signal(self) -> str:
        return "words"

    def prepare(self, cards: Sequence[ToolCard]) -> None:
        """These are the tools now; only those that changed are read again."""
        with self._lock:
            index = self._build(cards)
            used = int(np.count_nonzero(np.diff(index.starts)))
            if len(self._numbers) - used > max(DEAD_TERMS, used):
                self._forget()
                index = self._build(cards)
            self._vocabulary = Vocabulary(index, self._numbers, self._spelling)

    def _build(self, cards: Sequence[ToolCard]) -> Index:
        known = len(self._numbers)
        bags: dict[tuple[str, str, str], Bag] = {}
        rows: list[Bag] = []
        for card in cards:
            # The fingerprint covers what the server sent; a person may describe the tool anew.
            identity = (card.key, card.fingerprint, card.description)
            bag = bags.get(identity) or self._bags.get(identity)
            bags[identity] = bag = self._read(card) if bag is None else bag
            rows.append(bag)
        self._bags = bags
        self._spelling.add(islice(self._numbers, known, None))
        return build(rows, len(self._numbers))

    def _read(self, card: ToolCard) -> Bag:
        counts = count_terms(tool_text(card))
        numbers = [self._numbers.setdefault(term, len(self._numbers)) for term in counts]
        return Bag(np.array(numbers, np.int32), np.fromiter(counts.values(), np.float32, len(counts)))

    @property
    def terms(self) -> int:
        """How many different terms are held in memory."""
        return len(self._numbers)

    def scores(self, query: Query) -> Scores:
        """One number per tool, mostly between 0 and 1; 0 where no word is shared."""
        vocabulary = self._vocabulary
        weights = vocabulary.weigh(query.text, query.signals.gloss)
        length = math.sqrt(sum(weight * weight for weight in weights.values())) or 1.0
        return vocabulary.index.add_up(list(weights), [weight / length for weight in weights.values()])


def count_terms(text: ToolText) -> dict[str, float]:
    """The terms of a tool, each with its mentions weighed by where they stand."""
    counts: dict[str, float] = {}
    for passage, weight in _passages(text):
        for term in terms_of(passage):
            if term in counts or len(counts) < MOST_TERMS_OF_A_TOOL:
                counts[term] = counts.get(term, 0.0) + weight
    return counts


def _passages(text: ToolText) -> Iterator[tuple[str, float]]:
    yield text.server, IN_SERVER
    yield text.name, IN_NAME
    yield text.description, IN_DESCRIPTION
    for parameter in text.parameters:
        yield parameter.name, IN_PARAMETER
        yield parameter.about, IN_PARAMETER_TEXT
        yield " ".join(parameter.values), IN_PARAMETER_TEXT

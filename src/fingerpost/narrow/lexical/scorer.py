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

from fingerpost.narrow.base import ScorerQuery
from fingerpost.narrow.lexical.index import TermBag, TermIndex, build_term_index
from fingerpost.narrow.lexical.spelling import SpellingIndex
from fingerpost.narrow.lexical.vocabulary import TermVocabulary
from fingerpost.narrow.lexical.words import iterate_terms
from fingerpost.narrow.text import ToolText, build_tool_text
from fingerpost.records import ToolCard

if TYPE_CHECKING:
    from fingerpost.narrow.base import Scores

# How much a mention counts by where it stands.
SERVER_WEIGHT: Final = 1.5
NAME_WEIGHT: Final = 2.0
DESCRIPTION_WEIGHT: Final = 1.0
PARAMETER_WEIGHT: Final = 1.0
PARAMETER_TEXT_WEIGHT: Final = 0.5

MAX_TERMS_PER_TOOL: Final = 400
MAX_DEAD_TERMS: Final = 20_000  # numbers of terms nobody uses any more, before they are given out anew


class LexicalScorer:
    """Scores by words. Safe to use from several threads at once."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._reset()
        self._vocabulary = TermVocabulary(build_term_index((), 0), self._numbers, self._spelling)

    def _reset(self) -> None:
        self._numbers: dict[str, int] = {}
        self._spelling = SpellingIndex()
        self._bags: dict[tuple[str, str, str], TermBag] = {}

    @property
    def signal(self) -> str:
        return "words"

    def prepare(self, cards: Sequence[ToolCard]) -> None:
        """These are the tools now; only those that changed are read again."""
        with self._lock:
            index = self._build_index(cards)
            used = int(np.count_nonzero(np.diff(index.starts)))
            if len(self._numbers) - used > max(MAX_DEAD_TERMS, used):
                self._reset()
                index = self._build_index(cards)
            self._vocabulary = TermVocabulary(index, self._numbers, self._spelling)

    def _build_index(self, cards: Sequence[ToolCard]) -> TermIndex:
        known = len(self._numbers)
        bags: dict[tuple[str, str, str], TermBag] = {}
        rows: list[TermBag] = []
        for card in cards:
            # The fingerprint covers what the server sent; a person may describe the tool anew.
            identity = (card.key, card.fingerprint, card.description)
            bag = bags.get(identity) or self._bags.get(identity)
            bags[identity] = bag = self._read_card(card) if bag is None else bag
            rows.append(bag)
        self._bags = bags
        self._spelling.add(islice(self._numbers, known, None))
        return build_term_index(rows, len(self._numbers))

    def _read_card(self, card: ToolCard) -> TermBag:
        counts = count_terms(build_tool_text(card))
        numbers = [self._numbers.setdefault(term, len(self._numbers)) for term in counts]
        return TermBag(np.array(numbers, np.int32), np.fromiter(counts.values(), np.float32, len(counts)))

    @property
    def term_count(self) -> int:
        """How many different terms are held in memory."""
        return len(self._numbers)

    def score(self, query: ScorerQuery) -> Scores:
        """One number per tool, mostly between 0 and 1; 0 where no word is shared."""
        vocabulary = self._vocabulary
        weights = vocabulary.weigh_terms(query.text, query.signals.gloss)
        length = math.sqrt(sum(weight * weight for weight in weights.values())) or 1.0
        return vocabulary.index.sum_weights(list(weights), [weight / length for weight in weights.values()])


def count_terms(text: ToolText) -> dict[str, float]:
    """The terms of a tool, each with its mentions weighed by where they stand."""
    counts: dict[str, float] = {}
    for passage, weight in _weigh_passages(text):
        for term in iterate_terms(passage):
            if term in counts or len(counts) < MAX_TERMS_PER_TOOL:
                counts[term] = counts.get(term, 0.0) + weight
    return counts


def _weigh_passages(text: ToolText) -> Iterator[tuple[str, float]]:
    yield text.server, SERVER_WEIGHT
    yield text.name, NAME_WEIGHT
    yield text.description, DESCRIPTION_WEIGHT
    for parameter in text.parameters:
        yield parameter.name, PARAMETER_WEIGHT
        yield parameter.description, PARAMETER_TEXT_WEIGHT
        yield " ".join(parameter.values), PARAMETER_TEXT_WEIGHT

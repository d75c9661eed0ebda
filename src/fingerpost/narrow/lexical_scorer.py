"""The lexical scorer: an inverted index over tool texts, with synonyms and spelling correction."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice, pairwise
from threading import Lock
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from fingerpost.catalog.tool_names import count_edits
from fingerpost.frozen import frozen
from fingerpost.narrow.lexical_terms import build_synonym_map, iterate_terms, stem_word
from fingerpost.narrow.scorer import MAX_REQUEST_LENGTH, ScorerRequest, ToolText, build_tool_text, clean_line
from fingerpost.records import ToolCard

if TYPE_CHECKING:
    from fingerpost.narrow.scorer import Scores
TermNumbers = NDArray[np.int32]
TermWeights = NDArray[np.float32]

OWN_LENGTH_WEIGHT: Final = 0.75


@frozen(kw_only=False)
class TermBag:
    """The distinct terms of one tool, each with its count."""

    terms: TermNumbers
    counts: TermWeights


@frozen(kw_only=False)
class TermIndex:
    """The current tools by term. Immutable: a new catalog gets a new index."""

    size: int  # number of tools
    # Lists, not arrays, because a query reads single items.
    rarity: list[float]  # by term; weight of one occurrence
    starts: list[int]  # by term; start of its tools in the two fields below
    rows: TermNumbers
    weights: TermWeights

    def is_used(self, term: int) -> bool:
        """Return whether any tool has the term. Terms of removed tools keep their numbers for a while."""
        return term < len(self.rarity) and self.starts[term] < self.starts[term + 1]

    def sum_weights(self, terms: Sequence[int], weights: Sequence[float]) -> TermWeights:
        """Return the weighted sum over these terms, by tool."""
        if not terms or not self.size:
            return np.zeros(self.size, np.float32)
        spans = [slice(self.starts[term], self.starts[term + 1]) for term in terms]
        rows = np.concatenate([self.rows[span] for span in spans])
        shares = np.concatenate(
            [self.weights[span] * np.float32(weight) for span, weight in zip(spans, weights, strict=True)]
        )
        return np.bincount(rows, shares, self.size).astype(np.float32)


def build_term_index(bags: Sequence[TermBag], terms: int) -> TermIndex:
    """Build an index of these tools in order. `terms` is the number of numbered terms."""
    size = len(bags)
    lengths = np.fromiter((len(bag.terms) for bag in bags), np.int64, size)
    numbers = np.concatenate([bag.terms for bag in bags]) if bags else np.zeros(0, np.int32)
    counts = np.concatenate([bag.counts for bag in bags]) if bags else np.zeros(0, np.float32)
    rows = np.repeat(np.arange(size, dtype=np.int32), lengths)
    tools = np.bincount(numbers, minlength=terms)
    rarity = (np.log((1 + size) / (1 + tools)) + 1).astype(np.float32)
    weights = (1 + np.log(np.maximum(counts, 1))) * rarity[numbers]
    own = np.sqrt(np.bincount(rows, weights.astype(np.float64) ** 2, size))
    usual = own.mean() if own.any() else 1.0
    weights = weights / (OWN_LENGTH_WEIGHT * own + (1 - OWN_LENGTH_WEIGHT) * usual)[rows]
    order = np.argsort(numbers, kind="stable")
    return TermIndex(
        size=size,
        rarity=rarity.tolist(),
        starts=[0, *np.cumsum(tools).tolist()],
        rows=rows[order],
        weights=weights[order].astype(np.float32),
    )


MIN_CORRECTED_LENGTH: Final = 5  # in a shorter word, one typo can match anything
LONG_WORD_LENGTH: Final = 8  # from this length, two typos are allowed
MIN_COMPOUND_PART_LENGTH: Final = 3
MIN_SHARED_TRIGRAM_SHARE: Final = 0.35
MAX_CANDIDATES: Final = 12
MAX_SPELLING_MATCHES: Final = 2


def get_trigrams(word: str) -> set[str]:
    """Return the trigrams of a word with marked edges."""
    marked = f"^^{word}$"
    return {marked[place : place + 3] for place in range(len(marked) - 2)}


class SpellingIndex:
    """Known words by first letter and trigram. Words are numbered and never removed."""

    def __init__(self) -> None:
        self._by_piece: dict[str, list[int]] = {}
        self._words: list[str] = []
        self._counts: list[int] = []  # of trigrams

    def add(self, words: Iterable[str]) -> None:
        """Append these words to the known ones."""
        for word in words:
            number = len(self._words)
            own = get_trigrams(word) if _is_correctable(word) else ()
            self._words.append(word)
            self._counts.append(len(own))
            for piece in own:
                self._by_piece.setdefault(word[0] + piece, []).append(number)

    def find_nearest(self, word: str, is_used: Callable[[int], bool]) -> list[tuple[int, float]]:
        """Return the numbers of the nearest used words, each with its similarity (below 1)."""
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
        """Return words with the same beginning and common trigrams, by similarity, then alphabet."""
        own = get_trigrams(word)
        # Words with the same first letter have this trigram, which alone makes no word similar enough.
        others = own - {f"^^{word[0]}"}
        lists = (self._by_piece.get(word[0] + piece, ()) for piece in others)
        ranked: list[tuple[float, str, int]] = []
        for number, common in Counter(chain.from_iterable(lists)).items():
            likeness = 2 * (common + 1) / (self._counts[number] + len(own))
            if likeness >= MIN_SHARED_TRIGRAM_SHARE and is_used(number):
                ranked.append((-likeness, self._words[number], number))
        return [number for _, _, number in sorted(ranked)[:MAX_CANDIDATES]]


def _is_correctable(word: str) -> bool:
    """Return whether the word has letters and is no number and no pair of Chinese characters."""
    return len(word) >= MIN_CORRECTED_LENGTH and word.isalpha()


def split_compound(word: str, is_known: Callable[[str], bool]) -> tuple[str, str] | None:
    """Split `webpage` into `web` and `page` if both are known. The first sufficiently long split wins."""
    for place in range(MIN_COMPOUND_PART_LENGTH, len(word) - MIN_COMPOUND_PART_LENGTH + 1):
        if is_known(word[:place]) and is_known(word[place:]):
            return word[:place], word[place:]
    return None


SYNONYM_WEIGHT: Final = 0.35
COMPOUND_WEIGHT: Final = 0.7
CORRECTED_WEIGHT: Final = 0.8

MAX_REQUEST_TERMS: Final = 256  # distinct terms of one request
MAX_UNKNOWN_WORDS: Final = 12  # words of one request looked up by spelling


@frozen(kw_only=False)
class TermVocabulary:
    """The terms of the current tools. `numbers` and `spelling` may contain more terms than the index."""

    index: TermIndex
    numbers: Mapping[str, int]
    spelling: SpellingIndex

    def get_number(self, term: str) -> int | None:
        """Return the number of a term that some tool has, or None."""
        number = self.numbers.get(term)
        return number if number is not None and self.index.is_used(number) else None

    def has_word(self, word: str) -> bool:
        return self.get_number(stem_word(word)) is not None

    def weigh_terms(self, text: str, gloss: str = "") -> dict[int, float]:
        """Return the terms of a request by number, with their weights."""
        text_terms = tuple(iterate_terms(clean_line(text, MAX_REQUEST_LENGTH)))
        gloss_terms = iterate_terms(clean_line(gloss, MAX_REQUEST_LENGTH))
        counts = dict(islice(Counter((*text_terms, *gloss_terms)).items(), MAX_REQUEST_TERMS))
        rarity = self.index.rarity
        weights: dict[int, float] = {}
        unknown: list[str] = []
        for term, count in counts.items():
            number = self.get_number(term)
            if number is None:
                unknown.append(term)
            else:
                weights[number] = (1 + math.log(count)) * rarity[number]
        related: dict[int, float] = {}
        for number, weight in self._iterate_related_terms(counts, text_terms[:MAX_REQUEST_TERMS], unknown):
            if number not in weights:
                related[number] = max(related.get(number, 0.0), weight)
        return weights | related

    def _iterate_related_terms(
        self, terms: Iterable[str], text_terms: Sequence[str], unknown: Sequence[str]
    ) -> Iterator[tuple[int, float]]:
        rarity = self.index.rarity
        for left, right in pairwise(text_terms):
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
            # A rare synonym counts no more than the word itself.
            most = math.inf if own is None else rarity[own]
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


# The weight of an occurrence by its position in the text.
SERVER_WEIGHT: Final = 1.5
NAME_WEIGHT: Final = 2.0
DESCRIPTION_WEIGHT: Final = 1.0
PARAMETER_WEIGHT: Final = 1.0
PARAMETER_TEXT_WEIGHT: Final = 0.5

MAX_TERMS_PER_TOOL: Final = 400
MAX_DEAD_TERMS: Final = 20_000  # unused term numbers before the terms are renumbered


class LexicalScorer:
    """Scores tools by words. Thread-safe."""

    label = "words"
    weight = 1.0  # the scorer by meaning takes its share of this

    def __init__(self) -> None:
        self._lock = Lock()
        self._cards: Sequence[ToolCard] | None = None
        self._reset()
        self._vocabulary = TermVocabulary(build_term_index((), 0), self._numbers, self._spelling)

    def _reset(self) -> None:
        self._numbers: dict[str, int] = {}
        self._spelling = SpellingIndex()
        self._bags: dict[tuple[str, str, str], TermBag] = {}

    def prepare(self, cards: Sequence[ToolCard]) -> TermVocabulary:
        """Set the tools and return their terms. Only changed tools are processed."""
        with self._lock:
            if cards is self._cards:
                return self._vocabulary
            index = self._build_index(cards)
            used = int(np.count_nonzero(np.diff(index.starts)))
            if len(self._numbers) - used > max(MAX_DEAD_TERMS, used):
                self._reset()
                index = self._build_index(cards)
            self._vocabulary = TermVocabulary(index, self._numbers, self._spelling)
            self._cards = cards
            return self._vocabulary

    def _build_index(self, cards: Sequence[ToolCard]) -> TermIndex:
        known = len(self._numbers)
        bags: dict[tuple[str, str, str], TermBag] = {}
        rows: list[TermBag] = []
        for card in cards:
            # The fingerprint covers what the server sent; the settings may override the description.
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
        """The number of distinct terms in memory."""
        return len(self._numbers)

    def scores(self, request: ScorerRequest, cards: Sequence[ToolCard]) -> Scores:
        """Return one number per tool, mostly between 0 and 1; 0 without a common word."""
        vocabulary = self.prepare(cards)
        weights = vocabulary.weigh_terms(request.text, request.signals.gloss)
        length = math.sqrt(sum(weight * weight for weight in weights.values())) or 1.0
        return vocabulary.index.sum_weights(list(weights), [weight / length for weight in weights.values()])


def count_terms(text: ToolText) -> dict[str, float]:
    """Return the terms of a tool, each with its occurrences weighted by their position in the text."""
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

"""The history scorer: tools that worked for similar requests gain points, tools that failed lose points."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fingerpost.catalog.words import STOP_WORDS, parse_word_set
from fingerpost.frozen import frozen
from fingerpost.narrow.scorer import ScorerRequest, ToolScore
from fingerpost.records import Choice, ToolCard, ToolFollower
from fingerpost.regex import prepare_re

MAX_PAST_REQUEST_LENGTH: Final = 500  # what the store keeps of a request
_PAST_WORD = prepare_re(r"[^\W_]+")
_UNSPACED_SCRIPT = prepare_re(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]")
_TRIGRAM_WEIGHT: Final = 1.0  # all trigrams of a word together; the word itself has 1
_COMMON_WORD_WEIGHT: Final = 0.15
_COMMON_WORDS: Final = STOP_WORDS | parse_word_set(
    """
    i me my we please show tell find give make add let thanks hi hello
    של את על לי אני אנחנו זה זאת מה איך האם כל גם לא כן עם או אם יש אין בבקשה תן תני תראה הראה
    """
)

Floats = NDArray[np.float32]


def extract_text_features(text: str) -> dict[str, float]:
    """Return the words and trigrams of a text with their weights."""
    counted: Counter[str] = Counter()
    for word in _PAST_WORD.findall(text[:MAX_PAST_REQUEST_LENGTH].casefold()):
        counted.update(_extract_word_features(word))
    return {name: 1 + math.log(count) if count > 1 else count for name, count in counted.items()}


def _extract_word_features(word: str) -> dict[str, float]:
    if _UNSPACED_SCRIPT.search(word):
        pairs = [word[index : index + 2] for index in range(max(len(word) - 1, 1))]
        return dict.fromkeys(pairs, 1.0)
    if word in _COMMON_WORDS:
        return {word: _COMMON_WORD_WEIGHT}
    found = {word: 1.0}
    if len(word) > 3:
        edged = f"<{word}>"
        triples = {f"#{edged[index : index + 3]}" for index in range(len(edged) - 2)}
        share = _TRIGRAM_WEIGHT / math.sqrt(len(triples))
        found |= dict.fromkeys(triples, share)
    return found


class PastRequests:
    """An index over some thousand short texts, queried in one pass over the features.

    With `by_rarity`, rare words count more. Without it, the similarity of two requests does not depend on how
    many others are similar.
    """

    def __init__(self, texts: Sequence[str], *, by_rarity: bool = True) -> None:
        self.count = len(texts)
        found = [extract_text_features(text) for text in texts]
        frequency = Counter(name for one in found for name in one)
        self._rarity = {
            name: math.log1p(self.count / times) if by_rarity else 1.0 for name, times in frequency.items()
        }
        self._unseen = math.log1p(max(self.count, 1)) if by_rarity else 1.0
        places: defaultdict[str, list[int]] = defaultdict(list)
        values: defaultdict[str, list[float]] = defaultdict(list)
        for row, one in enumerate(found):
            length = self._compute_norm(one)
            for name, value in one.items():
                places[name].append(row)
                values[name].append(value * self._rarity[name] / length)
        self._postings = {
            name: (np.array(rows, np.intp), np.array(values[name], np.float32))
            for name, rows in places.items()
        }

    def compute_similarity(self, text: str) -> Floats:
        """Return the similarity with every past request in order: 0 (nothing common) to 1 (same words)."""
        alike = np.zeros(self.count, np.float32)
        asked = extract_text_features(text)
        length = self._compute_norm(asked)
        for name, value in asked.items():
            if (posting := self._postings.get(name)) is not None:
                rows, weights = posting
                alike[rows] += weights * np.float32(value * self._rarity[name] / length)
        return np.minimum(alike, 1.0)

    def _compute_norm(self, found: dict[str, float]) -> float:
        rarity, unseen = self._rarity, self._unseen
        return math.sqrt(sum((value * rarity.get(name, unseen)) ** 2 for name, value in found.items())) or 1.0


MAX_CHOICES: Final = 2_000
# Less similar requests have no influence on each other.
MIN_SIMILARITY: Final = 0.4
MIN_COSINE: Final = 0.75
SUCCESSOR_WEIGHT: Final = 0.3
_PRIOR_COUNT: Final = 1.0  # like one more similar request with an undecided result
_SUCCESSOR_PRIOR_COUNT: Final = 2.0


@frozen
class ToolHistory:
    """The history of one tool for one query. `worked` and `failed` sum up similarity, not calls."""

    worked: float = 0.0
    failed: float = 0.0
    follows: float = 0.0  # how regularly it followed the last used tool, 0..1

    @property
    def score(self) -> float:
        """The score from -1 (always failed) to 1 (always worked, usually next); 0 without evidence."""
        use = (self.worked - self.failed) / (self.worked + self.failed + _PRIOR_COUNT)
        return max(-1.0, min(1.0, use + SUCCESSOR_WEIGHT * self.follows))

    @property
    def note(self) -> str:
        """The text for the explanation, without request texts: they may be another person's."""
        notes = (
            (self.worked, "worked for similar requests"),
            (self.failed, "failed for similar requests"),
            (self.follows, "often comes next"),
        )
        return ", ".join(text for value, text in notes if value > 0.05)


class HistoryScorer:
    """Scores tools by the results of earlier choices."""

    label = "learned"
    weight = 0.10  # the most that it adds or subtracts

    def __init__(self, choices: Sequence[Choice] = (), followings: Sequence[ToolFollower] = ()) -> None:
        self._memory = _HistorySnapshot()
        self.learn(choices, followings)

    def learn(
        self,
        choices: Sequence[Choice],
        followings: Sequence[ToolFollower] = (),
        *,
        vectors: Floats | None = None,
    ) -> None:
        """Replace the known choices. `choices` is sorted newest first.

        `vectors` has one row per choice, of unit length or zeros if unknown. It adds similarity in meaning to
        that in words.
        """
        kept = tuple(choices[:MAX_CHOICES])
        after: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for following in followings:
            after[following.tool][following.then] += following.times
        self._memory = _HistorySnapshot(
            choices=kept,
            past=PastRequests([choice.request for choice in kept]),
            vectors=None if vectors is None else vectors[:MAX_CHOICES],
            after=dict(after),
        )

    def scores(self, request: ScorerRequest, cards: Sequence[ToolCard]) -> Mapping[str, ToolScore]:
        """Return -1 to 1 for every tool with a relevant history, removed tools included."""
        memory = self._memory
        worked: Counter[str] = Counter()
        failed: Counter[str] = Counter()
        weights = memory.compute_weights(request.text, request.vector)
        for place in np.flatnonzero(weights):
            choice = memory.choices[int(place)]
            counts = worked if choice.worked else failed
            counts[choice.tool] += float(weights[place])  # pyright: ignore[reportArgumentType] - typed for ints
        next_up = memory.predict_next_tools(request.used)
        histories = {
            tool: ToolHistory(worked=worked[tool], failed=failed[tool], follows=next_up.get(tool, 0.0))
            for tool in {*worked, *failed, *next_up}
        }
        return {tool: ToolScore(history.score, history.note) for tool, history in histories.items()}


@frozen
class _HistorySnapshot:
    """All known choices. It is replaced as a whole, so that readers never see a partial update."""

    choices: tuple[Choice, ...] = ()
    past: PastRequests = field(default_factory=lambda: PastRequests(()))
    vectors: Floats | None = None
    after: Mapping[str, Counter[str]] = field(default_factory=dict[str, Counter[str]])

    def compute_weights(self, text: str, vector: Floats | None) -> Floats:
        """Return the weight of each past choice for this request: 0 for most, 1 for the same words."""
        if not self.choices:
            return np.zeros(0, np.float32)
        weights = _rescale_above(self.past.compute_similarity(text), MIN_SIMILARITY)
        if vector is not None and self.vectors is not None:
            weights = np.maximum(weights, _rescale_above(self.vectors @ vector, MIN_COSINE))
        return weights

    def predict_next_tools(self, used: Sequence[str]) -> dict[str, float]:
        if not used or used[-1] not in self.after:
            return {}
        after = self.after[used[-1]]
        total = after.total() + _SUCCESSOR_PRIOR_COUNT
        return {tool: times / total for tool, times in after.items()}


def _rescale_above(likeness: Floats, threshold: float) -> Floats:
    """Rescale linearly: 0 up to the threshold, 1 for equal texts."""
    above = np.maximum(likeness - threshold, 0.0) / (1.0 - threshold)
    return above.astype(np.float32, copy=False)

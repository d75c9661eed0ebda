"""A scorer that remembers: tools that worked for similar requests rise, tools that failed sink.

What it lends is bounded, and grows with evidence: one success for the very same
request is worth half of what ten are, and a single lucky call cannot carry a
tool past one whose text fits. What usually follows the tool just used counts
less, because it speaks about the conversation and not about the request.

It is a pure function of what the store gave it: nothing is kept here that
`Choices.clear()` would not make it forget at the next `learn`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fingerpost.frozen import frozen
from fingerpost.narrow.base import ScorerQuery
from fingerpost.narrow.experience.similar import Floats, PastRequests
from fingerpost.records import Choice, ToolCard, ToolFollower

MAX_CHOICES: Final = 2_000
# Requests less alike than this say nothing about each other.
MIN_SIMILARITY: Final = 0.4
MIN_COSINE: Final = 0.75
SUCCESSOR_WEIGHT: Final = 0.3
_PRIOR_COUNT: Final = 1.0  # as if one more similar request had ended undecided
_SUCCESSOR_PRIOR_COUNT: Final = 2.0


@frozen
class ToolHistory:
    """What is remembered about one tool for one query. `worked` and `failed` count likeness, not calls."""

    worked: float = 0.0
    failed: float = 0.0
    follows: float = 0.0  # how regularly it came after the tool just used, 0..1

    @property
    def score(self) -> float:
        """-1 (always failed) to 1 (always worked, and is what comes next); 0 without evidence."""
        use = (self.worked - self.failed) / (self.worked + self.failed + _PRIOR_COUNT)
        return max(-1.0, min(1.0, use + SUCCESSOR_WEIGHT * self.follows))

    @property
    def note(self) -> str:
        """For the explanation. The remembered words stay out of it: they may be another person's."""
        said = [
            text
            for value, text in (
                (self.worked, "worked for similar requests"),
                (self.failed, "failed for similar requests"),
                (self.follows, "often comes next"),
            )
            if value > 0.05
        ]
        return ", ".join(said)


class HistoryScorer:
    """Scores every card by what became of earlier choices."""

    signal: Final = "learned"

    def __init__(self, choices: Sequence[Choice] = (), followings: Sequence[ToolFollower] = ()) -> None:
        self._places: dict[str, int] = {}
        self._memory = _HistorySnapshot()
        self.learn(choices, followings)

    @property
    def uses_vectors(self) -> bool:
        return self._memory.vectors is not None

    def learn(
        self,
        choices: Sequence[Choice],
        followings: Sequence[ToolFollower] = (),
        *,
        vectors: Floats | None = None,
    ) -> None:
        """This is what is remembered now, newest first; whatever was known before is forgotten.

        `vectors`, one row of unit length per choice (or of zeros, where it is not known), add likeness
        in meaning to that in words.
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

    def prepare(self, cards: Sequence[ToolCard]) -> None:
        """These are the tools now."""
        self._places = {card.key: place for place, card in enumerate(cards)}

    def score(self, query: ScorerQuery, vector: Floats | None = None) -> NDArray[np.float32]:
        """-1 to 1 for every card; 0 where nothing is remembered."""
        scores = np.zeros(len(self._places), np.float32)
        for tool, evidence in self.get_tool_histories(query, vector).items():
            if (place := self._places.get(tool)) is not None:
                scores[place] = evidence.score
        return scores

    def get_tool_histories(
        self, query: ScorerQuery, vector: Floats | None = None
    ) -> Mapping[str, ToolHistory]:
        """What is remembered that bears on this query, by tool; tools that are gone included."""
        memory = self._memory
        worked: Counter[str] = Counter()
        failed: Counter[str] = Counter()
        weights = memory.compute_weights(query.text, vector)
        for place in np.flatnonzero(weights):
            choice = memory.choices[int(place)]
            counts = worked if choice.worked else failed
            counts[choice.tool] += float(weights[place])  # pyright: ignore[reportArgumentType] - typed for ints
        next_up = memory.predict_next_tools(query.used)
        return {
            tool: ToolHistory(worked=worked[tool], failed=failed[tool], follows=next_up.get(tool, 0.0))
            for tool in {*worked, *failed, *next_up}
        }


@frozen
class _HistorySnapshot:
    """Everything known at one moment; replaced as a whole, so that no reader sees half of a change."""

    choices: tuple[Choice, ...] = ()
    past: PastRequests = field(default_factory=lambda: PastRequests(()))
    vectors: Floats | None = None
    after: Mapping[str, Counter[str]] = field(default_factory=dict[str, Counter[str]])

    def compute_weights(self, text: str, vector: Floats | None) -> Floats:
        """How much each past choice bears on this request: 0 for most, 1 for the same words."""
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
    """0 up to the threshold, rising to 1 for complete likeness."""
    above = np.maximum(likeness - threshold, 0.0) / (1.0 - threshold)
    return above.astype(np.float32, copy=False)

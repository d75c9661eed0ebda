"""The components of the narrower as protocols, and the default ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fingerpost.frozen import frozen
from fingerpost.narrow.dense import DenseScorer
from fingerpost.narrow.features import Scores
from fingerpost.narrow.feedback import Corrections, Preferences
from fingerpost.narrow.history_scorer import HistoryScorer
from fingerpost.narrow.lexical_scorer import LexicalScorer
from fingerpost.narrow.need import NeedClassifier
from fingerpost.narrow.scorer import ScorerQuery
from fingerpost.narrow.signals.reader import SignalReader
from fingerpost.records import Message, Need, Signals, ToolCard
from fingerpost.settings import Settings

Vector = NDArray[np.float32]


class RequestReader(Protocol):
    """Reads off a request what needs no knowledge of the tools' texts."""

    def prepare(self, cards: Sequence[ToolCard]) -> None: ...

    def read(self, text: str) -> Signals: ...


class NeedEstimator(Protocol):
    """Says whether a request needs a tool at all."""

    def classify(
        self,
        text: str,
        signals: Signals,
        history: Sequence[Message] = (),
        vector: Vector | None = None,
    ) -> Need: ...

    def adjust_to_tools(
        self, need: Need, text: str, signals: Signals, *, fit: float, can_recall: bool
    ) -> Need: ...


class TextScorer(Protocol):
    """Scores every card for a query; what a `Scorer` does, without its name."""

    def prepare(self, cards: Sequence[ToolCard]) -> None: ...

    def score(self, query: ScorerQuery) -> Scores: ...


class EmbeddingScorer(TextScorer, Protocol):
    """A scorer by meaning: its vectors come up in the background and may be missing for a while."""

    @property
    def ready(self) -> float:
        """The share of the cards whose vectors are there."""
        ...

    def prioritize(self, rows: Sequence[int]) -> None:
        """The cards in these rows are likely to be meant: make their vectors first, in a moment."""
        ...

    def encode_query(self, text: str) -> Vector:
        """The request as a vector. Raises a `FingerpostError` when there is no encoder."""
        ...

    def wait(self, timeout: float) -> bool:
        """Whether all vectors that can be made are, at most `timeout` seconds from now."""
        ...

    def close(self) -> None: ...


@frozen
class NarrowComponents:
    """Everything a `Narrower` works with."""

    reader: RequestReader
    judge: NeedEstimator
    words: TextScorer
    meaning: EmbeddingScorer | None = None
    learned: HistoryScorer | None = None
    corrections: Corrections | None = None
    preferences: Preferences | None = None


def build_default_components(
    settings: Settings,
    *,
    history: HistoryScorer | None = None,
    corrections: Corrections | None = None,
    preferences: Preferences | None = None,
) -> NarrowComponents:
    """The parts of the package, as the settings want them."""
    return NarrowComponents(
        reader=SignalReader(),
        judge=NeedClassifier(settings.narrow),
        words=LexicalScorer(),
        meaning=DenseScorer.from_settings(settings.narrow) if settings.flags.dense_scores else None,
        learned=history if settings.flags.learned_use else None,
        corrections=corrections if settings.flags.learn_from_feedback else None,
        preferences=preferences if settings.flags.preferences else None,
    )

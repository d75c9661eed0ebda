"""The components of the narrower as protocols, and the default components."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fingerpost.frozen import frozen
from fingerpost.narrow.added_scorers import AddedScorers
from fingerpost.narrow.dense import DenseScorer
from fingerpost.narrow.features import Scores
from fingerpost.narrow.feedback import Corrections, Preferences
from fingerpost.narrow.history_scorer import HistoryScorer
from fingerpost.narrow.lexical_scorer import LexicalScorer
from fingerpost.narrow.need import NeedClassifier
from fingerpost.narrow.scorer import Scorer, ScorerRequest
from fingerpost.narrow.signals.reader import SignalReader
from fingerpost.records import Message, Need, Signals, ToolCard
from fingerpost.settings import Settings

Vector = NDArray[np.float32]


class RequestReader(Protocol):
    """Extracts the signals of a request."""

    def prepare(self, cards: Sequence[ToolCard]) -> None: ...

    def read(self, text: str) -> Signals: ...


class NeedEstimator(Protocol):
    """Estimates whether a request needs a tool."""

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


class TextScorer(Scorer, Protocol):
    """A scorer that compares texts. It is asked for every need and for earlier messages, too."""

    def prepare(self, cards: Sequence[ToolCard]) -> object:
        """Set the tools, before a request needs them."""
        ...

    def scores(self, request: ScorerRequest, cards: Sequence[ToolCard]) -> Scores:
        """Return one number per card; NaN for a card that is not ready."""
        ...


class EmbeddingScorer(TextScorer, Protocol):
    """A scorer by meaning. Its vectors are computed in the background and may be missing at first."""

    def get_weight(self, signals: Signals) -> float:
        """Return its share of the text score for a request with these signals."""
        ...

    @property
    def ready(self) -> float:
        """The share of the cards that have a vector."""
        ...

    def prioritize(self, rows: Sequence[int]) -> None:
        """Compute the vectors of the cards in these rows first, with a short wait."""
        ...

    def encode_query(self, text: str) -> Vector:
        """Return the request as a vector. Raises a `FingerpostError` when there is no encoder."""
        ...

    def wait(self, timeout: float) -> bool:
        """Wait at most `timeout` seconds. Return whether all possible vectors are computed."""
        ...

    def close(self) -> None: ...


@frozen
class NarrowComponents:
    """The components of a `Narrower`."""

    reader: RequestReader
    need_estimator: NeedEstimator
    words: TextScorer
    meaning: EmbeddingScorer | None = None
    learned: Scorer | None = None
    added: AddedScorers = field(default_factory=AddedScorers)
    corrections: Corrections | None = None
    preferences: Preferences | None = None


def build_default_components(
    settings: Settings,
    *,
    history: HistoryScorer | None = None,
    corrections: Corrections | None = None,
    preferences: Preferences | None = None,
    scorers: Iterable[Scorer] = (),
) -> NarrowComponents:
    """Build the default components for these settings. `scorers` are those of programs and packages."""
    return NarrowComponents(
        reader=SignalReader(),
        need_estimator=NeedClassifier(settings.narrow),
        words=LexicalScorer(),
        meaning=DenseScorer.from_settings(settings.narrow) if settings.flags.dense_scores else None,
        learned=history if settings.flags.learned_use else None,
        added=AddedScorers(scorers, seconds=settings.narrow.scorer_seconds),
        corrections=corrections if settings.flags.learn_from_feedback else None,
        preferences=preferences if settings.flags.preferences else None,
    )

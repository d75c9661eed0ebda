"""The parts narrowing is made of, by what is asked of them, and the ones that are shipped."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fingerpost.frozen import frozen
from fingerpost.narrow.base import Query
from fingerpost.narrow.columns import Scores
from fingerpost.narrow.dense import DenseScorer
from fingerpost.narrow.experience import Experience
from fingerpost.narrow.learning import Corrections, Preferences
from fingerpost.narrow.lexical import LexicalScorer
from fingerpost.narrow.need import NeedJudge
from fingerpost.narrow.signals import SignalReader
from fingerpost.records import Message, Need, Signals, ToolCard
from fingerpost.settings import Settings

Vector = NDArray[np.float32]


class Reader(Protocol):
    """Reads off a request what needs no knowledge of the tools' texts."""

    def prepare(self, cards: Sequence[ToolCard]) -> None: ...

    def read(self, text: str) -> Signals: ...


class Judge(Protocol):
    """Says whether a request needs a tool at all."""

    def judge(
        self,
        text: str,
        signals: Signals,
        history: Sequence[Message] = (),
        vector: Vector | None = None,
    ) -> Need: ...

    def among_tools(
        self, need: Need, text: str, signals: Signals, *, fit: float, can_recall: bool
    ) -> Need: ...


class Words(Protocol):
    """Scores every card for a query; what a `Scorer` does, without its name."""

    def prepare(self, cards: Sequence[ToolCard]) -> None: ...

    def scores(self, query: Query) -> Scores: ...


class Meaning(Words, Protocol):
    """A scorer by meaning: its vectors come up in the background and may be missing for a while."""

    @property
    def ready(self) -> float:
        """The share of the cards whose vectors are there."""
        ...

    def hasten(self, rows: Sequence[int]) -> None:
        """The cards in these rows are likely to be meant: make their vectors first, in a moment."""
        ...

    def query_vector(self, text: str) -> Vector:
        """The request as a vector. Raises a `FingerpostError` when there is no encoder."""
        ...

    def wait(self, timeout: float) -> bool:
        """Whether all vectors that can be made are, at most `timeout` seconds from now."""
        ...

    def close(self) -> None: ...


@frozen
class Parts:
    """Everything a `Narrower` works with."""

    reader: Reader
    judge: Judge
    words: Words
    meaning: Meaning | None = None
    learned: Experience | None = None
    corrections: Corrections | None = None
    preferences: Preferences | None = None


def shipped(
    settings: Settings,
    *,
    learned: Experience | None = None,
    corrections: Corrections | None = None,
    preferences: Preferences | None = None,
) -> Parts:
    """The parts of the package, as the settings want them."""
    return Parts(
        reader=SignalReader(),
        judge=NeedJudge(settings.narrow),
        words=LexicalScorer(),
        meaning=DenseScorer.from_settings(settings.narrow) if settings.flags.dense_scores else None,
        learned=learned if settings.flags.learned_use else None,
        corrections=corrections if settings.flags.learn_from_feedback else None,
        preferences=preferences if settings.flags.preferences else None,
    )

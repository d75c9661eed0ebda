"""What every scorer is given and gives back.

A scorer is one idea about which tools suit a request. It holds whatever it
worked out from the cards beforehand, so that a query costs little.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Protocol

from fingerpost.frozen import frozen
from fingerpost.records import Signals, ToolCard

if TYPE_CHECKING:  # loading numpy takes a tenth of a second, which only narrowing should pay
    import numpy as np
    from numpy.typing import NDArray

    Scores = NDArray[np.float32]


@frozen
class ScorerQuery:
    """A request as scorers see it."""

    text: str  # the request in the person's words (or one of its needs), bounded in length
    sentences: tuple[str, ...] = ()  # its sentences when it has several, at most a few
    signals: Signals = field(default_factory=Signals)
    used: tuple[str, ...] = ()  # keys of the tools used in this conversation, the latest last


class Scorer(Protocol):
    """Scores every card for a query."""

    @property
    def signal(self) -> str:
        """The name of its share in explanations, such as `words` or `meaning`."""
        ...

    def prepare(self, cards: Sequence[ToolCard]) -> None:
        """These are the tools now. Only what changed since the last time is worked out anew."""
        ...

    def score(self, query: ScorerQuery) -> Scores:
        """One number per prepared card, in their order; NaN where the card is not ready yet."""
        ...

"""Reads a request: its language, its English gloss, what it is about, whom it names and what it holds.

Nothing here looks at a tool's text or costs more than a fraction of a
millisecond. Of a very long request the beginning and the end are read, because
that is where people say what they want.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from fingerpost.catalog.words import words
from fingerpost.narrow.hebrew import Gloss, Names, gloss, telegram
from fingerpost.narrow.hebrew.letters import is_hebrew
from fingerpost.narrow.language import HEBREW, language_of
from fingerpost.narrow.signals.entities import entities
from fingerpost.narrow.signals.intents import intents
from fingerpost.narrow.signals.mentions import MentionFinder
from fingerpost.narrow.signals.mood import asks_to_recall, only_asks
from fingerpost.narrow.signals.naming import is_ordinary, spoken_name
from fingerpost.narrow.signals.official import official_data
from fingerpost.narrow.signals.urgency import is_urgent
from fingerpost.records import Signals, ToolCard

_HEAD: Final = 6000
_TAIL: Final = 2000
_SHORTEST_NAME: Final = 4


class SignalReader:
    """Reads requests against the names of the tools there are."""

    def __init__(self) -> None:
        self._names = Names()
        self._mentions = MentionFinder()

    def prepare(self, cards: Sequence[ToolCard]) -> None:
        """These are the tools now."""
        names = frozenset(_proper_words(cards))
        servers = frozenset(word for card in cards for word in spoken_name(card.server))
        self._names = Names(names, brands=(word for word in names & servers if not is_ordinary((word,))))
        self._mentions = MentionFinder(cards)

    def read(self, text: str) -> Signals:
        """Everything the request says about itself."""
        text = _bounded(text)
        language = language_of(text)
        glossed: Gloss = gloss(text, self._names) if is_hebrew(text) else ()
        held = entities(text)
        return Signals(
            language=language,
            gloss=telegram(glossed) if language == HEBREW else "",
            intents=(*intents(text, glossed, held), *official_data(text)),
            urgent=is_urgent(text),
            mentions=self._mentions.find(text, glossed),
            entities=held,
            asks=only_asks(text),
            recalls=asks_to_recall(text),
        )


def _bounded(text: str) -> str:
    if len(text) <= _HEAD + _TAIL:
        return text
    # The seam is a line break, which no entity and no phrase crosses.
    return f"{text[:_HEAD]}\n{text[-_TAIL:]}"


def _proper_words(cards: Iterable[ToolCard]) -> Iterable[str]:
    """The words of servers' and tools' names: what a request may spell in Hebrew letters."""
    for card in cards:
        for word in (*words(card.server), *words(card.name)):
            if len(word) >= _SHORTEST_NAME and word.isascii():
                yield word

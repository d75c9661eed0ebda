"""Reads a request: its language, its English gloss, what it is about, whom it names and what it holds.

Nothing here looks at a tool's text or costs more than a fraction of a
millisecond. Of a very long request the beginning and the end are read, because
that is where people say what they want.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from fingerpost.catalog.words import split_words
from fingerpost.narrow.hebrew import Gloss, SoundIndex, gloss_words, join_gloss
from fingerpost.narrow.hebrew.letters import is_hebrew
from fingerpost.narrow.language import HEBREW, detect_language
from fingerpost.narrow.signals.entities import find_entities
from fingerpost.narrow.signals.intents import find_intents
from fingerpost.narrow.signals.mentions import MentionFinder
from fingerpost.narrow.signals.mood import is_asking_to_recall, is_only_asking
from fingerpost.narrow.signals.naming import get_spoken_name, is_ordinary_name
from fingerpost.narrow.signals.official import find_official_data_intent
from fingerpost.narrow.signals.urgency import is_urgent
from fingerpost.records import Signals, ToolCard

_HEAD_LENGTH: Final = 6000
_TAIL_LENGTH: Final = 2000
_MIN_NAME_LENGTH: Final = 4


class SignalReader:
    """Reads requests against the names of the tools there are."""

    def __init__(self) -> None:
        self._names = SoundIndex()
        self._mentions = MentionFinder()

    def prepare(self, cards: Sequence[ToolCard]) -> None:
        """These are the tools now."""
        names = frozenset(_list_name_words(cards))
        servers = frozenset(word for card in cards for word in get_spoken_name(card.server))
        self._names = SoundIndex(
            names, brands=(word for word in names & servers if not is_ordinary_name((word,)))
        )
        self._mentions = MentionFinder(cards)

    def read(self, text: str) -> Signals:
        """Everything the request says about itself."""
        text = _cut_long_text(text)
        language = detect_language(text)
        glossed: Gloss = gloss_words(text, self._names) if is_hebrew(text) else ()
        held = find_entities(text)
        return Signals(
            language=language,
            gloss=join_gloss(glossed) if language == HEBREW else "",
            intents=(*find_intents(text, glossed, held), *find_official_data_intent(text)),
            urgent=is_urgent(text),
            mentions=self._mentions.find(text, glossed),
            entities=held,
            asks=is_only_asking(text),
            recalls=is_asking_to_recall(text),
        )


def _cut_long_text(text: str) -> str:
    if len(text) <= _HEAD_LENGTH + _TAIL_LENGTH:
        return text
    # The seam is a line break, which no entity and no phrase crosses.
    return f"{text[:_HEAD_LENGTH]}\n{text[-_TAIL_LENGTH:]}"


def _list_name_words(cards: Iterable[ToolCard]) -> Iterable[str]:
    """The words of servers' and tools' names: what a request may spell in Hebrew letters."""
    for card in cards:
        for word in (*split_words(card.server), *split_words(card.name)):
            if len(word) >= _MIN_NAME_LENGTH and word.isascii():
                yield word

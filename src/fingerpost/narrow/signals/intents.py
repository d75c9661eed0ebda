"""Which of the twelve categories a request is about, and the words that say so."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Final

from fingerpost.catalog.categories import CATEGORIES
from fingerpost.catalog.words import singular
from fingerpost.narrow.hebrew import Gloss
from fingerpost.narrow.hebrew.letters import fold
from fingerpost.narrow.hebrew.prefixes import splits
from fingerpost.narrow.signals.request_words import PHRASES, WEAK, WORDS
from fingerpost.records import Entity, EntityKind, IntentMatch

_WORD: Final = re.compile(r"[a-z0-9]+")
_STRONG: Final = 1.0
_LEANING: Final = 0.35
_PHRASE: Final = 1.5
_MOST_EVIDENCE: Final = 6
_LONGEST_EVIDENCE: Final = 60

# What an argument says about the kind of work; a date or a number says nothing.
_BY_ENTITY: Final = {
    EntityKind.PATH: ("files", 0.8),
    EntityKind.URL: ("web_page", 0.8),
    EntityKind.EMAIL: ("communication", 0.6),
}

Vote = tuple[str, float, str]  # category, weight, the words


def intents(text: str, glossed: Gloss, found: Iterable[Entity]) -> tuple[IntentMatch, ...]:
    """The categories the request speaks for, best first, scored 0 to 1 by how much speaks for each."""
    weights: dict[str, dict[str, float]] = {}
    for category, weight, words in (*_spoken(text), *_glossed(glossed), *_held(found)):
        heard = weights.setdefault(category, {})
        heard[words] = max(heard.get(words, 0.0), weight)
    matches = [
        IntentMatch(
            category=category,
            score=round(1 - 0.5 ** sum(heard.values()), 3),
            words=tuple(sorted(heard, key=lambda words: -heard[words]))[:_MOST_EVIDENCE],
        )
        for category, heard in weights.items()
    ]
    return tuple(sorted(matches, key=lambda match: (-match.score, match.category)))


def _spoken(text: str) -> Iterator[Vote]:
    words = [found.group() for found in _WORD.finditer(text.lower())]
    for word in dict.fromkeys(words):
        yield from _votes(word, word)
    # Phrases go by the word they begin with, so that their number costs nothing.
    for place, word in enumerate(words):
        for category, phrase in _phrases().get(word, ()):
            if tuple(words[place : place + len(phrase)]) == phrase:
                yield category, _PHRASE, " ".join(phrase)


def _glossed(glossed: Gloss) -> Iterator[Vote]:
    """Hebrew speaks by its own words where a category lists them, and by its English ones."""
    for word, english in glossed:
        if not english or english == (word,):
            continue
        own = [(name, word) for name in _hebrew_places(word)]
        yield from ((name, _STRONG, spoken) for name, spoken in own)
        # The first English word is the likeliest; each further one is a guess.
        for place, meaning in enumerate(english):
            yield from ((name, weight / (place + 1), word) for name, weight, _ in _votes(meaning, word))


def _hebrew_places(word: str) -> tuple[str, ...]:
    for _, rest in splits(fold(word)):
        if rest in _hebrew():
            return _hebrew()[rest]
    return ()


def _held(found: Iterable[Entity]) -> Iterator[Vote]:
    for entity in found:
        if entity.kind in _BY_ENTITY:
            category, weight = _BY_ENTITY[entity.kind]
            yield category, weight, entity.text[:_LONGEST_EVIDENCE]


def _votes(word: str, said: str) -> Iterator[Vote]:
    places = _english().get(singular(word), ())
    for category in places:
        yield category, (_LEANING if word in WEAK else _STRONG) / len(places) ** 0.5, said


@lru_cache(maxsize=1)
def _english() -> dict[str, tuple[str, ...]]:
    listed = ((category.name, category.english | WORDS[category.name]) for category in CATEGORIES)
    return _inverted((name, map(singular, words)) for name, words in listed)


@lru_cache(maxsize=1)
def _hebrew() -> dict[str, tuple[str, ...]]:
    return _inverted((category.name, map(fold, category.hebrew)) for category in CATEGORIES)


@lru_cache(maxsize=1)
def _phrases() -> dict[str, Sequence[tuple[str, tuple[str, ...]]]]:
    by_first: dict[str, list[tuple[str, tuple[str, ...]]]] = {}
    for category, phrases in PHRASES.items():
        for phrase in phrases:
            words = tuple(phrase.split())
            by_first.setdefault(words[0], []).append((category, words))
    return dict(by_first)


def _inverted(lists: Iterable[tuple[str, Iterable[str]]]) -> dict[str, tuple[str, ...]]:
    places: dict[str, dict[str, None]] = {}
    for category, words in lists:
        for word in words:
            places.setdefault(word, {}).setdefault(category)
    return {word: tuple(categories) for word, categories in places.items()}

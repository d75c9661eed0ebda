"""Which of the twelve categories a request is about, and the words that say so."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Final

from fingerpost.catalog.categories import CATEGORIES
from fingerpost.catalog.words import to_singular
from fingerpost.narrow.hebrew import Gloss
from fingerpost.narrow.hebrew.letters import fold_word
from fingerpost.narrow.hebrew.prefixes import split_prefixes
from fingerpost.narrow.signals.request_words import CATEGORY_PHRASES, CATEGORY_WORDS, WEAK_WORDS
from fingerpost.records import Entity, EntityKind, IntentMatch

_INTENT_WORD: Final = re.compile(r"[a-z0-9]+")
_STRONG_WEIGHT: Final = 1.0
_WEAK_WEIGHT: Final = 0.35
_PHRASE_WEIGHT: Final = 1.5
_MAX_EVIDENCE: Final = 6
_MAX_EVIDENCE_LENGTH: Final = 60

# What an argument says about the kind of work; a date or a number says nothing.
_CATEGORY_BY_ENTITY: Final = {
    EntityKind.PATH: ("files", 0.8),
    EntityKind.URL: ("web_page", 0.8),
    EntityKind.EMAIL: ("communication", 0.6),
}

IntentVote = tuple[str, float, str]  # category, weight, the words


def find_intents(text: str, glossed: Gloss, found: Iterable[Entity]) -> tuple[IntentMatch, ...]:
    """The categories the request speaks for, best first, scored 0 to 1 by how much speaks for each."""
    weights: dict[str, dict[str, float]] = {}
    for category, weight, words in (
        *_vote_by_words(text),
        *_vote_by_gloss(glossed),
        *_vote_by_entities(found),
    ):
        heard = weights.setdefault(category, {})
        heard[words] = max(heard.get(words, 0.0), weight)
    matches = [
        IntentMatch(
            category=category,
            score=round(1 - 0.5 ** sum(heard.values()), 3),
            words=tuple(sorted(heard, key=lambda words: -heard[words]))[:_MAX_EVIDENCE],
        )
        for category, heard in weights.items()
    ]
    return tuple(sorted(matches, key=lambda match: (-match.score, match.category)))


def _vote_by_words(text: str) -> Iterator[IntentVote]:
    words = [found.group() for found in _INTENT_WORD.finditer(text.lower())]
    for word in dict.fromkeys(words):
        yield from _vote_for_word(word, word)
    # Phrases go by the word they begin with, so that their number costs nothing.
    for place, word in enumerate(words):
        for category, phrase in _build_phrase_index().get(word, ()):
            if tuple(words[place : place + len(phrase)]) == phrase:
                yield category, _PHRASE_WEIGHT, " ".join(phrase)


def _vote_by_gloss(glossed: Gloss) -> Iterator[IntentVote]:
    """Hebrew speaks by its own words where a category lists them, and by its English ones."""
    for word, english in glossed:
        if not english or english == (word,):
            continue
        own = [(name, word) for name in _find_hebrew_categories(word)]
        yield from ((name, _STRONG_WEIGHT, spoken) for name, spoken in own)
        # The first English word is the likeliest; each further one is a guess.
        for place, meaning in enumerate(english):
            yield from (
                (name, weight / (place + 1), word) for name, weight, _ in _vote_for_word(meaning, word)
            )


def _find_hebrew_categories(word: str) -> tuple[str, ...]:
    for _, rest in split_prefixes(fold_word(word)):
        if rest in _build_hebrew_index():
            return _build_hebrew_index()[rest]
    return ()


def _vote_by_entities(found: Iterable[Entity]) -> Iterator[IntentVote]:
    for entity in found:
        if entity.kind in _CATEGORY_BY_ENTITY:
            category, weight = _CATEGORY_BY_ENTITY[entity.kind]
            yield category, weight, entity.text[:_MAX_EVIDENCE_LENGTH]


def _vote_for_word(word: str, said: str) -> Iterator[IntentVote]:
    places = _build_english_index().get(to_singular(word), ())
    for category in places:
        yield category, (_WEAK_WEIGHT if word in WEAK_WORDS else _STRONG_WEIGHT) / len(places) ** 0.5, said


@lru_cache(maxsize=1)
def _build_english_index() -> dict[str, tuple[str, ...]]:
    listed = ((category.name, category.english | CATEGORY_WORDS[category.name]) for category in CATEGORIES)
    return _invert_lists((name, map(to_singular, words)) for name, words in listed)


@lru_cache(maxsize=1)
def _build_hebrew_index() -> dict[str, tuple[str, ...]]:
    return _invert_lists((category.name, map(fold_word, category.hebrew)) for category in CATEGORIES)


@lru_cache(maxsize=1)
def _build_phrase_index() -> dict[str, Sequence[tuple[str, tuple[str, ...]]]]:
    by_first: dict[str, list[tuple[str, tuple[str, ...]]]] = {}
    for category, phrases in CATEGORY_PHRASES.items():
        for phrase in phrases:
            words = tuple(phrase.split())
            by_first.setdefault(words[0], []).append((category, words))
    return dict(by_first)


def _invert_lists(lists: Iterable[tuple[str, Iterable[str]]]) -> dict[str, tuple[str, ...]]:
    places: dict[str, dict[str, None]] = {}
    for category, words in lists:
        for word in words:
            places.setdefault(word, {}).setdefault(category)
    return {word: tuple(categories) for word, categories in places.items()}

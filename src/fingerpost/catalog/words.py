"""Splits names and descriptions into words and assigns one of twelve categories."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from fingerpost.data_files import read_sections, read_word_sets
from fingerpost.frozen import frozen

MAX_TEXT_LENGTH: Final = 4000

# Capitals before a word (`HTTPServer`), a word, capitals, a number, a word in another script.
_WORD = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+|[^\W\d_A-Za-z]+")


def parse_word_set(text: str) -> frozenset[str]:
    """Return the words of a text as a set."""
    return frozenset(text.split())


_SETS: Final = read_word_sets("fingerpost.catalog", "words.txt")


STOP_WORDS: Final = _SETS["stop_words"]


def split_words(text: str) -> tuple[str, ...]:
    """Return the words of a name or text in lower case, in order."""
    return _split_cached(text[:MAX_TEXT_LENGTH])


@lru_cache(maxsize=256)
def _split_cached(text: str) -> tuple[str, ...]:
    """Split with a small cache, because a card splits the same text several times."""
    return tuple(map(str.lower, _WORD.findall(text)))


@lru_cache(maxsize=4096)
def to_singular(word: str) -> str:
    """Return a singular form for comparison only: `files` → `file`, `queries` → `query`."""
    if len(word) > 4 and word.endswith("ies"):
        return word[:-3] + "y"
    if len(word) > 4 and word.endswith(("ches", "shes", "sses", "xes")):
        return word[:-2]
    if len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")):
        return word[:-1]
    return word


def take_distinct(items: Iterable[str], limit: int) -> tuple[str, ...]:
    """Return the first `limit` distinct items, in order."""
    found: dict[str, None] = {}
    for item in items:
        found.setdefault(item)
        if len(found) >= limit:
            break
    return tuple(found)


GENERAL: Final = "general"

# A word in the tool's name counts more than one in its description.
_NAME_WEIGHT: Final = 4
_SERVER_WEIGHT: Final = 3
_TEXT_WEIGHT: Final = 1
_MIN_SCORE: Final = 2
_MAX_TEXT_WORDS: Final = 60

_COMMON: Final = _SETS["common"]


@frozen
class Category:
    """One purpose and the words that indicate it."""

    name: str
    about: str
    english: frozenset[str]
    hebrew: frozenset[str]


def _parse_category(name: str, text: str) -> Category:
    about, english, hebrew = text.strip().splitlines()
    return Category(name=name, about=about, english=parse_word_set(english), hebrew=parse_word_set(hebrew))


_SECTIONS: Final = read_sections("fingerpost.catalog", "categories.txt")
CATEGORIES: Final = tuple(_parse_category(name, text) for name, text in _SECTIONS.items())
CATEGORY_NAMES: Final = tuple(category.name for category in CATEGORIES)
OFFICIAL_DATA: Final = "official_data"  # a purpose narrower than a category; no tool is classified by it


def _index_by_word() -> dict[str, tuple[int, ...]]:
    places: dict[str, list[int]] = {}
    for index, category in enumerate(CATEGORIES):
        for word in sorted(category.english | category.hebrew):
            places.setdefault(to_singular(word), []).append(index)
    return {word: tuple(indexes) for word, indexes in places.items()}


_WORD_CATEGORIES: Final = _index_by_word()


def classify(server: str, tool: str, description: str) -> tuple[str, tuple[str, ...]]:
    """Return the category with the most matching words, and these words."""
    scores = [0] * len(CATEGORIES)
    evidence: dict[int, dict[str, None]] = {}
    for weight, words in (
        (_NAME_WEIGHT, split_words(tool)),
        (_SERVER_WEIGHT, split_words(server)),
        (_TEXT_WEIGHT, split_words(description)[:_MAX_TEXT_WORDS]),
    ):
        for word in dict.fromkeys(map(to_singular, words)):
            for index in _WORD_CATEGORIES.get(word, ()):
                scores[index] += _TEXT_WEIGHT if word in _COMMON else weight
                evidence.setdefault(index, {})[word] = None
    best = scores.index(max(scores))
    if scores[best] < _MIN_SCORE:
        return GENERAL, ()
    return CATEGORIES[best].name, tuple(evidence[best])[:3]

"""Parameter names as words, so that `filePath`, `file_path` and `FILE-PATH` are one name."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from fingerpost.call.arguments.synonyms import ABBREVIATIONS
from fingerpost.catalog.words import singular, words

LONGEST_NAME: Final = 80


@lru_cache(maxsize=8192)
def normal(name: str) -> str:
    """The name without case and separators."""
    short = name[:LONGEST_NAME]
    return "".join(words(short)) or short.casefold()


@lru_cache(maxsize=8192)
def canonical(name: str) -> tuple[str, ...]:
    """The words of a name, abbreviations written out, in the singular."""
    plain = (singular(word) for word in words(name[:LONGEST_NAME]))
    return tuple(ABBREVIATIONS.get(word, word) for word in plain)

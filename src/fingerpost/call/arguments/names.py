"""Parameter names as words, so that `filePath`, `file_path` and `FILE-PATH` are one name."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from fingerpost.call.arguments.synonyms import ABBREVIATIONS
from fingerpost.catalog.words import split_words, to_singular

MAX_NAME_LENGTH: Final = 80


@lru_cache(maxsize=8192)
def normalize_name(name: str) -> str:
    """The name without case and separators."""
    short = name[:MAX_NAME_LENGTH]
    return "".join(split_words(short)) or short.casefold()


@lru_cache(maxsize=8192)
def split_name(name: str) -> tuple[str, ...]:
    """The words of a name, abbreviations written out, in the singular."""
    plain = (to_singular(word) for word in split_words(name[:MAX_NAME_LENGTH]))
    return tuple(ABBREVIATIONS.get(word, word) for word in plain)

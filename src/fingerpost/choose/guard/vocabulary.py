"""Lists of words, written as one text: easier to read than a column of quotes."""

from __future__ import annotations


def split_words(text: str) -> frozenset[str]:
    return frozenset(text.split())

"""Text as the terms the lexical scorer compares.

Words are stemmed; `getUserById` is four words; `GitHub` is two and also one.
Accents do not matter, nor do Hebrew points. Scripts written without spaces give
their characters and the pairs of neighbours, which find words without a dictionary;
so does Korean, whose words change at their ends.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from fingerpost.narrow.lexical.stems import MAX_STEMMED_LENGTH, stem_word

# Chinese, Japanese, Korean, Thai, Lao, Burmese, Khmer.
UNSPACED: Final = (
    "\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029\u3041-\u3096\u30a1-\u30fa\u30fc-\u30ff\u3105-\u312f\u31f0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff\u1100-\u11ff\uac00-\ud7af"
    "\u0e01-\u0e3a\u0e40-\u0e4e\u0e81-\u0edf\u1000-\u109f\u1780-\u17d3"
)
_WORD_RUN = re.compile(f"(?P<unspaced>[{UNSPACED}]+)|(?P<word>[^\\W_{UNSPACED}]+)")
_CAMEL_PART = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+\d*|[A-Z]+\d*|\d+[a-z]*|[^\W\d_A-Za-z]+")
_CAMEL_CASE = re.compile(r"[a-z][A-Z]|[A-Z]{2}[a-z]")
_MAX_NUMBER_DIGITS: Final = 2  # `2` may say 2D; dates, amounts and ids say nothing about a tool

# Combining accents, Hebrew points, Arabic vowel marks.
_ACCENT_MARKS = re.compile("[\u0300-\u036f\u0591-\u05c7\u064b-\u0652\u0670]")

# Words that say nothing about what is wanted: the grammar of English, and the manners of requests.
_EMPTY_WORDS: Final = """
a an the and or but of to in on at by for from with as is are was were be been being am it its this that
these those there here i me my we our us you your he she his her they them their who whom which what when
where why how do does did doing have has had having will would shall should can could may might must not
no nor so if then than too very just also only into about over under again once up down out off such own
same each any all both few more most other some s t d ll re ve m
please help need want like let know give tell hey hi hello thanks thank looking look using use used im
interested considering planning plan trying wonder
"""
EMPTY_TERMS: Final = frozenset(map(stem_word, _EMPTY_WORDS.split()))


def remove_accents(text: str) -> str:
    """Without accents and points, wide and narrow forms alike."""
    if text.isascii():
        return text
    return unicodedata.normalize("NFC", _ACCENT_MARKS.sub("", unicodedata.normalize("NFKD", text)))


def iterate_terms(text: str) -> Iterator[str]:
    """The terms of a text, in order, repeats included, empty words left out."""
    return (term for term in _iterate_all_terms(text) if term not in EMPTY_TERMS)


def _iterate_all_terms(text: str) -> Iterator[str]:
    for run in _WORD_RUN.finditer(remove_accents(text)):
        found = run.group()
        if run.lastgroup == "unspaced":
            yield from found
            yield from map("".join, pairwise(found))
        elif _CAMEL_CASE.search(found):
            yield from _split_camel_case(found[:MAX_STEMMED_LENGTH])
        elif len(found) <= _MAX_NUMBER_DIGITS or not found.isdecimal():
            yield stem_word(found[:MAX_STEMMED_LENGTH].lower())


def _split_camel_case(word: str) -> Iterator[str]:
    parts = _CAMEL_PART.findall(word)
    for part in parts:
        yield stem_word(part.lower())
    if len(parts) == 2:  # brands are written both ways, GitHub and github; names of tools are not
        yield stem_word("".join(parts).lower())

"""Terms of a text for the lexical scorer: stems, tokens and synonyms."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping
from functools import cache, lru_cache
from itertools import chain, pairwise
from typing import Final

from fingerpost.data_files import read_sections
from fingerpost.regex import prepare_re

_CONSONANTS: Final = "[^aeiou][^aeiouy]*"
_VOWELS: Final = "[aeiouy][aeiou]*"
_MEASURE_1 = prepare_re(f"^(?:{_CONSONANTS})?{_VOWELS}{_CONSONANTS}")  # at least one vowel-consonant pair
_MEASURE_ONLY_1 = prepare_re(f"^(?:{_CONSONANTS})?{_VOWELS}{_CONSONANTS}(?:{_VOWELS})?$")
_MEASURE_2 = prepare_re(f"^(?:{_CONSONANTS})?{_VOWELS}{_CONSONANTS}{_VOWELS}{_CONSONANTS}")
_HAS_VOWEL = prepare_re(f"^(?:{_CONSONANTS})?[aeiouy]")
_DOUBLED = prepare_re(r"([^aeiouylsz])\1$")
_SHORT_END = prepare_re(f"^{_CONSONANTS}[aeiouy][^aeiouwxy]$")

MIN_STEMMED_LENGTH: Final = 3  # shorter words have no ending
MAX_STEMMED_LENGTH: Final = 40  # longer ones are not words


def _parse_endings(table: str) -> dict[str, str]:
    """Parse a table of endings: `ational-ate` replaces -ational by -ate. The longest comes first."""
    pairs = (entry.partition("-") for entry in table.split())
    return dict(sorted(((old, new) for old, _, new in pairs), key=lambda pair: -len(pair[0])))


_STEP_2_ENDINGS: Final = _parse_endings(
    "ational-ate tional-tion enci-ence anci-ance izer-ize bli-ble alli-al entli-ent eli-e ousli-ous "
    "ization-ize ation-ate ator-ate alism-al iveness-ive fulness-ful ousness-ous aliti-al iviti-ive "
    "biliti-ble logi-log"
)
_STEP_3_ENDINGS: Final = _parse_endings("icate-ic ative- alize-al iciti-ic ical-ic ful- ness-")
_STEP_4_ENDINGS: Final = _parse_endings(
    "al- ance- ence- er- ic- able- ible- ant- ement- ment- ent- ou- ism- ate- iti- ous- ive- ize- ion-"
)


@lru_cache(maxsize=65_536)
def stem_word(word: str) -> str:
    """Return the stem of a lower-case word."""
    if not MIN_STEMMED_LENGTH <= len(word) <= MAX_STEMMED_LENGTH or not (word.isascii() and word.isalpha()):
        return word
    initial_y = word.startswith("y")  # an initial y is a consonant
    if initial_y:
        word = "Y" + word[1:]
    word = _replace_final_y(_remove_past(_remove_plural(word)))
    word = _replace(word, _STEP_2_ENDINGS, _MEASURE_1)
    word = _replace(word, _STEP_3_ENDINGS, _MEASURE_1)
    word = _remove_final_e(_remove_derivation(word))
    return word.lower() if initial_y else word


def _remove_plural(word: str) -> str:
    if word.endswith(("sses", "ies")):
        return word[:-2]
    return word[:-1] if word.endswith("s") and not word.endswith("ss") else word


def _remove_past(word: str) -> str:
    if word.endswith("eed"):
        return word[:-1] if _MEASURE_1.match(word[:-3]) else word
    for ending in ("ed", "ing"):
        base = word.removesuffix(ending)
        if base != word and _HAS_VOWEL.match(base):
            return _restore_ending(base)
    return word


def _restore_ending(base: str) -> str:
    """Restore the base after -ed or -ing was removed: `creat` becomes `create`, `plann` becomes `plan`."""
    if base.endswith(("at", "bl", "iz")):
        return base + "e"
    if _DOUBLED.search(base):
        return base[:-1]
    return base + "e" if _SHORT_END.match(base) else base


def _replace_final_y(word: str) -> str:
    return word[:-1] + "i" if word.endswith("y") and _HAS_VOWEL.match(word[:-1]) else word


def _replace(word: str, endings: Mapping[str, str], long_enough: re.Pattern[str]) -> str:
    if not word.endswith(tuple(endings)):
        return word
    old = next(ending for ending in endings if word.endswith(ending))
    base = word[: -len(old)]
    return base + endings[old] if long_enough.match(base) else word


def _remove_derivation(word: str) -> str:
    if not word.endswith(tuple(_STEP_4_ENDINGS)):
        return word
    ending = next(ending for ending in _STEP_4_ENDINGS if word.endswith(ending))
    base = word[: -len(ending)]
    keeps = ending == "ion" and not base.endswith(("s", "t"))
    return word if keeps or not _MEASURE_2.match(base) else base


def _remove_final_e(word: str) -> str:
    if word.endswith("e"):
        base = word[:-1]
        one = _MEASURE_ONLY_1.match(base) is not None and _SHORT_END.match(base) is None
        if one or _MEASURE_2.match(base):
            word = base
    return word[:-1] if word.endswith("ll") and _MEASURE_2.match(word) else word


# Chinese, Japanese, Korean, Thai, Lao, Burmese, Khmer.
UNSPACED_CHARACTERS: Final = (
    "\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029\u3041-\u3096\u30a1-\u30fa\u30fc-\u30ff\u3105-\u312f\u31f0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff\u1100-\u11ff\uac00-\ud7af"
    "\u0e01-\u0e3a\u0e40-\u0e4e\u0e81-\u0edf\u1000-\u109f\u1780-\u17d3"
)
_WORD_RUN = prepare_re(f"[{UNSPACED_CHARACTERS}]+|[^\\W_{UNSPACED_CHARACTERS}]+")
_UNSPACED = prepare_re(f"[{UNSPACED_CHARACTERS}]")
_CAMEL_PART = prepare_re(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+\d*|[A-Z]+\d*|\d+[a-z]*|[^\W\d_A-Za-z]+")
_CAMEL_CASE = prepare_re(r"[a-z][A-Z]|[A-Z]{2}[a-z]")
_MAX_NUMBER_DIGITS: Final = 2  # `2` may mean 2D; dates, amounts and ids say nothing about a tool

# Combining accents, Hebrew points, Arabic vowel marks.
_ACCENT_MARKS = prepare_re("[\u0300-\u036f\u0591-\u05c7\u064b-\u0652\u0670]")

_LISTS: Final = read_sections("fingerpost.narrow", "words/terms.txt")
# Words without content: English function words and polite phrases.
EMPTY_TERMS: Final = frozenset(map(stem_word, _LISTS["empty"].split()))


def remove_accents(text: str) -> str:
    """Remove accents and vowel points, and unify full-width and half-width forms."""
    if text.isascii():
        return text
    return unicodedata.normalize("NFC", _ACCENT_MARKS.sub("", unicodedata.normalize("NFKD", text)))


def iterate_terms(text: str) -> Iterator[str]:
    """Return the terms of a text in order, with repetitions, without stop words."""
    return chain.from_iterable(map(_split_run, _WORD_RUN.findall(remove_accents(text))))


@lru_cache(maxsize=65_536)
def _split_run(run: str) -> tuple[str, ...]:
    """Return the terms of a run of letters and digits. Tools repeat their words, so the result is cached."""
    if _UNSPACED.match(run):
        terms = [*run, *map("".join, pairwise(run))]
    elif _CAMEL_CASE.search(run):
        word = run[:MAX_STEMMED_LENGTH]
        parts = _CAMEL_PART.findall(word)
        if len(parts) == 2:  # brands have both spellings (GitHub, github); tool names do not
            parts.append("".join(parts))
        terms = [stem_word(part.lower()) for part in parts]
    elif len(run) <= _MAX_NUMBER_DIGITS or not run.isdecimal():
        terms = [stem_word(run[:MAX_STEMMED_LENGTH].lower())]
    else:
        terms = []
    return tuple(term for term in terms if term not in EMPTY_TERMS)


_NOT_WORD = re.compile(r"\W+")


def remove_empty_words(text: str) -> str:
    """Return the text without the words that have no content."""
    return " ".join(word for word in text.split() if _has_content(_NOT_WORD.sub("", word).lower()))


def _has_content(word: str) -> bool:
    return bool(word) and stem_word(word) not in EMPTY_TERMS


MAX_SYNONYMS: Final = 24  # per term


@cache
def build_synonym_map() -> dict[str, tuple[str, ...]]:
    """Return the synonyms of each stem, as stems."""
    found: dict[str, dict[str, None]] = {}
    for line in _LISTS["synonyms"].strip().splitlines():
        group = tuple(dict.fromkeys(map(stem_word, line.split())))
        for word in group:
            found.setdefault(word, {}).update((other, None) for other in group if other != word)
    for line in _LISTS["related"].strip().splitlines():
        words, _, synonyms = line.partition("->")
        others = dict.fromkeys(map(stem_word, synonyms.split()))
        for word in map(stem_word, words.split()):
            found.setdefault(word, {}).update(others)
    return {word: tuple(others)[:MAX_SYNONYMS] for word, others in found.items()}

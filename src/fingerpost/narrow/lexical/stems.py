"""English words by their stems: `searching`, `searches` and `searched` are one word to a searcher.

Martin Porter's algorithm (1980), in its own five steps. Stems are compared, never
shown, so it does not matter that `query` becomes `queri`. Words of other scripts
are left alone: cutting English endings off them would be noise.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

_CONSONANTS: Final = "[^aeiou][^aeiouy]*"
_VOWELS: Final = "[aeiouy][aeiou]*"
_MEASURE_1 = re.compile(f"^(?:{_CONSONANTS})?{_VOWELS}{_CONSONANTS}")  # at least one vowel-consonant pair
_MEASURE_ONLY_1 = re.compile(f"^(?:{_CONSONANTS})?{_VOWELS}{_CONSONANTS}(?:{_VOWELS})?$")
_MEASURE_2 = re.compile(f"^(?:{_CONSONANTS})?{_VOWELS}{_CONSONANTS}{_VOWELS}{_CONSONANTS}")
_HAS_VOWEL = re.compile(f"^(?:{_CONSONANTS})?[aeiouy]")
_DOUBLED = re.compile(r"([^aeiouylsz])\1$")
_SHORT_END = re.compile(f"^{_CONSONANTS}[aeiouy][^aeiouwxy]$")

MIN_STEMMED_LENGTH: Final = 3  # shorter words have nothing to cut
MAX_STEMMED_LENGTH: Final = 40  # longer ones are not words


def _parse_endings(table: str) -> tuple[tuple[str, str], ...]:
    """`ational-ate` says that -ational becomes -ate; the longest ending is tried first."""
    pairs = (entry.partition("-") for entry in table.split())
    return tuple(sorted(((old, new) for old, _, new in pairs), key=lambda pair: -len(pair[0])))


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
    """The stem of a word in small letters."""
    if not MIN_STEMMED_LENGTH <= len(word) <= MAX_STEMMED_LENGTH or not (word.isascii() and word.isalpha()):
        return word
    initial_y = word.startswith("y")  # at the beginning, y is a consonant
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
    """What is left once -ed or -ing is gone: `creat` is `create`, `planned` was `plan`."""
    if base.endswith(("at", "bl", "iz")):
        return base + "e"
    if _DOUBLED.search(base):
        return base[:-1]
    return base + "e" if _SHORT_END.match(base) else base


def _replace_final_y(word: str) -> str:
    return word[:-1] + "i" if word.endswith("y") and _HAS_VOWEL.match(word[:-1]) else word


def _replace(word: str, endings: tuple[tuple[str, str], ...], long_enough: re.Pattern[str]) -> str:
    for old, new in endings:
        if word.endswith(old):
            base = word[: -len(old)]
            return base + new if long_enough.match(base) else word
    return word


def _remove_derivation(word: str) -> str:
    for ending, _ in _STEP_4_ENDINGS:
        if word.endswith(ending):
            base = word[: -len(ending)]
            keeps = ending == "ion" and not base.endswith(("s", "t"))
            return word if keeps or not _MEASURE_2.match(base) else base
    return word


def _remove_final_e(word: str) -> str:
    if word.endswith("e"):
        base = word[:-1]
        one = _MEASURE_ONLY_1.match(base) is not None and _SHORT_END.match(base) is None
        if one or _MEASURE_2.match(base):
            word = base
    return word[:-1] if word.endswith("ll") and _MEASURE_2.match(word) else word

"""Translate a Hebrew request into English word by word. Names are matched by sound."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import zip_longest
from typing import Final

from fingerpost.narrow.hebrew.lexicon import (
    HebrewToken,
    Lexicon,
    WordMeaning,
    fold_word,
    get_lexicon,
    split_prefixes,
    tokenize,
)

MIN_SKELETON_LENGTH: Final = 3
MIN_BRAND_SKELETON_LENGTH: Final = 2

_HEBREW_CONSONANTS: Final = {
    "ב": "b", "ג": "g", "ד": "d", "ו": "", "ז": "s", "ח": "k", "ט": "t", "י": "", "כ": "k", "ל": "l",
    "מ": "m", "נ": "n", "ס": "s", "פ": "p", "צ": "s", "ק": "k", "ר": "r", "ש": "s", "ת": "t",
    "א": "", "ה": "", "ע": "",
}  # fmt: skip
_LATIN_DIGRAPHS: Final = (
    ("sch", "s"), ("tch", "s"), ("sh", "s"), ("ch", "k"), ("ph", "p"), ("th", "t"), ("ck", "k"), ("qu", "k"),
    ("tz", "s"), ("ts", "s"), ("x", "ks"), ("ce", "s"), ("ci", "s"), ("cy", "s"), ("wh", ""),
)  # fmt: skip
_LATIN_CONSONANTS: Final = str.maketrans(
    {"c": "k", "q": "k", "f": "p", "v": "b", "z": "s", "j": "g"} | dict.fromkeys("aeiouyhw", "")
)
_REPEATED_LETTERS: Final = re.compile(r"(.)\1+")


def get_hebrew_skeleton(word: str) -> str:
    """Return the consonants of a folded Hebrew word."""
    return _REPEATED_LETTERS.sub(r"\1", "".join(_HEBREW_CONSONANTS.get(letter, "") for letter in word))


def get_latin_skeleton(word: str) -> str:
    """Return the consonants of a Latin word, in the same classes as the Hebrew ones."""
    word = word.lower()
    for pair, sound in _LATIN_DIGRAPHS:
        word = word.replace(pair, sound)
    return _REPEATED_LETTERS.sub(r"\1", word.translate(_LATIN_CONSONANTS))


class SoundIndex:
    """Latin names, indexed by their sound in Hebrew letters.

    Two consonants are enough for a brand (`אוקטה`, Okta); for any other word they would match too much.
    """

    def __init__(self, names: Iterable[str] = (), *, brands: Iterable[str] = ()) -> None:
        self._by_sound: dict[str, list[str]] = {}
        known = frozenset(brands)
        for name in sorted({*names, *known}):
            skeleton = get_latin_skeleton(name)
            if len(skeleton) >= (MIN_BRAND_SKELETON_LENGTH if name in known else MIN_SKELETON_LENGTH):
                self._by_sound.setdefault(skeleton, []).append(name)

    def find_similar(self, word: str) -> tuple[str, ...]:
        """Return the names that a folded Hebrew word may stand for."""
        return tuple(
            name for name in self._by_sound.get(get_hebrew_skeleton(word), ()) if _has_same_start(word, name)
        )


def _has_same_start(word: str, name: str) -> bool:
    """Return whether both start with a vowel or both with a consonant: `אפל` is not `Paul`."""
    return (word[0] in "אעיהו") == (name[0].lower() in "aeiouyhw")


MAX_GLOSSED_LENGTH: Final = 4000
_MAX_ENGLISH_WORDS: Final = 3
_MAX_IDIOM_WORDS: Final = 4
_MIN_CONVERSION_UNITS: Final = 2
_UNSURE_COST: Final = 2  # from this cost on, nearly equal meanings are included too

Gloss = tuple[tuple[str, tuple[str, ...]], ...]

_NO_NAMES: Final = SoundIndex()


def gloss_words(text: str, names: SoundIndex = _NO_NAMES) -> Gloss:
    """Return each word or idiom of the text with its English words, best first. Words without meaning have
    none.
    """
    known = get_lexicon()
    found = list(_iterate_glosses(list(tokenize(text[:MAX_GLOSSED_LENGTH])), known, names))
    if _is_conversion_question(found, known):
        found.insert(0, ("", ("convert",)))
    return tuple(found)


def _is_conversion_question(found: list[tuple[str, tuple[str, ...]]], lexicon: Lexicon) -> bool:
    """Return whether a question names two units: "How much is a mile in kilometres" asks for a conversion."""
    asks = any(words[:1] == ("how",) for _, words in found)
    named = {words[0] for word, words in found if words and lexicon.is_unit(fold_word(word))}
    return asks and len(named) >= _MIN_CONVERSION_UNITS


def join_gloss(glossed: Gloss) -> str:
    """Return the English words of a gloss in order, without duplicates."""
    return " ".join(dict.fromkeys(word for _, words in glossed for word in words))


def _iterate_glosses(
    words: list[HebrewToken], lexicon: Lexicon, names: SoundIndex
) -> Iterator[tuple[str, tuple[str, ...]]]:
    place = 0
    while place < len(words):
        word = words[place]
        ahead = words[place : place + _MAX_IDIOM_WORDS]
        if word.hebrew and (idiom := lexicon.find_idiom([token.plain for token in ahead])):
            entry, length = idiom
            yield " ".join(token.text for token in ahead[:length]), entry.english[:_MAX_ENGLISH_WORDS]
            place += length
            continue
        yield word.text, _translate_word(word, lexicon, names) if word.hebrew else (word.text,)
        place += 1


def _translate_word(word: HebrewToken, lexicon: Lexicon, names: SoundIndex) -> tuple[str, ...]:
    readings = lexicon.look_up(word.plain)
    if not readings:
        return _match_by_sound(word.plain, names)
    # Alternate: the first word of each meaning, then the second of each.
    turns = zip_longest(*(reading.entry.english for reading in _keep_likely(readings)))
    return tuple(dict.fromkeys(word for turn in turns for word in turn if word))[:_MAX_ENGLISH_WORDS]


def _keep_likely(readings: tuple[WordMeaning, ...]) -> list[WordMeaning]:
    best = readings[0].cost
    slack = 1 if best >= _UNSURE_COST else 0
    return [reading for reading in readings if reading.cost <= best + slack]


def _match_by_sound(word: str, names: SoundIndex) -> tuple[str, ...]:
    for _, rest in split_prefixes(word):
        if like := names.find_similar(rest):
            return like[:_MAX_ENGLISH_WORDS]
    return ()

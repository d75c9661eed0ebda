"""A Hebrew request in English words, telegram style: `convert 100 degrees fahrenheit celsius`.

It is no translation. It is the tool vocabulary of the request, in order, so that
English tool texts can be matched by words and by meaning, offline.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest
from typing import Final

from fingerpost.narrow.hebrew.letters import HebrewToken, fold_word, tokenize
from fingerpost.narrow.hebrew.lexicon import Lexicon, WordMeaning, get_lexicon
from fingerpost.narrow.hebrew.prefixes import split_prefixes
from fingerpost.narrow.hebrew.sounds import SoundIndex

MAX_GLOSSED_LENGTH: Final = 4000
_MAX_ENGLISH_WORDS: Final = 3
_MAX_IDIOM_WORDS: Final = 4
_MIN_CONVERSION_UNITS: Final = 2
_UNSURE_COST: Final = 2  # from this cost on, a reading that is nearly as likely is named too

Gloss = tuple[tuple[str, tuple[str, ...]], ...]

_NO_NAMES: Final = SoundIndex()


def gloss_words(text: str, names: SoundIndex = _NO_NAMES) -> Gloss:
    """Each word (or idiom) of the text with its English words, best first; none when it has no say."""
    known = get_lexicon()
    found = list(_iterate_glosses(list(tokenize(text[:MAX_GLOSSED_LENGTH])), known, names))
    if _is_conversion_question(found, known):
        found.insert(0, ("", ("convert",)))
    return tuple(found)


def _is_conversion_question(found: list[tuple[str, tuple[str, ...]]], lexicon: Lexicon) -> bool:
    """`How much is a mile in kilometres` never says convert; naming two units in a question does."""
    asks = any(words[:1] == ("how",) for _, words in found)
    named = {words[0] for word, words in found if words and lexicon.is_unit(fold_word(word))}
    return asks and len(named) >= _MIN_CONVERSION_UNITS


def join_gloss(glossed: Gloss) -> str:
    """The English words of a gloss in order, each once."""
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
    # In turns: the first word of each reading, then the second of each.
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

"""A Hebrew request in English words, telegram style: `convert 100 degrees fahrenheit celsius`.

It is no translation. It is the tool vocabulary of the request, in order, so that
English tool texts can be matched by words and by meaning, offline.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest
from typing import Final

from fingerpost.narrow.hebrew.letters import Token, fold, tokens
from fingerpost.narrow.hebrew.lexicon import Lexicon, Reading, lexicon
from fingerpost.narrow.hebrew.prefixes import splits
from fingerpost.narrow.hebrew.sounds import Names

LONGEST_TEXT: Final = 4000
_MOST_WORDS: Final = 3
_LONGEST_IDIOM: Final = 4
_UNITS_OF_A_CONVERSION: Final = 2
_UNSURE: Final = 2  # from this cost on, a reading that is nearly as likely is named too

Gloss = tuple[tuple[str, tuple[str, ...]], ...]

_NO_NAMES: Final = Names()


def gloss(text: str, names: Names = _NO_NAMES) -> Gloss:
    """Each word (or idiom) of the text with its English words, best first; none when it has no say."""
    known = lexicon()
    found = list(_glosses(list(tokens(text[:LONGEST_TEXT])), known, names))
    if _asks_conversion(found, known):
        found.insert(0, ("", ("convert",)))
    return tuple(found)


def _asks_conversion(found: list[tuple[str, tuple[str, ...]]], known: Lexicon) -> bool:
    """`How much is a mile in kilometres` never says convert; naming two units in a question does."""
    asks = any(words[:1] == ("how",) for _, words in found)
    named = {words[0] for word, words in found if words and known.names_unit(fold(word))}
    return asks and len(named) >= _UNITS_OF_A_CONVERSION


def telegram(glossed: Gloss) -> str:
    """The English words of a gloss in order, each once."""
    return " ".join(dict.fromkeys(word for _, words in glossed for word in words))


def _glosses(words: list[Token], known: Lexicon, names: Names) -> Iterator[tuple[str, tuple[str, ...]]]:
    place = 0
    while place < len(words):
        word = words[place]
        ahead = words[place : place + _LONGEST_IDIOM]
        if word.hebrew and (idiom := known.idiom([token.plain for token in ahead])):
            entry, length = idiom
            yield " ".join(token.text for token in ahead[:length]), entry.english[:_MOST_WORDS]
            place += length
            continue
        yield word.text, _english(word, known, names) if word.hebrew else (word.text,)
        place += 1


def _english(word: Token, known: Lexicon, names: Names) -> tuple[str, ...]:
    readings = known.readings(word.plain)
    if not readings:
        return _by_sound(word.plain, names)
    # In turns: the first word of each reading, then the second of each.
    turns = zip_longest(*(reading.entry.english for reading in _likely(readings)))
    return tuple(dict.fromkeys(word for turn in turns for word in turn if word))[:_MOST_WORDS]


def _likely(readings: tuple[Reading, ...]) -> list[Reading]:
    best = readings[0].cost
    slack = 1 if best >= _UNSURE else 0
    return [reading for reading in readings if reading.cost <= best + slack]


def _by_sound(word: str, names: Names) -> tuple[str, ...]:
    for _, rest in splits(word):
        if like := names.like(rest):
            return like[:_MOST_WORDS]
    return ()

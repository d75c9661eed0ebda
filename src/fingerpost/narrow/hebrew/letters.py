"""Hebrew spelling, ironed flat so that equal words compare equal.

People write the same word with and without vowel points, with one yod or two,
with any of four characters for a geresh; and a letter looks different at the
end of a word, which every suffix undoes. All of it is folded away here, in the
lexicon and in requests alike.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from fingerpost.frozen import frozen

MAX_WORD_LENGTH: Final = 40  # no Hebrew word is longer; what is, is junk and not worth analysing

_VOWEL_POINTS: Final = "".join(map(chr, range(0x0591, 0x05C8)))
_QUOTES: Final = "'\"’‘`´“”׳״"
_FOLDED_LETTERS: Final = str.maketrans("ךםןףץ", "כמנפצ", _VOWEL_POINTS + _QUOTES)
_DOUBLED_LETTERS: Final = re.compile(r"י{2,}|ו{2,}")

# A Hebrew word may hold marks between its letters: `צ'אט`, `דו"ח`, vowel points.
_HEBREW_WORD: Final = rf"[א-ת](?:[{_QUOTES}{_VOWEL_POINTS}]{{0,4}}[א-ת]){{0,80}}['׳’]?"
_LATIN_WORD: Final = r"[^\W_א-ת]+(?:[._/@+'-][^\W_א-ת]+){0,40}"
_HEBREW_PLURAL: Final = r"(?:(?:ים|ות)(?![א-ת]))?"  # a Hebrew plural of a Latin word: `PRים`
_WORD_TOKEN: Final = re.compile(rf"(?P<hebrew>{_HEBREW_WORD})|(?P<other>{_LATIN_WORD}){_HEBREW_PLURAL}")


@frozen(kw_only=False)
class HebrewToken:
    """A word of a request: as it stands there, and as the lexicon would spell it."""

    text: str
    plain: str
    hebrew: bool


def remove_points(word: str) -> str:
    """The word without points, quotes and final letters."""
    return word.translate(_FOLDED_LETTERS)


def fold_word(word: str) -> str:
    """The word as it is compared: unquoted, and yod and vav never doubled."""
    word = word.translate(_FOLDED_LETTERS)
    if "יי" in word or "וו" in word:
        return _DOUBLED_LETTERS.sub(lambda found: found.group()[0], word)
    return word


def tokenize(text: str) -> Iterator[HebrewToken]:
    """The words of a text in order, in whatever script."""
    for found in _WORD_TOKEN.finditer(text):
        hebrew = found.lastgroup == "hebrew"
        word = found["hebrew"] if hebrew else found["other"]
        yield HebrewToken(word, fold_word(word) if hebrew else word.lower(), hebrew)


def is_hebrew(word: str) -> bool:
    return any("א" <= letter <= "ת" for letter in word)

"""Foreign names in Hebrew letters, matched to Latin ones by their consonants.

`סטרייפ` and `Stripe` share s-t-r-p. Hebrew hardly writes vowels, and several
Latin letters share one Hebrew letter, so both sides are reduced to the same few
classes of consonants. That alone would match too much, so it is only ever asked
of names the catalog really has.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

MIN_SKELETON_LENGTH: Final = 3
MIN_BRAND_LENGTH: Final = 2

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
    """The consonants of a folded Hebrew word."""
    return _REPEATED_LETTERS.sub(r"\1", "".join(_HEBREW_CONSONANTS.get(letter, "") for letter in word))


def get_latin_skeleton(word: str) -> str:
    """The consonants of a Latin word, in the same classes."""
    word = word.lower()
    for pair, sound in _LATIN_DIGRAPHS:
        word = word.replace(pair, sound)
    return _REPEATED_LETTERS.sub(r"\1", word.translate(_LATIN_CONSONANTS))


class SoundIndex:
    """Latin names that can be found by how they sound in Hebrew letters.

    Two consonants are enough for a brand (`אוקטה`, Okta); for any other word they would match too much.
    """

    def __init__(self, names: Iterable[str] = (), *, brands: Iterable[str] = ()) -> None:
        self._by_sound: dict[str, list[str]] = {}
        known = frozenset(brands)
        for name in sorted({*names, *known}):
            skeleton = get_latin_skeleton(name)
            if len(skeleton) >= (MIN_BRAND_LENGTH if name in known else MIN_SKELETON_LENGTH):
                self._by_sound.setdefault(skeleton, []).append(name)

    def find_similar(self, word: str) -> tuple[str, ...]:
        """The names a folded Hebrew word may stand for."""
        return tuple(
            name for name in self._by_sound.get(get_hebrew_skeleton(word), ()) if _has_same_start(word, name)
        )


def _has_same_start(word: str, name: str) -> bool:
    """Whether both begin with a vowel or both with a consonant: `אפל` is no `Paul`."""
    return (word[0] in "אעיהו") == (name[0].lower() in "aeiouyhw")

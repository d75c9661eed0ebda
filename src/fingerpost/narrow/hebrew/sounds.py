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

SHORTEST_SKELETON: Final = 3
SHORTEST_BRAND: Final = 2

_HEBREW: Final = {
    "ב": "b", "ג": "g", "ד": "d", "ו": "", "ז": "s", "ח": "k", "ט": "t", "י": "", "כ": "k", "ל": "l",
    "מ": "m", "נ": "n", "ס": "s", "פ": "p", "צ": "s", "ק": "k", "ר": "r", "ש": "s", "ת": "t",
    "א": "", "ה": "", "ע": "",
}  # fmt: skip
_PAIRS: Final = (
    ("sch", "s"), ("tch", "s"), ("sh", "s"), ("ch", "k"), ("ph", "p"), ("th", "t"), ("ck", "k"), ("qu", "k"),
    ("tz", "s"), ("ts", "s"), ("x", "ks"), ("ce", "s"), ("ci", "s"), ("cy", "s"), ("wh", ""),
)  # fmt: skip
_LATIN: Final = str.maketrans(
    {"c": "k", "q": "k", "f": "p", "v": "b", "z": "s", "j": "g"} | dict.fromkeys("aeiouyhw", "")
)
_REPEATED: Final = re.compile(r"(.)\1+")


def hebrew_skeleton(word: str) -> str:
    """The consonants of a folded Hebrew word."""
    return _REPEATED.sub(r"\1", "".join(_HEBREW.get(letter, "") for letter in word))


def latin_skeleton(word: str) -> str:
    """The consonants of a Latin word, in the same classes."""
    word = word.lower()
    for pair, sound in _PAIRS:
        word = word.replace(pair, sound)
    return _REPEATED.sub(r"\1", word.translate(_LATIN))


class Names:
    """Latin names that can be found by how they sound in Hebrew letters.

    Two consonants are enough for a brand (`אוקטה`, Okta); for any other word they would match too much.
    """

    def __init__(self, names: Iterable[str] = (), *, brands: Iterable[str] = ()) -> None:
        self._by_sound: dict[str, list[str]] = {}
        known = frozenset(brands)
        for name in sorted({*names, *known}):
            skeleton = latin_skeleton(name)
            if len(skeleton) >= (SHORTEST_BRAND if name in known else SHORTEST_SKELETON):
                self._by_sound.setdefault(skeleton, []).append(name)

    def like(self, word: str) -> tuple[str, ...]:
        """The names a folded Hebrew word may stand for."""
        return tuple(
            name for name in self._by_sound.get(hebrew_skeleton(word), ()) if _same_start(word, name)
        )


def _same_start(word: str, name: str) -> bool:
    """Whether both begin with a vowel or both with a consonant: `אפל` is no `Paul`."""
    return (word[0] in "אעיהו") == (name[0].lower() in "aeiouyhw")

"""The bilingual lexicon: Hebrew words of tool vocabulary, and the English words a tool text would use.

It is data (`words/*.txt`), one entry a line: Hebrew words, then English words,
best first. `*` marks a verb, `=` forms to be taken as they stand, `_` joins the
words of an idiom, and a line without English is a word that says nothing.
The form table is made when the first Hebrew request comes, and kept.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import Final

from fingerpost.frozen import frozen
from fingerpost.narrow.hebrew.forms import Rank, noun_forms, unowned, verb_forms
from fingerpost.narrow.hebrew.letters import LONGEST_WORD, fold, is_hebrew, unquoted
from fingerpost.narrow.hebrew.prefixes import splits

# Earlier fields win where a word belongs to several; verbs come last, because a noun that
# looks like a verb form is nearly always the noun.
FIELDS: Final = (
    "function", "numbers", "software", "office", "money", "world", "science", "units", "life", "culture",
    "general", "verbs",
)  # fmt: skip

_ALIKE: Final = str.maketrans("טקעס", "תכאש", "וי")  # letters that sound alike; vowels are left out
_VOWELS: Final = str.maketrans("", "", "וי")
_ALIKE_FIRST: Final = str.maketrans("טקעס", "תכאש")
_SHORTEST_ALIKE: Final = 4
_SHORTEST_MISTAKE: Final = 5  # shorter ones are as likely somebody's name
_OWNED_COST: Final = 5
_ALIKE_COST: Final = 6
_MISTAKE_COST: Final = 3


@frozen(kw_only=False)
class Entry:
    """One line of the lexicon."""

    english: tuple[str, ...]
    field: str = ""


@frozen(kw_only=False)
class Reading:
    """One way to understand a word. A lower cost is a likelier one."""

    entry: Entry
    cost: int


@frozen(kw_only=False)
class Idiom:
    """Words that mean something together; each word is given by everything it may be matched by."""

    words: tuple[set[str | int], ...]
    entry: Entry


class Lexicon:
    """Looks Hebrew words up, in whatever form they come."""

    def __init__(self, fields: Mapping[str, Iterable[str]]) -> None:
        self._forms: dict[str, list[tuple[Rank, Entry]]] = {}
        self._alike: dict[str, list[str]] | None = None
        self._idioms: dict[str | int, list[Idiom]] = {}
        self._cached = lru_cache(maxsize=4096)(self._readings)
        # Idioms are taken in when all words are known.
        idioms = [
            found for field, lines in fields.items() for line in lines for found in self._add(line, field)
        ]
        for words, entry in idioms:
            self._add_idiom(words, entry)

    def _add(self, line: str, field: str) -> Iterator[tuple[str, Entry]]:
        """Take the words of a line in, and give its idioms back."""
        mark, line = (line[0], line[1:]) if line[0] in "*=" else ("", line)
        words = line.split()
        entry = Entry(tuple(word for word in words if not is_hebrew(word)), field)
        for word in filter(is_hebrew, words):
            if "_" in word:
                yield word, entry
            elif mark == "*":
                self._add_forms(verb_forms(unquoted(word)), entry)
            elif mark == "=":
                self._add_forms([(fold(word), Rank.GIVEN)], entry)
            else:
                self._add_forms(noun_forms(fold(word)), entry)

    def _add_forms(self, forms: Iterable[tuple[str, Rank]], entry: Entry) -> None:
        """The surest of equal forms comes first, because that is how they are made."""
        for form, rank in forms:
            known = self._forms.get(form)
            if known is None:
                self._forms[form] = [(rank, entry)]
            elif all(other is not entry for _, other in known):
                known.append((rank, entry))

    def _add_idiom(self, joined: str, entry: Entry) -> None:
        words = tuple(self._own_keys(fold(word).lower()) for word in joined.split("_"))
        idiom = Idiom(words, entry)
        for key in words[0]:
            self._idioms.setdefault(key, []).append(idiom)

    def readings(self, word: str) -> tuple[Reading, ...]:
        """What a folded word may mean, likeliest first; nothing when it is unknown."""
        return self._cached(word) if len(word) <= LONGEST_WORD else ()

    def names_unit(self, word: str) -> bool:
        """Whether a folded word is a unit of measurement, among other things perhaps."""
        return any(reading.entry.field == "units" for reading in self.readings(word)[:3])

    def _readings(self, word: str) -> tuple[Reading, ...]:
        """A form that is in the table explains a word best; then an owner's ending; then another spelling."""
        found: dict[int, Reading] = {}
        for cost, rest in splits(word):
            for rank, entry in self._forms.get(rest, ()):
                _keep(found, Reading(entry, cost + rank))
        if not found:
            for cost, rest in splits(word):
                for rank, entry in chain.from_iterable(self._forms.get(base, ()) for base in unowned(rest)):
                    _keep(found, Reading(entry, cost + rank + _OWNED_COST))
        if not found:
            for cost, rest in splits(word):
                for rank, entry in self._sounding(rest):
                    _keep(found, Reading(entry, cost + rank + _ALIKE_COST))
        return tuple(sorted(found.values(), key=lambda reading: reading.cost))

    def _sounding(self, word: str) -> Iterator[tuple[int, Entry]]:
        """Words spelled otherwise that sound the same: `תכנית` and `תוכנית`, `תלגרם` and `טלגרם`."""
        if self._alike is None:
            self._alike = self._by_sound()
        for form in self._alike.get(_sound(word), ()):
            # Leaving a vowel out is spelling; taking another consonant is a mistake.
            mistake = _bare(form) != _bare(word)
            if mistake and len(_sound(form)) < _SHORTEST_MISTAKE:
                continue
            for rank, entry in self._forms[form]:
                if rank < Rank.RARE and entry.english:
                    yield rank + _MISTAKE_COST * mistake, entry

    def _by_sound(self) -> dict[str, list[str]]:
        alike: dict[str, list[str]] = {}
        for form in self._forms:
            if len(key := _sound(form)) >= _SHORTEST_ALIKE:
                alike.setdefault(key, []).append(form)
        return alike

    def idiom(self, words: Sequence[str]) -> tuple[Entry, int] | None:
        """The longest idiom these words begin with, and its length."""
        if len(words) < 2:
            return None
        keys = [self._keys(word) for word in words]
        tried = {id(idiom): idiom for key in keys[0] for idiom in self._idioms.get(key, ())}
        fitting = [idiom for idiom in tried.values() if _fits(idiom, keys)]
        if not fitting:
            return None
        longest = max(fitting, key=lambda idiom: len(idiom.words))
        return longest.entry, len(longest.words)

    def _keys(self, word: str) -> set[str | int]:
        """What a word of a request may match an idiom by: its spellings, and what it is a form of."""
        keys: set[str | int] = {rest for _, rest in splits(word)}
        keys.update(id(reading.entry) for reading in self.readings(word) if reading.entry.english)
        return keys

    def _own_keys(self, word: str) -> set[str | int]:
        """Everything a word of an idiom may be matched by. It has no prefixes that are not meant."""
        sure = (entry for rank, entry in self._forms.get(word, ()) if rank <= Rank.COMMON and entry.english)
        return {word, *map(id, sure)}

    def __len__(self) -> int:
        return len(self._forms)


def _fits(idiom: Idiom, keys: Sequence[set[str | int]]) -> bool:
    return len(idiom.words) <= len(keys) and all(
        not wanted.isdisjoint(offered) for wanted, offered in zip(idiom.words, keys, strict=False)
    )


def _keep(found: dict[int, Reading], reading: Reading) -> None:
    known = found.get(id(reading.entry))
    if known is None or reading.cost < known.cost:
        found[id(reading.entry)] = reading


def _sound(word: str) -> str:
    return word[:1].translate(_ALIKE_FIRST) + word[1:].translate(_ALIKE)


def _bare(word: str) -> str:
    return word[:1] + word[1:].translate(_VOWELS)


def field_lines(field: str) -> tuple[str, ...]:
    """The entries of one field, without comments."""
    # The loader reads it, so that it works from a zip too and counts as importing, not as file access.
    data = pkgutil.get_data(__package__ or "", f"words/{field}.txt") or b""
    lines = (line.strip() for line in data.decode().splitlines())
    return tuple(line for line in lines if line and not line.startswith("#"))


@lru_cache(maxsize=1)
def lexicon() -> Lexicon:
    """The lexicon of the house, made on first use."""
    return Lexicon({field: field_lines(field) for field in FIELDS})

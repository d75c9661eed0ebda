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
from fingerpost.narrow.hebrew.forms import (
    FormRank,
    generate_noun_forms,
    generate_verb_forms,
    strip_possessive,
)
from fingerpost.narrow.hebrew.letters import MAX_WORD_LENGTH, fold_word, is_hebrew, remove_points
from fingerpost.narrow.hebrew.prefixes import split_prefixes

# Earlier fields win where a word belongs to several; verbs come last, because a noun that
# looks like a verb form is nearly always the noun.
LEXICON_FIELDS: Final = (
    "function", "numbers", "software", "office", "money", "world", "science", "units", "life", "culture",
    "general", "verbs",
)  # fmt: skip

_SAME_SOUND: Final = str.maketrans("טקעס", "תכאש", "וי")  # letters that sound alike; vowels are left out
_VOWEL_LETTERS: Final = str.maketrans("", "", "וי")
_SAME_SOUND_FIRST: Final = str.maketrans("טקעס", "תכאש")
_MIN_SOUND_LENGTH: Final = 4
_MIN_TYPO_LENGTH: Final = 5  # shorter ones are as likely somebody's name
_POSSESSIVE_COST: Final = 5
_SOUND_COST: Final = 6
_TYPO_COST: Final = 3


@frozen(kw_only=False)
class LexiconEntry:
    """One line of the lexicon."""

    english: tuple[str, ...]
    field: str = ""


@frozen(kw_only=False)
class WordMeaning:
    """One way to understand a word. A lower cost is a likelier one."""

    entry: LexiconEntry
    cost: int


@frozen(kw_only=False)
class LexiconIdiom:
    """Words that mean something together; each word is given by everything it may be matched by."""

    words: tuple[set[str | int], ...]
    entry: LexiconEntry


class Lexicon:
    """Looks Hebrew words up, in whatever form they come."""

    def __init__(self, fields: Mapping[str, Iterable[str]]) -> None:
        self._forms: dict[str, list[tuple[FormRank, LexiconEntry]]] = {}
        self._alike: dict[str, list[str]] | None = None
        self._idioms: dict[str | int, list[LexiconIdiom]] = {}
        self._cached = lru_cache(maxsize=4096)(self._look_up_uncached)
        # Idioms are taken in when all words are known.
        idioms = [
            found for field, lines in fields.items() for line in lines for found in self._add(line, field)
        ]
        for words, entry in idioms:
            self._add_idiom(words, entry)

    def _add(self, line: str, field: str) -> Iterator[tuple[str, LexiconEntry]]:
        """Take the words of a line in, and give its idioms back."""
        mark, line = (line[0], line[1:]) if line[0] in "*=" else ("", line)
        words = line.split()
        entry = LexiconEntry(tuple(word for word in words if not is_hebrew(word)), field)
        for word in filter(is_hebrew, words):
            if "_" in word:
                yield word, entry
            elif mark == "*":
                self._add_forms(generate_verb_forms(remove_points(word)), entry)
            elif mark == "=":
                self._add_forms([(fold_word(word), FormRank.GIVEN)], entry)
            else:
                self._add_forms(generate_noun_forms(fold_word(word)), entry)

    def _add_forms(self, forms: Iterable[tuple[str, FormRank]], entry: LexiconEntry) -> None:
        """The surest of equal forms comes first, because that is how they are made."""
        for form, rank in forms:
            known = self._forms.get(form)
            if known is None:
                self._forms[form] = [(rank, entry)]
            elif all(other is not entry for _, other in known):
                known.append((rank, entry))

    def _add_idiom(self, joined: str, entry: LexiconEntry) -> None:
        words = tuple(self._get_idiom_keys(fold_word(word).lower()) for word in joined.split("_"))
        idiom = LexiconIdiom(words, entry)
        for key in words[0]:
            self._idioms.setdefault(key, []).append(idiom)

    def look_up(self, word: str) -> tuple[WordMeaning, ...]:
        """What a folded word may mean, likeliest first; nothing when it is unknown."""
        return self._cached(word) if len(word) <= MAX_WORD_LENGTH else ()

    def is_unit(self, word: str) -> bool:
        """Whether a folded word is a unit of measurement, among other things perhaps."""
        return any(reading.entry.field == "units" for reading in self.look_up(word)[:3])

    def _look_up_uncached(self, word: str) -> tuple[WordMeaning, ...]:
        """A form that is in the table explains a word best; then an owner's ending; then another spelling."""
        found: dict[int, WordMeaning] = {}
        for cost, rest in split_prefixes(word):
            for rank, entry in self._forms.get(rest, ()):
                _keep_cheapest(found, WordMeaning(entry, cost + rank))
        if not found:
            for cost, rest in split_prefixes(word):
                for rank, entry in chain.from_iterable(
                    self._forms.get(base, ()) for base in strip_possessive(rest)
                ):
                    _keep_cheapest(found, WordMeaning(entry, cost + rank + _POSSESSIVE_COST))
        if not found:
            for cost, rest in split_prefixes(word):
                for rank, entry in self._find_same_sound(rest):
                    _keep_cheapest(found, WordMeaning(entry, cost + rank + _SOUND_COST))
        return tuple(sorted(found.values(), key=lambda reading: reading.cost))

    def _find_same_sound(self, word: str) -> Iterator[tuple[int, LexiconEntry]]:
        """Words spelled otherwise that sound the same: `תכנית` and `תוכנית`, `תלגרם` and `טלגרם`."""
        if self._alike is None:
            self._alike = self._build_sound_index()
        for form in self._alike.get(_fold_sound(word), ()):
            # Leaving a vowel out is spelling; taking another consonant is a mistake.
            mistake = _strip_vowels(form) != _strip_vowels(word)
            if mistake and len(_fold_sound(form)) < _MIN_TYPO_LENGTH:
                continue
            for rank, entry in self._forms[form]:
                if rank < FormRank.RARE and entry.english:
                    yield rank + _TYPO_COST * mistake, entry

    def _build_sound_index(self) -> dict[str, list[str]]:
        alike: dict[str, list[str]] = {}
        for form in self._forms:
            if len(key := _fold_sound(form)) >= _MIN_SOUND_LENGTH:
                alike.setdefault(key, []).append(form)
        return alike

    def find_idiom(self, words: Sequence[str]) -> tuple[LexiconEntry, int] | None:
        """The longest idiom these words begin with, and its length."""
        if len(words) < 2:
            return None
        keys = [self._get_match_keys(word) for word in words]
        tried = {id(idiom): idiom for key in keys[0] for idiom in self._idioms.get(key, ())}
        fitting = [idiom for idiom in tried.values() if _matches_idiom(idiom, keys)]
        if not fitting:
            return None
        longest = max(fitting, key=lambda idiom: len(idiom.words))
        return longest.entry, len(longest.words)

    def _get_match_keys(self, word: str) -> set[str | int]:
        """What a word of a request may match an idiom by: its spellings, and what it is a form of."""
        keys: set[str | int] = {rest for _, rest in split_prefixes(word)}
        keys.update(id(reading.entry) for reading in self.look_up(word) if reading.entry.english)
        return keys

    def _get_idiom_keys(self, word: str) -> set[str | int]:
        """Everything a word of an idiom may be matched by. It has no prefixes that are not meant."""
        sure = (
            entry for rank, entry in self._forms.get(word, ()) if rank <= FormRank.COMMON and entry.english
        )
        return {word, *map(id, sure)}

    def __len__(self) -> int:
        return len(self._forms)


def _matches_idiom(idiom: LexiconIdiom, keys: Sequence[set[str | int]]) -> bool:
    return len(idiom.words) <= len(keys) and all(
        not wanted.isdisjoint(offered) for wanted, offered in zip(idiom.words, keys, strict=False)
    )


def _keep_cheapest(found: dict[int, WordMeaning], reading: WordMeaning) -> None:
    known = found.get(id(reading.entry))
    if known is None or reading.cost < known.cost:
        found[id(reading.entry)] = reading


def _fold_sound(word: str) -> str:
    return word[:1].translate(_SAME_SOUND_FIRST) + word[1:].translate(_SAME_SOUND)


def _strip_vowels(word: str) -> str:
    return word[:1] + word[1:].translate(_VOWEL_LETTERS)


def read_field_lines(field: str) -> tuple[str, ...]:
    """The entries of one field, without comments."""
    # The loader reads it, so that it works from a zip too and counts as importing, not as file access.
    data = pkgutil.get_data(__package__ or "", f"words/{field}.txt") or b""
    lines = (line.strip() for line in data.decode().splitlines())
    return tuple(line for line in lines if line and not line.startswith("#"))


@lru_cache(maxsize=1)
def get_lexicon() -> Lexicon:
    """The lexicon of the house, made on first use."""
    return Lexicon({field: read_field_lines(field) for field in LEXICON_FIELDS})

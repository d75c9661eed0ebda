"""The Hebrew-English lexicon: spelling, prefixes, inflected forms and lookup."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from functools import lru_cache
from itertools import chain
from typing import Final

from fingerpost.data_files import read_data_text
from fingerpost.frozen import frozen
from fingerpost.regex import prepare_re

MAX_WORD_LENGTH: Final = 40  # no Hebrew word is longer; longer input is not analysed

_VOWEL_POINTS: Final = "".join(map(chr, range(0x0591, 0x05C8)))
_QUOTES: Final = "'\"’‘`´“”׳״"
_FOLDED_LETTERS: Final = str.maketrans("ךםןףץ", "כמנפצ", _VOWEL_POINTS + _QUOTES)
_DOUBLED_LETTERS: Final = prepare_re(r"י{2,}|ו{2,}")

# A Hebrew word may contain marks between its letters: `צ'אט`, `דו"ח`, vowel points.
_HEBREW_WORD: Final = rf"[א-ת](?:[{_QUOTES}{_VOWEL_POINTS}]{{0,4}}[א-ת]){{0,80}}['׳’]?"
_LATIN_WORD: Final = r"[^\W_א-ת]+(?:[._/@+'-][^\W_א-ת]+){0,40}"
_HEBREW_PLURAL: Final = r"(?:(?:ים|ות)(?![א-ת]))?"  # a Hebrew plural of a Latin word: `PRים`
_WORD_TOKEN: Final = prepare_re(rf"(?P<hebrew>{_HEBREW_WORD})|(?P<other>{_LATIN_WORD}){_HEBREW_PLURAL}")


@frozen(kw_only=False)
class HebrewToken:
    """A word of a request, as written and in the spelling of the lexicon."""

    text: str
    plain: str
    hebrew: bool


def remove_points(word: str) -> str:
    """Remove vowel points, quotes and final letter forms."""
    return word.translate(_FOLDED_LETTERS)


def fold_word(word: str) -> str:
    """Return the word in the form used for comparison: without quotes, with single yod and vav."""
    word = word.translate(_FOLDED_LETTERS)
    if "יי" in word or "וו" in word:
        return _DOUBLED_LETTERS.sub(lambda found: found.group()[0], word)
    return word


def tokenize(text: str) -> Iterator[HebrewToken]:
    """Return the words of a text in order, in any script."""
    for found in _WORD_TOKEN.finditer(text):
        hebrew = found.lastgroup == "hebrew"
        word = found["hebrew"] if hebrew else found["other"]
        yield HebrewToken(word, fold_word(word) if hebrew else word.lower(), hebrew)


def is_hebrew(word: str) -> bool:
    return any("א" <= letter <= "ת" for letter in word)


_MIN_REST_LENGTH: Final = 2

PREFIXES: Final = frozenset(
    conjunction + relative + preposition
    for conjunction in ("", "ו")
    for relative in ("", "ש", "כש", "מש", "לכש")
    for preposition in ("", "ה", "ב", "כ", "ל", "מ", "מה", "לה", "בה", "כה")
) - {""}
_MAX_PREFIX_LENGTH: Final = max(map(len, PREFIXES))
_PREFIX_COST: Final = 2  # more than a common form costs, less than a rare one
_RARE_PREFIX_COST: Final = 1  # "as", which is a rare meaning


def split_prefixes(word: str) -> Iterator[tuple[int, str]]:
    """Return the word, then the rest after each possible prefix, with the cost of that reading."""
    yield 0, word
    for length in range(1, min(_MAX_PREFIX_LENGTH, len(word) - _MIN_REST_LENGTH) + 1):
        if (prefix := word[:length]) in PREFIXES:
            yield _PREFIX_COST + length + _RARE_PREFIX_COST * prefix.count("כ"), word[length:]


class FormRank(IntEnum):
    """How certainly a form belongs to its word. Lower is more certain."""

    GIVEN = 0  # as in the lexicon
    COMMON = 2  # plural, construct, imperative, infinitive, future used for requests
    RARE = 4  # other persons and tenses, ambiguous action nouns


# my, your, his, her, our …, after singular and plural nouns; longest first
_POSSESSIVE_ENDINGS = (
    "יהמ", "יהנ", "יכמ", "יכנ", "ינו", "יכ", "יו", "יה", "נו", "כמ", "כנ", "המ", "הנ",
    "י", "כ", "ו", "ה", "מ", "נ",
)  # fmt: skip
_MIN_POSSESSED_LENGTH = 3
_FUTURE_PREFIXES = "איתנ"  # I, he, you or she, we: the first letter of the future


def generate_noun_forms(word: str) -> Iterator[tuple[str, FormRank]]:
    """Generate the forms of a noun or adjective, the base form first: other gender, plural, construct."""
    yield word, FormRank.GIVEN
    for form in _decline_noun(word):
        yield fold_word(form), FormRank.COMMON
    for form in _list_other_gender(word):
        yield fold_word(form), FormRank.RARE


def _decline_noun(word: str) -> tuple[str, ...]:
    stem = word[:-1]
    if word.endswith("ה"):
        return stem + "ת", stem + "ות", stem + "אות"
    if word.endswith("ימ") and stem != "י":  # `ים`, sea, is not a plural
        return (stem,)
    if word.endswith("ות"):
        return word[:-2] + "ויות", word[:-2] + "יות"
    if word.endswith("ת"):
        return stem + "ות", word + "ות"
    return word + "ימ", word + "ות", word + "י"


def _list_other_gender(word: str) -> tuple[str, ...]:
    """Return the other gender, which only adjectives and nouns for people have."""
    if word.endswith("ה"):
        return (word[:-1] + "ימ",)
    return () if word.endswith(("ימ", "ת")) else (word + "ה", word + "ת")


def strip_possessive(word: str) -> Iterator[str]:
    """Return the possible base forms of a word with a possessive ending: `חשבוני`, `הודעותיה`.

    Such forms are rare in requests. They are tried only when nothing else matches.
    """
    for owner in _POSSESSIVE_ENDINGS:
        stem = word.removesuffix(owner)
        if stem == word or len(stem) < _MIN_POSSESSED_LENGTH:
            continue
        yield stem
        if stem.endswith("ת"):
            yield stem[:-1] + "ה"
        if owner.startswith("י"):
            yield stem + "ימ"


def generate_verb_forms(past: str) -> Iterator[tuple[str, FormRank]]:
    """Generate the forms of a verb, the base form first. The base form is the past, third person."""
    yield fold_word(past), FormRank.COMMON
    for form, rank in _generate_by_pattern(past):
        yield fold_word(form), rank


def _generate_by_pattern(past: str) -> Iterator[tuple[str, FormRank]]:
    if past.startswith("ה") and len(past) > 3:
        if past.endswith("ה"):
            return _generate_hifil_he(past[1:-1])
        if past[-2] == "י" and past[-3] != "י":
            return _generate_hifil(past[1:])
        return _generate_hitpael(past[1:])
    if past.startswith("נ") and len(past) == 4 and past[1] != "י":
        return _generate_nifal(past[1:])
    if len(past) <= 3:
        return _generate_paal_he(past[:-1]) if past.endswith("ה") else _generate_paal(past)
    spelled = past[0] + past[2:] if past[1] == "י" else past
    return _generate_piel_he(past, spelled[:-1]) if past.endswith("ה") else _generate_piel(past, spelled)


def _generate_future(stem: str, *, plural_stem: str | None = None) -> Iterator[tuple[str, FormRank]]:
    """Generate the future forms, which are used for requests: `תשלח`, `תשלחי`, `נשלח`."""
    yield from ((subject + stem, FormRank.COMMON) for subject in _FUTURE_PREFIXES)
    short = stem if plural_stem is None else plural_stem
    yield from (("ת" + short + end, FormRank.COMMON) for end in "יו")
    yield "י" + short + "ו", FormRank.RARE


def _generate_past(stem: str) -> Iterator[tuple[str, FormRank]]:
    yield from ((stem + end, FormRank.RARE) for end in ("תי", "ת", "נו", "תמ"))


def _add_endings(stem: str, rank: FormRank, *ends: str) -> Iterator[tuple[str, FormRank]]:
    yield from ((stem + end, rank) for end in ends)


def _generate_hifil(stem: str) -> Iterator[tuple[str, FormRank]]:
    short = stem[:-2] + stem[-1]
    yield from _generate_future(stem)
    yield from _add_endings("ה", FormRank.COMMON, short, stem + "י", stem + "ו")
    yield "לה" + stem, FormRank.COMMON
    yield from _add_endings("מ" + stem, FormRank.RARE, "", "ה", "ת", "ימ", "ות")
    yield from _add_endings("ה", FormRank.RARE, stem + "ה", short + "ה", short + "ת", short + "ות")
    yield from _generate_past("ה" + short)
    passive = "מ" + ("" if short[0] == "ו" else "ו") + short
    yield from _add_endings(passive, FormRank.RARE, "", "ת", "ימ", "ות")
    yield "הו" + short, FormRank.RARE


def _generate_hifil_he(stem: str) -> Iterator[tuple[str, FormRank]]:
    yield from _generate_future(stem + "ה", plural_stem=stem)
    yield from _add_endings("ה" + stem, FormRank.COMMON, "י", "ו", "אה", "יה", "את")
    yield "לה" + stem + "ות", FormRank.COMMON
    yield from _add_endings("מ" + stem, FormRank.RARE, "ה", "ימ", "ות")
    yield from _add_endings("ה" + stem, FormRank.RARE, "תה", "יתי", "ינו", "אות")


def _generate_hitpael(stem: str) -> Iterator[tuple[str, FormRank]]:
    yield from _generate_future(stem)
    yield from _add_endings("ה" + stem, FormRank.COMMON, "י", "ו")
    yield "לה" + stem, FormRank.COMMON
    yield from _add_endings("מ" + stem, FormRank.RARE, "", "ת", "ימ", "ות")
    yield from _add_endings("ה" + stem, FormRank.RARE, "ה", "ות")
    yield from _generate_past("ה" + stem)


def _generate_nifal(root: str) -> Iterator[tuple[str, FormRank]]:
    yield from _generate_future("י" + root)
    yield from _add_endings("הי" + root, FormRank.COMMON, "", "י", "ו", "ות")
    yield "להי" + root, FormRank.COMMON
    yield from _add_endings("נ" + root, FormRank.RARE, "ת", "ימ", "ות", "ה", "ו")
    yield from _generate_past("נ" + root)


def _generate_paal(past: str) -> Iterator[tuple[str, FormRank]]:
    if len(past) < 3:  # hollow verbs are too irregular; the lexicon lists their forms
        return
    first, second, third = past
    full = first + second + "ו" + third
    yield from _generate_future(past)
    yield from _generate_future(full, plural_stem=past)
    yield from ((form, FormRank.COMMON) for form in (full, past + "י", past + "ו", "ל" + full))
    yield from _add_endings(first + second + "י" + third, FormRank.COMMON, "ה", "ת")
    yield from _add_endings(first + "ו" + second + third, FormRank.RARE, "", "ת", "ימ", "ות")
    yield from _add_endings(full, FormRank.RARE, "ה", "ימ", "ות")
    yield past + "ה", FormRank.RARE
    yield from _generate_past(past)
    if first == "י":
        yield from _generate_future(second + third)
        yield "ל" + second + third + "ת", FormRank.COMMON
    if first == "נ":
        yield from _generate_future("י" + second + third)


def _generate_paal_he(stem: str) -> Iterator[tuple[str, FormRank]]:
    if len(stem) < 2:
        return
    yield from _generate_future(stem + "ה", plural_stem=stem)
    yield from ((form, FormRank.COMMON) for form in ("ל" + stem + "ות", stem + "י", stem + "ו"))
    yield from _add_endings(stem + "י", FormRank.COMMON, "ה", "ת")
    yield from _add_endings(stem[0] + "ו" + stem[1:], FormRank.RARE, "ה", "ימ", "ות")
    yield from _add_endings(stem, FormRank.RARE, "תה", "יתי", "ינו", "וי", "ויה", "וימ")


def _generate_piel(past: str, stem: str) -> Iterator[tuple[str, FormRank]]:
    action = past[:-1] + "ו" + past[-1]
    yield from _generate_future(stem)
    yield from _add_endings(stem, FormRank.COMMON, "", "י", "ו")
    yield "ל" + stem, FormRank.COMMON
    yield from _add_endings(action, FormRank.COMMON, "", "ימ", "י")
    yield from _add_endings("מ" + stem, FormRank.RARE, "", "ת", "ימ", "ות")
    yield from _add_endings("מ" + stem[0] + "ו" + stem[1:], FormRank.RARE, "", "ת", "ימ", "ות")
    yield from _add_endings(past, FormRank.RARE, "ה", "ו")
    yield from _generate_past(past)


def _generate_piel_he(past: str, stem: str) -> Iterator[tuple[str, FormRank]]:
    yield from _generate_future(stem + "ה", plural_stem=stem)
    yield from _add_endings(stem, FormRank.COMMON, "ה", "י", "ו")
    yield "ל" + stem + "ות", FormRank.COMMON
    yield from _add_endings(past[:-1] + "ו", FormRank.COMMON, "י", "ימ", "יי")
    yield from _add_endings("מ" + stem, FormRank.RARE, "ה", "ימ", "ות")
    yield from _add_endings("מ" + stem[0] + "ו" + stem[1:], FormRank.RARE, "ה", "ימ", "ות")
    yield from _add_endings(past[:-1], FormRank.RARE, "תה", "ו", "יתי", "ינו")


# Earlier fields win when a word is in several. Verbs come last, because a noun that
# looks like a verb form is nearly always the noun.
LEXICON_FIELDS: Final = (
    "function", "numbers", "software", "office", "money", "world", "science", "units", "life", "culture",
    "general", "verbs",
)  # fmt: skip

# Letters with the same sound; vowel letters are removed.
_SAME_SOUND: Final = str.maketrans("טקעס", "תכאש", "וי")
_VOWEL_LETTERS: Final = str.maketrans("", "", "וי")
_SAME_SOUND_FIRST: Final = str.maketrans("טקעס", "תכאש")
_MIN_SOUND_LENGTH: Final = 4
_MIN_TYPO_LENGTH: Final = 5  # a shorter word may be a person's name
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
    """One meaning of a word. A lower cost is more likely."""

    entry: LexiconEntry
    cost: int


@frozen(kw_only=False)
class LexiconIdiom:
    """A phrase with its own meaning. Each word is given by all keys that match it."""

    words: tuple[set[str | int], ...]
    entry: LexiconEntry
    number: int  # in the order of the lexicon


class Lexicon:
    """A lookup of Hebrew words in any form."""

    def __init__(self, fields: Mapping[str, Iterable[str]]) -> None:
        self._forms: dict[str, list[tuple[FormRank, LexiconEntry]]] = {}
        self._alike: dict[str, list[str]] | None = None
        self._idioms: dict[str | int, list[LexiconIdiom]] = {}
        self._idiom_count = 0
        self._cached = lru_cache(maxsize=4096)(self._look_up_uncached)
        # Idioms are added after all words are known.
        idioms = [
            found for field, lines in fields.items() for line in lines for found in self._add(line, field)
        ]
        for words, entry in idioms:
            self._add_idiom(words, entry)

    def _add(self, line: str, field: str) -> Iterator[tuple[str, LexiconEntry]]:
        """Add the words of a line. Return its idioms."""
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
        """Add the forms of an entry. Of equal forms the most certain is generated first."""
        for form, rank in forms:
            known = self._forms.get(form)
            if known is None:
                self._forms[form] = [(rank, entry)]
            elif all(other is not entry for _, other in known):
                known.append((rank, entry))

    def _add_idiom(self, joined: str, entry: LexiconEntry) -> None:
        words = tuple(self._get_idiom_keys(fold_word(word).lower()) for word in joined.split("_"))
        idiom = LexiconIdiom(words, entry, self._idiom_count)
        self._idiom_count += 1
        for key in words[0]:
            self._idioms.setdefault(key, []).append(idiom)

    def look_up(self, word: str) -> tuple[WordMeaning, ...]:
        """Return the meanings of a folded word, most likely first. Return nothing for an unknown word."""
        return self._cached(word) if len(word) <= MAX_WORD_LENGTH else ()

    def is_unit(self, word: str) -> bool:
        """Return whether a unit of measurement is one of the meanings of a folded word."""
        return any(reading.entry.field == "units" for reading in self.look_up(word)[:3])

    def _look_up_uncached(self, word: str) -> tuple[WordMeaning, ...]:
        """Try a known form first, then a possessive ending, then another spelling."""
        found: dict[int, WordMeaning] = {}
        for cost, rest in split_prefixes(word):
            for rank, entry in self._forms.get(rest, ()):
                _keep_cheapest(found, WordMeaning(entry, cost + rank))
        if not found:
            for cost, rest in split_prefixes(word):
                bases = (self._forms.get(base, ()) for base in strip_possessive(rest))
                for rank, entry in chain.from_iterable(bases):
                    _keep_cheapest(found, WordMeaning(entry, cost + rank + _POSSESSIVE_COST))
        if not found:
            for cost, rest in split_prefixes(word):
                for rank, entry in self._find_same_sound(rest):
                    _keep_cheapest(found, WordMeaning(entry, cost + rank + _SOUND_COST))
        return tuple(sorted(found.values(), key=lambda reading: reading.cost))

    def _find_same_sound(self, word: str) -> Iterator[tuple[int, LexiconEntry]]:
        """Return words of the same sound: `תכנית` and `תוכנית`, `תלגרם` and `טלגרם`."""
        if self._alike is None:
            self._alike = self._build_sound_index()
        for form in self._alike.get(_fold_sound(word), ()):
            # A missing vowel is a spelling variant; another consonant is a mistake.
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
        """Return the longest idiom at the start of these words and its length, or None."""
        if len(words) < 2:
            return None
        keys = [self._get_match_keys(word) for word in words]
        tried = {id(idiom): idiom for key in keys[0] for idiom in self._idioms.get(key, ())}
        fitting = [idiom for idiom in tried.values() if _matches_idiom(idiom, keys)]
        if not fitting:
            return None
        longest = max(fitting, key=lambda idiom: (len(idiom.words), -idiom.number))
        return longest.entry, len(longest.words)

    def _get_match_keys(self, word: str) -> set[str | int]:
        """Return the keys of a request word for idioms: its spellings and the entries it is a form of."""
        keys: set[str | int] = {rest for _, rest in split_prefixes(word)}
        keys.update(id(reading.entry) for reading in self.look_up(word) if reading.entry.english)
        return keys

    def _get_idiom_keys(self, word: str) -> set[str | int]:
        """Return all keys that match a word of an idiom. Its prefixes are always intended."""
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
    """Return the entries of one field, without comments."""
    text = read_data_text("fingerpost.narrow", f"gloss/hebrew_words/{field}.txt")
    lines = (line.strip() for line in text.splitlines())
    return tuple(line for line in lines if line and not line.startswith("#"))


@lru_cache(maxsize=1)
def get_lexicon() -> Lexicon:
    """Return the lexicon. It is built on first use."""
    return Lexicon({field: read_field_lines(field) for field in LEXICON_FIELDS})

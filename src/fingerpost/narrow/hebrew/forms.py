"""Every form a Hebrew word takes, made from the one form the lexicon gives.

A form table is bigger than a set of stripping rules and far more certain: a
form that was made is a form of that word. Forms that look alike are all kept;
`Rank` says which is the likelier reading.

Verbs are given as the past form (he did), which tells the pattern: `הדפיס` is
a hif'il, `התקשר` a hitpa'el, `חיפש` a pi'el, `נרשם` a nif'al, `שלח` a pa'al.
Letters are folded (see `letters`), so finals never need thought.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum

from fingerpost.narrow.hebrew.letters import fold


class Rank(IntEnum):
    """How sure a form points at its word; lower is surer."""

    GIVEN = 0  # as the lexicon has it
    COMMON = 2  # plural, construct, imperative, infinitive, the future that asks
    RARE = 4  # other persons and tenses, action nouns that look like something else


# my, your, his, her, our …, on one thing and on several; longest first
_OWNERS = (
    "יהמ",
    "יהנ",
    "יכמ",
    "יכנ",
    "ינו",
    "יכ",
    "יו",
    "יה",
    "נו",
    "כמ",
    "כנ",
    "המ",
    "הנ",
    "י",
    "כ",
    "ו",
    "ה",
    "מ",
    "נ",
)
_SHORTEST_OWNED = 3
_SUBJECTS = "איתנ"  # I, he, you or she, we: the first letter of a future


def noun_forms(word: str) -> Iterator[tuple[str, Rank]]:
    """The forms of a noun or adjective, itself first: other gender, plural, construct."""
    yield word, Rank.GIVEN
    for form in _declined(word):
        yield fold(form), Rank.COMMON
    for form in _seldom(word):
        yield fold(form), Rank.RARE


def _declined(word: str) -> tuple[str, ...]:
    stem = word[:-1]
    if word.endswith("ה"):
        return stem + "ת", stem + "ות", stem + "אות"
    if word.endswith("ימ"):
        return (stem,)
    if word.endswith("ות"):
        return word[:-2] + "ויות", word[:-2] + "יות"
    if word.endswith("ת"):
        return stem + "ות", word + "ות"
    return word + "ימ", word + "ות", word + "י"


def _seldom(word: str) -> tuple[str, ...]:
    """The other gender, which only adjectives and people have."""
    if word.endswith("ה"):
        return (word[:-1] + "ימ",)
    return () if word.endswith(("ימ", "ת")) else (word + "ה", word + "ת")


def unowned(word: str) -> Iterator[str]:
    """What a word may be when its end says whose it is: `חשבוני`, `הודעותיה`.

    People rarely speak so to a program; these are asked for only when nothing else explains a word.
    """
    for owner in _OWNERS:
        stem = word.removesuffix(owner)
        if stem == word or len(stem) < _SHORTEST_OWNED:
            continue
        yield stem
        if stem.endswith("ת"):
            yield stem[:-1] + "ה"
        if owner.startswith("י"):
            yield stem + "ימ"


def verb_forms(past: str) -> Iterator[tuple[str, Rank]]:
    """The forms of a verb, given as the past (he did), itself first."""
    yield fold(past), Rank.COMMON
    for form, rank in _pattern(past):
        yield fold(form), rank


def _pattern(past: str) -> Iterator[tuple[str, Rank]]:
    if past.startswith("ה") and len(past) > 3:
        if past.endswith("ה"):
            return _hifil_he(past[1:-1])
        if past[-2] == "י" and past[-3] != "י":
            return _hifil(past[1:])
        return _hitpael(past[1:])
    if past.startswith("נ") and len(past) == 4 and past[1] != "י":
        return _nifal(past[1:])
    if len(past) <= 3:
        return _paal_he(past[:-1]) if past.endswith("ה") else _paal(past)
    spelled = past[0] + past[2:] if past[1] == "י" else past
    return _piel_he(past, spelled[:-1]) if past.endswith("ה") else _piel(past, spelled)


def _asked(stem: str, *, plural_stem: str | None = None) -> Iterator[tuple[str, Rank]]:
    """The future, which is how people ask: `תשלח`, `תשלחי`, `נשלח`."""
    yield from ((subject + stem, Rank.COMMON) for subject in _SUBJECTS)
    short = stem if plural_stem is None else plural_stem
    yield from (("ת" + short + end, Rank.COMMON) for end in "יו")
    yield "י" + short + "ו", Rank.RARE


def _past(stem: str) -> Iterator[tuple[str, Rank]]:
    yield from ((stem + end, Rank.RARE) for end in ("תי", "ת", "נו", "תמ"))


def _ends(stem: str, rank: Rank, *ends: str) -> Iterator[tuple[str, Rank]]:
    yield from ((stem + end, rank) for end in ends)


def _hifil(stem: str) -> Iterator[tuple[str, Rank]]:
    short = stem[:-2] + stem[-1]
    yield from _asked(stem)
    yield from _ends("ה", Rank.COMMON, short, stem + "י", stem + "ו")
    yield "לה" + stem, Rank.COMMON
    yield from _ends("מ" + stem, Rank.RARE, "", "ה", "ת", "ימ", "ות")
    yield from _ends("ה", Rank.RARE, stem + "ה", short + "ה", short + "ת", short + "ות")
    yield from _past("ה" + short)
    yield from _ends("מ" + ("" if short[0] == "ו" else "ו") + short, Rank.RARE, "", "ת", "ימ", "ות")
    yield "הו" + short, Rank.RARE


def _hifil_he(stem: str) -> Iterator[tuple[str, Rank]]:
    yield from _asked(stem + "ה", plural_stem=stem)
    yield from _ends("ה" + stem, Rank.COMMON, "י", "ו", "אה", "יה", "את")
    yield "לה" + stem + "ות", Rank.COMMON
    yield from _ends("מ" + stem, Rank.RARE, "ה", "ימ", "ות")
    yield from _ends("ה" + stem, Rank.RARE, "תה", "יתי", "ינו", "אות")


def _hitpael(stem: str) -> Iterator[tuple[str, Rank]]:
    yield from _asked(stem)
    yield from _ends("ה" + stem, Rank.COMMON, "י", "ו")
    yield "לה" + stem, Rank.COMMON
    yield from _ends("מ" + stem, Rank.RARE, "", "ת", "ימ", "ות")
    yield from _ends("ה" + stem, Rank.RARE, "ה", "ות")
    yield from _past("ה" + stem)


def _nifal(root: str) -> Iterator[tuple[str, Rank]]:
    yield from _asked("י" + root)
    yield from _ends("הי" + root, Rank.COMMON, "", "י", "ו", "ות")
    yield "להי" + root, Rank.COMMON
    yield from _ends("נ" + root, Rank.RARE, "ת", "ימ", "ות", "ה", "ו")
    yield from _past("נ" + root)


def _paal(past: str) -> Iterator[tuple[str, Rank]]:
    if len(past) < 3:  # hollow verbs differ too much among themselves: the lexicon lists their forms
        return
    first, second, third = past
    full = first + second + "ו" + third
    yield from _asked(past)
    yield from _asked(full, plural_stem=past)
    yield from ((form, Rank.COMMON) for form in (full, past + "י", past + "ו", "ל" + full))
    yield from _ends(first + second + "י" + third, Rank.COMMON, "ה", "ת")
    yield from _ends(first + "ו" + second + third, Rank.RARE, "", "ת", "ימ", "ות")
    yield from _ends(full, Rank.RARE, "ה", "ימ", "ות")
    yield past + "ה", Rank.RARE
    yield from _past(past)
    if first == "י":
        yield from _asked(second + third)
        yield "ל" + second + third + "ת", Rank.COMMON
    if first == "נ":
        yield from _asked("י" + second + third)


def _paal_he(stem: str) -> Iterator[tuple[str, Rank]]:
    if len(stem) < 2:
        return
    yield from _asked(stem + "ה", plural_stem=stem)
    yield from ((form, Rank.COMMON) for form in ("ל" + stem + "ות", stem + "י", stem + "ו"))
    yield from _ends(stem + "י", Rank.COMMON, "ה", "ת")
    yield from _ends(stem[0] + "ו" + stem[1:], Rank.RARE, "ה", "ימ", "ות")
    yield from _ends(stem, Rank.RARE, "תה", "יתי", "ינו", "וי", "ויה", "וימ")


def _piel(past: str, stem: str) -> Iterator[tuple[str, Rank]]:
    action = past[:-1] + "ו" + past[-1]
    yield from _asked(stem)
    yield from _ends(stem, Rank.COMMON, "", "י", "ו")
    yield "ל" + stem, Rank.COMMON
    yield from _ends(action, Rank.COMMON, "", "ימ", "י")
    yield from _ends("מ" + stem, Rank.RARE, "", "ת", "ימ", "ות")
    yield from _ends("מ" + stem[0] + "ו" + stem[1:], Rank.RARE, "", "ת", "ימ", "ות")
    yield from _ends(past, Rank.RARE, "ה", "ו")
    yield from _past(past)


def _piel_he(past: str, stem: str) -> Iterator[tuple[str, Rank]]:
    yield from _asked(stem + "ה", plural_stem=stem)
    yield from _ends(stem, Rank.COMMON, "ה", "י", "ו")
    yield "ל" + stem + "ות", Rank.COMMON
    yield from _ends(past[:-1] + "ו", Rank.COMMON, "י", "ימ", "יי")
    yield from _ends("מ" + stem, Rank.RARE, "ה", "ימ", "ות")
    yield from _ends("מ" + stem[0] + "ו" + stem[1:], Rank.RARE, "ה", "ימ", "ות")
    yield from _ends(past[:-1], Rank.RARE, "תה", "ו", "יתי", "ינו")

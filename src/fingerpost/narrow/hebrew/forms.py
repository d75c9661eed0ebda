"""Every form a Hebrew word takes, made from the one form the lexicon gives.

A form table is bigger than a set of stripping rules and far more certain: a
form that was made is a form of that word. Forms that look alike are all kept;
`FormRank` says which is the likelier reading.

Verbs are given as the past form (he did), which tells the pattern: `הדפיס` is
a hif'il, `התקשר` a hitpa'el, `חיפש` a pi'el, `נרשם` a nif'al, `שלח` a pa'al.
Letters are folded (see `letters`), so finals never need thought.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum

from fingerpost.narrow.hebrew.letters import fold_word


class FormRank(IntEnum):
    """How sure a form points at its word; lower is surer."""

    GIVEN = 0  # as the lexicon has it
    COMMON = 2  # plural, construct, imperative, infinitive, the future that asks
    RARE = 4  # other persons and tenses, action nouns that look like something else


# my, your, his, her, our …, on one thing and on several; longest first
_POSSESSIVE_ENDINGS = (
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
_MIN_POSSESSED_LENGTH = 3
_FUTURE_PREFIXES = "איתנ"  # I, he, you or she, we: the first letter of a future


def generate_noun_forms(word: str) -> Iterator[tuple[str, FormRank]]:
    """The forms of a noun or adjective, itself first: other gender, plural, construct."""
    yield word, FormRank.GIVEN
    for form in _decline_noun(word):
        yield fold_word(form), FormRank.COMMON
    for form in _list_other_gender(word):
        yield fold_word(form), FormRank.RARE


def _decline_noun(word: str) -> tuple[str, ...]:
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


def _list_other_gender(word: str) -> tuple[str, ...]:
    """The other gender, which only adjectives and people have."""
    if word.endswith("ה"):
        return (word[:-1] + "ימ",)
    return () if word.endswith(("ימ", "ת")) else (word + "ה", word + "ת")


def strip_possessive(word: str) -> Iterator[str]:
    """What a word may be when its end says whose it is: `חשבוני`, `הודעותיה`.

    People rarely speak so to a program; these are asked for only when nothing else explains a word.
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
    """The forms of a verb, given as the past (he did), itself first."""
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
    """The future, which is how people ask: `תשלח`, `תשלחי`, `נשלח`."""
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
    yield from _add_endings(
        "מ" + ("" if short[0] == "ו" else "ו") + short, FormRank.RARE, "", "ת", "ימ", "ות"
    )
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
    if len(past) < 3:  # hollow verbs differ too much among themselves: the lexicon lists their forms
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

"""The permitted value somebody meant, when there is only one it can be.

From the surest likeness to the weakest: the same letters, another way of
writing the same, the beginning of it, a slip of the pen. The first that names
exactly one value wins; one that names two ends the search. Opposites are never
taken for each other, however alike they look (`active`, `inactive`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from fingerpost.call.arguments.alike import COMPLETE_ENUMS, OPPOSITE_VALUES, SAME_VALUES
from fingerpost.call.arguments.names import normalize_name
from fingerpost.call.arguments.scalars import ScalarReading, read_scalar
from fingerpost.call.arguments.values import get_json_type, is_equal
from fingerpost.catalog.slips import count_edits
from fingerpost.catalog.words import split_words, to_singular
from fingerpost.records import Json

MAX_CHOICE_LENGTH: Final = 80
MAX_CHOICES: Final = 500
_MIN_PREFIX_LENGTH: Final = 3

ChoiceTest = Callable[[str, str], bool]


def find_meant_choice(value: Json, choices: Sequence[Json]) -> ScalarReading | None:
    """The one permitted value that was meant, or None."""
    typed = _match_other_type(value, choices)
    if typed is not None:
        return typed
    if not isinstance(value, str) or not value.strip() or len(value) > MAX_CHOICE_LENGTH:
        return None
    texts = [choice for choice in choices[:MAX_CHOICES] if isinstance(choice, str)]
    for likeness, reason in _CHOICE_TESTS:
        alike = [choice for choice in texts if likeness(value, choice)]
        if len(alike) == 1:
            return None if _is_opposite(value, alike[0], texts) else ScalarReading(alike[0], reason)
        if alike:
            return None
    return None


def _match_other_type(value: Json, choices: Sequence[Json]) -> ScalarReading | None:
    """`"3"` among 1, 2, 3, or `3` among "1", "2", "3"."""
    found = [
        choice
        for choice in choices[:MAX_CHOICES]
        if (reading := read_scalar(get_json_type(choice), value)) is not None
        and choice is not None
        and is_equal(reading.value, choice)
    ]
    return ScalarReading(found[0], "the same value of another type") if len(found) == 1 else None


def _has_same_letters(given: str, choice: str) -> bool:
    return bool(split_words(given)) and normalize_name(given) == normalize_name(choice)


def _is_same_folded(given: str, choice: str) -> bool:
    return given.strip().casefold() == choice.strip().casefold()


def _has_same_meaning(given: str, choice: str) -> bool:
    one, other = to_singular(normalize_name(given)), to_singular(normalize_name(choice))
    return bool(one) and (one == other or any(one in group and other in group for group in SAME_VALUES))


def _is_prefix(given: str, choice: str) -> bool:
    """`info` for `information`; not `read` for `read_write`, which is another thing."""
    one, other = normalize_name(given), normalize_name(choice)
    if len(split_words(given)) != 1 or len(split_words(choice)) != 1:
        return False
    short, long = sorted((one, other), key=len)
    return len(short) >= _MIN_PREFIX_LENGTH and short not in COMPLETE_ENUMS and long.startswith(short)


def _is_choice_typo(given: str, choice: str) -> bool:
    one, other = normalize_name(given), normalize_name(choice)
    most = count_allowed_typos(one, other)
    if most == 0 or _get_digits(one) != _get_digits(other) or one.endswith(other) or other.endswith(one):
        return False
    return count_edits(one, other, limit=most) <= most


def count_allowed_typos(one: str, other: str) -> int:
    """One in a word of five letters, two in a word of nine, none in a shorter one."""
    shorter = min(len(one), len(other))
    return 0 if shorter < 5 else 1 if shorter < 9 else 2


def _get_digits(text: str) -> str:
    return "".join(filter(str.isdigit, text))


def _is_opposite(given: str, choice: str, choices: Sequence[str]) -> bool:
    """Whether the given word is the opposite of what looks nearest to it."""
    one, other = normalize_name(given), normalize_name(choice)
    if one == other:
        return False
    return frozenset({one, other}) in OPPOSITE_VALUES or any(
        frozenset({one, normalize_name(each)}) in OPPOSITE_VALUES and count_edits(one, other, limit=2) <= 2
        for each in choices
    )


_CHOICE_TESTS: Final[tuple[tuple[ChoiceTest, str], ...]] = (
    (_is_same_folded, "the same value in another case"),
    (_has_same_letters, "the same value in another case or with other separators"),
    (_has_same_meaning, "another way to write the same value"),
    (_is_prefix, "the beginning of one permitted value only"),
    (_is_choice_typo, "a slip of the pen: one permitted value is this near"),
)

"""The permitted value somebody meant, when there is only one it can be.

From the surest likeness to the weakest: the same letters, another way of
writing the same, the beginning of it, a slip of the pen. The first that names
exactly one value wins; one that names two ends the search. Opposites are never
taken for each other, however alike they look (`active`, `inactive`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from fingerpost.call.arguments.alike import COMPLETE, OPPOSITES, SAME_VALUES
from fingerpost.call.arguments.names import normal
from fingerpost.call.arguments.scalars import Reading, read_as
from fingerpost.call.arguments.values import same, type_of
from fingerpost.catalog.slips import slips
from fingerpost.catalog.words import singular, words
from fingerpost.records import Json

LONGEST_CHOICE: Final = 80
MOST_CHOICES: Final = 500
_SHORTEST_START: Final = 3

Likeness = Callable[[str, str], bool]


def nearest(value: Json, choices: Sequence[Json]) -> Reading | None:
    """The one permitted value that was meant, or None."""
    typed = _by_type(value, choices)
    if typed is not None:
        return typed
    if not isinstance(value, str) or not value.strip() or len(value) > LONGEST_CHOICE:
        return None
    texts = [choice for choice in choices[:MOST_CHOICES] if isinstance(choice, str)]
    for likeness, reason in _LIKENESSES:
        alike = [choice for choice in texts if likeness(value, choice)]
        if len(alike) == 1:
            return None if _contrary(value, alike[0], texts) else Reading(alike[0], reason)
        if alike:
            return None
    return None


def _by_type(value: Json, choices: Sequence[Json]) -> Reading | None:
    """`"3"` among 1, 2, 3, or `3` among "1", "2", "3"."""
    found = [
        choice
        for choice in choices[:MOST_CHOICES]
        if (reading := read_as(type_of(choice), value)) is not None
        and choice is not None
        and same(reading.value, choice)
    ]
    return Reading(found[0], "the same value of another type") if len(found) == 1 else None


def _same_letters(given: str, choice: str) -> bool:
    return bool(words(given)) and normal(given) == normal(choice)


def _same_folded(given: str, choice: str) -> bool:
    return given.strip().casefold() == choice.strip().casefold()


def _same_meaning(given: str, choice: str) -> bool:
    one, other = singular(normal(given)), singular(normal(choice))
    return bool(one) and (one == other or any(one in group and other in group for group in SAME_VALUES))


def _beginning(given: str, choice: str) -> bool:
    """`info` for `information`; not `read` for `read_write`, which is another thing."""
    one, other = normal(given), normal(choice)
    if len(words(given)) != 1 or len(words(choice)) != 1:
        return False
    short, long = sorted((one, other), key=len)
    return len(short) >= _SHORTEST_START and short not in COMPLETE and long.startswith(short)


def _slip(given: str, choice: str) -> bool:
    one, other = normal(given), normal(choice)
    most = allowed_slips(one, other)
    if most == 0 or _digits(one) != _digits(other) or one.endswith(other) or other.endswith(one):
        return False
    return slips(one, other, most=most) <= most


def allowed_slips(one: str, other: str) -> int:
    """One in a word of five letters, two in a word of nine, none in a shorter one."""
    shorter = min(len(one), len(other))
    return 0 if shorter < 5 else 1 if shorter < 9 else 2


def _digits(text: str) -> str:
    return "".join(filter(str.isdigit, text))


def _contrary(given: str, choice: str, choices: Sequence[str]) -> bool:
    """Whether the given word is the opposite of what looks nearest to it."""
    one, other = normal(given), normal(choice)
    if one == other:
        return False
    return frozenset({one, other}) in OPPOSITES or any(
        frozenset({one, normal(each)}) in OPPOSITES and slips(one, other, most=2) <= 2 for each in choices
    )


_LIKENESSES: Final[tuple[tuple[Likeness, str], ...]] = (
    (_same_folded, "the same value in another case"),
    (_same_letters, "the same value in another case or with other separators"),
    (_same_meaning, "another way to write the same value"),
    (_beginning, "the beginning of one permitted value only"),
    (_slip, "a slip of the pen: one permitted value is this near"),
)

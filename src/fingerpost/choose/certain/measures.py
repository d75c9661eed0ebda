"""Numbers and what they count: a number belongs to a parameter only when its unit and its words agree."""

from __future__ import annotations

import re
from typing import Final

from fingerpost.catalog.words import singular, word_set, words
from fingerpost.choose.certain.slots import Slot
from fingerpost.choose.certain.values import Kind, Value
from fingerpost.records import Json

_SECONDS: Final = {
    "ms": 0.001,
    "millisecond": 0.001,
    "s": 1.0,
    "sec": 1.0,
    "second": 1.0,
    "min": 60.0,
    "minute": 60.0,
    "h": 3600.0,
    "hour": 3600.0,
    "day": 86400.0,
    "week": 604800.0,
    "שניות": 1.0,
    "שנייה": 1.0,
    "דקות": 60.0,
    "דקה": 60.0,
    "שעות": 3600.0,
    "שעה": 3600.0,
    "ימים": 86400.0,
}
# As parameters say it: always in the plural, for "the second number" is no length of time.
_LENGTHS: Final = {
    f"{unit}s": seconds for unit, seconds in _SECONDS.items() if unit.isascii() and len(unit) > 2
}
_MONEY: Final = word_set("amount price sum budget cost total")
_STRETCHES: Final = word_set("duration length second minute hour")
_MONEY_UNITS: Final = word_set(
    "$ € £ ₪ ¥ usd eur gbp ils nis btc eth dollar euro shekel שקלים שקל דולר דולרים אירו יורו"
)
_COUNTS: Final = word_set("count limit max maximum top k n size results number per page num amount")
_COUNTED: Final = word_set("result item entry record row match hit")
# Words before a number that do not say what it counts.
_NEUTRAL: Final = word_set(
    """
    the a an of to for is with by at and or plus in on my this that get show read give me about id
    number no only exactly set be are was what from into it add sum last first top latest most next wait
    sleep how much many past please than equals up down over under every run start make print display
    list root count convert divide multiply maximum max של ל את ה על עד מספר עם כמה זה
    """
)
_CONNECTIVES: Final = word_set(
    """
    and or to by of from in on with for x please plus times at is are if then the as per into using more
    but when do does ו של עם ב ל
    """
)
_OPPOSITES: Final = {"first": "last", "top": "last", "last": "first"}
_PLAIN = re.compile(r"-?\d{1,15}(?:\.\d{1,15})?")
_ID = re.compile(r"#(\d{1,15})")


def number_for(slot: Slot, value: Value) -> Json:
    """The number as this parameter would take it; None when it counts something else."""
    if value.kind is Kind.ID:
        found = _ID.fullmatch(value.text)
        numbered = slot.words[-1:] in (("id",), ("number",), ("issue",), ("ticket",), ("pr",))
        whose = value.label in {*slot.words, *slot.about} - _NEUTRAL or (numbered and value.label in _NEUTRAL)
        return int(found[1]) if found is not None and (whose or (numbered and not value.label)) else None
    if not isinstance(value.reading, float) or not _labelled(slot, value):
        return None
    factor = _factor(slot, value)
    if factor is None:
        return None
    amount = value.reading * factor
    whole = amount.is_integer() and abs(amount) < 2**53
    if slot.parameter.shape.type == "integer":
        return int(amount) if whole else None
    return int(amount) if whole else round(amount, 12)


def speaks_for(slot: Slot, value: Value) -> bool:
    """Whether the words around a number say that this parameter is meant, as an optional one needs."""
    if _OPPOSITES.get(value.cue, "") in slot.tool | slot.about and value.cue not in slot.tool | slot.about:
        return False
    near = {word for word in (value.noun, singular(value.unit)) if word} - _CONNECTIVES
    if slot.words and (
        slot.words == value.behind[: len(slot.words)] or slot.words == (singular(value.unit),)
    ):
        return True
    if value.cue and value.cue in slot.about and near & slot.about:
        return True
    if singular(value.unit) in _SECONDS and set(slot.words) & _STRETCHES:
        return True
    if not set(slot.words) <= _COUNTS and slot.words[-1:] != ("count",):
        return False
    counted = slot.tool | slot.about | _COUNTED
    return bool(near & counted) or (bool(value.cue) and not near)


def says_whose(slot: Slot, value: Value) -> bool:
    """Whether a word beside the number is one of the parameter's own: then other numbers do not matter."""
    own = {*slot.words, *slot.about} - _NEUTRAL
    return bool(own & {value.label, value.noun, singular(value.unit)}) or bool(value.unit)


def may_stand_alone(slot: Slot) -> bool:
    """Whether a number without a word of its own may be meant: never as the number of some record."""
    return slot.words[-1:] not in (("id",), ("number",)) or len(slot.words) < 2


def _factor(slot: Slot, value: Value) -> float | None:
    """What the number is multiplied with; None when its unit is not the parameter's."""
    unit = singular(value.unit)
    known = {*slot.words, *slot.about}
    if not unit:
        if _lengths(slot):
            return None  # five what? A length of time without its unit is a guess
        noun = value.noun
        return 1.0 if not noun or noun in _CONNECTIVES or noun in known | slot.tool else None
    if unit in known and unit not in _SECONDS:
        return 1.0
    if unit in _MONEY_UNITS:
        return 1.0 if set(slot.words) & _MONEY else None
    if unit in _SECONDS:
        wanted = _lengths(slot)
        return _SECONDS[unit] / wanted.pop() if len(wanted) == 1 else None
    return 1.0 if unit in slot.tool else None


def _lengths(slot: Slot) -> set[float]:
    """The units of time the parameter's name and description speak of, in seconds."""
    spoken = (*words(slot.name[:80]), *words(slot.parameter.description))
    return {_LENGTHS[word] for word in spoken if word in _LENGTHS}


def _labelled(slot: Slot, value: Value) -> bool:
    label = value.label
    return not label or label in _NEUTRAL or label in {*slot.words, *slot.about} or label in slot.tool


def as_number(word: str) -> Json:
    """A number somebody wrote on its own."""
    if _PLAIN.fullmatch(word) is None:
        return None
    return float(word) if "." in word else int(word)

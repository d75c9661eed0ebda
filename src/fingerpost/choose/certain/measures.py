"""Numbers and what they count: a number belongs to a parameter only when its unit and its words agree."""

from __future__ import annotations

import re
from typing import Final

from fingerpost.catalog.words import parse_word_set, split_words, to_singular
from fingerpost.choose.certain.slots import ParameterSlot
from fingerpost.choose.certain.values import RequestValue, ValueKind
from fingerpost.records import Json

_UNIT_SECONDS: Final = {
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
_DURATION_UNITS: Final = {
    f"{unit}s": seconds for unit, seconds in _UNIT_SECONDS.items() if unit.isascii() and len(unit) > 2
}
_MONEY: Final = parse_word_set("amount price sum budget cost total")
_DURATION_WORDS: Final = parse_word_set("duration length second minute hour")
_MONEY_UNITS: Final = parse_word_set(
    "$ € £ ₪ ¥ usd eur gbp ils nis btc eth dollar euro shekel שקלים שקל דולר דולרים אירו יורו"
)
_COUNT_PARAMETERS: Final = parse_word_set(
    "count limit max maximum top k n size results number per page num amount"
)
_COUNTED_NOUNS: Final = parse_word_set("result item entry record row match hit")
# Words before a number that do not say what it counts.
_NEUTRAL_WORDS: Final = parse_word_set(
    """
    the a an of to for is with by at and or plus in on my this that get show read give me about id
    number no only exactly set be are was what from into it add sum last first top latest most next wait
    sleep how much many past please than equals up down over under every run start make print display
    list root count convert divide multiply maximum max של ל את ה על עד מספר עם כמה זה
    """
)
_CONNECTIVES: Final = parse_word_set(
    """
    and or to by of from in on with for x please plus times at is are if then the as per into using more
    but when do does ו של עם ב ל
    """
)
_OPPOSITES: Final = {"first": "last", "top": "last", "last": "first"}
_PLAIN_NUMBER = re.compile(r"-?\d{1,15}(?:\.\d{1,15})?")
_HASH_NUMBER = re.compile(r"#(\d{1,15})")


def convert_number(slot: ParameterSlot, value: RequestValue) -> Json:
    """The number as this parameter would take it; None when it counts something else."""
    if value.kind is ValueKind.ID:
        found = _HASH_NUMBER.fullmatch(value.text)
        numbered = slot.words[-1:] in (("id",), ("number",), ("issue",), ("ticket",), ("pr",))
        whose = value.label in {*slot.words, *slot.description_words} - _NEUTRAL_WORDS or (
            numbered and value.label in _NEUTRAL_WORDS
        )
        return int(found[1]) if found is not None and (whose or (numbered and not value.label)) else None
    if not isinstance(value.reading, float) or not _has_label(slot, value):
        return None
    factor = _get_unit_factor(slot, value)
    if factor is None:
        return None
    amount = value.reading * factor
    whole = amount.is_integer() and abs(amount) < 2**53
    if slot.parameter.shape.type == "integer":
        return int(amount) if whole else None
    return int(amount) if whole else round(amount, 12)


def is_number_meant(slot: ParameterSlot, value: RequestValue) -> bool:
    """Whether the words around a number say that this parameter is meant, as an optional one needs."""
    if (
        _OPPOSITES.get(value.cue, "") in slot.tool_words | slot.description_words
        and value.cue not in slot.tool_words | slot.description_words
    ):
        return False
    near = {word for word in (value.noun, to_singular(value.unit)) if word} - _CONNECTIVES
    if slot.words and (
        slot.words == value.behind[: len(slot.words)] or slot.words == (to_singular(value.unit),)
    ):
        return True
    if value.cue and value.cue in slot.description_words and near & slot.description_words:
        return True
    if to_singular(value.unit) in _UNIT_SECONDS and set(slot.words) & _DURATION_WORDS:
        return True
    if not set(slot.words) <= _COUNT_PARAMETERS and slot.words[-1:] != ("count",):
        return False
    counted = slot.tool_words | slot.description_words | _COUNTED_NOUNS
    return bool(near & counted) or (bool(value.cue) and not near)


def has_slot_word(slot: ParameterSlot, value: RequestValue) -> bool:
    """Whether a word beside the number is one of the parameter's own: then other numbers do not matter."""
    own = {*slot.words, *slot.description_words} - _NEUTRAL_WORDS
    return bool(own & {value.label, value.noun, to_singular(value.unit)}) or bool(value.unit)


def allows_bare_number(slot: ParameterSlot) -> bool:
    """Whether a number without a word of its own may be meant: never as the number of some record."""
    return slot.words[-1:] not in (("id",), ("number",)) or len(slot.words) < 2


def _get_unit_factor(slot: ParameterSlot, value: RequestValue) -> float | None:
    """What the number is multiplied with; None when its unit is not the parameter's."""
    unit = to_singular(value.unit)
    known = {*slot.words, *slot.description_words}
    if not unit:
        if _find_duration_units(slot):
            return None  # five what? A length of time without its unit is a guess
        noun = value.noun
        return 1.0 if not noun or noun in _CONNECTIVES or noun in known | slot.tool_words else None
    if unit in known and unit not in _UNIT_SECONDS:
        return 1.0
    if unit in _MONEY_UNITS:
        return 1.0 if set(slot.words) & _MONEY else None
    if unit in _UNIT_SECONDS:
        wanted = _find_duration_units(slot)
        return _UNIT_SECONDS[unit] / wanted.pop() if len(wanted) == 1 else None
    return 1.0 if unit in slot.tool_words else None


def _find_duration_units(slot: ParameterSlot) -> set[float]:
    """The units of time the parameter's name and description speak of, in seconds."""
    spoken = (*split_words(slot.name[:80]), *split_words(slot.parameter.description))
    return {_DURATION_UNITS[word] for word in spoken if word in _DURATION_UNITS}


def _has_label(slot: ParameterSlot, value: RequestValue) -> bool:
    label = value.label
    return (
        not label
        or label in _NEUTRAL_WORDS
        or label in {*slot.words, *slot.description_words}
        or label in slot.tool_words
    )


def parse_bare_number(word: str) -> Json:
    """A number somebody wrote on its own."""
    if _PLAIN_NUMBER.fullmatch(word) is None:
        return None
    return float(word) if "." in word else int(word)

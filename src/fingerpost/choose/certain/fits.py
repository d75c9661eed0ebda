"""Whether a value would do for a parameter, and in which form it would be given."""

from __future__ import annotations

import re
from typing import Final

from fingerpost.catalog.words import singular, word_set
from fingerpost.choose.certain.measures import number_for
from fingerpost.choose.certain.slots import Slot
from fingerpost.choose.certain.tables.languages import ENGLISH_NAMES
from fingerpost.choose.certain.values import Kind, Role, Value
from fingerpost.records import Json

_OTHER_DATES = re.compile(r"MM/DD|DD/MM|DD\.MM|MM-DD-|DD-MM-|epoch|unix|seconds|millis|\bHH\b", re.IGNORECASE)
_TAKES_DAYS = re.compile(r"YYYY-MM-DD|'\d{4}-\d{2}-\d{2}'", re.IGNORECASE)
_TWELVE_HOURS = re.compile(r"\bAM\b|\bPM\b|12-hour|ISO|RFC|YYYY", re.IGNORECASE)
_WITH_SECONDS = re.compile(r"HH:MM:SS", re.IGNORECASE)
_PLAIN_HOUR = re.compile(r"HH:MM|24-hour|time of day", re.IGNORECASE)
_CODE = re.compile(r"\bcode\b|\bISO\b|639|['\"][a-z]{2}['\"]", re.IGNORECASE)
_IN_WORDS = re.compile(r"\bname of the language\b|language name|['\"](?:English|French|Spanish|German)['\"]")
_INSISTING: Final = word_set("from since after sender")
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_SCHEME = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]{1,20}://")
# A word before an id or a number that does not say whose it is.
NEUTRAL_LABELS: Final = word_set(
    """
    the a an of to for is with by at and or plus in on my this that get show read open find look up
    lookup me about id number no nr called named only exactly value set be are was what from into it add
    sum see check fetch please give print display view והוא של את מספר הוא על עם ל ב display tell equals
    use using than as out
    """
)


def fitting(slot: Slot, value: Value) -> Json:
    """The argument the value would make, or None when it would not do. Roles are somebody else's matter."""
    if value.denied or slot.secret:
        return None
    made = _made(slot, value)
    if made is None or not slot.parameter.shape.admits(made):
        return None
    return made


def _made(slot: Slot, value: Value) -> Json:
    if slot.options:
        return _option(slot, value)
    if slot.is_number:
        return number_for(slot, value) if value.kind in (Kind.NUMBER, Kind.ID) else None
    if value.kind is Kind.TEXT and slot.is_text:
        return value.text
    if value.kind is Kind.URL and Kind.HOST in slot.kinds:
        return value.text if "/" not in value.text else None
    if value.kind is Kind.HOST and Kind.URL in slot.kinds:
        return None  # a bare domain comes as an address, too
    if value.kind is Kind.DATE and Kind.MOMENT in slot.kinds:
        return value.reading if _TAKES_DAYS.search(slot.parameter.description) else None
    if value.kind not in slot.kinds and not (value.kind is Kind.ID and Kind.REVISION in slot.kinds):
        return None
    return _FORMS[value.kind](slot, value) if value.kind in _FORMS else value.reading


def _option(slot: Slot, value: Value) -> Json:
    if value.kind is Kind.LANGUAGE and Kind.LANGUAGE in slot.kinds:
        return value.reading if value.reading in slot.options else None
    return value.reading if value.kind is Kind.OPTION and value.reading in slot.options else None


def _address(slot: Slot, value: Value) -> Json:
    """A bare domain is given the scheme everybody means."""
    return value.text if _SCHEME.match(value.text) else f"https://{value.text}"


def _day(slot: Slot, value: Value) -> Json:
    about = slot.parameter.description
    if not slot.parameter.shape.form and _OTHER_DATES.search(about) and not _TAKES_DAYS.search(about):
        return None
    return value.reading


def _hour(slot: Slot, value: Value) -> Json:
    about = slot.parameter.description
    plain = _PLAIN_HOUR.search(about) is not None
    if not isinstance(value.reading, str) or (_TWELVE_HOURS.search(about) and not plain):
        return None
    if slot.parameter.shape.form == "time" or _WITH_SECONDS.search(about):
        return f"{value.reading}:00"
    # `start_time` may well want a day, too, unless it says how an hour is written.
    return value.reading if plain or slot.words == ("time",) else None


def _language(slot: Slot, value: Value) -> Json:
    about = slot.parameter.description
    if slot.words[-1:] == ("code",) or _CODE.search(about):
        return value.reading
    if _IN_WORDS.search(about) and isinstance(value.reading, str):
        return ENGLISH_NAMES[value.reading].capitalize()
    return None


def _identity(slot: Slot, value: Value) -> Json:
    """An id belongs to what stands before it: "order ORD-1", "customer CUS-2"."""
    if slot.parameter.shape.form == "uuid" and not _UUID.fullmatch(value.text):
        return None
    if value.text.startswith("#") or not labelled_for(slot, value):
        return None
    return value.text


def labelled_for(slot: Slot, value: Value) -> bool:
    """Whether the word before the value says nothing, or says this parameter."""
    label = value.label
    return (
        not label
        or label in NEUTRAL_LABELS
        or label in {*slot.words, *slot.about}
        or label in slot.tool
        or singular(label) in slot.words
    )


_FORMS: Final = {
    Kind.URL: _address,
    Kind.DATE: _day,
    Kind.TIME: _hour,
    Kind.LANGUAGE: _language,
    Kind.ID: _identity,
}


def role_fits(slot: Slot, value: Value, values: tuple[Value, ...], slots: tuple[Slot, ...]) -> bool:
    """Whether the value stands where the parameter wants it: "from Rome to Athens"."""
    if slot.role is None:
        return True
    if value.role is not None:
        return value.role is slot.role
    paired = any(
        other.role not in (None, slot.role) and _alike(slot, other) for other in slots if other is not slot
    )
    if not paired:
        return _alone(slot, value)
    # "copy a.txt to b.txt": the one without a word of its own is where it comes from.
    others = {(other.role, other.reading) for other in values if _same(other, value)}
    return slot.role is Role.FROM and len(others) == 1 and next(iter(others))[0] is Role.TO


def _alone(slot: Slot, value: Value) -> bool:
    """Without a counterpart only names like `since` and `from` insist on their word."""
    return slot.role is Role.TO or not set(slot.words) & _INSISTING


def _same(other: Value, value: Value) -> bool:
    return other.kind is value.kind and other.start != value.start and not other.denied


def _alike(one: Slot, other: Slot) -> bool:
    return bool(one.kinds & other.kinds) or bool(set(one.options) & set(other.options))

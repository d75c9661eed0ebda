"""Whether a value would do for a parameter, and in which form it would be given."""

from __future__ import annotations

import re
from typing import Final

from fingerpost.catalog.words import parse_word_set, to_singular
from fingerpost.choose.certain.measures import convert_number
from fingerpost.choose.certain.slots import ParameterSlot
from fingerpost.choose.certain.tables.languages import ENGLISH_NAMES
from fingerpost.choose.certain.values import RequestValue, ValueKind, ValueRole
from fingerpost.records import Json

_OTHER_DATES = re.compile(r"MM/DD|DD/MM|DD\.MM|MM-DD-|DD-MM-|epoch|unix|seconds|millis|\bHH\b", re.IGNORECASE)
_TAKES_DAYS = re.compile(r"YYYY-MM-DD|'\d{4}-\d{2}-\d{2}'", re.IGNORECASE)
_TWELVE_HOURS = re.compile(r"\bAM\b|\bPM\b|12-hour|ISO|RFC|YYYY", re.IGNORECASE)
_WITH_SECONDS = re.compile(r"HH:MM:SS", re.IGNORECASE)
_PLAIN_HOUR = re.compile(r"HH:MM|24-hour|time of day", re.IGNORECASE)
_LANGUAGE_CODE = re.compile(r"\bcode\b|\bISO\b|639|['\"][a-z]{2}['\"]", re.IGNORECASE)
_LANGUAGE_NAME = re.compile(
    r"\bname of the language\b|language name|['\"](?:English|French|Spanish|German)['\"]"
)
_ROLE_REQUIRED_WORDS: Final = parse_word_set("from since after sender")
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_SCHEME = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]{1,20}://")
# A word before an id or a number that does not say whose it is.
NEUTRAL_LABELS: Final = parse_word_set(
    """
    the a an of to for is with by at and or plus in on my this that get show read open find look up
    lookup me about id number no nr called named only exactly value set be are was what from into it add
    sum see check fetch please give print display view והוא של את מספר הוא על עם ל ב display tell equals
    use using than as out
    """
)


def convert_value(slot: ParameterSlot, value: RequestValue) -> Json:
    """The argument the value would make, or None when it would not do. Roles are somebody else's matter."""
    if value.denied or slot.is_secret:
        return None
    made = _convert_by_kind(slot, value)
    if made is None or not slot.parameter.shape.accepts(made):
        return None
    return made


def _convert_by_kind(slot: ParameterSlot, value: RequestValue) -> Json:
    if slot.options:
        return _convert_option(slot, value)
    if slot.is_number:
        return convert_number(slot, value) if value.kind in (ValueKind.NUMBER, ValueKind.ID) else None
    if value.kind is ValueKind.TEXT and slot.is_text:
        return value.text
    if value.kind is ValueKind.URL and ValueKind.HOST in slot.kinds:
        return value.text if "/" not in value.text else None
    if value.kind is ValueKind.HOST and ValueKind.URL in slot.kinds:
        return None  # a bare domain comes as an address, too
    if value.kind is ValueKind.DATE and ValueKind.MOMENT in slot.kinds:
        return value.reading if _TAKES_DAYS.search(slot.parameter.description) else None
    if value.kind not in slot.kinds and not (value.kind is ValueKind.ID and ValueKind.REVISION in slot.kinds):
        return None
    return _CONVERTERS[value.kind](slot, value) if value.kind in _CONVERTERS else value.reading


def _convert_option(slot: ParameterSlot, value: RequestValue) -> Json:
    if value.kind is ValueKind.LANGUAGE and ValueKind.LANGUAGE in slot.kinds:
        return value.reading if value.reading in slot.options else None
    return value.reading if value.kind is ValueKind.OPTION and value.reading in slot.options else None


def _convert_url(slot: ParameterSlot, value: RequestValue) -> Json:
    """A bare domain is given the scheme everybody means."""
    return value.text if _SCHEME.match(value.text) else f"https://{value.text}"


def _convert_day(slot: ParameterSlot, value: RequestValue) -> Json:
    about = slot.parameter.description
    if not slot.parameter.shape.form and _OTHER_DATES.search(about) and not _TAKES_DAYS.search(about):
        return None
    return value.reading


def _convert_time(slot: ParameterSlot, value: RequestValue) -> Json:
    about = slot.parameter.description
    plain = _PLAIN_HOUR.search(about) is not None
    if not isinstance(value.reading, str) or (_TWELVE_HOURS.search(about) and not plain):
        return None
    if slot.parameter.shape.form == "time" or _WITH_SECONDS.search(about):
        return f"{value.reading}:00"
    # `start_time` may well want a day, too, unless it says how an hour is written.
    return value.reading if plain or slot.words == ("time",) else None


def _convert_language(slot: ParameterSlot, value: RequestValue) -> Json:
    about = slot.parameter.description
    if slot.words[-1:] == ("code",) or _LANGUAGE_CODE.search(about):
        return value.reading
    if _LANGUAGE_NAME.search(about) and isinstance(value.reading, str):
        return ENGLISH_NAMES[value.reading].capitalize()
    return None


def _convert_id(slot: ParameterSlot, value: RequestValue) -> Json:
    """An id belongs to what stands before it: "order ORD-1", "customer CUS-2"."""
    if slot.parameter.shape.form == "uuid" and not _UUID.fullmatch(value.text):
        return None
    if value.text.startswith("#") or not has_matching_label(slot, value):
        return None
    return value.text


def has_matching_label(slot: ParameterSlot, value: RequestValue) -> bool:
    """Whether the word before the value says nothing, or says this parameter."""
    label = value.label
    return (
        not label
        or label in NEUTRAL_LABELS
        or label in {*slot.words, *slot.description_words}
        or label in slot.tool_words
        or to_singular(label) in slot.words
    )


_CONVERTERS: Final = {
    ValueKind.URL: _convert_url,
    ValueKind.DATE: _convert_day,
    ValueKind.TIME: _convert_time,
    ValueKind.LANGUAGE: _convert_language,
    ValueKind.ID: _convert_id,
}


def has_matching_role(
    slot: ParameterSlot,
    value: RequestValue,
    values: tuple[RequestValue, ...],
    slots: tuple[ParameterSlot, ...],
) -> bool:
    """Whether the value stands where the parameter wants it: "from Rome to Athens"."""
    if slot.role is None:
        return True
    if value.role is not None:
        return value.role is slot.role
    paired = any(
        other.role not in (None, slot.role) and _takes_same_kinds(slot, other)
        for other in slots
        if other is not slot
    )
    if not paired:
        return _allows_missing_role(slot, value)
    # "copy a.txt to b.txt": the one without a word of its own is where it comes from.
    others = {(other.role, other.reading) for other in values if _is_same_kind(other, value)}
    return slot.role is ValueRole.FROM and len(others) == 1 and next(iter(others))[0] is ValueRole.TO


def _allows_missing_role(slot: ParameterSlot, value: RequestValue) -> bool:
    """Without a counterpart only names like `since` and `from` insist on their word."""
    return slot.role is ValueRole.TO or not set(slot.words) & _ROLE_REQUIRED_WORDS


def _is_same_kind(other: RequestValue, value: RequestValue) -> bool:
    return other.kind is value.kind and other.start != value.start and not other.denied


def _takes_same_kinds(one: ParameterSlot, other: ParameterSlot) -> bool:
    return bool(one.kinds & other.kinds) or bool(set(one.options) & set(other.options))

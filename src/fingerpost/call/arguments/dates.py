"""Dates written by hand, as ISO dates, where they can be read in one way only.

`3/4/2024` is March in one country and April in another: it is not read at all.
"""

from __future__ import annotations

import re
from datetime import date
from enum import Enum, auto
from typing import Final

MAX_DATE_LENGTH: Final = 40

_ISO = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_YEAR_FIRST = re.compile(r"([0-9]{4})[-/. ]([0-9]{1,2})[-/. ]([0-9]{1,2})")
_YEAR_LAST = re.compile(r"([0-9]{1,2})[-/.]([0-9]{1,2})[-/.]([0-9]{4})")
_COMPACT = re.compile(r"((?:19|20)[0-9]{2})([0-9]{2})([0-9]{2})")
_MIDNIGHT = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2})[T ]00:00(?::00(?:\.0+)?)?Z?")
_MONTH_FIRST = re.compile(r"([a-z]{3,9})\.? ([0-9]{1,2})(?:st|nd|rd|th)?,? ([0-9]{4})")
_DAY_FIRST = re.compile(r"([0-9]{1,2})(?:st|nd|rd|th)?(?: of)?[ -]([a-z]{3,9})\.?,?[ -]([0-9]{4})")
_MONTHS: Final = (
    "january", "february", "march", "april", "may", "june",
    "july", "august", "september", "october", "november", "december",
)  # fmt: skip
_ASKS_FOR_ISO = re.compile(r"\bYYYY-MM-DD\b", re.IGNORECASE)
_ASKS_FOR_MORE = re.compile(r"\bYYYY-MM-DD[T ]?H|\bHH:MM|\bMM/DD|\bDD/MM|\bMM-DD-|\bDD-MM-", re.IGNORECASE)


class DateDoubt(Enum):
    """Why a text is not read as a date."""

    TWO_READINGS = auto()
    NO_READING = auto()


def requires_iso_date(form: str, description: str) -> bool:
    """Whether the schema asks for an ISO date: by its format, or in so many words."""
    if form:
        return form == "date"
    text = description[:1000]
    return _ASKS_FOR_ISO.search(text) is not None and _ASKS_FOR_MORE.search(text) is None


def is_iso_date(text: str) -> bool:
    return _ISO.fullmatch(text) is not None


def read_date(text: str) -> str | DateDoubt:
    """The text as an ISO date."""
    if len(text) > MAX_DATE_LENGTH:
        return DateDoubt.NO_READING
    words = " ".join(text.lower().split())
    if found := _MIDNIGHT.fullmatch(text.strip()):
        return found[1]
    if found := _YEAR_FIRST.fullmatch(words) or _COMPACT.fullmatch(words):
        return _build_iso_date(found[1], found[2], found[3])
    if found := _YEAR_LAST.fullmatch(words):
        return _read_year_last(found[1], found[2], found[3])
    if found := _MONTH_FIRST.fullmatch(words):
        return _read_named_month(found[3], found[1], found[2])
    if found := _DAY_FIRST.fullmatch(words):
        return _read_named_month(found[3], found[2], found[1])
    return DateDoubt.NO_READING


def _read_year_last(first: str, second: str, year: str) -> str | DateDoubt:
    readings = {_build_iso_date(year, first, second), _build_iso_date(year, second, first)} - {
        DateDoubt.NO_READING
    }
    if len(readings) > 1:
        return DateDoubt.TWO_READINGS
    return readings.pop() if readings else DateDoubt.NO_READING


def _read_named_month(year: str, name: str, day: str) -> str | DateDoubt:
    months = [
        number
        for number, month in enumerate(_MONTHS, 1)
        if month == name or (name in (month[:3], month[:4]) and len(name) >= 3)
    ]
    return _build_iso_date(year, str(months[0]), day) if len(months) == 1 else DateDoubt.NO_READING


def _build_iso_date(year: str, month: str, day: str) -> str | DateDoubt:
    try:
        return date(int(year), int(month), int(day)).isoformat()
    except ValueError:
        return DateDoubt.NO_READING

"""Days as people and models write them, read as ISO dates if there is only one reading."""

from __future__ import annotations

from datetime import date, timedelta
from enum import Enum, auto
from typing import Final

from fingerpost.regex import prepare_re

MAX_DATE_LENGTH: Final = 40

_YEAR_FIRST = prepare_re(r"([0-9]{4})[-/. ]([0-9]{1,2})[-/. ]([0-9]{1,2})")
_YEAR_LAST = prepare_re(r"([0-9]{1,2})[-/.]([0-9]{1,2})[-/.]([0-9]{4})")
_COMPACT = prepare_re(r"((?:19|20)[0-9]{2})([0-9]{2})([0-9]{2})")
_MIDNIGHT = prepare_re(r"([0-9]{4}-[0-9]{2}-[0-9]{2})[T ]00:00(?::00(?:\.0+)?)?Z?")
_MONTH_FIRST = prepare_re(r"([a-z]{3,9})\.? ([0-9]{1,2})(?:st|nd|rd|th)?,? ([0-9]{4})")
_DAY_FIRST = prepare_re(r"([0-9]{1,2})(?:st|nd|rd|th)?(?: of)?[ -]([a-z]{3,9})\.?,?[ -]([0-9]{4})")
_DAY_FIRST_HE = prepare_re(r"([0-9]{1,2}) [בל]?([א-ת]{3,7}) ([0-9]{4})")
_MONTHS: Final = (
    "january", "february", "march", "april", "may", "june",
    "july", "august", "september", "october", "november", "december",
)  # fmt: skip
_MONTHS_HE: Final = (
    "ינואר", "פברואר", "מרץ", "אפריל", "מאי", "יוני",
    "יולי", "אוגוסט", "ספטמבר", "אוקטובר", "נובמבר", "דצמבר",
)  # fmt: skip
_MONTH_NUMBERS: Final = {
    **{name: number for number, name in enumerate(_MONTHS_HE, 1)},
    **{name[:length]: number for number, name in enumerate(_MONTHS, 1) for length in (3, 4, len(name))},
    "מרס": 3,
}

_RELATIVE_DAYS: Final = {
    "today": 0, "tomorrow": 1, "yesterday": -1, "day after tomorrow": 2, "the day after tomorrow": 2,
    "day before yesterday": -2, "the day before yesterday": -2,
    "היום": 0, "מחר": 1, "מחרתיים": 2, "אתמול": -1, "שלשום": -2,
}  # fmt: skip
_SPAN_DAYS: Final = {
    "day": 1, "days": 1, "week": 7, "weeks": 7, "יום": 1, "ימים": 1, "שבוע": 7, "שבועות": 7,
}  # fmt: skip
_COUNT_WORDS: Final = {"a": 1, "an": 1, "two": 2, "three": 3}
_DAYS_AHEAD = prepare_re(r"in (\d{1,4}|an?|two|three) (days?|weeks?)")
_DAYS_AGO = prepare_re(r"(\d{1,4}|an?|two|three) (days?|weeks?) ago")
_AHEAD_OR_AGO_HE = prepare_re(r"(בעוד|עוד|לפני) (?:(\d{1,4}) )?(ימים|יום|שבועות|שבוע)")


class DateDoubt(Enum):
    """The reason why a text is not read as a date."""

    TWO_READINGS = auto()
    NO_READING = auto()


def read_date(text: str) -> str | DateDoubt:
    """Convert a written day to an ISO date, or return why that is ambiguous."""
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
    if found := _DAY_FIRST.fullmatch(words) or _DAY_FIRST_HE.fullmatch(words):
        return _read_named_month(found[3], found[2], found[1])
    return DateDoubt.NO_READING


def parse_day(text: str, today: date) -> str | None:
    """Return a written or relative day as an ISO date, or None when it is not one certain day."""
    words = " ".join(text[:MAX_DATE_LENGTH].lower().split())
    away = _RELATIVE_DAYS.get(words, _parse_day_offset(words))
    if away is not None:
        return _add_days(today, away)
    reading = read_date(words)
    return reading if isinstance(reading, str) else None


_DAY_IN_TEXT: Final = (
    prepare_re(r"\b(?P<year>[0-9]{4})-(?P<month>[0-9]{2})-(?P<day>[0-9]{2})\b"),
    prepare_re(
        r"\b(?P<name>[a-z]{3,9})\.? (?P<day>[0-9]{1,2})(?:st|nd|rd|th)?\b(?:,? (?P<year>[0-9]{4})\b)?"
    ),
    prepare_re(
        r"\b(?P<day>[0-9]{1,2})(?:st|nd|rd|th)?(?: of)? (?P<name>[a-z]{3,9})\b\.?(?:,? (?P<year>[0-9]{4})\b)?"
    ),
)


def list_written_days(text: str, today: date) -> list[tuple[int | None, int, int]]:
    """Return the days named in a text in lower case as (year, month, day). The year is None if not named."""
    found: list[tuple[int | None, int, int]] = []
    for pattern in _DAY_IN_TEXT:
        for match in pattern.finditer(text):
            parts = match.groupdict()
            month = _MONTH_NUMBERS.get(parts["name"]) if "name" in parts else int(parts["month"])
            if month is not None:
                found.append((int(parts["year"]) if parts["year"] else None, month, int(parts["day"])))
    for words in sorted(_RELATIVE_DAYS, key=len, reverse=True):  # "tomorrow" is a part of longer ones
        if words in text:
            day = today + timedelta(days=_RELATIVE_DAYS[words])
            found.append((day.year, day.month, day.day))
            text = text.replace(words, " ")
    return found


def _read_year_last(first: str, second: str, year: str) -> str | DateDoubt:
    readings = {_build_iso_date(year, first, second), _build_iso_date(year, second, first)} - {
        DateDoubt.NO_READING
    }
    if len(readings) > 1:
        return DateDoubt.TWO_READINGS
    return readings.pop() if readings else DateDoubt.NO_READING


def _read_named_month(year: str, name: str, day: str) -> str | DateDoubt:
    month = _MONTH_NUMBERS.get(name)
    return DateDoubt.NO_READING if month is None else _build_iso_date(year, str(month), day)


def _build_iso_date(year: str, month: str, day: str) -> str | DateDoubt:
    try:
        return date(int(year), int(month), int(day)).isoformat()
    except ValueError:
        return DateDoubt.NO_READING


def _parse_day_offset(words: str) -> int | None:
    """Return the days from today for "in 3 days", "two weeks ago" or "לפני שבוע", or None."""
    if found := _AHEAD_OR_AGO_HE.fullmatch(words):
        count = int(found[2] or 1) * _SPAN_DAYS[found[3]]
        return -count if found[1] == "לפני" else count
    for pattern, sign in ((_DAYS_AHEAD, 1), (_DAYS_AGO, -1)):
        if found := pattern.fullmatch(words):
            count = _COUNT_WORDS.get(found[1]) or int(found[1])
            return sign * count * _SPAN_DAYS[found[2]]
    return None


def _add_days(today: date, days: int) -> str | None:
    try:
        return (today + timedelta(days=days)).isoformat()
    except OverflowError:
        return None

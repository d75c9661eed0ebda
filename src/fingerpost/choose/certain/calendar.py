"""Days and hours as people say them, where they can mean one day or hour only.

"Next Friday", "5/3/2026" and "March 5" have two readings or need a guess: they have none here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import date, timedelta
from typing import Final

MAX_DATE_LENGTH: Final = 40

_RELATIVE_DAYS: Final = {
    "today": 0,
    "tomorrow": 1,
    "yesterday": -1,
    "day after tomorrow": 2,
    "the day after tomorrow": 2,
    "day before yesterday": -2,
    "the day before yesterday": -2,
    "היום": 0,
    "מחר": 1,
    "מחרתיים": 2,
    "אתמול": -1,
    "שלשום": -2,
}
_SPAN_DAYS: Final = {
    "day": 1,
    "days": 1,
    "week": 7,
    "weeks": 7,
    "יום": 1,
    "ימים": 1,
    "שבוע": 7,
    "שבועות": 7,
}
_COUNT_WORDS: Final = {"a": 1, "an": 1, "two": 2, "three": 3}
_DAYS_AHEAD = re.compile(r"in (\d{1,4}|an?|two|three) (days?|weeks?)")
_DAYS_AGO = re.compile(r"(\d{1,4}|an?|two|three) (days?|weeks?) ago")
_AHEAD_OR_AGO_HE = re.compile(r"(בעוד|עוד|לפני) (?:(\d{1,4}) )?(ימים|יום|שבועות|שבוע)")

_ISO_DATE = re.compile(r"(\d{4})-(\d{2})-(\d{2})")
_YEAR_LAST = re.compile(r"(\d{1,2})[./-](\d{1,2})[./-](\d{4})")
_MONTH_FIRST = re.compile(r"([a-z]{3,9})\.? (\d{1,2})(?:st|nd|rd|th)?,? (\d{4})")
_DAY_FIRST = re.compile(r"(\d{1,2})(?:st|nd|rd|th)?(?: of)? ([a-z]{3,9}),? (\d{4})")
_DAY_FIRST_HE = re.compile(r"(\d{1,2}) [בל]?([א-ת]{3,7}) (\d{4})")
_MONTHS: Final = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
]
_MONTHS_HE: Final = [
    "ינואר",
    "פברואר",
    "מרץ",
    "אפריל",
    "מאי",
    "יוני",
    "יולי",
    "אוגוסט",
    "ספטמבר",
    "אוקטובר",
    "נובמבר",
    "דצמבר",
]
_ISO_DATETIME = re.compile(r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}.{0,20}")

_CLOCK_TIME = re.compile(r"(\d{1,2})(?::(\d{2}))?(?::\d{2})? ?([ap])?\.?m?\.?")
_CLOCK_TIME_HE = re.compile(r"(?:[בלמ]שעה )?(\d{1,2})(?::(\d{2}))?(?: ב(בוקר|צהריים|ערב|לילה))?")
_MORNING = re.compile(r"^ (?:in the morning|בבוקר)\b")
_EVENING = re.compile(r"^ (?:in the (?:afternoon|evening)|at night|בערב|אחר הצהריים|אחה\"צ)\b")


def parse_day(text: str, today: date) -> str | None:
    """The day as an ISO date; None when it is not one certain day."""
    words = " ".join(text[:MAX_DATE_LENGTH].lower().split())
    if words in _RELATIVE_DAYS:
        return _add_days(today, _RELATIVE_DAYS[words])
    if (away := _parse_day_offset(words)) is not None:
        return _add_days(today, away)
    if found := _ISO_DATE.fullmatch(words):
        return _format_date(found[1], found[2], found[3])
    if found := _YEAR_LAST.fullmatch(words):
        readings = {
            _format_date(found[3], found[2], found[1]),
            _format_date(found[3], found[1], found[2]),
        } - {None}
        return readings.pop() if len(readings) == 1 else None
    return _parse_month_date(words)


def is_datetime(text: str) -> bool:
    """Whether it is an ISO day with an hour."""
    return _ISO_DATETIME.fullmatch(text) is not None


def parse_time(text: str, behind: str = "") -> str | None:
    """The hour as HH:MM; `behind` is what follows it in the sentence ("in the evening")."""
    words = " ".join(text[:MAX_DATE_LENGTH].lower().split())
    if words in ("noon", "midnight"):
        return "12:00" if words == "noon" else "00:00"
    found = _CLOCK_TIME.fullmatch(words)
    half = {"a": "morning", "p": "evening"}.get(found[3] or "", "") if found else ""
    if found is None and (found := _CLOCK_TIME_HE.fullmatch(words)):
        half = {"בוקר": "morning", None: ""}.get(found[3], "evening")
    if found is None:
        return None
    if not half and (_EVENING.match(behind[:40]) or _MORNING.match(behind[:40])):
        half = "evening" if _EVENING.match(behind[:40]) else "morning"
    if not half and found[2] is None:
        return None  # a bare "5" may be any half of the day
    return _format_time(int(found[1]), int(found[2] or 0), half)


def _format_time(hour: int, minute: int, half_of_day: str) -> str | None:
    if half_of_day and hour > 12:
        half_of_day = ""
    if half_of_day:
        hour = hour % 12 + (12 if half_of_day == "evening" else 0)
    return f"{hour:02}:{minute:02}" if hour < 24 and minute < 60 else None


def _parse_day_offset(words: str) -> int | None:
    """Days from now: "in 3 days", "two weeks ago", "לפני שבוע"."""
    if found := _AHEAD_OR_AGO_HE.fullmatch(words):
        count = int(found[2] or 1) * _SPAN_DAYS[found[3]]
        return -count if found[1] == "לפני" else count
    for pattern, sign in ((_DAYS_AHEAD, 1), (_DAYS_AGO, -1)):
        if found := pattern.fullmatch(words):
            count = _COUNT_WORDS.get(found[1]) or int(found[1])
            return sign * count * _SPAN_DAYS[found[2]]
    return None


def _parse_month_date(words: str) -> str | None:
    if found := _MONTH_FIRST.fullmatch(words):
        return _format_named_date(found[3], found[1], found[2], _MONTHS)
    if found := _DAY_FIRST.fullmatch(words):
        return _format_named_date(found[3], found[2], found[1], _MONTHS)
    if found := _DAY_FIRST_HE.fullmatch(words):
        return _format_named_date(found[3], found[2].replace("מרס", "מרץ"), found[1], _MONTHS_HE)
    return None


def _format_named_date(year: str, name: str, day: str, months: Sequence[str]) -> str | None:
    for number, month in enumerate(months, 1):
        if name == month or (name.isascii() and name in (month[:3], month[:4])):
            return _format_date(year, str(number), day)
    return None


def _add_days(today: date, days: int) -> str | None:
    try:
        return (today + timedelta(days=days)).isoformat()
    except OverflowError:
        return None


def _format_date(year: str, month: str, day: str) -> str | None:
    try:
        return date(int(year), int(month), int(day)).isoformat()
    except ValueError:
        return None

"""Extract dates, times, places, numbers and other values from a request."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import date
from typing import Final

from fingerpost.catalog.words import parse_word_set
from fingerpost.choose.keyless.tables import (
    CITIES,
    COUNTRIES,
    CURRENCIES,
    CURRENCY_WORDS,
    LANGUAGES,
    MAX_PLACE_WORDS,
    PLACE_QUALIFIERS,
    ZONE_BY_LOWER_NAME,
    get_pairs,
    get_words,
)
from fingerpost.choose.keyless.values import RequestValue, ValueKind, add_context, share_roles
from fingerpost.dates import MAX_DATE_LENGTH, parse_day
from fingerpost.records import Entity, EntityKind, Signals
from fingerpost.regex import prepare_re

_ISO_DATETIME = prepare_re(r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}.{0,20}")

_CLOCK_TIME = prepare_re(r"(\d{1,2})(?::(\d{2}))?(?::\d{2})? ?([ap])?\.?m?\.?")
_CLOCK_TIME_HE = prepare_re(r"(?:[בלמ]שעה )?(\d{1,2})(?::(\d{2}))?(?: ב(בוקר|צהריים|ערב|לילה))?")
_MORNING = prepare_re(r"^ (?:in the morning|בבוקר)\b")
_EVENING = prepare_re(r"^ (?:in the (?:afternoon|evening)|at night|בערב|אחר הצהריים|אחה\"צ)\b")


def parse_time(text: str, behind: str = "") -> str | None:
    """Return the time as HH:MM, or None. `behind` is the text after it ("in the evening")."""
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
        return None  # "5" alone may be morning or evening
    return _format_time(int(found[1]), int(found[2] or 0), half)


def _format_time(hour: int, minute: int, half_of_day: str) -> str | None:
    if half_of_day and hour > 12:
        half_of_day = ""
    if half_of_day:
        hour = hour % 12 + (12 if half_of_day == "evening" else 0)
    return f"{hour:02}:{minute:02}" if hour < 24 and minute < 60 else None


_EXTRA_WORD = prepare_re(r"[^\W\d_]+(?:['’׳.-][^\W\d_]+)*\.?")
_SQL = prepare_re(
    r"^(?:please )?(?:(?:run|execute|do) )?(?:(?:this|the) )?(?:sql )?(?:(?:query|statement):? )?"
    r"(?P<sql>(?:SELECT|WITH|INSERT|UPDATE|DELETE|CREATE|PRAGMA)\b[^`]{3,4000})$",
    re.DOTALL,
)
_SQL_TARGET = prepare_re(
    r"\s(?:on|in|against) (?:the|my|our|this) (?:\w{1,30} )?(?:database|db|data base)[.!]?$", re.IGNORECASE
)
_SQL_WITH_TEXT = prepare_re(
    r"\b(?:and|then|please)\s+(?:tell|show|give|then|send|explain|list|write|me)\b|\bplease\b|\?"
)

_PLACE_BEFORE: Final = get_words("place_before")
_PLACE_BEHIND: Final = parse_word_set("time weather forecast")
_HEBREW_PREFIXES: Final = ("", "ב", "ל", "מ", "וב", "ול", "ומ", "ו", "ש", "שב", "ה")
_LANGUAGE_BEFORE: Final = parse_word_set("in to into from and or as")


_PATTERNS: Final = tuple(
    (ValueKind[kind.upper()], prepare_re(pattern)) for kind, pattern in get_pairs("value_patterns")
)


def extract_extra_values(text: str) -> list[RequestValue]:
    """Extract the values that the signals do not contain."""
    found = [
        _build_value(kind, match.group(), match.start(), reading)
        for kind, pattern in _PATTERNS
        for match in pattern.finditer(text)
        if (reading := _interpret_match(kind, match.group())) is not None
    ]
    return [*found, *_extract_named_values(text), *_extract_number_words(text)]


_WORDS_FROM_TWO: Final = "two three four five six seven eight nine ten eleven twelve"
_NUMBER_WORDS: Final = {word: number for number, word in enumerate(_WORDS_FROM_TWO.split(), 2)}
_COUNTED = prepare_re(rf"\b(?P<number>{'|'.join(_NUMBER_WORDS)})(?= [a-z]{{3,}})", re.IGNORECASE)


def _extract_number_words(text: str) -> Iterator[RequestValue]:
    """Extract "five" in "the five newest commits"."""
    for found in _COUNTED.finditer(text):
        number = float(_NUMBER_WORDS[found["number"].lower()])
        yield RequestValue(
            kind=ValueKind.NUMBER, text=found["number"], start=found.start(), end=found.end(), reading=number
        )


def _build_value(kind: ValueKind, text: str, start: int, reading: str) -> RequestValue:
    return RequestValue(kind=kind, text=text, start=start, end=start + len(text), reading=reading)


def _interpret_match(kind: ValueKind, word: str) -> str | None:
    """Return the value that a match of a pattern stands for, or None if it is not of this kind."""
    if kind is ValueKind.ZONE:
        return ZONE_BY_LOWER_NAME.get(word.lower())
    if kind is ValueKind.REVISION and not word.startswith("HEAD"):
        is_hash = any(map(str.isdigit, word)) and any(map(str.isalpha, word))
        return word if is_hash else None
    return None if kind is ValueKind.CURRENCY and word not in CURRENCIES else word


def _extract_sql(text: str) -> Iterator[RequestValue]:
    """Extract a statement that is the whole rest of the request: with text after it, its end is unclear."""
    found = _SQL.match(text)
    if found is not None and _SQL_WITH_TEXT.search(found["sql"]) is None:
        statement = _SQL_TARGET.sub("", found["sql"].strip())
        yield _build_value(ValueKind.SQL, statement, found.start("sql"), statement)


def _extract_named_values(text: str) -> Iterator[RequestValue]:
    """Extract places, languages and currencies by name. The longest name wins."""
    words = list(_EXTRA_WORD.finditer(text))
    position = 0
    while position < len(words):
        taken = 0
        for length in range(min(MAX_PLACE_WORDS, len(words) - position), 0, -1):
            readings = list(_match_name(words[position : position + length], text, words, position + length))
            if readings:
                yield from readings
                taken = length
                break
        position += taken or 1


def _match_name(
    name: list[re.Match[str]], text: str, words: list[re.Match[str]], following: int
) -> Iterator[RequestValue]:
    start, end = name[0].start(), name[-1].end()
    written = text[start:end]
    if "\n" in written or any(mark in written for mark in ",;:!?()"):
        return
    for prefix in _HEBREW_PREFIXES if "א" <= written[0] <= "ת" else ("",):
        if not written.startswith(prefix):
            continue
        bare = written[len(prefix) :].rstrip(".")
        behind = text[end : words[following].end()] if following < len(words) else ""
        before = words[following - len(name) - 1].group().lower() if following > len(name) else ""
        found = list(_look_up_name(bare, start + len(prefix), behind, "in" if prefix else before))
        if found:
            yield from found
            return


def _look_up_name(bare: str, start: int, behind: str, before: str) -> Iterator[RequestValue]:
    low = " ".join(bare.lower().split())
    zone = CITIES.get(low) or COUNTRIES.get(low)
    if zone is not None and _is_place(behind, before):
        yield _build_value(ValueKind.ZONE, bare, start, zone)
        if low in CITIES:
            yield _build_value(ValueKind.CITY, bare, start, bare)
    if low in LANGUAGES and before in _LANGUAGE_BEFORE:
        yield _build_value(ValueKind.LANGUAGE, bare, start, LANGUAGES[low])
    if low in CURRENCY_WORDS:
        yield _build_value(ValueKind.CURRENCY, bare, start, CURRENCY_WORDS[low])


def _is_place(behind: str, before: str) -> bool:
    """Return whether the name is a place here, and not the Paris of "Paris Hilton" or "Paris, Texas"."""
    following = behind.strip(" ,.").lower()
    if following in PLACE_QUALIFIERS and not _is_small_word(behind):
        return False
    if behind.startswith(" ") and behind[1:2].isupper() and following not in _PLACE_BEHIND:
        return False
    if behind.startswith((", ", "'")) and behind[2:3].isupper() and following not in COUNTRIES:
        return False
    return before in _PLACE_BEFORE or following in _PLACE_BEHIND


def _is_small_word(behind: str) -> bool:
    """Return whether a code is a common word: `on` and `me` are words unless written `ON`, `ME`."""
    word = behind.strip(" ,.")
    return len(word) == 2 and word.islower()


MAX_REQUEST_LENGTH: Final = 8000
MAX_VALUES: Final = 60

_NUMBER_WITH_UNIT = prepare_re(r"[$€£₪¥]? ?(-?[\d,]{1,40}(?:\.\d{1,20})?)\s?(.{0,20})")
_MORE_BEHIND = prepare_re(r"[./:x×-]\d")
_MORE_BEFORE = prepare_re(r"\d[./:x×-]")
_LOOKS_LIKE_PATH = prepare_re(
    r"(?:~|\.{0,2}|[A-Za-z]:)[\\/][^*?\"<>|\n]*|[^*?\"<>|/\n]{1,200}\.[A-Za-z0-9]{1,5}"
    r"|[\w.-]{1,80}(?:/[\w.-]{1,80}){1,12}/?"
)
_CONTAINING_KINDS: Final = frozenset(
    {ValueKind.HOST, ValueKind.REVISION, ValueKind.PATTERN, ValueKind.SQL, ValueKind.DATE}
)
_ENTITY_KINDS: Final = {
    EntityKind.PATH: ValueKind.PATH,
    EntityKind.URL: ValueKind.URL,
    EntityKind.EMAIL: ValueKind.EMAIL,
    EntityKind.ID: ValueKind.ID,
}


def extract_values(text: str, signals: Signals, today: date) -> tuple[RequestValue, ...]:
    """Return the values of the request in text order."""
    text = text[:MAX_REQUEST_LENGTH]
    if statements := list(_extract_sql(text)):
        return tuple(add_context(value, text) for value in statements)
    read = list(_convert_entities(text, signals.entities, today))
    quoted = [value for value in read if value.kind is ValueKind.TEXT]
    # A quoted text is one value, even if it contains another.
    outside = [value for value in read if value.kind is ValueKind.TEXT or not _overlaps_any(value, quoted)]
    own = [value for value in extract_extra_values(text) if not _overlaps_any(value, quoted)]
    kept = [value for value in outside if not _is_part_of_value(value, own)]
    weak = (ValueKind.PATH, ValueKind.NAME)
    kept += [value for value in own if value.kind not in weak or not _overlaps_any(value, kept)]
    paths = (value for value in quoted if _LOOKS_LIKE_PATH.fullmatch(value.text))
    kept += (replace(value, kind=ValueKind.PATH) for value in paths)
    ordered = sorted(kept, key=lambda value: (value.start, value.end, value.kind))
    return share_roles([add_context(value, text) for value in ordered[:MAX_VALUES]], text)


def _overlaps_any(value: RequestValue, others: Iterable[RequestValue]) -> bool:
    return any(value is not other and value.overlaps_with(other) for other in others)


def _is_part_of_value(value: RequestValue, own: Iterable[RequestValue]) -> bool:
    """Return whether a number is only a part of another value, such as an IP address or a revision."""
    return value.kind in (ValueKind.NUMBER, ValueKind.TIME, ValueKind.DATE) and any(
        value.overlaps_with(other) and other.kind in _CONTAINING_KINDS for other in own
    )


def _convert_entities(text: str, entities: tuple[Entity, ...], today: date) -> Iterator[RequestValue]:
    for entity, start in locate_entities(text, entities):
        value = _convert_entity(entity, start, text, today)
        if value is not None:
            yield value


def locate_entities(text: str, entities: tuple[Entity, ...]) -> Iterator[tuple[Entity, int]]:
    """Return the signals' entities with their positions. They are in text order; only quoted ones overlap."""
    last_start = last_end = 0
    for entity in entities:
        quoted = entity.kind is EntityKind.QUOTED
        start = _find_whole_word(text, entity.text, last_start if quoted else last_end)
        if start is None:
            continue
        last_start = start
        last_end = start if quoted else start + len(entity.text)
        yield entity, start


def _find_whole_word(text: str, wanted: str, cursor: int) -> int | None:
    """Return the position of the whole word at or after the cursor, or None."""
    for _ in range(MAX_VALUES):
        start = text.find(wanted, cursor)
        if start < 0:
            return None
        before, behind = text[start - 1 : start], text[start + len(wanted) :][:1]
        if not (_continues_token(before, wanted[0]) or _continues_token(behind, wanted[-1])):
            return start
        cursor = start + 1
    return None


def _continues_token(neighbour: str, edge: str) -> bool:
    """Return whether the neighbour belongs to the same number or Latin word, unlike a Hebrew preposition."""
    return neighbour.isalnum() and neighbour.isascii() and edge.isalnum() and edge.isascii()


def _convert_entity(entity: Entity, start: int, text: str, today: date) -> RequestValue | None:
    end = start + len(entity.text)
    bare = RequestValue(kind=ValueKind.TEXT, text=entity.text, start=start, end=end, reading=entity.text)
    match entity.kind:
        case EntityKind.QUOTED:
            return bare
        case EntityKind.NUMBER:
            return _parse_number(bare, text)
        case EntityKind.DATE if _ISO_DATETIME.fullmatch(entity.text) is not None:
            return replace(bare, kind=ValueKind.MOMENT)
        case EntityKind.DATE:
            return replace(bare, kind=ValueKind.DATE, reading=parse_day(entity.text, today))
        case EntityKind.TIME:
            return replace(bare, kind=ValueKind.TIME, reading=parse_time(entity.text, text[end : end + 40]))
        case _:
            return replace(bare, kind=_ENTITY_KINDS[entity.kind])


def _parse_number(bare: RequestValue, text: str) -> RequestValue | None:
    """Parse the number without its unit. Return None for a part of a version, ratio or size (`800x600`)."""
    found = _NUMBER_WITH_UNIT.fullmatch(bare.text)
    if found is None:
        return None
    start, end = bare.start + found.start(1), bare.start + found.end(1)
    if _MORE_BEHIND.match(text[end : end + 2]) or _MORE_BEFORE.match(text[max(0, start - 2) : start]):
        return None
    digits = found[1].replace(",", "")
    try:
        reading = float(digits)
    except ValueError:
        return None
    unit = (bare.text[0] if bare.text[0] in "$€£₪¥" else "") + found[2].lower()
    return replace(bare, kind=ValueKind.NUMBER, start=start, end=end, text=digits, reading=reading, unit=unit)

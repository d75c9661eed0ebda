"""What matters only because tools take it: places, languages, currencies, hosts, patterns, revisions, SQL."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from fingerpost.catalog.words import parse_word_set
from fingerpost.choose.certain.tables.languages import CURRENCIES, CURRENCY_WORDS, LANGUAGES
from fingerpost.choose.certain.tables.places import CITIES, COUNTRIES, MAX_PLACE_WORDS, PLACE_QUALIFIERS
from fingerpost.choose.certain.tables.zones import ZONE_BY_LOWER_NAME
from fingerpost.choose.certain.values import RequestValue, ValueKind

_EXTRA_WORD = re.compile(r"[^\W\d_]+(?:['’׳.-][^\W\d_]+)*\.?")
_ZONE = re.compile(r"(?<![\w/])(?:[A-Za-z]{3,10}/[A-Za-z_+-]{2,40}(?:/[A-Za-z_]{2,40})?|UTC|GMT)(?![\w/])")
_GLOB = re.compile(r"(?<![\w*])[\w./~-]{0,60}\*[\w.*/-]{0,60}")
_IP = re.compile(r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?![\w.]*\w)")
_HOST = re.compile(
    r"(?<![\w@./:-])(?:localhost|(?:[a-zA-Z0-9-]{1,63}\.){1,4}[a-zA-Z]{2,12})(?![\w@/:-]|\.\w)"
)
_REVISION = re.compile(r"(?<![\w/])(?:HEAD(?:[~^]\d{0,4}){0,4}|[0-9a-f]{7,40})(?![\w/])")
_CURRENCY = re.compile(r"(?<![A-Za-z])[A-Z]{3}(?![A-Za-z])")
_FOLDER = re.compile(
    r"(?:(?<=folder )|(?<=directory )|(?<=path )|(?<=repo )|(?<=repository )|(?<=תיקייה )|(?<=תיקיית ))"
    r"[\w.-]{1,80}(?:/[\w.-]{1,80}){1,12}/?"
    r"|(?<![\w./:-])[\w.-]{1,80}(?:/[\w.-]{1,80}){0,12}/(?![\w/])"
    r"|(?<!\S)\.{1,2}(?=\s|$)"
    r"|(?<!\S)/[\w.-]{2,60}(?=[\s,;!?]|$)"
)
# Behind a Hebrew preposition and its hyphen, where the signals see none.
_PREFIXED_DAY = re.compile(r"(?<=[א-ת]-)\d{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])(?![\w-])")
_SQL = re.compile(
    r"^(?:please )?(?:(?:run|execute|do) )?(?:(?:this|the) )?(?:sql )?(?:(?:query|statement):? )?"
    r"(?P<sql>(?:SELECT|WITH|INSERT|UPDATE|DELETE|CREATE|PRAGMA)\b[^`]{3,4000})$",
    re.DOTALL,
)
_SQL_WITH_TEXT = re.compile(
    r"\b(?:and|then|please)\s+(?:tell|show|give|then|send|explain|list|write|me)\b|\bplease\b|\?"
)

_PLACE_BEFORE: Final = parse_word_set(
    "in at for from to of near around and or between not time weather forecast flights vs versus into"
)
_PLACE_BEHIND: Final = parse_word_set("time weather forecast")
_HEBREW_PREFIXES: Final = ("", "ב", "ל", "מ", "וב", "ול", "ומ", "ו", "ש", "שב", "ה")
_LANGUAGE_BEFORE: Final = parse_word_set("in to into from and or as")


def extract_extra_values(text: str) -> list[RequestValue]:
    """Everything of this kind in the text."""
    found = [
        *_match_pattern(ValueKind.ZONE, _ZONE, text),
        *_match_pattern(ValueKind.PATTERN, _GLOB, text),
        *_match_pattern(ValueKind.HOST, _IP, text),
        *_match_pattern(ValueKind.HOST, _HOST, text),
        *_match_pattern(ValueKind.REVISION, _REVISION, text),
        *_match_pattern(ValueKind.PATH, _FOLDER, text),
        *_match_pattern(ValueKind.DATE, _PREFIXED_DAY, text),
        *_extract_currencies(text),
        *_extract_named_values(text),
        *_extract_sql(text),
    ]
    return [value for value in found if value.kind is not ValueKind.ZONE or value.reading is not None]


def _match_pattern(kind: ValueKind, pattern: re.Pattern[str], text: str) -> Iterator[RequestValue]:
    for match in pattern.finditer(text):
        word = match.group()
        reading = ZONE_BY_LOWER_NAME.get(word.lower()) if kind is ValueKind.ZONE else word
        if kind is ValueKind.REVISION and not (word.startswith("HEAD") or _is_hash(word)):
            continue
        yield RequestValue(kind=kind, text=word, start=match.start(), end=match.end(), reading=reading)


def _is_hash(word: str) -> bool:
    return any(letter.isdigit() for letter in word) and any(letter.isalpha() for letter in word)


def _extract_sql(text: str) -> Iterator[RequestValue]:
    """A statement that is the whole rest of the request; with words behind it, its end is a guess."""
    found = _SQL.match(text)
    if found is not None and _SQL_WITH_TEXT.search(found["sql"]) is None:
        statement = found["sql"].strip()
        start = found.start("sql")
        yield RequestValue(
            kind=ValueKind.SQL, text=statement, start=start, end=start + len(statement), reading=statement
        )


def _extract_currencies(text: str) -> Iterator[RequestValue]:
    for match in _CURRENCY.finditer(text):
        if match.group() in CURRENCIES:
            yield RequestValue(
                kind=ValueKind.CURRENCY,
                text=match.group(),
                start=match.start(),
                end=match.end(),
                reading=match.group(),
            )


def _extract_named_values(text: str) -> Iterator[RequestValue]:
    """Places, languages and currencies by their names; the longest name wins."""
    words = list(_EXTRA_WORD.finditer(text))
    place = 0
    while place < len(words):
        taken = 0
        for length in range(min(MAX_PLACE_WORDS, len(words) - place), 0, -1):
            readings = list(_match_name(words[place : place + length], text, words, place + length))
            if readings:
                yield from readings
                taken = length
                break
        place += taken or 1


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
    end = start + len(bare)
    zone = CITIES.get(low) or COUNTRIES.get(low)
    if zone is not None and _is_place(behind, before):
        yield RequestValue(kind=ValueKind.ZONE, text=bare, start=start, end=end, reading=zone)
        if low in CITIES:
            yield RequestValue(kind=ValueKind.CITY, text=bare, start=start, end=end, reading=bare)
    if low in LANGUAGES and before in _LANGUAGE_BEFORE:
        yield RequestValue(kind=ValueKind.LANGUAGE, text=bare, start=start, end=end, reading=LANGUAGES[low])
    if low in CURRENCY_WORDS:
        yield RequestValue(
            kind=ValueKind.CURRENCY, text=bare, start=start, end=end, reading=CURRENCY_WORDS[low]
        )


def _is_place(behind: str, before: str) -> bool:
    """Not the Paris of "Paris Hilton" or "Paris, Texas": what stands around a name has its say."""
    following = behind.strip(" ,.").lower()
    if following in PLACE_QUALIFIERS and not _is_small_word(behind):
        return False
    if behind.startswith(" ") and behind[1:2].isupper() and following not in _PLACE_BEHIND:
        return False
    if behind.startswith((", ", "'")) and behind[2:3].isupper() and following not in COUNTRIES:
        return False
    return before in _PLACE_BEFORE or following in _PLACE_BEHIND


def _is_small_word(behind: str) -> bool:
    """`on` and `me` are words unless written `ON`, `ME`."""
    word = behind.strip(" ,.")
    return len(word) == 2 and word.islower()

"""What matters only because tools take it: places, languages, currencies, hosts, patterns, revisions, SQL."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from fingerpost.catalog.words import word_set
from fingerpost.choose.certain.tables.languages import CURRENCIES, CURRENCY_WORDS, LANGUAGES
from fingerpost.choose.certain.tables.places import CITIES, COUNTRIES, ELSEWHERE, LONGEST_PLACE
from fingerpost.choose.certain.tables.zones import BY_LOWER
from fingerpost.choose.certain.values import Kind, Value

_WORD = re.compile(r"[^\W\d_]+(?:['’׳.-][^\W\d_]+)*\.?")
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
_GLUED_DAY = re.compile(r"(?<=[א-ת]-)\d{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])(?![\w-])")
_SQL = re.compile(
    r"^(?:please )?(?:(?:run|execute|do) )?(?:(?:this|the) )?(?:sql )?(?:(?:query|statement):? )?"
    r"(?P<sql>(?:SELECT|WITH|INSERT|UPDATE|DELETE|CREATE|PRAGMA)\b[^`]{3,4000})$",
    re.DOTALL,
)
_SQL_AND_MORE = re.compile(
    r"\b(?:and|then|please)\s+(?:tell|show|give|then|send|explain|list|write|me)\b|\bplease\b|\?"
)

_PLACE_BEFORE: Final = word_set(
    "in at for from to of near around and or between not time weather forecast flights vs versus into"
)
_PLACE_BEHIND: Final = word_set("time weather forecast")
_HEBREW_PREFIXES: Final = ("", "ב", "ל", "מ", "וב", "ול", "ומ", "ו", "ש", "שב", "ה")
_LANGUAGE_BEFORE: Final = word_set("in to into from and or as")


def extras(text: str) -> list[Value]:
    """Everything of this kind in the text."""
    found = [
        *_plain(Kind.ZONE, _ZONE, text),
        *_plain(Kind.PATTERN, _GLOB, text),
        *_plain(Kind.HOST, _IP, text),
        *_plain(Kind.HOST, _HOST, text),
        *_plain(Kind.REVISION, _REVISION, text),
        *_plain(Kind.PATH, _FOLDER, text),
        *_plain(Kind.DATE, _GLUED_DAY, text),
        *_currencies(text),
        *_named(text),
        *_sql(text),
    ]
    return [value for value in found if value.kind is not Kind.ZONE or value.reading is not None]


def _plain(kind: Kind, pattern: re.Pattern[str], text: str) -> Iterator[Value]:
    for match in pattern.finditer(text):
        word = match.group()
        reading = BY_LOWER.get(word.lower()) if kind is Kind.ZONE else word
        if kind is Kind.REVISION and not (word.startswith("HEAD") or _is_hash(word)):
            continue
        yield Value(kind=kind, text=word, start=match.start(), end=match.end(), reading=reading)


def _is_hash(word: str) -> bool:
    return any(letter.isdigit() for letter in word) and any(letter.isalpha() for letter in word)


def _sql(text: str) -> Iterator[Value]:
    """A statement that is the whole rest of the request; with words behind it, its end is a guess."""
    found = _SQL.match(text)
    if found is not None and _SQL_AND_MORE.search(found["sql"]) is None:
        statement = found["sql"].strip()
        start = found.start("sql")
        yield Value(kind=Kind.SQL, text=statement, start=start, end=start + len(statement), reading=statement)


def _currencies(text: str) -> Iterator[Value]:
    for match in _CURRENCY.finditer(text):
        if match.group() in CURRENCIES:
            yield Value(
                kind=Kind.CURRENCY,
                text=match.group(),
                start=match.start(),
                end=match.end(),
                reading=match.group(),
            )


def _named(text: str) -> Iterator[Value]:
    """Places, languages and currencies by their names; the longest name wins."""
    words = list(_WORD.finditer(text))
    place = 0
    while place < len(words):
        taken = 0
        for length in range(min(LONGEST_PLACE, len(words) - place), 0, -1):
            readings = list(_readings(words[place : place + length], text, words, place + length))
            if readings:
                yield from readings
                taken = length
                break
        place += taken or 1


def _readings(
    name: list[re.Match[str]], text: str, words: list[re.Match[str]], following: int
) -> Iterator[Value]:
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
        found = list(_reading(bare, start + len(prefix), behind, "in" if prefix else before))
        if found:
            yield from found
            return


def _reading(bare: str, start: int, behind: str, before: str) -> Iterator[Value]:
    low = " ".join(bare.lower().split())
    end = start + len(bare)
    zone = CITIES.get(low) or COUNTRIES.get(low)
    if zone is not None and _is_a_place(behind, before):
        yield Value(kind=Kind.ZONE, text=bare, start=start, end=end, reading=zone)
        if low in CITIES:
            yield Value(kind=Kind.CITY, text=bare, start=start, end=end, reading=bare)
    if low in LANGUAGES and before in _LANGUAGE_BEFORE:
        yield Value(kind=Kind.LANGUAGE, text=bare, start=start, end=end, reading=LANGUAGES[low])
    if low in CURRENCY_WORDS:
        yield Value(kind=Kind.CURRENCY, text=bare, start=start, end=end, reading=CURRENCY_WORDS[low])


def _is_a_place(behind: str, before: str) -> bool:
    """Not the Paris of "Paris Hilton" or "Paris, Texas": what stands around a name has its say."""
    following = behind.strip(" ,.").lower()
    if following in ELSEWHERE and not _is_small_word(behind):
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

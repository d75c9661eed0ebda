"""Every value of a request, from its signals and from what only tools' parameters make worth reading."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import date
from typing import Final

from fingerpost.choose.certain.calendar import is_moment, read_day, read_hour
from fingerpost.choose.certain.extra import extras
from fingerpost.choose.certain.joined import with_shared_roles
from fingerpost.choose.certain.surroundings import placed
from fingerpost.choose.certain.values import Kind, Value
from fingerpost.records import Entity, EntityKind, Signals

LONGEST_TEXT: Final = 8000
MOST_VALUES: Final = 60

_NUMBER = re.compile(r"[$€£₪¥]? ?(-?[\d,]{1,40}(?:\.\d{1,20})?)\s?(.{0,20})")
_MORE_BEHIND = re.compile(r"[./:x×-]\d")
_MORE_BEFORE = re.compile(r"\d[./:x×-]")
_LOOKS_LIKE_PATH = re.compile(
    r"(?:~|\.{0,2}|[A-Za-z]:)[\\/][^*?\"<>|\n]*|[^*?\"<>|/\n]{1,200}\.[A-Za-z0-9]{1,5}"
)
_SWALLOWING: Final = frozenset({Kind.HOST, Kind.REVISION, Kind.PATTERN, Kind.SQL, Kind.DATE})
_KINDS: Final = {
    EntityKind.PATH: Kind.PATH,
    EntityKind.URL: Kind.URL,
    EntityKind.EMAIL: Kind.EMAIL,
    EntityKind.ID: Kind.ID,
}


def values_of(text: str, signals: Signals, today: date) -> tuple[Value, ...]:
    """The values of the request, in the order they stand."""
    text = text[:LONGEST_TEXT]
    read = list(_of_entities(text, signals.entities, today))
    quoted = [value for value in read if value.kind is Kind.TEXT]
    # A quotation is one thing, even where it holds another.
    outside = [value for value in read if value.kind is Kind.TEXT or not _within(value, quoted)]
    own = [value for value in extras(text) if not _within(value, quoted)]
    kept = [value for value in outside if not _spoiled(value, own)]
    kept += [value for value in own if value.kind not in (Kind.PATH, Kind.NAME) or not _within(value, kept)]
    kept += [replace(value, kind=Kind.PATH) for value in quoted if _LOOKS_LIKE_PATH.fullmatch(value.text)]
    ordered = sorted(kept, key=lambda value: (value.start, value.end, value.kind))
    return with_shared_roles([placed(value, text) for value in ordered[:MOST_VALUES]], text)


def _within(value: Value, others: Iterable[Value]) -> bool:
    return any(value is not other and value.overlaps(other) for other in others)


def _spoiled(value: Value, own: Iterable[Value]) -> bool:
    """Whether a number is only a piece of something else that was found: an IP address, a revision."""
    return value.kind in (Kind.NUMBER, Kind.TIME, Kind.DATE) and any(
        value.overlaps(other) and other.kind in _SWALLOWING for other in own
    )


def _of_entities(text: str, entities: tuple[Entity, ...], today: date) -> Iterator[Value]:
    for entity, start in standing(text, entities):
        value = _read(entity, start, text, today)
        if value is not None:
            yield value


def standing(text: str, entities: tuple[Entity, ...]) -> Iterator[tuple[Entity, int]]:
    """The signals' entities and where they stand in the text. They come in order; only quotations overlap."""
    begun = ended = 0
    for entity in entities:
        quoted = entity.kind is EntityKind.QUOTED
        start = _place(text, entity.text, begun if quoted else ended)
        if start is None:
            continue
        begun = start
        ended = start if quoted else start + len(entity.text)
        yield entity, start


def _place(text: str, wanted: str, cursor: int) -> int | None:
    """Where it stands as a word of its own, from the cursor on."""
    for _ in range(MOST_VALUES):
        start = text.find(wanted, cursor)
        if start < 0:
            return None
        before, behind = text[start - 1 : start], text[start + len(wanted) :][:1]
        if not (_continues(before, wanted[0]) or _continues(behind, wanted[-1])):
            return start
        cursor = start + 1
    return None


def _continues(neighbour: str, edge: str) -> bool:
    """Whether a number or a Latin word goes on: a Hebrew preposition may stand right before either."""
    return neighbour.isalnum() and neighbour.isascii() and edge.isalnum() and edge.isascii()


def _read(entity: Entity, start: int, text: str, today: date) -> Value | None:
    end = start + len(entity.text)
    bare = Value(kind=Kind.TEXT, text=entity.text, start=start, end=end, reading=entity.text)
    match entity.kind:
        case EntityKind.QUOTED:
            return bare
        case EntityKind.NUMBER:
            return _number(bare, text)
        case EntityKind.DATE if is_moment(entity.text):
            return replace(bare, kind=Kind.MOMENT)
        case EntityKind.DATE:
            return replace(bare, kind=Kind.DATE, reading=read_day(entity.text, today))
        case EntityKind.TIME:
            return replace(bare, kind=Kind.TIME, reading=read_hour(entity.text, text[end : end + 40]))
        case _:
            return replace(bare, kind=_KINDS[entity.kind])


def _number(bare: Value, text: str) -> Value | None:
    """The number without its unit. A piece of a version, a ratio or a size (`800x600`) is no number."""
    found = _NUMBER.fullmatch(bare.text)
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
    sign = bare.text[0] if bare.text[0] in "$€£₪¥" else ""
    return replace(
        bare,
        kind=Kind.NUMBER,
        start=start,
        end=end,
        text=digits,
        reading=reading,
        unit=sign + found[2].lower(),
    )

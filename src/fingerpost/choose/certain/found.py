"""Every value of a request, from its signals and from what only tools' parameters make worth reading."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import date
from typing import Final

from fingerpost.choose.certain.calendar import is_datetime, parse_day, parse_time
from fingerpost.choose.certain.extra import extract_extra_values
from fingerpost.choose.certain.joined import share_roles
from fingerpost.choose.certain.surroundings import add_context
from fingerpost.choose.certain.values import RequestValue, ValueKind
from fingerpost.records import Entity, EntityKind, Signals

MAX_REQUEST_LENGTH: Final = 8000
MAX_VALUES: Final = 60

_NUMBER_WITH_UNIT = re.compile(r"[$€£₪¥]? ?(-?[\d,]{1,40}(?:\.\d{1,20})?)\s?(.{0,20})")
_MORE_BEHIND = re.compile(r"[./:x×-]\d")
_MORE_BEFORE = re.compile(r"\d[./:x×-]")
_LOOKS_LIKE_PATH = re.compile(
    r"(?:~|\.{0,2}|[A-Za-z]:)[\\/][^*?\"<>|\n]*|[^*?\"<>|/\n]{1,200}\.[A-Za-z0-9]{1,5}"
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
    """The values of the request, in the order they stand."""
    text = text[:MAX_REQUEST_LENGTH]
    read = list(_convert_entities(text, signals.entities, today))
    quoted = [value for value in read if value.kind is ValueKind.TEXT]
    # A quotation is one thing, even where it holds another.
    outside = [value for value in read if value.kind is ValueKind.TEXT or not _is_within(value, quoted)]
    own = [value for value in extract_extra_values(text) if not _is_within(value, quoted)]
    kept = [value for value in outside if not _is_part_of_value(value, own)]
    kept += [
        value
        for value in own
        if value.kind not in (ValueKind.PATH, ValueKind.NAME) or not _is_within(value, kept)
    ]
    kept += [
        replace(value, kind=ValueKind.PATH) for value in quoted if _LOOKS_LIKE_PATH.fullmatch(value.text)
    ]
    ordered = sorted(kept, key=lambda value: (value.start, value.end, value.kind))
    return share_roles([add_context(value, text) for value in ordered[:MAX_VALUES]], text)


def _is_within(value: RequestValue, others: Iterable[RequestValue]) -> bool:
    return any(value is not other and value.overlaps_with(other) for other in others)


def _is_part_of_value(value: RequestValue, own: Iterable[RequestValue]) -> bool:
    """Whether a number is only a piece of something else that was found: an IP address, a revision."""
    return value.kind in (ValueKind.NUMBER, ValueKind.TIME, ValueKind.DATE) and any(
        value.overlaps_with(other) and other.kind in _CONTAINING_KINDS for other in own
    )


def _convert_entities(text: str, entities: tuple[Entity, ...], today: date) -> Iterator[RequestValue]:
    for entity, start in locate_entities(text, entities):
        value = _convert_entity(entity, start, text, today)
        if value is not None:
            yield value


def locate_entities(text: str, entities: tuple[Entity, ...]) -> Iterator[tuple[Entity, int]]:
    """The signals' entities and where they stand in the text. They come in order; only quotations overlap."""
    begun = ended = 0
    for entity in entities:
        quoted = entity.kind is EntityKind.QUOTED
        start = _find_whole_word(text, entity.text, begun if quoted else ended)
        if start is None:
            continue
        begun = start
        ended = start if quoted else start + len(entity.text)
        yield entity, start


def _find_whole_word(text: str, wanted: str, cursor: int) -> int | None:
    """Where it stands as a word of its own, from the cursor on."""
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
    """Whether a number or a Latin word goes on: a Hebrew preposition may stand right before either."""
    return neighbour.isalnum() and neighbour.isascii() and edge.isalnum() and edge.isascii()


def _convert_entity(entity: Entity, start: int, text: str, today: date) -> RequestValue | None:
    end = start + len(entity.text)
    bare = RequestValue(kind=ValueKind.TEXT, text=entity.text, start=start, end=end, reading=entity.text)
    match entity.kind:
        case EntityKind.QUOTED:
            return bare
        case EntityKind.NUMBER:
            return _parse_number(bare, text)
        case EntityKind.DATE if is_datetime(entity.text):
            return replace(bare, kind=ValueKind.MOMENT)
        case EntityKind.DATE:
            return replace(bare, kind=ValueKind.DATE, reading=parse_day(entity.text, today))
        case EntityKind.TIME:
            return replace(bare, kind=ValueKind.TIME, reading=parse_time(entity.text, text[end : end + 40]))
        case _:
            return replace(bare, kind=_ENTITY_KINDS[entity.kind])


def _parse_number(bare: RequestValue, text: str) -> RequestValue | None:
    """The number without its unit. A piece of a version, a ratio or a size (`800x600`) is no number."""
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
    sign = bare.text[0] if bare.text[0] in "$€£₪¥" else ""
    return replace(
        bare,
        kind=ValueKind.NUMBER,
        start=start,
        end=end,
        text=digits,
        reading=reading,
        unit=sign + found[2].lower(),
    )

"""The things in a request that a tool would take as arguments."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from fingerpost.narrow.signals.patterns import (
    ENTITY_PATTERNS,
    GLUED_PREFIXES,
    QUOTED_TEXT,
    TRAILING_PUNCTUATION,
)
from fingerpost.records import Entity, EntityKind

MAX_ENTITIES: Final = 40
_OPEN_ENDED_KINDS: Final = frozenset(
    {EntityKind.URL, EntityKind.PATH}
)  # their pattern may run into punctuation

TextSpan = tuple[int, int]


def find_entities(text: str) -> tuple[Entity, ...]:
    """Paths, addresses, dates, times, ids, amounts and quotations, in the order they stand."""
    found: list[tuple[TextSpan, Entity]] = []
    taken: list[TextSpan] = []
    lowered = text.lower()
    for look in ENTITY_PATTERNS:
        if look.needs.search(lowered) is None:
            continue
        new = [item for item in _iterate_matches(look.kind, look.pattern, text) if _is_free(item[0], taken)]
        found.extend(new)
        taken.extend(span for span, _ in new)
    # A quotation is one thing even where it holds another: "save it as 'notes.txt'".
    found.extend(_iterate_matches(EntityKind.QUOTED, QUOTED_TEXT, text))
    found.sort(key=lambda item: item[0])
    return tuple(entity for _, entity in found[:MAX_ENTITIES])


def _iterate_matches(
    kind: EntityKind, pattern: re.Pattern[str], text: str
) -> Iterator[tuple[TextSpan, Entity]]:
    for count, match in enumerate(pattern.finditer(text)):
        if count >= MAX_ENTITIES:
            return
        start, end = match.span(match.lastindex or 0)
        if glued := GLUED_PREFIXES.match(text[start:end]):
            start += glued.end()
        if kind in _OPEN_ENDED_KINDS:
            end -= len(text[start:end]) - len(text[start:end].rstrip(TRAILING_PUNCTUATION))
        if start < end:
            yield (start, end), Entity(kind=kind, text=text[start:end])


def _is_free(span: TextSpan, taken: list[TextSpan]) -> bool:
    return all(span[1] <= start or end <= span[0] for start, end in taken)

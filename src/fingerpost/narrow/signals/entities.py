"""The things in a request that a tool would take as arguments."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from fingerpost.narrow.signals.patterns import GLUED, PATTERNS, QUOTED, TRAILING
from fingerpost.records import Entity, EntityKind

MOST_ENTITIES: Final = 40
_OPEN: Final = frozenset({EntityKind.URL, EntityKind.PATH})  # their pattern may run into punctuation

Span = tuple[int, int]


def entities(text: str) -> tuple[Entity, ...]:
    """Paths, addresses, dates, times, ids, amounts and quotations, in the order they stand."""
    found: list[tuple[Span, Entity]] = []
    taken: list[Span] = []
    lowered = text.lower()
    for look in PATTERNS:
        if look.needs.search(lowered) is None:
            continue
        new = [item for item in _matches(look.kind, look.pattern, text) if _free(item[0], taken)]
        found.extend(new)
        taken.extend(span for span, _ in new)
    # A quotation is one thing even where it holds another: "save it as 'notes.txt'".
    found.extend(_matches(EntityKind.QUOTED, QUOTED, text))
    found.sort(key=lambda item: item[0])
    return tuple(entity for _, entity in found[:MOST_ENTITIES])


def _matches(kind: EntityKind, pattern: re.Pattern[str], text: str) -> Iterator[tuple[Span, Entity]]:
    for count, match in enumerate(pattern.finditer(text)):
        if count >= MOST_ENTITIES:
            return
        start, end = match.span(match.lastindex or 0)
        if glued := GLUED.match(text[start:end]):
            start += glued.end()
        if kind in _OPEN:
            end -= len(text[start:end]) - len(text[start:end].rstrip(TRAILING))
        if start < end:
            yield (start, end), Entity(kind=kind, text=text[start:end])


def _free(span: Span, taken: list[Span]) -> bool:
    return all(span[1] <= start or end <= span[0] for start, end in taken)

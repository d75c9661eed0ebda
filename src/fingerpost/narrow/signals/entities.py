"""Entities in a request: paths, addresses, dates, times, ids, amounts and quoted texts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from fingerpost.data_files import read_sections
from fingerpost.frozen import frozen
from fingerpost.records import Entity, EntityKind

# One or two Hebrew letters joined to a Latin name by a hyphen are a preposition: `ב-main.py`.
GLUED_PREFIXES: Final = re.compile(r"^[א-ת]{1,3}-(?=[\w~/.])")
TRAILING_PUNCTUATION: Final = ".,;:!?)]}>״\"'"


@frozen(kw_only=False)
class EntityPattern:
    """One kind of entity, its pattern, and a cheap check that a lower-case text must pass first."""

    kind: EntityKind
    pattern: re.Pattern[str]
    prefilter: re.Pattern[str]


def _read_patterns() -> Iterator[EntityPattern]:
    sections = read_sections("fingerpost.narrow", "words/entities.txt")
    lists = {title: "|".join(text.split()) for title, text in sections.items() if title[0] == "§"}
    for title, text in sections.items():
        if title not in lists:
            prefilter, *alternatives = text.strip().splitlines()
            pattern = _LIST_NAME.sub(lambda name: lists[name[0]], "|".join(alternatives))
            kind = EntityKind(title.partition(":")[0])
            yield EntityPattern(kind, re.compile(pattern, re.IGNORECASE), re.compile(prefilter))


_LIST_NAME: Final = re.compile("§[^§]+§")
*ENTITY_PATTERNS, _QUOTED_TEXT = _read_patterns()


MAX_ENTITIES: Final = 40
_OPEN_ENDED_KINDS: Final = frozenset(
    {EntityKind.URL, EntityKind.PATH}
)  # their patterns may include trailing punctuation

TextSpan = tuple[int, int]


def find_entities(text: str) -> tuple[Entity, ...]:
    """Return paths, addresses, dates, times, ids, amounts and quoted texts, in text order."""
    found: list[tuple[TextSpan, Entity]] = []
    taken: list[TextSpan] = []
    lowered = text.lower()
    for entity_pattern in ENTITY_PATTERNS:
        if entity_pattern.prefilter.search(lowered) is None:
            continue
        new = [
            item
            for item in _iterate_matches(entity_pattern.kind, entity_pattern.pattern, text)
            if _is_free(item[0], taken)
        ]
        found.extend(new)
        taken.extend(span for span, _ in new)
    # A quoted text is an entity even if it contains another: "save it as 'notes.txt'".
    found.extend(_iterate_matches(EntityKind.QUOTED, _QUOTED_TEXT.pattern, text))
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

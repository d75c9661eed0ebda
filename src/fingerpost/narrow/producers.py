"""The tool that finds what a chosen tool needs.

`close_issue` wants an `issue_id`; a person says "close the issue about the login
page". Somebody has to look that id up first: `search_issues` of the same server.
Only identifiers count, only when the request holds none, and only a tool of the
same server that reads, lists or searches just that kind of thing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from fingerpost.catalog.words import singular, word_set, words
from fingerpost.frozen import frozen
from fingerpost.narrow.columns import Columns, Scores
from fingerpost.records import Effect, EntityKind, Json, Signals, ToolCard

_IDENTIFIER: Final = word_set("id ids uuid guid key slug handle sku")
_FINDS: Final = word_set("list search find query lookup browse resolve autocomplete all")
_READS: Final = word_set("get fetch retrieve show")
_VERBS_APART: Final = _FINDS | _READS | word_set("by for of the a an my user s")
# Keys one is given, not finds.
_SECRET: Final = word_set("api access auth session secret client app application private public token")
_GIVEN: Final = frozenset({EntityKind.ID, EntityKind.QUOTED})
_SHORT_NUMBER: Final = re.compile(r"(?<![\w.])#?\d{2,}(?![\w.])")


@frozen(kw_only=False)
class Production:
    """A tool that finds `argument` for the tool `wanted_by`."""

    row: int
    argument: str
    wanted_by: int

    def reason(self, columns: Columns) -> str:
        return f"finds the {self.argument} that {columns.cards[self.wanted_by].name} needs"


def producer(
    columns: Columns, row: int, text: str, signals: Signals, base: Scores, may: Iterable[int]
) -> Production | None:
    """A tool among `may` that finds an identifier `row` requires and the request does not hold."""
    if any(entity.kind in _GIVEN for entity in signals.entities) or _SHORT_NUMBER.search(text):
        return None
    card = columns.cards[row]
    neighbours = [other for other in may if other != row and columns.cards[other].server == card.server]
    for argument in card.intelligence.parameters.required:
        thing = _thing(argument, card)
        if thing is None:
            continue
        finders = [other for other in neighbours if _finds(columns.cards[other], thing, argument)]
        if finders:
            best = max(finders, key=lambda other: (_searches(columns.cards[other]), float(base[other])))
            return Production(best, argument, row)
    return None


def _thing(argument: str, card: ToolCard) -> str | None:
    """What kind of thing the argument identifies: `issue_id` an issue, the bare `id` of `close_issue` too."""
    parts = words(argument)
    if not parts or parts[-1] not in _IDENTIFIER or _SECRET.intersection(parts):
        return None
    if len(parts) > 1:
        return singular(parts[-2])
    named = [word for word in words(card.name) if word not in _VERBS_APART]
    return singular(named[-1]) if len(named) > 1 else None


def _finds(card: ToolCard, thing: str, argument: str) -> bool:
    if card.effect.value is not Effect.READ or argument in card.intelligence.parameters.required:
        return False
    named = words(card.name)
    of_that_kind = any(singular(word) == thing for word in named)
    several = any(word != thing and singular(word) == thing for word in named)
    if not of_that_kind:
        return False
    asks_for_one = any(
        parts[-1] in _IDENTIFIER for name in card.intelligence.parameters.required if (parts := words(name))
    )
    if asks_for_one:
        return False
    return (
        bool(_FINDS.intersection(named))
        or (several and bool(_READS.intersection(named)))
        or _yields(card, argument)
    )


def _searches(card: ToolCard) -> bool:
    return not _FINDS.isdisjoint(words(card.name))


def _yields(card: ToolCard, argument: str) -> bool:
    """Its output schema has that very field, at the top or in what it lists."""
    schema = card.definition.get("outputSchema")
    return isinstance(schema, Mapping) and _has_field(schema, argument, depth=4)


def _has_field(schema: Mapping[str, Json], name: str, depth: int) -> bool:
    properties = schema.get("properties")
    if isinstance(properties, Mapping) and name in properties:
        return True
    if not depth:
        return False
    inner = [*properties.values()] if isinstance(properties, Mapping) else []
    inner.append(schema.get("items"))
    return any(isinstance(part, Mapping) and _has_field(part, name, depth - 1) for part in inner[:64])

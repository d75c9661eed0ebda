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

from fingerpost.catalog.words import parse_word_set, split_words, to_singular
from fingerpost.frozen import frozen
from fingerpost.narrow.columns import Scores, ToolColumns
from fingerpost.records import Effect, EntityKind, Json, Signals, ToolCard

_IDENTIFIER_WORDS: Final = parse_word_set("id ids uuid guid key slug handle sku")
_FIND_VERBS: Final = parse_word_set("list search find query lookup browse resolve autocomplete all")
_READ_VERBS: Final = parse_word_set("get fetch retrieve show")
_NON_SUBJECT_WORDS: Final = _FIND_VERBS | _READ_VERBS | parse_word_set("by for of the a an my user s")
# Keys one is given, not finds.
_SECRET_WORDS: Final = parse_word_set(
    "api access auth session secret client app application private public token"
)
_GIVEN_KINDS: Final = frozenset({EntityKind.ID, EntityKind.QUOTED})
_SHORT_NUMBER: Final = re.compile(r"(?<![\w.])#?\d{2,}(?![\w.])")


@frozen(kw_only=False)
class Prerequisite:
    """A tool that finds `argument` for the tool `wanted_by`."""

    row: int
    argument: str
    wanted_by: int

    def format_reason(self, columns: ToolColumns) -> str:
        return f"finds the {self.argument} that {columns.cards[self.wanted_by].name} needs"


def find_prerequisite(
    columns: ToolColumns, row: int, text: str, signals: Signals, base: Scores, candidates: Iterable[int]
) -> Prerequisite | None:
    """A tool among `may` that finds an identifier `row` requires and the request does not hold."""
    if any(entity.kind in _GIVEN_KINDS for entity in signals.entities) or _SHORT_NUMBER.search(text):
        return None
    card = columns.cards[row]
    neighbours = [
        other for other in candidates if other != row and columns.cards[other].server == card.server
    ]
    for argument in card.intelligence.parameters.required:
        thing = _get_identified_thing(argument, card)
        if thing is None:
            continue
        finders = [other for other in neighbours if _can_find(columns.cards[other], thing, argument)]
        if finders:
            best = max(finders, key=lambda other: (_is_search_tool(columns.cards[other]), float(base[other])))
            return Prerequisite(best, argument, row)
    return None


def _get_identified_thing(argument: str, card: ToolCard) -> str | None:
    """What kind of thing the argument identifies: `issue_id` an issue, the bare `id` of `close_issue` too."""
    parts = split_words(argument)
    if not parts or parts[-1] not in _IDENTIFIER_WORDS or _SECRET_WORDS.intersection(parts):
        return None
    if len(parts) > 1:
        return to_singular(parts[-2])
    named = [word for word in split_words(card.name) if word not in _NON_SUBJECT_WORDS]
    return to_singular(named[-1]) if len(named) > 1 else None


def _can_find(card: ToolCard, thing: str, argument: str) -> bool:
    if card.effect.value is not Effect.READ or argument in card.intelligence.parameters.required:
        return False
    named = split_words(card.name)
    of_that_kind = any(to_singular(word) == thing for word in named)
    several = any(word != thing and to_singular(word) == thing for word in named)
    if not of_that_kind:
        return False
    asks_for_one = any(
        parts[-1] in _IDENTIFIER_WORDS
        for name in card.intelligence.parameters.required
        if (parts := split_words(name))
    )
    if asks_for_one:
        return False
    return (
        bool(_FIND_VERBS.intersection(named))
        or (several and bool(_READ_VERBS.intersection(named)))
        or _returns_field(card, argument)
    )


def _is_search_tool(card: ToolCard) -> bool:
    return not _FIND_VERBS.isdisjoint(split_words(card.name))


def _returns_field(card: ToolCard, argument: str) -> bool:
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

"""Where to turn when a tool fails, and which tools not to offer together.

These are facts about tools in relation to each other, so they are worked out
for a whole snapshot. What is written names tools by key, exposed name or bare
name and may name several; here it becomes keys of tools that are there now.

A fallback nobody wrote is inferred with care. It must answer the same question
from another server: the same category, one whose tools look at the world
rather than at something of the user's (a file, a database, a mailbox), and by
the tool's own words, whatever its server is called; the same purpose by name;
reading only; and no argument required that the first tool does not take. Servers
whose names say which of several worlds they are in (`prod`, `staging`) never stand
in for another: what holds in one does not hold in the next.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from fingerpost.catalog.categories import classify
from fingerpost.catalog.knowledge import plain_name
from fingerpost.catalog.words import singular, word_set, words
from fingerpost.records import Effect, Known, Source, ToolCard

MOST_FALLBACKS: Final = 3
MOST_LINKS: Final = 16
_CANDIDATES: Final = 32

_INTERCHANGEABLE: Final = frozenset({"web_search", "web_page", "time_place"})
_SAYS_NOTHING: Final = word_set("get web internet online the current tool")
# What a server may be called after and its tools still do.
_PURPOSES: Final = word_set(
    "browser crawl date direction fetch forecast geocode map maps news page place research scrape search"
    " time timezone weather"
)
_WORLDS: Final = word_set(
    "prod production live staging stage stg preprod dev devel development test testing qa uat sandbox demo"
    " preview canary local backup mirror replica blue green tenant"
)

_NOT_THERE: Final = "; not there: "
_Group = tuple[str, frozenset[str]]


def link(cards: Sequence[ToolCard]) -> tuple[ToolCard, ...]:
    """The same cards, with fallbacks and conflicts naming the tools that are there."""
    groups = _groups(cards)
    directory = _directory(cards) if any(_refers(card) for card in cards) else {}
    return tuple(_linked(card, groups, directory) for card in cards)


def may_have_more_fallbacks(card: ToolCard) -> bool:
    """Whether servers that are not connected yet may have tools that this one falls back to."""
    hierarchy = card.intelligence.hierarchy
    if hierarchy.source is Source.WRITTEN:
        return _NOT_THERE in hierarchy.reason
    return _group(card) is not None


def _refers(card: ToolCard) -> bool:
    known = card.intelligence
    return bool(known.hierarchy.value or known.conflicts.value)


def _linked(
    card: ToolCard, groups: dict[_Group, list[ToolCard]], directory: dict[str, list[str]]
) -> ToolCard:
    known = card.intelligence
    if known.hierarchy.source is Source.WRITTEN:
        hierarchy = _resolved(known.hierarchy, card.key, directory)
    else:
        hierarchy = _inferred(card, groups) or known.hierarchy
    conflicts = _resolved(known.conflicts, card.key, directory)
    if hierarchy is known.hierarchy and conflicts is known.conflicts:
        return card
    return replace(card, intelligence=replace(known, hierarchy=hierarchy, conflicts=conflicts))


def _directory(cards: Iterable[ToolCard]) -> dict[str, list[str]]:
    """Every way to name a tool, to the keys it may mean."""
    directory: dict[str, list[str]] = {}
    for card in cards:
        for name in {card.key, card.exposed_name, plain_name(card.name)}:
            directory.setdefault(name, []).append(card.key)
    return directory


def _resolved(
    written: Known[tuple[str, ...]], own: str, directory: dict[str, list[str]]
) -> Known[tuple[str, ...]]:
    """Written names as keys; names of nothing stay in the reason, so that a slip can be seen."""
    if not written.value:
        return written
    keys: dict[str, None] = {}
    missing: list[str] = []
    for name in written.value:
        found = directory.get(name) or directory.get(plain_name(name)) or []
        if not found:
            missing.append(name)
        keys.update(dict.fromkeys(key for key in found[:MOST_LINKS] if key != own))
    reason = f"{written.reason}{_NOT_THERE}{', '.join(missing)}" if missing else written.reason
    return Known(tuple(keys)[:MOST_LINKS], written.source, reason)


def _groups(cards: Iterable[ToolCard]) -> dict[_Group, list[ToolCard]]:
    """Interchangeable tools by purpose: the best of each server, best first."""
    best: dict[_Group, dict[str, ToolCard]] = {}
    for card in cards:
        if (group := _group(card)) is None:
            continue
        of_server = best.setdefault(group, {})
        rival = of_server.get(card.server)
        if rival is None or _rank(card) < _rank(rival):
            of_server[card.server] = card
    return {
        group: sorted(of_server.values(), key=_rank)[:_CANDIDATES]
        for group, of_server in best.items()
        if len(of_server) > 1
    }


def _rank(card: ToolCard) -> tuple[int, str]:
    return (-card.intelligence.priority.value, card.key)


def _group(card: ToolCard) -> _Group | None:
    category = card.intelligence.category.value
    if category not in _INTERCHANGEABLE or card.effect.value is not Effect.READ:
        return None
    if not _WORLDS.isdisjoint(words(card.server)) or not _is_its_own(card):
        return None
    # The maker's name is no purpose: `tavily-search` of server `tavily` is a search.
    brand = set(words(card.server)) - _PURPOSES
    purpose = frozenset(singular(word) for word in words(card.name) if word not in brand) - _SAYS_NOTHING
    return (category, purpose) if purpose else None


def _is_its_own(card: ToolCard) -> bool:
    """Whether the category is said by the tool itself or by a person, and not by its server's name alone."""
    category = card.intelligence.category
    return (
        category.source is not Source.INFERRED
        or classify("", card.name, card.description)[0] == category.value
    )


def _inferred(card: ToolCard, groups: dict[_Group, list[ToolCard]]) -> Known[tuple[str, ...]] | None:
    group = _group(card) if groups else None
    if group is None or group not in groups:
        return None
    own = card.intelligence.parameters
    taken = {*own.required, *own.optional}
    keys = tuple(
        other.key
        for other in groups[group]
        if other.server != card.server and taken.issuperset(other.intelligence.parameters.required)
    )
    if not keys:
        return None
    return Known(keys[:MOST_FALLBACKS], Source.INFERRED, "reads the same kind of thing on another server")

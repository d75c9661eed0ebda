"""What tips the scales between tools whose texts suit a request about equally.

Each adjustment is bounded, has its own line in every explanation, and is silent
when its signal is absent: a plain request over tools nobody wrote anything about
is ranked by its text alone. The table below is the whole of what they may do;
for comparison, the best tool for a request usually has a base score of 0.4 to
0.7, and the second is a few hundredths behind.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np

from fingerpost.catalog.categories import OFFICIAL_DATA
from fingerpost.narrow.columns import Columns, Rows, Scores
from fingerpost.narrow.experience import Evidence
from fingerpost.narrow.shares import Share
from fingerpost.narrow.signals.mood import asks_whether
from fingerpost.records import Effort, EntityKind, Signals

TOOL_MENTIONED: Final = 0.30  # the request names the tool: strong, and yet not absolute
SERVER_MENTIONED: Final = 0.08
INTENT: Final = 0.01  # the tool's category is what the request is about, at full certainty
KEYWORD: Final = 0.05  # a word a person wrote for the tool, times its weight
MOST_KEYWORDS: Final = 0.15
EXCLUSIVE_INTENT: Final = 0.5  # certainty from which the request's first category is its intent
PRIORITY: Final = 0.03  # at priority 100; as much taken at 0
URGENT_AND_SLOW: Final = -0.06  # for the slowest tier
EFFORT_AND_SLOW: Final = 0.06  # taken from the slowest tier for a quick answer, given for a thorough one
UNWELL: Final = -0.50  # its server cannot be reached: behind everything that can
CHANGES_BUT_ASKED: Final = (
    -0.2
)  # of its base: it destroys something, and the request only asks; writing: less
WANTS_AN_ID: Final = -0.25  # of its base: it needs an id; the request asks whether there is something
RECALLS: Final = 0.25  # it looks into what was written down, and that is asked for
TAKES_ENTITY: Final = 0.12  # the request names a file or an address, and it has a parameter for one
LEARNED: Final = 0.10  # at most, either way
FALLBACK_REACH: Final = 0.7  # the share of its fallback's score with which a tool still goes first
FALLBACK_STEP: Final = 0.001
EXCLUSIVE_STEP: Final = 0.1  # how far an exclusive tool stands before all others

_WORD: Final = re.compile(r"\w+")


def adjustments(columns: Columns, text: str, signals: Signals) -> Iterator[Share]:
    """Everything that speaks for or against tools apart from their text."""
    yield from _mentions(columns, signals)
    yield from _intents(columns, signals)
    yield from _keywords(columns, text, signals)
    if signals.recalls and columns.recalls.any():
        note = "it looks into what was written down or remembered"
        yield Share(signal="recall", points=RECALLS * columns.recalls, note=note)
    for kind, thing in ((EntityKind.PATH, "file"), (EntityKind.URL, "address")):
        named = next((entity.text for entity in signals.entities if entity.kind is kind), None)
        if named is not None and (rows := columns.takes.get(kind)) is not None:
            yield _on(columns, "entity", rows, TAKES_ENTITY, f"it takes a {thing}: {named[:60]}")
    if columns.priority.any():
        yield Share(signal="priority", points=PRIORITY * columns.priority, note="the priority it was given")
    if signals.urgent and columns.slowness.any():
        yield Share(
            signal="latency", points=URGENT_AND_SLOW * columns.slowness, note="it is slow, and this is urgent"
        )


def mood(columns: Columns, base: Scores, text: str, signals: Signals) -> Iterator[Share]:
    """Tools that change something lose a part of their base where the request only asks."""
    if signals.asks and columns.changes.any():
        points = np.asarray(CHANGES_BUT_ASKED * columns.changes * np.maximum(base, 0), np.float32)
        yield Share(
            signal="mood", points=points, note="the request only asks, and this tool changes something"
        )
    named = any(entity.kind is EntityKind.ID for entity in signals.entities)
    if columns.wants_id.any() and not named and asks_whether(text):
        points = np.asarray(WANTS_AN_ID * columns.wants_id * np.maximum(base, 0), np.float32)
        yield Share(signal="arguments", points=points, note="it needs an id, and the request names none")


def effort_share(columns: Columns, effort: Effort | None) -> Iterator[Share]:
    """A quick answer takes points from slow tools, a thorough one gives them some."""
    if effort is None or not columns.slowness.any():
        return
    points = EFFORT_AND_SLOW if effort is Effort.THOROUGH else -EFFORT_AND_SLOW
    note = f"it is slow, and a {effort} answer is wanted"
    yield Share(signal="latency", points=points * columns.slowness, note=note)


def unwell(columns: Columns, health: Mapping[str, str]) -> Iterator[Share]:
    """Tools of servers that cannot be used now sink, and say why."""
    for server, reason in health.items():
        if (rows := columns.by_server.get(server)) is not None:
            yield _on(columns, "health", rows, UNWELL, f"{server} cannot be used now: {reason}")


def learned(columns: Columns, known: Mapping[int, Evidence]) -> Share | None:
    """What worked or failed for similar requests, by row, within its bounds."""
    points = np.zeros(columns.size, np.float32)
    for row, evidence in known.items():
        points[row] = LEARNED * evidence.score
    notes = {row: evidence.note for row, evidence in known.items()}
    return Share(signal="learned", points=points, notes=notes) if points.any() else None


def hierarchy(columns: Columns, scores: Scores) -> Share | None:
    """A tool stands before the fallback a person wrote for it, when both suit the request."""
    points = np.zeros(columns.size, np.float32)
    notes: dict[int, str] = {}
    for first, second in columns.ranked_pairs:
        gap = float(scores[second] - scores[first])
        if gap >= 0 and scores[first] >= FALLBACK_REACH * scores[second]:
            points[first] = max(points[first], np.float32(gap + FALLBACK_STEP))
            notes[first] = f"goes before {columns.cards[second].key}, which stands in for it"
    return Share(signal="hierarchy", points=points, notes=notes) if notes else None


def exclusive_intents(columns: Columns, text: str, signals: Signals) -> Mapping[int, str]:
    """The tools whose exclusive intent the request has, by row, each with the intent."""
    if not columns.exclusive:
        return {}
    meant = {intent.category for intent in signals.intents if intent.category == OFFICIAL_DATA}
    if signals.intents and signals.intents[0].score >= EXCLUSIVE_INTENT:
        meant.add(signals.intents[0].category)
    spoken = {row for row, _, _ in _spoken_keywords(columns, text, signals)}
    return {row: intent for row, intent in columns.exclusive if intent in meant or row in spoken}


def exclusive(columns: Columns, scores: Scores, found: Mapping[int, str], eligible: Rows) -> Share | None:
    """Tools that alone are offered for an intent stand before all others."""
    rows = [row for row in found if row in eligible]
    others = eligible[~np.isin(eligible, rows)]
    if not rows or not len(others):
        return None
    points = np.zeros(columns.size, np.float32)
    for row in rows:
        points[row] = max(0.0, float(scores[others].max() - scores[row])) + EXCLUSIVE_STEP
    notes = {
        row: f"the request asks for {found[row]}, and only this tool is offered for that" for row in rows
    }
    return Share(signal="exclusive", points=points, notes=notes)


def _on(columns: Columns, signal: str, rows: Rows, points: float, note: str) -> Share:
    column = np.zeros(columns.size, np.float32)
    column[rows] = points
    return Share(signal=signal, points=column, note=note)


def _mentions(columns: Columns, signals: Signals) -> Iterator[Share]:
    for mention in signals.mentions:
        note = f"the request names it: {mention.text}"
        if mention.kind == "tool":
            if (row := columns.rows.get(mention.name)) is not None:
                yield _on(columns, "mention", np.array([row], np.intp), TOOL_MENTIONED, note)
        elif (rows := columns.by_server.get(mention.name)) is not None:
            yield _on(
                columns, "mention", rows, SERVER_MENTIONED, f"the request names its server: {mention.text}"
            )


def _intents(columns: Columns, signals: Signals) -> Iterator[Share]:
    for intent in signals.intents:
        rows = columns.by_category.get(intent.category)
        if rows is not None and intent.score > 0:
            words = ", ".join(intent.words[:4])
            note = f"the request is about {intent.category}" + (f" ({words})" if words else "")
            yield _on(columns, "intent", rows, INTENT * min(intent.score, 1.0), note)


def _keywords(columns: Columns, text: str, signals: Signals) -> Iterator[Share]:
    points = np.zeros(columns.size, np.float32)
    notes: dict[int, str] = {}
    for row, found, weight in _spoken_keywords(columns, text, signals):
        if weight > 0:
            points[row] = min(KEYWORD * weight * len(found), MOST_KEYWORDS)
            notes[row] = f"words that speak for it: {', '.join(found[:4])}"
    if notes:
        yield Share(signal="keywords", points=points, notes=notes)


def _spoken_keywords(columns: Columns, text: str, signals: Signals) -> Iterator[tuple[int, list[str], float]]:
    """Which of the words a person wrote for tools stand in the request: row, words, weight."""
    if not columns.spoken_for:
        return
    said = f"{text} {signals.gloss}".casefold()
    spoken = set(_WORD.findall(said))
    for row, keywords, weight in columns.spoken_for:
        found = [word for word in sorted(keywords) if (word in said if " " in word else word in spoken)]
        if found:
            yield row, found, weight

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
from fingerpost.narrow.columns import Rows, Scores, ToolColumns
from fingerpost.narrow.experience import ToolHistory
from fingerpost.narrow.shares import ScoreContribution
from fingerpost.narrow.signals.mood import is_asking_whether
from fingerpost.records import Effort, EntityKind, Signals

TOOL_MENTION_POINTS: Final = 0.30  # the request names the tool: strong, and yet not absolute
SERVER_MENTION_POINTS: Final = 0.08
INTENT_POINTS: Final = 0.01  # the tool's category is what the request is about, at full certainty
KEYWORD_POINTS: Final = 0.05  # a word a person wrote for the tool, times its weight
MAX_KEYWORD_POINTS: Final = 0.15
MIN_EXCLUSIVE_INTENT: Final = 0.5  # certainty from which the request's first category is its intent
PRIORITY_POINTS: Final = 0.03  # at priority 100; as much taken at 0
URGENT_SLOW_POINTS: Final = -0.06  # for the slowest tier
EFFORT_SLOW_POINTS: Final = 0.06  # taken from the slowest tier for a quick answer, given for a thorough one
UNHEALTHY_POINTS: Final = -0.50  # its server cannot be reached: behind everything that can
CHANGE_IN_QUESTION_SHARE: Final = (
    -0.2
)  # of its base: it destroys something, and the request only asks; writing: less
MISSING_ID_SHARE: Final = -0.25  # of its base: it needs an id; the request asks whether there is something
RECALL_POINTS: Final = 0.25  # it looks into what was written down, and that is asked for
ENTITY_POINTS: Final = 0.12  # the request names a file or an address, and it has a parameter for one
HISTORY_POINTS: Final = 0.10  # at most, either way
MIN_FALLBACK_SHARE: Final = 0.7  # the share of its fallback's score with which a tool still goes first
FALLBACK_STEP: Final = 0.001
EXCLUSIVE_STEP: Final = 0.1  # how far an exclusive tool stands before all others

_KEYWORD_WORD: Final = re.compile(r"\w+")


def compute_adjustments(columns: ToolColumns, text: str, signals: Signals) -> Iterator[ScoreContribution]:
    """Everything that speaks for or against tools apart from their text."""
    yield from _adjust_for_mentions(columns, signals)
    yield from _adjust_for_intents(columns, signals)
    yield from _adjust_for_keywords(columns, text, signals)
    if signals.recalls and columns.recalls.any():
        note = "it looks into what was written down or remembered"
        yield ScoreContribution(signal="recall", points=RECALL_POINTS * columns.recalls, note=note)
    for kind, thing in ((EntityKind.PATH, "file"), (EntityKind.URL, "address")):
        named = next((entity.text for entity in signals.entities if entity.kind is kind), None)
        if named is not None and (rows := columns.takes.get(kind)) is not None:
            yield _build_contribution(
                columns, "entity", rows, ENTITY_POINTS, f"it takes a {thing}: {named[:60]}"
            )
    if columns.priority.any():
        yield ScoreContribution(
            signal="priority", points=PRIORITY_POINTS * columns.priority, note="the priority it was given"
        )
    if signals.urgent and columns.slowness.any():
        yield ScoreContribution(
            signal="latency",
            points=URGENT_SLOW_POINTS * columns.slowness,
            note="it is slow, and this is urgent",
        )


def adjust_for_mood(
    columns: ToolColumns, base: Scores, text: str, signals: Signals
) -> Iterator[ScoreContribution]:
    """Tools that change something lose a part of their base where the request only asks."""
    if signals.asks and columns.changes.any():
        points = np.asarray(CHANGE_IN_QUESTION_SHARE * columns.changes * np.maximum(base, 0), np.float32)
        yield ScoreContribution(
            signal="mood", points=points, note="the request only asks, and this tool changes something"
        )
    named = any(entity.kind is EntityKind.ID for entity in signals.entities)
    if columns.wants_id.any() and not named and is_asking_whether(text):
        points = np.asarray(MISSING_ID_SHARE * columns.wants_id * np.maximum(base, 0), np.float32)
        yield ScoreContribution(
            signal="arguments", points=points, note="it needs an id, and the request names none"
        )


def adjust_for_effort(columns: ToolColumns, effort: Effort | None) -> Iterator[ScoreContribution]:
    """A quick answer takes points from slow tools, a thorough one gives them some."""
    if effort is None or not columns.slowness.any():
        return
    points = EFFORT_SLOW_POINTS if effort is Effort.THOROUGH else -EFFORT_SLOW_POINTS
    note = f"it is slow, and a {effort} answer is wanted"
    yield ScoreContribution(signal="latency", points=points * columns.slowness, note=note)


def adjust_for_health(columns: ToolColumns, health: Mapping[str, str]) -> Iterator[ScoreContribution]:
    """Tools of servers that cannot be used now sink, and say why."""
    for server, reason in health.items():
        if (rows := columns.by_server.get(server)) is not None:
            yield _build_contribution(
                columns, "health", rows, UNHEALTHY_POINTS, f"{server} cannot be used now: {reason}"
            )


def adjust_for_history(columns: ToolColumns, history: Mapping[int, ToolHistory]) -> ScoreContribution | None:
    """What worked or failed for similar requests, by row, within its bounds."""
    points = np.zeros(columns.size, np.float32)
    for row, evidence in history.items():
        points[row] = HISTORY_POINTS * evidence.score
    notes = {row: evidence.note for row, evidence in history.items()}
    return ScoreContribution(signal="learned", points=points, notes=notes) if points.any() else None


def adjust_for_fallbacks(columns: ToolColumns, scores: Scores) -> ScoreContribution | None:
    """A tool stands before the fallback a person wrote for it, when both suit the request."""
    points = np.zeros(columns.size, np.float32)
    notes: dict[int, str] = {}
    for first, second in columns.ranked_pairs:
        gap = float(scores[second] - scores[first])
        if gap >= 0 and scores[first] >= MIN_FALLBACK_SHARE * scores[second]:
            points[first] = max(points[first], np.float32(gap + FALLBACK_STEP))
            notes[first] = f"goes before {columns.cards[second].key}, which stands in for it"
    return ScoreContribution(signal="hierarchy", points=points, notes=notes) if notes else None


def find_exclusive_intents(columns: ToolColumns, text: str, signals: Signals) -> Mapping[int, str]:
    """The tools whose exclusive intent the request has, by row, each with the intent."""
    if not columns.exclusive:
        return {}
    meant = {intent.category for intent in signals.intents if intent.category == OFFICIAL_DATA}
    if signals.intents and signals.intents[0].score >= MIN_EXCLUSIVE_INTENT:
        meant.add(signals.intents[0].category)
    spoken = {row for row, _, _ in _find_keywords(columns, text, signals)}
    return {row: intent for row, intent in columns.exclusive if intent in meant or row in spoken}


def adjust_for_exclusive_intents(
    columns: ToolColumns, scores: Scores, found: Mapping[int, str], eligible: Rows
) -> ScoreContribution | None:
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
    return ScoreContribution(signal="exclusive", points=points, notes=notes)


def _build_contribution(
    columns: ToolColumns, signal: str, rows: Rows, points: float, note: str
) -> ScoreContribution:
    column = np.zeros(columns.size, np.float32)
    column[rows] = points
    return ScoreContribution(signal=signal, points=column, note=note)


def _adjust_for_mentions(columns: ToolColumns, signals: Signals) -> Iterator[ScoreContribution]:
    for mention in signals.mentions:
        note = f"the request names it: {mention.text}"
        if mention.kind == "tool":
            if (row := columns.rows.get(mention.name)) is not None:
                yield _build_contribution(
                    columns, "mention", np.array([row], np.intp), TOOL_MENTION_POINTS, note
                )
        elif (rows := columns.by_server.get(mention.name)) is not None:
            yield _build_contribution(
                columns,
                "mention",
                rows,
                SERVER_MENTION_POINTS,
                f"the request names its server: {mention.text}",
            )


def _adjust_for_intents(columns: ToolColumns, signals: Signals) -> Iterator[ScoreContribution]:
    for intent in signals.intents:
        rows = columns.by_category.get(intent.category)
        if rows is not None and intent.score > 0:
            words = ", ".join(intent.words[:4])
            note = f"the request is about {intent.category}" + (f" ({words})" if words else "")
            yield _build_contribution(columns, "intent", rows, INTENT_POINTS * min(intent.score, 1.0), note)


def _adjust_for_keywords(columns: ToolColumns, text: str, signals: Signals) -> Iterator[ScoreContribution]:
    points = np.zeros(columns.size, np.float32)
    notes: dict[int, str] = {}
    for row, found, weight in _find_keywords(columns, text, signals):
        if weight > 0:
            points[row] = min(KEYWORD_POINTS * weight * len(found), MAX_KEYWORD_POINTS)
            notes[row] = f"words that speak for it: {', '.join(found[:4])}"
    if notes:
        yield ScoreContribution(signal="keywords", points=points, notes=notes)


def _find_keywords(
    columns: ToolColumns, text: str, signals: Signals
) -> Iterator[tuple[int, list[str], float]]:
    """Which of the words a person wrote for tools stand in the request: row, words, weight."""
    if not columns.keywords:
        return
    said = f"{text} {signals.gloss}".casefold()
    spoken = set(_KEYWORD_WORD.findall(said))
    for row, keywords, weight in columns.keywords:
        found = [word for word in sorted(keywords) if (word in said if " " in word else word in spoken)]
        if found:
            yield row, found, weight

"""Score every tool for every need of a request: text, mentions, intents, health and feedback."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from fingerpost.catalog.words import OFFICIAL_DATA
from fingerpost.errors import FingerpostError
from fingerpost.frozen import frozen
from fingerpost.narrow.components import (
    NarrowComponents,
    Reranker,
    Vector,
    build_scorer_contribution,
    rerank_close_tools,
)
from fingerpost.narrow.features import Rows, Scores, ToolColumns
from fingerpost.narrow.feedback import NO_FEEDBACK, FeedbackAdjustments
from fingerpost.narrow.fusion import (
    ScoreContribution,
    TextEvidence,
    compute_server_bonus,
    fuse_scores,
    sum_contributions,
)
from fingerpost.narrow.gloss.gloss import get_english_text
from fingerpost.narrow.request import NarrowRequest, compute_turn_weights, get_earlier_turns, split_needs
from fingerpost.narrow.scorer import ScorerRequest, split_sentences
from fingerpost.narrow.signals.intents import is_asking_whether, is_wishing_change
from fingerpost.records import Effort, EntityKind, ScorerFailure, Signals
from fingerpost.settings.model import FlagSettings

TOOL_MENTION_POINTS: Final = 0.30  # the request names the tool: strong but not decisive
SERVER_MENTION_POINTS: Final = 0.08
INTENT_POINTS: Final = 0.01  # the request has the tool's category with full certainty
KEYWORD_POINTS: Final = 0.05  # for each written keyword, times its weight
MAX_KEYWORD_POINTS: Final = 0.15
MIN_EXCLUSIVE_INTENT_SCORE: Final = 0.5  # minimum score of the first category to count as the intent
PRIORITY_POINTS: Final = 0.03  # at priority 100; the negative at 0
URGENT_SLOW_POINTS: Final = -0.06  # for the slowest tier
EFFORT_SLOW_POINTS: Final = (
    0.06  # for the slowest tier: subtracted for a quick answer, added for a thorough one
)
UNHEALTHY_POINTS: Final = -0.50  # the server is unusable: ranks after all usable ones
CHANGE_IN_QUESTION_SHARE: Final = (
    -0.35
)  # of the base score, for a destructive tool if the request only asks; less for writing
READ_IN_WISH_SHARE: Final = -0.1  # of the base score, for a tool that only reads if a change is wished
MISSING_ID_SHARE: Final = (
    -0.25
)  # of the base score, if it needs an id and the request asks whether something exists
RECALL_POINTS: Final = 0.25  # the request asks for notes or memories, and the tool searches them
ENTITY_POINTS: Final = 0.12  # the request names a file or an address, and the tool has a parameter for it
MIN_FALLBACK_SHARE: Final = 0.7  # minimum share of the fallback's score for a tool to rank first
FALLBACK_STEP: Final = 0.001
EXCLUSIVE_STEP: Final = 0.1  # lead of an exclusive tool over all others

_KEYWORD_WORD: Final = re.compile(r"\w+")


def compute_adjustments(columns: ToolColumns, text: str, signals: Signals) -> Iterator[ScoreContribution]:
    """Compute all contributions that do not come from the tools' texts."""
    yield from _adjust_for_mentions(columns, signals)
    yield from _adjust_for_intents(columns, signals)
    yield from _adjust_for_keywords(columns, text, signals)
    if signals.recalls and columns.recalls.any():
        note = "it looks into what was written down or remembered"
        yield ScoreContribution(signal="recall", points=RECALL_POINTS * columns.recalls, note=note)
    for kind, thing in ((EntityKind.PATH, "file"), (EntityKind.URL, "address")):
        named = next((entity.text for entity in signals.entities if entity.kind is kind), None)
        if named is not None and (rows := columns.rows_by_entity_kind.get(kind)) is not None:
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
    """Reduce the score of tools that change something if the text only asks, of tools that only read if it
    wishes a change, and of tools that need an unknown id.
    """
    text = get_english_text(text, signals)
    if signals.asks and columns.changes.any():
        points = np.asarray(CHANGE_IN_QUESTION_SHARE * columns.changes * np.maximum(base, 0), np.float32)
        yield ScoreContribution(
            signal="mood", points=points, note="the request only asks, and this tool changes something"
        )
    elif columns.changes.any() and is_wishing_change(text):
        points = np.asarray(READ_IN_WISH_SHARE * columns.reads * np.maximum(base, 0), np.float32)
        yield ScoreContribution(
            signal="mood", points=points, note="the request wishes a change, and this tool only reads"
        )
    named = any(entity.kind is EntityKind.ID for entity in signals.entities)
    if columns.wants_id.any() and not named and is_asking_whether(text):
        points = np.asarray(MISSING_ID_SHARE * columns.wants_id * np.maximum(base, 0), np.float32)
        yield ScoreContribution(
            signal="arguments", points=points, note="it needs an id, and the request names none"
        )


def adjust_for_effort(columns: ToolColumns, effort: Effort | None) -> Iterator[ScoreContribution]:
    """Subtract points from slow tools for a quick answer and add points for a thorough one."""
    if effort is None or not columns.slowness.any():
        return
    points = EFFORT_SLOW_POINTS if effort is Effort.THOROUGH else -EFFORT_SLOW_POINTS
    note = f"it is slow, and a {effort} answer is wanted"
    yield ScoreContribution(signal="latency", points=points * columns.slowness, note=note)


def adjust_for_health(columns: ToolColumns, health: Mapping[str, str]) -> Iterator[ScoreContribution]:
    """Subtract points from tools of unusable servers, with the reason."""
    for server, reason in health.items():
        if (rows := columns.by_server.get(server)) is not None:
            yield _build_contribution(
                columns, "health", rows, UNHEALTHY_POINTS, f"{server} cannot be used now: {reason}"
            )


def adjust_for_fallbacks(columns: ToolColumns, scores: Scores) -> ScoreContribution | None:
    """Rank a tool before its written fallback when both suit the request."""
    points = np.zeros(columns.size, np.float32)
    notes: dict[int, str] = {}
    for first, second in columns.ranked_pairs:
        gap = float(scores[second] - scores[first])
        if gap >= 0 and scores[first] >= MIN_FALLBACK_SHARE * scores[second]:
            points[first] = max(points[first], np.float32(gap + FALLBACK_STEP))
            notes[first] = f"goes before {columns.cards[second].key}, which stands in for it"
    return ScoreContribution(signal="hierarchy", points=points, notes=notes) if notes else None


def find_exclusive_intents(columns: ToolColumns, text: str, signals: Signals) -> Mapping[int, str]:
    """Return the tools with an exclusive intent that the request has, by row, with the intent."""
    if not columns.exclusive:
        return {}
    categories = {intent.category for intent in signals.intents if intent.category == OFFICIAL_DATA}
    if signals.intents and signals.intents[0].score >= MIN_EXCLUSIVE_INTENT_SCORE:
        categories.add(signals.intents[0].category)
    spoken = {row for row, _, _ in _find_keywords(columns, text, signals)}
    return {row: intent for row, intent in columns.exclusive if intent in categories or row in spoken}


def adjust_for_exclusive_intents(
    columns: ToolColumns, scores: Scores, found: Mapping[int, str], eligible: Rows
) -> ScoreContribution | None:
    """Rank the tools with an exclusive intent before all others."""
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
            notes[row] = f"words that select it: {', '.join(found[:4])}"
    if notes:
        yield ScoreContribution(signal="keywords", points=points, notes=notes)


def _find_keywords(
    columns: ToolColumns, text: str, signals: Signals
) -> Iterator[tuple[int, list[str], float]]:
    """Return the written keywords that occur in the request: row, words, weight."""
    if not columns.keywords:
        return
    lowered = f"{text} {signals.gloss}".casefold()
    spoken = set(_KEYWORD_WORD.findall(lowered))
    for row, keywords, weight in columns.keywords:
        found = [word for word in sorted(keywords) if (word in lowered if " " in word else word in spoken)]
        if found:
            yield row, found, weight


MAX_LIKELY_TOOLS: Final = 8  # best tools by words, whose vectors are worth a short wait
OWN_NEED_WEIGHT: Final = 0.3  # weight of a need's own text against the whole request


@frozen
class ScoredTools:
    """The scores by row, for the whole request and for each need."""

    needs: tuple[str, ...]
    evidence: TextEvidence  # of the whole request
    contributions: tuple[tuple[ScoreContribution, ...], ...]  # by need
    whole: Scores
    by_need: tuple[Scores, ...]
    exclusive: tuple[Mapping[int, str], ...]  # by need: rows of exclusive tools, with the intent
    failures: tuple[ScorerFailure, ...] = ()


@dataclass(kw_only=True)
class _ScoreCombiner:
    """Combines the contributions to the scores of one request. A reranker that fails is not asked again."""

    columns: ToolColumns
    eligible: Rows
    common: Sequence[ScoreContribution]  # for the request and each of its needs
    feedback: FeedbackAdjustments
    word_count: int  # of the whole request
    is_mood_used: bool
    reranker: Reranker | None
    failures: tuple[ScorerFailure, ...]

    def combine(
        self, text: str, signals: Signals, evidence: TextEvidence, sole: Mapping[int, str], *, rerank: bool
    ) -> tuple[ScoreContribution, ...]:
        """Return the contributions for a text. With `rerank`, tools with close scores are reranked."""
        own = list(self.common)
        if self.is_mood_used:
            own += adjust_for_mood(self.columns, evidence.base, text, signals)
        combined = self._order(evidence, own, sole)
        if self.reranker is None or not rerank:
            return combined
        scores = sum_contributions(combined, self.columns.size)
        found = rerank_close_tools(self.reranker, text, self.columns, scores, self.eligible)
        if isinstance(found, ScorerFailure):
            self.failures, self.reranker = (*self.failures, found), None
        return (
            self._order(evidence, [*own, found], sole) if isinstance(found, ScoreContribution) else combined
        )

    def _order(
        self, evidence: TextEvidence, own: Sequence[ScoreContribution], sole: Mapping[int, str]
    ) -> tuple[ScoreContribution, ...]:
        """Add text and server, then what decides the order: fallbacks, exclusive tools, feedback."""
        columns, eligible = self.columns, self.eligible
        contributions = (
            *evidence.to_contributions(),
            compute_server_bonus(evidence.base, columns, eligible, words=self.word_count),
            *own,
        )
        order = (
            adjust_for_fallbacks(columns, sum_contributions(contributions, columns.size))
            if columns.ranked_pairs
            else None
        )
        contributions = contributions if order is None else (*contributions, order)
        alone = (
            adjust_for_exclusive_intents(
                columns, sum_contributions(contributions, columns.size), sole, eligible
            )
            if sole
            else None
        )
        contributions = contributions if alone is None else (*contributions, alone)
        if self.feedback is NO_FEEDBACK:
            return contributions
        return (
            *contributions,
            *self.feedback.compute_decisive_points(
                columns, sum_contributions(contributions, columns.size), eligible
            ),
        )


@frozen
class ToolScorer:
    """Scores tools with the given components."""

    components: NarrowComponents
    flags: FlagSettings
    meaning_weight: float | None = None  # by default that of the scorer

    def score(
        self,
        text: str,
        signals: Signals,
        request: NarrowRequest,
        columns: ToolColumns,
        eligible: Rows,
        *,
        rerank: bool = True,
    ) -> ScoredTools:
        """Score the tools. Without `rerank` a configured reranker is not asked."""
        needs = split_needs(text, signals.language) if self.flags.split_needs else (text,)
        # With several needs, the needs are the sentences: encoding them again would
        # cost time and add nothing.
        sentences = needs if len(needs) > 1 else split_sentences(text)
        query = ScorerRequest(
            text=text,
            sentences=sentences,
            needs=needs if len(needs) > 1 else (),
            signals=signals,
            history=request.history,
            used=request.used,
            caller=request.caller,
            profile=request.profile,
            conversation=request.conversation,
        )
        whole = self.gather_evidence(query, columns)
        query = replace(query, vector=self._get_vector(text, signals))
        feedback = self._read_feedback(query, request, columns)
        added, failures = self.components.added.run(query, columns, eligible)
        combiner = _ScoreCombiner(
            columns=columns,
            eligible=eligible,
            common=[
                *self._score_earlier_turns(text, request, columns),
                *self._compute_non_text_points(query, signals, request, columns),
                *added,
                *feedback.compute_correction_points(columns),
            ],
            feedback=feedback,
            word_count=len(text.split()),
            is_mood_used=self.flags.intent_signals,
            reranker=self.components.reranker if rerank else None,
            failures=failures,
        )
        sole = self._find_exclusive_tools(text, signals, feedback, columns)
        combined = combiner.combine(text, signals, whole, sole, rerank=len(needs) < 2)
        by_need, exclusive = [combined], [sole]
        if len(needs) > 1:
            by_need, exclusive = self._score_needs(needs, signals, whole, combiner)
        return ScoredTools(
            needs=needs,
            evidence=whole,
            contributions=tuple(by_need),
            whole=sum_contributions(combined, columns.size),
            by_need=tuple(sum_contributions(contributions, columns.size) for contributions in by_need),
            exclusive=tuple(exclusive),
            failures=combiner.failures,
        )

    def _score_needs(
        self, needs: Sequence[str], request: Signals, whole: TextEvidence, combiner: _ScoreCombiner
    ) -> tuple[list[tuple[ScoreContribution, ...]], list[Mapping[int, str]]]:
        """Return the contributions of each need, and its exclusive tools."""
        columns = combiner.columns
        by_need: list[tuple[ScoreContribution, ...]] = []
        exclusive: list[Mapping[int, str]] = []
        for need in needs:
            signals = self.components.reader.read_need(need, request, with_names=bool(columns.exclusive))
            own = self.gather_evidence(ScorerRequest(text=need, signals=signals), columns)
            evidence = whole.mix_with(own, OWN_NEED_WEIGHT)
            exclusive.append(self._find_exclusive_tools(need, signals, combiner.feedback, columns))
            by_need.append(combiner.combine(need, signals, evidence, exclusive[-1], rerank=True))
        return by_need, exclusive

    def gather_evidence(self, query: ScorerRequest, columns: ToolColumns) -> TextEvidence:
        """Score every tool by words and meaning."""
        words = self.components.words.scores(query, columns.cards)
        meaning = self.components.meaning
        if meaning is None or not self.flags.dense_scores:
            return fuse_scores(words, None, 0.0)
        if meaning.ready < 1.0:
            meaning.prioritize(_find_likely_rows(words))
        scores = meaning.scores(query, columns.cards)
        return fuse_scores(words, scores, meaning.get_weight(query.signals, self.meaning_weight))

    def _find_exclusive_tools(
        self, text: str, signals: Signals, feedback: FeedbackAdjustments, columns: ToolColumns
    ) -> Mapping[int, str]:
        """Return the exclusive tools for this text; none if the request or a correction names another."""
        if not self.flags.intent_signals:
            return {}
        found = find_exclusive_intents(columns, text, signals)
        cards = [columns.cards[row] for row in found]
        own = {name for card in cards for name in (card.key, card.server)}
        other_named = any(mention.name not in own for mention in signals.mentions)
        return {} if other_named or not feedback.settled_rows <= found.keys() else found

    def _read_feedback(
        self, query: ScorerRequest, request: NarrowRequest, columns: ToolColumns
    ) -> FeedbackAdjustments:
        """Return the feedback on this request."""
        corrections, preferences = self.components.corrections, self.components.preferences
        if corrections is None and preferences is None:
            return NO_FEEDBACK
        return FeedbackAdjustments.from_request(query, request, columns, corrections, preferences)

    def _get_vector(self, text: str, signals: Signals) -> Vector | None:
        """Return the request's vector, which the scorer caches, or None."""
        meaning = self.components.meaning
        if meaning is None or not self.flags.dense_scores:
            return None
        try:
            return meaning.encode_query(signals.gloss or text)
        except FingerpostError:  # the scorer logs it once
            return None

    def _score_earlier_turns(
        self, text: str, request: NarrowRequest, columns: ToolColumns
    ) -> list[ScoreContribution]:
        """Score earlier turns, for a request that depends on them."""
        turns = get_earlier_turns(request.history)
        contributions: list[ScoreContribution] = []
        for turn, weight in zip(turns, compute_turn_weights(text, len(turns)), strict=True):
            if weight > 0:
                signals = self.components.reader.read(turn)
                query = ScorerRequest(text=turn, sentences=split_sentences(turn), signals=signals)
                points = np.asarray(weight * self.gather_evidence(query, columns).base, np.float32)
                contributions.append(
                    ScoreContribution(signal="conversation", points=points, note="from what was said before")
                )
        return contributions

    def _compute_non_text_points(
        self, query: ScorerRequest, signals: Signals, request: NarrowRequest, columns: ToolColumns
    ) -> list[ScoreContribution]:
        contributions: list[ScoreContribution] = []
        if self.flags.intent_signals:
            contributions += compute_adjustments(columns, query.text, signals)
        if self.flags.learned_use and self.components.learned is not None:
            learned = self.components.learned
            every_row = np.arange(columns.size, dtype=np.intp)
            scores = learned.scores(query, columns.cards)
            contribution = build_scorer_contribution(learned, scores, every_row, columns)
            contributions += [contribution] if contribution is not None else []
        contributions += adjust_for_effort(columns, request.effort)
        return contributions + list(adjust_for_health(columns, request.health))


def _find_likely_rows(words: Scores) -> list[int]:
    """Return the rows of the tools with the best word scores."""
    best = np.argsort(-words, kind="stable")[:MAX_LIKELY_TOOLS]
    return [int(row) for row in best if words[row] > 0]

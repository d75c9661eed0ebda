"""Every tool weighed for every need of one request.

The request as a whole is weighed first. Each of its needs is then weighed before
that background: mostly the whole, partly its own words, because "put it in my
calendar" alone has forgotten what "it" is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from fingerpost.errors import FingerpostError
from fingerpost.frozen import frozen
from fingerpost.narrow.adjustments import (
    adjust_for_effort,
    adjust_for_exclusive_intents,
    adjust_for_fallbacks,
    adjust_for_health,
    adjust_for_history,
    adjust_for_mood,
    compute_adjustments,
    find_exclusive_intents,
)
from fingerpost.narrow.base import ScorerQuery
from fingerpost.narrow.columns import Rows, Scores, ToolColumns
from fingerpost.narrow.followups import compute_turn_weights
from fingerpost.narrow.fusion import TextEvidence, compute_server_bonus, fuse_scores, get_meaning_weight
from fingerpost.narrow.learning.taught import NO_FEEDBACK, FeedbackAdjustments
from fingerpost.narrow.parts import NarrowComponents, Vector
from fingerpost.narrow.request import NarrowRequest, get_earlier_turns
from fingerpost.narrow.shares import ScoreContribution, sum_contributions
from fingerpost.narrow.splitting import split_needs
from fingerpost.narrow.text import split_sentences
from fingerpost.records import Signals
from fingerpost.settings.model import FlagSettings

LIKELY_TOOLS: Final = 8  # tools by words alone, whose meaning is worth a moment's wait
OWN_NEED_WEIGHT: Final = 0.3  # of a need's own words beside the whole request's


@frozen
class ScoredTools:
    """The tools by row: for the request as a whole, and for each need."""

    needs: tuple[str, ...]
    evidence: TextEvidence  # of the whole
    contributions: tuple[tuple[ScoreContribution, ...], ...]  # by need
    whole: Scores
    by_need: tuple[Scores, ...]
    exclusive: tuple[Mapping[int, str], ...]  # by need: rows that alone are offered for it, and the intent


@frozen
class ToolScorer:
    """Weighs tools with the given parts."""

    components: NarrowComponents
    flags: FlagSettings

    def score(
        self, text: str, signals: Signals, request: NarrowRequest, columns: ToolColumns, eligible: Rows
    ) -> ScoredTools:
        needs = split_needs(text, signals.language) if self.flags.split_needs else (text,)
        # Where there are several needs, they are the sentences: looked at once more, each would cost
        # another encoding and add nothing.
        sentences = needs if len(needs) > 1 else split_sentences(text)
        query = ScorerQuery(text=text, sentences=sentences, signals=signals, used=request.used)
        whole = self.gather_evidence(query)
        taught = self._read_feedback(query, request, columns)
        common = [
            *self._score_earlier_turns(text, request),
            *self._compute_non_text_points(query, signals, request, columns),
            *(adjust_for_mood(columns, whole.base, text, signals) if self.flags.intent_signals else ()),
            *taught.compute_correction_points(columns),
        ]
        sole = self._find_exclusive_tools(text, signals, taught, columns)
        shares = self._sum_contributions(whole, common, taught, columns, eligible, sole)
        score = sum_contributions(shares, columns.size)
        if len(needs) < 2:
            return ScoredTools(
                needs=needs,
                evidence=whole,
                contributions=(shares,),
                whole=score,
                by_need=(score,),
                exclusive=(sole,),
            )
        read = [self.components.reader.read(need) for need in needs]
        own = [
            self.gather_evidence(ScorerQuery(text=need, signals=one))
            for need, one in zip(needs, read, strict=True)
        ]
        seen = [whole.mix_with(evidence, OWN_NEED_WEIGHT) for evidence in own]
        soles = [
            self._find_exclusive_tools(need, one, taught, columns)
            for need, one in zip(needs, read, strict=True)
        ]
        by_need = tuple(
            self._sum_contributions(evidence, common, taught, columns, eligible, one)
            for evidence, one in zip(seen, soles, strict=True)
        )
        return ScoredTools(
            needs=needs,
            evidence=whole,
            contributions=by_need,
            whole=score,
            by_need=tuple(sum_contributions(shares, columns.size) for shares in by_need),
            exclusive=tuple(soles),
        )

    def gather_evidence(self, query: ScorerQuery) -> TextEvidence:
        """What words and meaning say about every tool."""
        words = self.components.words.score(query)
        meaning = self.components.meaning
        if meaning is None or not self.flags.dense_scores:
            return fuse_scores(words, None, 0.0)
        if meaning.ready < 1.0:
            meaning.prioritize(_find_likely_rows(words))
        return fuse_scores(words, meaning.score(query), get_meaning_weight(query.signals))

    def _find_exclusive_tools(
        self, text: str, signals: Signals, taught: FeedbackAdjustments, columns: ToolColumns
    ) -> Mapping[int, str]:
        """The tools that alone are offered for this text, unless a person named or taught another one."""
        if not self.flags.intent_signals:
            return {}
        found = find_exclusive_intents(columns, text, signals)
        cards = [columns.cards[row] for row in found]
        own = {name for card in cards for name in (card.key, card.server)}
        other_named = any(mention.name not in own for mention in signals.mentions)
        return {} if other_named or not taught.settled_rows <= found.keys() else found

    def _sum_contributions(
        self,
        evidence: TextEvidence,
        common: Sequence[ScoreContribution],
        taught: FeedbackAdjustments,
        columns: ToolColumns,
        eligible: Rows,
        sole: Mapping[int, str],
    ) -> tuple[ScoreContribution, ...]:
        """Text, server, and what they have in common; what people said of the order comes last."""
        shares = (
            *evidence.to_contributions(),
            compute_server_bonus(evidence.base, columns, eligible),
            *common,
        )
        order = (
            adjust_for_fallbacks(columns, sum_contributions(shares, columns.size))
            if columns.ranked_pairs
            else None
        )
        shares = shares if order is None else (*shares, order)
        alone = (
            adjust_for_exclusive_intents(columns, sum_contributions(shares, columns.size), sole, eligible)
            if sole
            else None
        )
        shares = shares if alone is None else (*shares, alone)
        if taught is NO_FEEDBACK:
            return shares
        return (
            *shares,
            *taught.compute_decisive_points(columns, sum_contributions(shares, columns.size), eligible),
        )

    def _read_feedback(
        self, query: ScorerQuery, request: NarrowRequest, columns: ToolColumns
    ) -> FeedbackAdjustments:
        """What people taught about this request."""
        corrections, preferences = self.components.corrections, self.components.preferences
        if corrections is None and preferences is None:
            return NO_FEEDBACK
        vector = self._get_vector(query) if corrections is not None and corrections.uses_vectors else None
        return FeedbackAdjustments.from_request(
            query, request, columns, corrections, preferences, vector=vector
        )

    def _get_vector(self, query: ScorerQuery) -> Vector | None:
        """The request's vector, which its scorer has made a moment ago."""
        meaning = self.components.meaning
        if meaning is None or not self.flags.dense_scores:
            return None
        try:
            return meaning.encode_query(query.signals.gloss or query.text)
        except FingerpostError:  # told about by the scorer itself, once
            return None

    def _score_earlier_turns(self, text: str, request: NarrowRequest) -> list[ScoreContribution]:
        """Earlier turns, for a request that leans on them."""
        turns = get_earlier_turns(request.history)
        shares: list[ScoreContribution] = []
        for turn, weight in zip(turns, compute_turn_weights(text, len(turns)), strict=True):
            if weight > 0:
                signals = self.components.reader.read(turn)
                query = ScorerQuery(text=turn, sentences=split_sentences(turn), signals=signals)
                points = np.asarray(weight * self.gather_evidence(query).base, np.float32)
                shares.append(
                    ScoreContribution(signal="conversation", points=points, note="from what was said before")
                )
        return shares

    def _compute_non_text_points(
        self, query: ScorerQuery, signals: Signals, request: NarrowRequest, columns: ToolColumns
    ) -> list[ScoreContribution]:
        shares: list[ScoreContribution] = []
        if self.flags.intent_signals:
            shares += compute_adjustments(columns, query.text, signals)
        if self.flags.learned_use and self.components.learned is not None:
            past = self.components.learned
            evidence = past.get_tool_histories(query, self._get_vector(query) if past.uses_vectors else None)
            known = {
                row: found for key, found in evidence.items() if (row := columns.rows.get(key)) is not None
            }
            share = adjust_for_history(columns, known)
            shares += [share] if share is not None else []
        shares += adjust_for_effort(columns, request.effort)
        return shares + list(adjust_for_health(columns, request.health))


def _find_likely_rows(words: Scores) -> list[int]:
    """The rows of the tools that share the most words with the request."""
    best = np.argsort(-words, kind="stable")[:LIKELY_TOOLS]
    return [int(row) for row in best if words[row] > 0]

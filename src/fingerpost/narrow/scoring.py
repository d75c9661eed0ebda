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
    adjustments,
    effort_share,
    exclusive,
    exclusive_intents,
    hierarchy,
    learned,
    mood,
    unwell,
)
from fingerpost.narrow.base import Query
from fingerpost.narrow.columns import Columns, Rows, Scores
from fingerpost.narrow.followups import weights_of_earlier
from fingerpost.narrow.fusion import Evidence, blend, server_bonus, share_of_meaning
from fingerpost.narrow.learning.taught import NOTHING, Taught
from fingerpost.narrow.parts import Parts, Vector
from fingerpost.narrow.request import NarrowRequest, earlier_turns
from fingerpost.narrow.shares import Share, total
from fingerpost.narrow.splitting import needs_of
from fingerpost.narrow.text import sentences_of
from fingerpost.records import Signals
from fingerpost.settings.model import FlagSettings

LIKELIEST: Final = 8  # tools by words alone, whose meaning is worth a moment's wait
OWN_PART: Final = 0.3  # of a need's own words beside the whole request's


@frozen
class Scored:
    """The tools by row: for the request as a whole, and for each need."""

    needs: tuple[str, ...]
    evidence: Evidence  # of the whole
    shares: tuple[tuple[Share, ...], ...]  # by need
    whole: Scores
    by_need: tuple[Scores, ...]
    exclusive: tuple[Mapping[int, str], ...]  # by need: rows that alone are offered for it, and the intent


@frozen
class Scoring:
    """Weighs tools with the given parts."""

    parts: Parts
    flags: FlagSettings

    def score(
        self, text: str, signals: Signals, request: NarrowRequest, columns: Columns, eligible: Rows
    ) -> Scored:
        needs = needs_of(text, signals.language) if self.flags.split_needs else (text,)
        # Where there are several needs, they are the sentences: looked at once more, each would cost
        # another encoding and add nothing.
        sentences = needs if len(needs) > 1 else sentences_of(text)
        query = Query(text=text, sentences=sentences, signals=signals, used=request.used)
        whole = self.evidence(query)
        taught = self._taught(query, request, columns)
        common = [
            *self._earlier(text, request),
            *self._apart_from_text(query, signals, request, columns),
            *(mood(columns, whole.base, text, signals) if self.flags.intent_signals else ()),
            *taught.weighed(columns),
        ]
        sole = self._exclusive(text, signals, taught, columns)
        shares = self._complete(whole, common, taught, columns, eligible, sole)
        score = total(shares, columns.size)
        if len(needs) < 2:
            return Scored(
                needs=needs,
                evidence=whole,
                shares=(shares,),
                whole=score,
                by_need=(score,),
                exclusive=(sole,),
            )
        read = [self.parts.reader.read(need) for need in needs]
        own = [self.evidence(Query(text=need, signals=one)) for need, one in zip(needs, read, strict=True)]
        seen = [whole.with_part_of(evidence, OWN_PART) for evidence in own]
        soles = [self._exclusive(need, one, taught, columns) for need, one in zip(needs, read, strict=True)]
        by_need = tuple(
            self._complete(evidence, common, taught, columns, eligible, one)
            for evidence, one in zip(seen, soles, strict=True)
        )
        return Scored(
            needs=needs,
            evidence=whole,
            shares=by_need,
            whole=score,
            by_need=tuple(total(shares, columns.size) for shares in by_need),
            exclusive=tuple(soles),
        )

    def evidence(self, query: Query) -> Evidence:
        """What words and meaning say about every tool."""
        words = self.parts.words.scores(query)
        meaning = self.parts.meaning
        if meaning is None or not self.flags.dense_scores:
            return blend(words, None, 0.0)
        if meaning.ready < 1.0:
            meaning.hasten(_likeliest(words))
        return blend(words, meaning.scores(query), share_of_meaning(query.signals))

    def _exclusive(self, text: str, signals: Signals, taught: Taught, columns: Columns) -> Mapping[int, str]:
        """The tools that alone are offered for this text, unless a person named or taught another one."""
        if not self.flags.intent_signals:
            return {}
        found = exclusive_intents(columns, text, signals)
        cards = [columns.cards[row] for row in found]
        own = {name for card in cards for name in (card.key, card.server)}
        other_named = any(mention.name not in own for mention in signals.mentions)
        return {} if other_named or not taught.settled <= found.keys() else found

    def _complete(
        self,
        evidence: Evidence,
        common: Sequence[Share],
        taught: Taught,
        columns: Columns,
        eligible: Rows,
        sole: Mapping[int, str],
    ) -> tuple[Share, ...]:
        """Text, server, and what they have in common; what people said of the order comes last."""
        shares = (*evidence.shares(), server_bonus(evidence.base, columns, eligible), *common)
        order = hierarchy(columns, total(shares, columns.size)) if columns.ranked_pairs else None
        shares = shares if order is None else (*shares, order)
        alone = exclusive(columns, total(shares, columns.size), sole, eligible) if sole else None
        shares = shares if alone is None else (*shares, alone)
        if taught is NOTHING:
            return shares
        return (*shares, *taught.decided(columns, total(shares, columns.size), eligible))

    def _taught(self, query: Query, request: NarrowRequest, columns: Columns) -> Taught:
        """What people taught about this request."""
        corrections, preferences = self.parts.corrections, self.parts.preferences
        if corrections is None and preferences is None:
            return NOTHING
        vector = self._vector(query) if corrections is not None and corrections.by_meaning else None
        return Taught.of(query, request, columns, corrections, preferences, vector=vector)

    def _vector(self, query: Query) -> Vector | None:
        """The request's vector, which its scorer has made a moment ago."""
        meaning = self.parts.meaning
        if meaning is None or not self.flags.dense_scores:
            return None
        try:
            return meaning.query_vector(query.signals.gloss or query.text)
        except FingerpostError:  # told about by the scorer itself, once
            return None

    def _earlier(self, text: str, request: NarrowRequest) -> list[Share]:
        """Earlier turns, for a request that leans on them."""
        turns = earlier_turns(request.history)
        shares: list[Share] = []
        for turn, weight in zip(turns, weights_of_earlier(text, len(turns)), strict=True):
            if weight > 0:
                signals = self.parts.reader.read(turn)
                query = Query(text=turn, sentences=sentences_of(turn), signals=signals)
                points = np.asarray(weight * self.evidence(query).base, np.float32)
                shares.append(Share(signal="conversation", points=points, note="from what was said before"))
        return shares

    def _apart_from_text(
        self, query: Query, signals: Signals, request: NarrowRequest, columns: Columns
    ) -> list[Share]:
        shares: list[Share] = []
        if self.flags.intent_signals:
            shares += adjustments(columns, query.text, signals)
        if self.flags.learned_use and self.parts.learned is not None:
            past = self.parts.learned
            evidence = past.evidence(query, self._vector(query) if past.by_meaning else None)
            known = {
                row: found for key, found in evidence.items() if (row := columns.rows.get(key)) is not None
            }
            share = learned(columns, known)
            shares += [share] if share is not None else []
        shares += effort_share(columns, request.effort)
        return shares + list(unwell(columns, request.health))


def _likeliest(words: Scores) -> list[int]:
    """The rows of the tools that share the most words with the request."""
    best = np.argsort(-words, kind="stable")[:LIKELIEST]
    return [int(row) for row in best if words[row] > 0]

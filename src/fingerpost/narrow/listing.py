"""From scored tools to the candidates of a shortlist, each with its score in parts and its reason."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import numpy as np

from fingerpost.frozen import frozen
from fingerpost.narrow.columns import Rows, ToolColumns
from fingerpost.narrow.offer import OfferDecision, decide_offers
from fingerpost.narrow.producers import Prerequisite, find_prerequisite
from fingerpost.narrow.request import NarrowRequest
from fingerpost.narrow.scoring import ScoredTools
from fingerpost.narrow.shares import list_score_parts
from fingerpost.narrow.turns import RankedTool, rank_over_needs
from fingerpost.records import Candidate, Part, Signals
from fingerpost.settings import Settings

_MAX_PREREQUISITE_SEEKERS: Final = (
    2  # how many of the offered tools may call for one that finds their arguments
)
_SCORE_STEP: Final = 0.001
_CONFIDENCE_LEVELS: Final = ((0.7, "high"), (0.4, "medium"))  # of confidence


@frozen
class ShortlistInput:
    """Everything a shortlist is made from."""

    columns: ToolColumns
    scored: ScoredTools
    eligible: Rows
    request: NarrowRequest
    signals: Signals
    settings: Settings
    fit: float  # is there a suitable tool at all

    @property
    def max_offered(self) -> int:
        asked = self.request.max_tools
        return self.settings.narrow.max_tools if asked is None else max(asked, 0)

    @property
    def max_candidates(self) -> int:
        return max(self.settings.narrow.candidates, self.max_offered)


def build_shortlist(listing: ShortlistInput) -> tuple[Candidate, ...]:
    """The candidates, best first."""
    scored = listing.scored
    picks = rank_over_needs(
        scored.whole,
        scored.by_need,
        listing.eligible,
        listing.max_candidates,
        offered_count=listing.max_offered,
    )
    offering = decide_offers(
        picks,
        listing.columns,
        max_offered=listing.max_offered,
        health=listing.request.health,
        exclusive=scored.exclusive,
        effort=listing.request.effort,
        recalls=listing.signals.recalls,
    )
    places = list(offering)
    found = _find_prerequisite(listing, places) if listing.settings.flags.producers else None
    candidates = [_build_candidate(listing, place) for place in places]
    if found is not None:
        candidates = _insert_prerequisite(listing, candidates, found)
    return (*candidates[: listing.max_candidates], *_add_requested_tool(listing, candidates))


def _build_candidate(listing: ShortlistInput, place: OfferDecision) -> Candidate:
    pick = place.pick
    parts = list_score_parts(listing.scored.contributions[pick.need], pick.row)
    if pick.skipped_score:
        waited = Part(
            signal="turn",
            points=-round(pick.skipped_score, 4),
            note="the other needs of the request have their turn",
        )
        parts = (*parts, waited)
    if pick.lifted:
        lifted = Part(
            signal="turn",
            points=round(pick.lifted, 4),
            note="it is the best for the request as a whole, or for a need without a tool",
        )
        parts = (*parts, lifted)
    return Candidate(
        tool=listing.columns.cards[pick.row].key,
        score=round(pick.score, 4),
        parts=parts,
        need=pick.need,
        offered=place.is_offered,
        lost=place.rejection,
        latency=listing.columns.cards[pick.row].intelligence.latency.tier.value,
        confidence=_classify_confidence(listing, pick.need, pick.row),
    )


def _classify_confidence(listing: ShortlistInput, need: int, row: int) -> str:
    """How sure we are that a tool suits: by the fit, and by how near it comes to the best for its need."""
    scores = listing.scored.by_need[need]
    best = float(scores[listing.eligible].max())
    sure = listing.fit * max(float(scores[row]), 0.0) / best if best > 0 else 0.0
    return next((level for least, level in _CONFIDENCE_LEVELS if sure >= least), "low")


def _find_prerequisite(listing: ShortlistInput, places: list[OfferDecision]) -> Prerequisite | None:
    """A tool that finds what one of the first offered needs, if there is room for it."""
    offered = [place.pick.row for place in places if place.is_offered]
    if not offered or len(offered) >= listing.max_offered:
        return None
    columns = listing.columns
    text = listing.request.text[:5000]
    for row in offered[:_MAX_PREREQUISITE_SEEKERS]:
        server = columns.cards[row].server
        if server in listing.request.health:
            continue
        may = np.intersect1d(columns.by_server[server], listing.eligible, assume_unique=True).tolist()
        found = find_prerequisite(columns, row, text, listing.signals, listing.scored.whole, may)
        if found is not None:
            return None if found.row in offered else found
    return None


def _insert_prerequisite(
    listing: ShortlistInput, candidates: list[Candidate], found: Prerequisite
) -> list[Candidate]:
    """The list with that tool right behind the offered ones."""
    key = listing.columns.cards[found.row].key
    wanted_by = listing.columns.cards[found.wanted_by].key
    need = next(candidate.need for candidate in candidates if candidate.tool == wanted_by)
    others = [candidate for candidate in candidates if candidate.tool != key]
    last = max(place for place, candidate in enumerate(others) if candidate.offered)
    own = float(listing.scored.by_need[need][found.row])
    score = max(own, others[last].score - _SCORE_STEP)
    joined = Candidate(
        tool=key,
        score=round(score, 4),
        parts=(
            *list_score_parts(listing.scored.contributions[need], found.row),
            Part(signal="produces", points=round(score - own, 4), note=found.format_reason(listing.columns)),
        ),
        need=need,
        offered=True,
        latency=listing.columns.cards[found.row].intelligence.latency.tier.value,
        confidence=_classify_confidence(listing, need, found.row),
    )
    return [*others[: last + 1], joined, *others[last + 1 :]]


def _add_requested_tool(listing: ShortlistInput, candidates: list[Candidate]) -> Iterator[Candidate]:
    """The tool a person asks about, when it is not among the candidates."""
    key = listing.request.about
    row = listing.columns.rows.get(key) if key is not None else None
    if row is None or row not in listing.eligible or any(candidate.tool == key for candidate in candidates):
        return
    scored = listing.scored
    need = max(range(len(scored.by_need)), key=lambda number: float(scored.by_need[number][row]))
    score = float(scored.by_need[need][row])
    ahead = int((scored.by_need[need][listing.eligible] > score).sum())
    made = _build_candidate(listing, OfferDecision(RankedTool(row, need, score)))
    lost = f"{ahead} tools scored higher than its {score:.2f}"
    yield replace(made, offered=False, lost=lost)

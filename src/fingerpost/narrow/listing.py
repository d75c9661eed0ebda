"""From scored tools to the candidates of a shortlist, each with its score in parts and its reason."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import numpy as np

from fingerpost.frozen import frozen
from fingerpost.narrow.columns import Columns, Rows
from fingerpost.narrow.offer import Place, offer
from fingerpost.narrow.producers import Production, producer
from fingerpost.narrow.request import NarrowRequest
from fingerpost.narrow.scoring import Scored
from fingerpost.narrow.shares import parts_of
from fingerpost.narrow.turns import Pick, in_turn
from fingerpost.records import Candidate, Part, Signals
from fingerpost.settings import Settings

_WANTING: Final = 2  # how many of the offered tools may call for one that finds their arguments
_BEHIND: Final = 0.001
_LEVELS: Final = ((0.7, "high"), (0.4, "medium"))  # of confidence


@frozen
class Listing:
    """Everything a shortlist is made from."""

    columns: Columns
    scored: Scored
    eligible: Rows
    request: NarrowRequest
    signals: Signals
    settings: Settings
    fit: float  # is there a suitable tool at all

    @property
    def most(self) -> int:
        asked = self.request.max_tools
        return self.settings.narrow.max_tools if asked is None else max(asked, 0)

    @property
    def length(self) -> int:
        return max(self.settings.narrow.candidates, self.most)


def shortlist(listing: Listing) -> tuple[Candidate, ...]:
    """The candidates, best first."""
    scored = listing.scored
    picks = in_turn(scored.whole, scored.by_need, listing.eligible, listing.length, places=listing.most)
    offering = offer(
        picks,
        listing.columns,
        most=listing.most,
        health=listing.request.health,
        exclusive=scored.exclusive,
        effort=listing.request.effort,
        recalls=listing.signals.recalls,
    )
    places = list(offering)
    found = _producer(listing, places) if listing.settings.flags.producers else None
    candidates = [_candidate(listing, place) for place in places]
    if found is not None:
        candidates = _with_producer(listing, candidates, found)
    return (*candidates[: listing.length], *_asked_about(listing, candidates))


def _candidate(listing: Listing, place: Place) -> Candidate:
    pick = place.pick
    parts = parts_of(listing.scored.shares[pick.need], pick.row)
    if pick.waited:
        waited = Part(
            signal="turn",
            points=-round(pick.waited, 4),
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
        offered=place.offered,
        lost=place.lost,
        latency=listing.columns.cards[pick.row].intelligence.latency.tier.value,
        confidence=_confidence(listing, pick.need, pick.row),
    )


def _confidence(listing: Listing, need: int, row: int) -> str:
    """How sure we are that a tool suits: by the fit, and by how near it comes to the best for its need."""
    scores = listing.scored.by_need[need]
    best = float(scores[listing.eligible].max())
    sure = listing.fit * max(float(scores[row]), 0.0) / best if best > 0 else 0.0
    return next((level for least, level in _LEVELS if sure >= least), "low")


def _producer(listing: Listing, places: list[Place]) -> Production | None:
    """A tool that finds what one of the first offered needs, if there is room for it."""
    offered = [place.pick.row for place in places if place.offered]
    if not offered or len(offered) >= listing.most:
        return None
    columns = listing.columns
    text = listing.request.text[:5000]
    for row in offered[:_WANTING]:
        server = columns.cards[row].server
        if server in listing.request.health:
            continue
        may = np.intersect1d(columns.by_server[server], listing.eligible, assume_unique=True).tolist()
        found = producer(columns, row, text, listing.signals, listing.scored.whole, may)
        if found is not None:
            return None if found.row in offered else found
    return None


def _with_producer(listing: Listing, candidates: list[Candidate], found: Production) -> list[Candidate]:
    """The list with that tool right behind the offered ones."""
    key = listing.columns.cards[found.row].key
    wanted_by = listing.columns.cards[found.wanted_by].key
    need = next(candidate.need for candidate in candidates if candidate.tool == wanted_by)
    others = [candidate for candidate in candidates if candidate.tool != key]
    last = max(place for place, candidate in enumerate(others) if candidate.offered)
    own = float(listing.scored.by_need[need][found.row])
    score = max(own, others[last].score - _BEHIND)
    joined = Candidate(
        tool=key,
        score=round(score, 4),
        parts=(
            *parts_of(listing.scored.shares[need], found.row),
            Part(signal="produces", points=round(score - own, 4), note=found.reason(listing.columns)),
        ),
        need=need,
        offered=True,
        latency=listing.columns.cards[found.row].intelligence.latency.tier.value,
        confidence=_confidence(listing, need, found.row),
    )
    return [*others[: last + 1], joined, *others[last + 1 :]]


def _asked_about(listing: Listing, candidates: list[Candidate]) -> Iterator[Candidate]:
    """The tool a person asks about, when it is not among the candidates."""
    key = listing.request.about
    row = listing.columns.rows.get(key) if key is not None else None
    if row is None or row not in listing.eligible or any(candidate.tool == key for candidate in candidates):
        return
    scored = listing.scored
    need = max(range(len(scored.by_need)), key=lambda number: float(scored.by_need[number][row]))
    score = float(scored.by_need[need][row])
    ahead = int((scored.by_need[need][listing.eligible] > score).sum())
    made = _candidate(listing, Place(Pick(row, need, score)))
    lost = f"{ahead} tools scored higher than its {score:.2f}"
    yield replace(made, offered=False, lost=lost)

"""Servers by the scores of their tools: chosen each turn without a model, added to the choice of one.

A server counts as the mean of its best few tools: one lucky word in one tool is
not a server that suits. The cut is far below the best, and where even the best says
little there is none.

The numbers were chosen by looking at eight sets together: five public ones, and the
requests in this repository (which the encoder has seen) for three catalogs. With them all
needed servers were kept for 98 to 100 % of the requests of each public set, and 57 to 86 %
of the tools were left out. Little hangs on the exact share: over all eight, 0.3 keeps
99.4 % and leaves out 61 %, 0.35 99.3 % and 65 %, 0.5 98.5 % and 72 %.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from fingerpost.records import ServerChoice

BEST_TOOLS_PER_SERVER: Final = 3  # tools that speak for their server
MIN_BEST_SHARE: Final = 0.35  # of the best server's score: whoever has less stays behind
MIN_SERVERS: Final = 3  # servers kept, however clear it is
MIN_BEST_SCORE: Final = 0.12  # a best server below this says nothing: all stay
MAX_BEST_TOOLS: Final = 4  # tools that may add their servers to a choice
NEAR_BEST_SHARE: Final = 0.7  # of the best tool's score: only tools this good add their server


def pick_by_scores(
    scores: Mapping[str, Sequence[float]],
    mentions: Collection[str] = (),
    related: Collection[str] = (),
    *,
    min_servers: int = MIN_SERVERS,
    share: float = MIN_BEST_SHARE,
    min_best_score: float = MIN_BEST_SCORE,
) -> ServerChoice:
    """The servers to keep. `scores` holds each server's tools' scores, in any order.

    A server in `mentions` (named in the request) or `related` (its category is what the
    request is about) is kept whatever its score, and so is one that has no score yet.
    """
    known = {
        server: value
        for server, found in scores.items()
        if (value := _average_best_scores(found)) is not None
    }
    best = max(known.values(), default=0.0)
    if best < min_best_score or len(known) <= min_servers:
        return ServerChoice(servers=tuple(sorted(scores)), reasoning="no server stands out, so all stay")
    leaders = sorted(known, key=lambda server: (-known[server], server))
    close = {
        server for place, server in enumerate(leaders) if place < min_servers or known[server] >= share * best
    }
    wanted = close | (scores.keys() - known.keys()) | set(mentions) | set(related)
    return ServerChoice(
        servers=tuple(sorted(wanted & scores.keys())),
        left_out=tuple(sorted(scores.keys() - wanted)),
        reasoning=_explain_score_choice(leaders, known, [name for name in mentions if name in scores]),
    )


def find_best_outside(
    scores: Mapping[str, Sequence[float]],
    kept: Collection[str],
    *,
    most: int = MAX_BEST_TOOLS,
    min_share: float = NEAR_BEST_SHARE,
    min_best_score: float = MIN_BEST_SCORE,
) -> Mapping[str, float]:
    """The servers outside `kept` that have one of the turn's best tools, each with that tool's score."""
    tools = ((score, server) for server, found in scores.items() for score in found if math.isfinite(score))
    leading = heapq.nlargest(most, tools)
    if not leading or leading[0][0] < min_best_score:
        return {}
    best: dict[str, float] = {}
    for score, server in leading:
        if score >= min_share * leading[0][0] and server not in kept:
            best.setdefault(server, score)
    return best


def _average_best_scores(scores: Sequence[float]) -> float | None:
    """The mean of the best few; None where nothing is known."""
    best = heapq.nlargest(BEST_TOOLS_PER_SERVER, (score for score in scores if math.isfinite(score)))
    return sum(best) / len(best) if best else None


def _explain_score_choice(leaders: Sequence[str], known: Mapping[str, float], mentions: Sequence[str]) -> str:
    ahead = ", ".join(f"{server} {known[server]:.2f}" for server in leaders[:3])
    named = f"; named in the request: {', '.join(sorted(mentions))}" if mentions else ""
    return f"best by its tools: {ahead}{named}"

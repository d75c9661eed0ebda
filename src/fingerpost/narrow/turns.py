"""One order of tools for a request that may hold several needs.

The first place goes to the best tool for the request as a whole. After that
every need has its turn: the tools of a need that was served already count a
little less, so that the next need comes up; a need whose tools are far better
may still be served twice. Whatever its score, a need is not left without a tool
among those offered while there is a place. A tool that stands before one with a
higher score for either reason is lifted to that score, so that scores fall along
the order and each says what it is made of.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from fingerpost.frozen import frozen
from fingerpost.narrow.columns import Rows, Scores

# What a tool of a need loses for each tool of that need taken before it.
NEED_TURN_PENALTY: Final = 0.07


@frozen(kw_only=False)
class RankedTool:
    """A tool, the need it serves, and its score when it was taken."""

    row: int
    need: int
    score: float
    skipped_score: float = 0.0  # what its need had lost by then
    lifted: float = 0.0  # what it got to stand where it does


def find_best_rows(scores: Scores, eligible: Rows, count: int) -> Rows:
    """The best `count` of the eligible rows, best first; equal ones in their order."""
    among = scores[eligible]
    if len(among) > count:
        least = np.partition(among, len(among) - count)[len(among) - count]
        ties = np.flatnonzero(among == least)[:count]
        keep = np.sort(np.concatenate((np.flatnonzero(among > least), ties)))
        eligible, among = eligible[keep], among[keep]
    return eligible[np.argsort(-among, kind="stable")][:count]


def rank_over_needs(
    whole: Scores, needs: Sequence[Scores], eligible: Rows, count: int, *, offered_count: int
) -> tuple[RankedTool, ...]:
    """The order of tools over all needs. `places` is how many of them will be offered."""
    if len(needs) < 2:
        return tuple(
            RankedTool(int(row), 0, float(whole[row])) for row in find_best_rows(whole, eligible, count)
        )
    queues = [[int(row) for row in find_best_rows(need, eligible, count)] for need in needs]
    taken: set[int] = set()
    served = [0] * len(needs)
    picks: list[RankedTool] = []
    if len(eligible):
        first = int(find_best_rows(whole, eligible, 1)[0])
        owner = int(np.argmax([float(need[first]) for need in needs]))
        picks.append(_raise_score(RankedTool(first, owner, float(needs[owner][first])), float(whole[first])))
        picks[0] = _raise_score(picks[0], max(float(need[eligible].max()) for need in needs))
        taken.add(first)
        served[owner] += 1
    while len(picks) < count:
        pick = _take_best(range(len(needs)), needs, queues, taken, served)
        if pick is None:
            break
        waiting = [need for need, times in enumerate(served) if not times]
        if 0 < offered_count - len(picks) <= len(waiting):
            next_in_turn = _take_best(waiting, needs, queues, taken, served)
            pick = pick if next_in_turn is None else _raise_score(next_in_turn, pick.score)
        picks.append(pick)
        taken.add(pick.row)
        served[pick.need] += 1
    return tuple(picks)


def _raise_score(pick: RankedTool, score: float) -> RankedTool:
    if score <= pick.score:
        return pick
    return replace(pick, score=score, lifted=pick.lifted + score - pick.score)


def _take_best(
    among: Iterable[int], needs: Sequence[Scores], queues: list[list[int]], taken: set[int], served: list[int]
) -> RankedTool | None:
    best: RankedTool | None = None
    for need in among:
        queue = queues[need]
        while queue and queue[0] in taken:
            queue.pop(0)
        if not queue:
            continue
        waited = NEED_TURN_PENALTY * served[need]
        score = float(needs[need][queue[0]]) - waited
        if best is None or score > best.score:
            best = RankedTool(queue[0], need, score, waited)
    return best

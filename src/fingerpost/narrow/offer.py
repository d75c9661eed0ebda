"""Which of the ranked tools are offered to the model, and what every other one hears.

A model that sees fewer tools chooses better and pays less, so a list is only as
long as it has to be: never more than asked for, and cut where the scores fall
off clearly. Of tools that must not stand together only the better is offered,
and one of several servers' copies of the same tool is enough for a need.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from fingerpost.frozen import frozen
from fingerpost.narrow.columns import ToolColumns
from fingerpost.narrow.turns import RankedTool
from fingerpost.records import Effort, LatencyTier

# A tool is left out when it has less than this share of the score of the best one for its need,
MIN_BEST_SHARE: Final = 0.7
MIN_BEST_SHARE_IF_THOROUGH: Final = 0.4  # where a thorough answer is wanted,
# and less than this share of what sets the best one apart from the tools that are merely there.
MIN_LEAD_SHARE: Final = 0.6
_MAX_RECALL_TOOLS: Final = 2  # notes and a memory: what was said may be in either
_MIN_PICKS_TO_COMPARE: Final = 8  # candidates; with fewer there is no "rest"


@frozen(kw_only=False)
class OfferDecision:
    """A pick, and why it is not offered (empty: it is)."""

    pick: RankedTool
    rejection: str = ""

    @property
    def is_offered(self) -> bool:
        return not self.rejection


def decide_offers(
    picks: Sequence[RankedTool],
    columns: ToolColumns,
    *,
    max_offered: int,
    health: Mapping[str, str],
    exclusive: Sequence[Mapping[int, str]] = (),
    effort: Effort | None = None,
    recalls: bool = False,
) -> tuple[OfferDecision, ...]:
    """Every pick in its order, each offered or with the reason why not.

    `recalls`: the request asks for what was written or said before, so the best tools that look
    there are offered, however well others score.

    `exclusive`, by need, are the tools that alone are offered for it, with the intent that says so.
    """
    picked = {pick.row for pick in picks if columns.cards[pick.row].server not in health}
    soles = [{row: sole[row] for row in sole if row in picked} for sole in exclusive]
    rest = picks[-1].score if len(picks) >= _MIN_PICKS_TO_COMPARE else 0.0
    recalling = [pick.row for pick in picks if recalls and columns.recalls[pick.row]][:_MAX_RECALL_TOOLS]
    offered: list[RankedTool] = []
    best: dict[int, float] = {}
    places: list[OfferDecision] = []
    for pick in picks:
        lost = (
            _explain_unhealthy(pick, columns, health)
            or (_explain_exclusion(pick, soles[pick.need], columns) if soles else "")
            or (_explain_slowness(pick, picks, columns, health) if effort is Effort.QUICK else "")
            or _explain_conflict(pick, offered, columns)
            or _explain_twin(pick, offered, columns)
            or _explain_outscored(
                pick,
                offered,
                None if pick.row in recalling else best.get(pick.need),
                max_offered,
                rest,
                thorough=effort is Effort.THOROUGH,
            )
        )
        if not lost:
            offered.append(pick)
            best.setdefault(pick.need, pick.score)
        places.append(OfferDecision(pick, lost))
    return tuple(places)


def _explain_unhealthy(pick: RankedTool, columns: ToolColumns, health: Mapping[str, str]) -> str:
    server = columns.cards[pick.row].server
    return f"its server {server} cannot be used now: {health[server]}" if server in health else ""


def _explain_exclusion(pick: RankedTool, sole: Mapping[int, str], columns: ToolColumns) -> str:
    if not sole or pick.row in sole:
        return ""
    names = " and ".join(columns.cards[row].key for row in sole)
    return f"only {names} {'is' if len(sole) == 1 else 'are'} offered for {next(iter(sole.values()))}"


def _explain_slowness(
    pick: RankedTool, picks: Sequence[RankedTool], columns: ToolColumns, health: Mapping[str, str]
) -> str:
    """A slow tool, where a faster one suits the same need not much less."""
    if not _is_slow(pick, columns):
        return ""
    for other in picks:
        near = other.need == pick.need and other.score >= MIN_BEST_SHARE * pick.score
        if near and not _is_slow(other, columns) and columns.cards[other.row].server not in health:
            return f"it is slow, a quick answer is wanted, and {columns.cards[other.row].key} suits too"
    return ""


def _is_slow(pick: RankedTool, columns: ToolColumns) -> bool:
    return columns.cards[pick.row].intelligence.latency.tier in (LatencyTier.SLOW, LatencyTier.VERY_SLOW)


def _explain_conflict(pick: RankedTool, offered: Sequence[RankedTool], columns: ToolColumns) -> str:
    against = columns.conflicts.get(pick.row, frozenset())
    other = next((other for other in offered if other.row in against), None)
    return f"conflicts with {columns.cards[other.row].key}, which suits better" if other else ""


def _explain_twin(pick: RankedTool, offered: Sequence[RankedTool], columns: ToolColumns) -> str:
    kind = columns.twin_of[pick.row]
    for other in offered:
        if other.need == pick.need and columns.twin_of[other.row] == kind:
            card = columns.cards[other.row]
            return f"the same tool as {card.key} on server {card.server}"
    return ""


def _explain_outscored(
    pick: RankedTool,
    offered: Sequence[RankedTool],
    best: float | None,
    most: int,
    rest: float,
    *,
    thorough: bool,
) -> str:
    if len(offered) >= most:
        return f"scored {pick.score:.2f}, " + (
            f"the last one offered {offered[-1].score:.2f}" if offered else "and none was to be offered"
        )
    if best is None or pick.score >= (MIN_BEST_SHARE_IF_THOROUGH if thorough else MIN_BEST_SHARE) * best:
        return ""
    if pick.score - rest >= MIN_LEAD_SHARE * (best - rest):
        return ""
    return f"scored {pick.score:.2f}, clearly less than the best one's {best:.2f}"

"""Build the shortlist: rank tools over all needs, decide which are offered, and add prerequisite tools."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from fingerpost.catalog.words import parse_word_set, split_words, to_singular
from fingerpost.frozen import frozen
from fingerpost.narrow.features import Rows, Scores, ToolColumns
from fingerpost.narrow.fusion import list_score_parts
from fingerpost.narrow.request import NarrowRequest
from fingerpost.narrow.tool_scores import ScoredTools
from fingerpost.records import (
    Candidate,
    Effect,
    Effort,
    EntityKind,
    Json,
    LatencyTier,
    Part,
    Signals,
    ToolCard,
)
from fingerpost.schemas import get_properties
from fingerpost.settings import Settings

# What a tool loses for each tool already picked for the same need.
NEED_TURN_PENALTY: Final = 0.07


@frozen(kw_only=False)
class RankedTool:
    """A tool, the need it serves, and its score when it was picked."""

    row: int
    need: int
    score: float
    turn_penalty: float = 0.0  # subtracted for earlier picks of the same need
    lifted: float = 0.0  # points added to match its position


def find_best_rows(scores: Scores, eligible: Rows, count: int) -> Rows:
    """Return the best `count` eligible rows, best first. Ties keep their order."""
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
    """Rank the tools over all needs. `offered_count` is the number of tools that will be offered."""
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
        penalty = NEED_TURN_PENALTY * served[need]
        score = float(needs[need][queue[0]]) - penalty
        if best is None or score > best.score:
            best = RankedTool(queue[0], need, score, penalty)
    return best


# A tool is left out below this share of the best score for its need
MIN_BEST_SHARE: Final = 0.7
MIN_BEST_SHARE_IF_THOROUGH: Final = 0.4  # if a thorough answer is requested
# and below this share of the best tool's lead over the last candidate.
MIN_LEAD_SHARE: Final = 0.6
_MAX_RECALL_TOOLS: Final = 2  # notes and a memory: either may have the answer
_MIN_PICKS_TO_COMPARE: Final = 8  # with fewer candidates, the last one is no baseline


@frozen(kw_only=False)
class OfferDecision:
    """A pick, and the reason why it is not offered (empty if it is offered)."""

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
    """Return every pick in order, either offered or with the reason why not.

    With `recalls`, the request asks for earlier notes or messages, so the best tools that search these are
    offered with any score.

    `exclusive` contains, for each need, the tools that are the only ones offered for it, with the intent.
    """
    picked = {pick.row for pick in picks if columns.cards[pick.row].server not in health}
    soles = [{row: sole[row] for row in sole if row in picked} for sole in exclusive]
    baseline = picks[-1].score if len(picks) >= _MIN_PICKS_TO_COMPARE else 0.0
    recalling = [pick.row for pick in picks if recalls and columns.recalls[pick.row]][:_MAX_RECALL_TOOLS]
    offered: list[RankedTool] = []
    best: dict[int, float] = {}
    decisions: list[OfferDecision] = []
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
                baseline,
                thorough=effort is Effort.THOROUGH,
            )
        )
        if not lost:
            offered.append(pick)
            best.setdefault(pick.need, pick.score)
        decisions.append(OfferDecision(pick, lost))
    return tuple(decisions)


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
    """Return the reason to leave out a slow tool: a faster one suits the same need nearly as well."""
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
    kind = columns.twin_group[pick.row]
    for other in offered:
        if other.need == pick.need and columns.twin_group[other.row] == kind:
            card = columns.cards[other.row]
            return f"the same tool as {card.key} on server {card.server}"
    return ""


def _explain_outscored(
    pick: RankedTool,
    offered: Sequence[RankedTool],
    best: float | None,
    max_offered: int,
    baseline: float,
    *,
    thorough: bool,
) -> str:
    if len(offered) >= max_offered:
        return f"scored {pick.score:.2f}, " + (
            f"the last one offered {offered[-1].score:.2f}" if offered else "and none was to be offered"
        )
    if best is None or pick.score >= (MIN_BEST_SHARE_IF_THOROUGH if thorough else MIN_BEST_SHARE) * best:
        return ""
    if pick.score - baseline >= MIN_LEAD_SHARE * (best - baseline):
        return ""
    return f"scored {pick.score:.2f}, clearly less than the best one's {best:.2f}"


_IDENTIFIER_WORDS: Final = parse_word_set("id ids uuid guid key slug handle sku")
_FIND_VERBS: Final = parse_word_set("list search find query lookup browse resolve autocomplete all")
_READ_VERBS: Final = parse_word_set("get fetch retrieve show")
_NON_SUBJECT_WORDS: Final = _FIND_VERBS | _READ_VERBS | parse_word_set("by for of the a an my user s")
# Keys that are given, not found by a tool.
_SECRET_WORDS: Final = parse_word_set(
    "api access auth session secret client app application private public token"
)
_GIVEN_KINDS: Final = frozenset({EntityKind.ID, EntityKind.QUOTED})
_SHORT_NUMBER: Final = re.compile(r"(?<![\w.])#?\d{2,}(?![\w.])")


@frozen(kw_only=False)
class Prerequisite:
    """A tool that finds `argument` for the tool `wanted_by`."""

    row: int
    argument: str
    wanted_by: int

    def format_reason(self, columns: ToolColumns) -> str:
        return f"finds the {self.argument} that {columns.cards[self.wanted_by].name} needs"


def find_prerequisite(
    columns: ToolColumns, row: int, text: str, signals: Signals, base: Scores, candidates: Iterable[int]
) -> Prerequisite | None:
    """Return a tool among `candidates` that finds an identifier which `row` needs and the request lacks."""
    if any(entity.kind in _GIVEN_KINDS for entity in signals.entities) or _SHORT_NUMBER.search(text):
        return None
    card = columns.cards[row]
    neighbours = [
        other for other in candidates if other != row and columns.cards[other].server == card.server
    ]
    for argument in card.intelligence.parameters.required:
        thing = _get_identified_thing(argument, card)
        if thing is None:
            continue
        finders = [other for other in neighbours if _can_find(columns.cards[other], thing, argument)]
        if finders:
            best = max(finders, key=lambda other: (_is_search_tool(columns.cards[other]), float(base[other])))
            return Prerequisite(best, argument, row)
    return None


def _get_identified_thing(argument: str, card: ToolCard) -> str | None:
    """Return what the argument identifies: an issue for `issue_id`, and for `id` of `close_issue`."""
    parts = split_words(argument)
    if not parts or parts[-1] not in _IDENTIFIER_WORDS or _SECRET_WORDS.intersection(parts):
        return None
    if len(parts) > 1:
        return to_singular(parts[-2])
    named = [word for word in split_words(card.name) if word not in _NON_SUBJECT_WORDS]
    return to_singular(named[-1]) if len(named) > 1 else None


def _can_find(card: ToolCard, thing: str, argument: str) -> bool:
    if card.effect.value is not Effect.READ or argument in card.intelligence.parameters.required:
        return False
    named = split_words(card.name)
    of_that_kind = any(to_singular(word) == thing for word in named)
    several = any(word != thing and to_singular(word) == thing for word in named)
    if not of_that_kind:
        return False
    asks_for_one = any(
        parts[-1] in _IDENTIFIER_WORDS
        for name in card.intelligence.parameters.required
        if (parts := split_words(name))
    )
    if asks_for_one:
        return False
    return (
        bool(_FIND_VERBS.intersection(named))
        or (several and bool(_READ_VERBS.intersection(named)))
        or _returns_field(card, argument)
    )


def _is_search_tool(card: ToolCard) -> bool:
    return not _FIND_VERBS.isdisjoint(split_words(card.name))


def _returns_field(card: ToolCard, argument: str) -> bool:
    """Return whether the output schema has this field, at the top level or nested."""
    schema = card.definition.get("outputSchema")
    return isinstance(schema, Mapping) and _has_field(schema, argument, depth=4)


def _has_field(schema: Mapping[str, Json], name: str, depth: int) -> bool:
    properties = get_properties(schema)
    if name in properties:
        return True
    if not depth:
        return False
    inner = [*properties.values(), schema.get("items")]
    return any(isinstance(part, Mapping) and _has_field(part, name, depth - 1) for part in inner[:64])


_MAX_PREREQUISITE_SEEKERS: Final = 2  # offered tools for which a prerequisite is searched
_SCORE_STEP: Final = 0.001
_CONFIDENCE_LEVELS: Final = ((0.7, "high"), (0.4, "medium"))


@frozen
class ShortlistInput:
    """The input for building a shortlist."""

    columns: ToolColumns
    scored: ScoredTools
    eligible: Rows
    request: NarrowRequest
    signals: Signals
    settings: Settings
    fit: float  # probability that any tool suits
    best_scores: Sequence[float]  # of the eligible tools, by need

    @property
    def max_offered(self) -> int:
        asked = self.request.max_tools
        return self.settings.narrow.max_tools if asked is None else max(asked, 0)

    @property
    def max_candidates(self) -> int:
        return max(self.settings.narrow.candidates, self.max_offered)


def build_shortlist(inputs: ShortlistInput) -> tuple[Candidate, ...]:
    """Return the candidates, best first."""
    scored = inputs.scored
    picks = rank_over_needs(
        scored.whole,
        scored.by_need,
        inputs.eligible,
        inputs.max_candidates,
        offered_count=inputs.max_offered,
    )
    offering = decide_offers(
        picks,
        inputs.columns,
        max_offered=inputs.max_offered,
        health=inputs.request.health,
        exclusive=scored.exclusive,
        effort=inputs.request.effort,
        recalls=inputs.signals.recalls,
    )
    decisions = list(offering)
    found = _find_prerequisite(inputs, decisions) if inputs.settings.flags.producers else None
    candidates = [_build_candidate(inputs, decision) for decision in decisions]
    if found is not None:
        candidates = _insert_prerequisite(inputs, candidates, found)
    return (*candidates[: inputs.max_candidates], *_find_requested_tool(inputs, candidates))


def _build_candidate(inputs: ShortlistInput, decision: OfferDecision) -> Candidate:
    pick = decision.pick
    parts = list_score_parts(inputs.scored.contributions[pick.need], pick.row)
    if pick.turn_penalty:
        penalty = Part(
            signal="turn",
            points=-round(pick.turn_penalty, 4),
            note="the other needs of the request have their turn",
        )
        parts = (*parts, penalty)
    if pick.lifted:
        lifted = Part(
            signal="turn",
            points=round(pick.lifted, 4),
            note="it is the best for the request as a whole, or for a need without a tool",
        )
        parts = (*parts, lifted)
    return Candidate(
        tool=inputs.columns.cards[pick.row].key,
        score=round(pick.score, 4),
        parts=parts,
        need=pick.need,
        offered=decision.is_offered,
        lost=decision.rejection,
        latency=inputs.columns.cards[pick.row].intelligence.latency.tier.value,
        confidence=_classify_confidence(inputs, pick.need, pick.row),
    )


def _classify_confidence(inputs: ShortlistInput, need: int, row: int) -> str:
    """Return the confidence level of a tool, from the fit and its score relative to the best."""
    best = inputs.best_scores[need]
    score = float(inputs.scored.by_need[need][row])
    sure = inputs.fit * max(score, 0.0) / best if best > 0 else 0.0
    return next((level for least, level in _CONFIDENCE_LEVELS if sure >= least), "low")


def _find_prerequisite(inputs: ShortlistInput, decisions: list[OfferDecision]) -> Prerequisite | None:
    """Return a tool that finds an argument of one of the first offered tools. Return None if no further tool
    may be offered, or if that tool is offered already.
    """
    offered = [decision.pick.row for decision in decisions if decision.is_offered]
    if not offered or len(offered) >= inputs.max_offered:
        return None
    columns = inputs.columns
    text = inputs.request.text[:5000]
    for row in offered[:_MAX_PREREQUISITE_SEEKERS]:
        server = columns.cards[row].server
        if server in inputs.request.health:
            continue
        may = np.intersect1d(columns.by_server[server], inputs.eligible, assume_unique=True).tolist()
        found = find_prerequisite(columns, row, text, inputs.signals, inputs.scored.whole, may)
        if found is not None:
            return None if found.row in offered else found
    return None


def _insert_prerequisite(
    inputs: ShortlistInput, candidates: list[Candidate], found: Prerequisite
) -> list[Candidate]:
    """Insert the tool directly after the offered ones."""
    key = inputs.columns.cards[found.row].key
    wanted_by = inputs.columns.cards[found.wanted_by].key
    need = next(candidate.need for candidate in candidates if candidate.tool == wanted_by)
    others = [candidate for candidate in candidates if candidate.tool != key]
    last = max(place for place, candidate in enumerate(others) if candidate.offered)
    own = float(inputs.scored.by_need[need][found.row])
    score = max(own, others[last].score - _SCORE_STEP)
    joined = Candidate(
        tool=key,
        score=round(score, 4),
        parts=(
            *list_score_parts(inputs.scored.contributions[need], found.row),
            Part(signal="produces", points=round(score - own, 4), note=found.format_reason(inputs.columns)),
        ),
        need=need,
        offered=True,
        latency=inputs.columns.cards[found.row].intelligence.latency.tier.value,
        confidence=_classify_confidence(inputs, need, found.row),
    )
    return [*others[: last + 1], joined, *others[last + 1 :]]


def _find_requested_tool(inputs: ShortlistInput, candidates: list[Candidate]) -> Iterator[Candidate]:
    """Yield the tool of `request.about` if it is not among the candidates."""
    key = inputs.request.about
    row = inputs.columns.rows.get(key) if key is not None else None
    if row is None or row not in inputs.eligible or any(candidate.tool == key for candidate in candidates):
        return
    scored = inputs.scored
    need = max(range(len(scored.by_need)), key=lambda number: float(scored.by_need[number][row]))
    score = float(scored.by_need[need][row])
    ahead = int((scored.by_need[need][inputs.eligible] > score).sum())
    made = _build_candidate(inputs, OfferDecision(RankedTool(row, need, score)))
    lost = f"{ahead} tools scored higher than its {score:.2f}"
    yield replace(made, offered=False, lost=lost)

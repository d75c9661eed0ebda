"""The router's predictions for the queries of a set, and the comparison of two configurations."""

from __future__ import annotations

import os
import time
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final, Literal

import numpy as np
from anyio.from_thread import BlockingPortal
from numpy.typing import NDArray

from fingerpost.catalog import Snapshot
from fingerpost.choose.instructions import build_tool_instructions
from fingerpost.choose.selection import select_tool
from fingerpost.errors import ConfigError, ModelError
from fingerpost.evals.datasets import EvalCatalog, Prediction, QueryRecord, build_prediction
from fingerpost.evals.metrics import EvalMeasure, MeasureDifference, compare_runs, compute_measures
from fingerpost.frozen import frozen
from fingerpost.llm import ModelPool, ModelReply, ModelRequest, Role
from fingerpost.narrow.components import NarrowComponents
from fingerpost.narrow.dense import DenseScorer
from fingerpost.narrow.narrower import Narrower
from fingerpost.narrow.request import NarrowRequest
from fingerpost.records import Json, JsonObject, Narrowing, NeedVerdict, Packet, ParsedSelection, ToolCard
from fingerpost.settings import Settings

MAX_WAIT_S: Final = 3600.0
_POLL_INTERVAL_S: Final = 0.2
# The first requests load the model and the lexicons. Their time must not be measured.
_WARM_UP_TEXTS: Final = ("what is the weather tomorrow?", "מה מזג האוויר מחר?")

ReadyProgress = Callable[[float], None]  # called with the finished share, 0..1


@contextmanager
def open_ready_narrower(
    snapshot: Snapshot,
    settings: Settings,
    *,
    parts: NarrowComponents | None = None,
    progress: ReadyProgress | None = None,
) -> Generator[Narrower]:
    """Open a narrower on this snapshot with all vectors computed. Blocks until they are."""
    narrower = Narrower(settings, parts=parts)
    try:
        narrower.prepare(snapshot)
        _wait_for_vectors(narrower, progress or (lambda _: None))
        for text in _WARM_UP_TEXTS:
            narrower.narrow(NarrowRequest(text=text))
        yield narrower
    finally:
        narrower.close()


def get_ready_share(narrower: Narrower, settings: Settings) -> float:
    """Return the share of tools that have a vector; 1 when scoring by meaning is disabled."""
    meaning = narrower.parts.meaning
    return 1.0 if meaning is None or not settings.flags.dense_scores else meaning.ready


def _wait_for_vectors(narrower: Narrower, progress: ReadyProgress) -> None:
    meaning = narrower.parts.meaning
    if not isinstance(meaning, DenseScorer):  # no scorer, or one without background work
        return
    until = time.monotonic() + MAX_WAIT_S
    while not meaning.wait(_POLL_INTERVAL_S) and time.monotonic() < until:
        progress(meaning.ready)


RankingScope = Literal["catalog", "candidates"]
NarrowFunction = Callable[[NarrowRequest], Narrowing]

MAX_RANKING_LENGTH: Final = 200  # limit of the settings
MAX_THREADS: Final = 8


@frozen
class RoutedQuery:
    """One query, its narrowing, and its prediction."""

    query: QueryRecord
    narrowing: Narrowing
    prediction: Prediction


def build_eval_settings(
    settings: Settings,
    queries: Sequence[QueryRecord],
    *,
    top: int,
    scope: RankingScope,
    lexical: bool = False,
) -> Settings:
    """Return the settings without the cache and with rankings of the requested length."""
    length = top
    if scope == "candidates":  # the ranking contains all candidates
        length = max([top, *(len(query.candidates or ()) for query in queries)])
    threads = max(settings.narrow.threads, min(os.cpu_count() or 1, MAX_THREADS))  # to fill the index
    flags = {"narrow_cache": False} | ({"dense_scores": False} if lexical else {})
    return settings.model_copy(
        update={
            "narrow": settings.narrow.model_copy(
                update={"candidates": min(length, MAX_RANKING_LENGTH), "threads": threads}
            ),
            "flags": settings.flags.model_copy(update=flags),
        }
    )


def iterate_routings(
    eval_catalog: EvalCatalog,
    queries: Sequence[QueryRecord],
    narrow: NarrowFunction,
    *,
    top: int = 20,
    scope: RankingScope = "catalog",
) -> Iterator[RoutedQuery]:
    """Yield one routed query per query, in order."""
    for query in queries:
        among = query.candidates if scope == "candidates" else None
        request = NarrowRequest(
            text=query.query,
            history=query.history,
            allowed=None if among is None else eval_catalog.get_keys(among),
        )
        began = time.perf_counter()
        found = narrow(request)
        ms = (time.perf_counter() - began) * 1000
        ranking: dict[str, float] = {}  # several cards with one id count once
        for candidate in found.shortlist.candidates:
            ranking.setdefault(eval_catalog.ids[candidate.tool], candidate.score)
        length = top if among is None else MAX_RANKING_LENGTH
        prediction = build_prediction(query.id, found, ranking.items(), top=length, ms=ms)
        yield RoutedQuery(query=query, narrowing=found, prediction=prediction)


def count_unknown_candidates(eval_catalog: EvalCatalog, queries: Sequence[QueryRecord]) -> dict[str, int]:
    """Return the candidate ids that are not tools of the set, each with its number of queries."""
    counts: dict[str, int] = {}
    for query in queries:
        for tool in query.candidates or ():
            if tool not in eval_catalog.keys:
                counts[tool] = counts.get(tool, 0) + 1
    return counts


MAX_DISTINCT_NAME_LENGTH: Final = 64  # limit of the function-calling format
MAX_SHOWN_PROBLEM_LENGTH: Final = 300


@dataclass(slots=True)
class SelectionTally:
    """The cost of the selections of a run."""

    calls: int = 0
    failures: int = 0
    tokens: int = 0
    first_failure: str = ""
    answered: bool = False  # at least once; a model that never answers is not asked again


class EvalSelector:
    """Asks the selecting model of the pool about routed queries."""

    def __init__(self, pool: ModelPool, eval_catalog: EvalCatalog, settings: Settings) -> None:
        self._pool = pool
        self._catalog = eval_catalog
        self._settings = settings
        self.tally = SelectionTally()

    async def select(self, routing: RoutedQuery) -> JsonObject:
        """Return the `selection` of the line. Raises `ModelError` if the model answered no query yet."""
        offered = self._get_offered_cards(routing)
        if not offered:
            return _build_selection_line(None)
        packet = Packet.start(routing.query.query, history=routing.query.history)
        cards = tuple(offered)
        try:
            chosen = await select_tool(
                self._ask,
                packet,
                cards,
                self._settings.tool_routing,
                instructions=build_tool_instructions(cards),
                history=routing.query.history,
            )
        except ModelError as error:
            if not self.tally.answered:
                raise error
            self.tally.failures += 1
            self.tally.first_failure = self.tally.first_failure or str(error)[:MAX_SHOWN_PROBLEM_LENGTH]
            return {**_build_selection_line(None), "problem": str(error)[:MAX_SHOWN_PROBLEM_LENGTH]}
        tool = None if chosen.selection is None else self._catalog.ids.get(chosen.selection.tool)
        return _build_selection_line(tool, chosen)

    def _get_offered_cards(self, routing: RoutedQuery) -> Sequence[ToolCard]:
        if self._settings.flags.need_gate and routing.narrowing.need.verdict is NeedVerdict.NONE:
            return ()
        cards = (self._catalog.snapshot.get(one.tool) for one in routing.narrowing.shortlist.offered)
        return make_names_distinct([card for card in cards if card is not None])

    async def _ask(self, request: ModelRequest) -> ModelReply:
        self.tally.calls += 1
        reply = await self._pool.ask(Role.LITE, request)
        self.tally.answered = True
        self.tally.tokens += reply.usage.total if reply.usage is not None else 0
        return reply


def make_names_distinct(cards: Sequence[ToolCard]) -> list[ToolCard]:
    """Return the cards with unique names, because a set may have two tools with the same server and name."""
    taken: set[str] = set()
    found: list[ToolCard] = []
    for card in sorted(cards, key=lambda card: card.key):
        name, number = card.exposed_name, 2
        while name in taken:
            name = f"{card.exposed_name[: MAX_DISTINCT_NAME_LENGTH - 4]}_{number}"
            number += 1
        taken.add(name)
        found.append(card if name == card.exposed_name else replace(card, exposed_name=name))
    return found


def _build_selection_line(tool: str | None, chosen: ParsedSelection | None = None) -> JsonObject:
    selection = None if chosen is None else chosen.selection
    line: dict[str, Json] = {
        "tool": tool,
        "arguments": {} if selection is None else selection.arguments,
        "confidence": 0.0 if selection is None else round(selection.confidence, 4),
    }
    if chosen is not None and chosen.problem:
        line["problem"] = chosen.problem[:MAX_SHOWN_PROBLEM_LENGTH]
    return line


def iterate_with_selections(
    routings: Iterable[RoutedQuery], selector: EvalSelector, portal: BlockingPortal, *, concurrency: int
) -> Iterator[Prediction]:
    """Yield the predictions in order with their selections. At most `concurrency` requests run at a time."""
    waiting: deque[tuple[Prediction, Future[JsonObject]]] = deque()

    def first() -> Prediction:
        prediction, future = waiting.popleft()
        return replace(prediction, selection=future.result())

    try:
        for routing in routings:
            waiting.append((routing.prediction, portal.start_task_soon(selector.select, routing)))
            # One request at a time until the first answer: a wrong key then costs only one request.
            if len(waiting) >= (concurrency if selector.tally.answered else 1):
                yield first()
        while waiting:
            yield first()
    finally:
        for _, future in waiting:
            future.cancel()


@frozen
class OfferContrast:
    """One request, and the tools that each configuration offers, best first."""

    request: str
    before: tuple[str, ...]
    after: tuple[str, ...]

    @property
    def gained(self) -> tuple[str, ...]:
        return tuple(tool for tool in self.after if tool not in self.before)

    @property
    def lost(self) -> tuple[str, ...]:
        return tuple(tool for tool in self.before if tool not in self.after)

    @property
    def is_different(self) -> bool:
        """Whether different tools are offered. Their order does not count."""
        return bool(self.gained or self.lost)


@frozen
class ShadowReport:
    """All contrasts with a summary."""

    contrasts: tuple[OfferContrast, ...]

    @property
    def differing(self) -> tuple[OfferContrast, ...]:
        return tuple(contrast for contrast in self.contrasts if contrast.is_different)

    @property
    def share(self) -> float:
        return len(self.differing) / len(self.contrasts) if self.contrasts else 0.0

    def count_moved_tools(self) -> list[tuple[str, int, int]]:
        """Return each tool that is newly or no longer offered, with both counts."""
        gained = Counter(tool for contrast in self.contrasts for tool in contrast.gained)
        lost = Counter(tool for contrast in self.contrasts for tool in contrast.lost)
        tools = sorted({*gained, *lost}, key=lambda tool: (-gained[tool] - lost[tool], tool))
        return [(tool, gained[tool], lost[tool]) for tool in tools]


def compare_offers(requests: Iterable[str], before: NarrowFunction, after: NarrowFunction) -> ShadowReport:
    """Compare the tools that both configurations offer for each request."""
    contrasts: list[OfferContrast] = []
    for text in requests:
        old, new = _get_offered_keys(before, text), _get_offered_keys(after, text)
        contrasts.append(OfferContrast(request=text, before=old, after=new))
    return ShadowReport(contrasts=tuple(contrasts))


def _get_offered_keys(narrow: NarrowFunction, text: str) -> tuple[str, ...]:
    return tuple(candidate.tool for candidate in narrow(NarrowRequest(text=text)).shortlist.offered)


def remove_repeated_requests(requests: Iterable[str]) -> Sequence[str]:
    """Return the requests without duplicates and empty ones."""
    return tuple(dict.fromkeys(text for one in requests if (text := one.strip())))


TUNED_WEIGHTS: Final = tuple(step / 10 for step in range(11))
_TUNING_FOLDS: Final = 5
TUNING_MEASURE: Final = "ndcg@10"


@frozen
class TuningReport:
    """How well each share of meaning in the text score ranks the tools of a set.

    Fields:
        measures: the figures of the set by share
        best: the share with the best order of tools
        differences: today's share against shares chosen on the other four fifths of the queries
    """

    measures: Mapping[float, Sequence[EvalMeasure]]
    best: float
    differences: Sequence[MeasureDifference]

    @property
    def is_better(self) -> bool:
        """Whether tuning helps on queries that it has not seen."""
        return any(one.name == TUNING_MEASURE and one.verdict == "better" for one in self.differences)


def tune_meaning_weight(
    catalog: EvalCatalog,
    queries: Sequence[QueryRecord],
    narrower: Narrower,
    settings: Settings,
    *,
    progress: Callable[[], None] = lambda: None,
) -> TuningReport:
    """Rank the tools with every share of meaning, and compare. Raises `ConfigError` without labels."""
    labelled = [query for query in queries if query.has_recall_labels]
    if len(labelled) < _TUNING_FOLDS:
        message = f"{len(labelled)} queries with labels are too few to tune on"
        raise ConfigError(message, hint=f"It takes at least {_TUNING_FOLDS}; some hundreds are better.")
    shares: tuple[float | None, ...] = (None, *TUNED_WEIGHTS)
    weighted = {
        share: settings.narrow.model_copy(update={"meaning_weight": share}) for share in TUNED_WEIGHTS
    }
    changed = {share: settings.model_copy(update={"narrow": narrow}) for share, narrow in weighted.items()}
    runs: dict[float | None, dict[str, Prediction]] = {share: {} for share in shares}
    for query in labelled:  # one query after the other: its vector is computed once
        for share in shares:
            narrow = _with_settings(narrower, changed.get(share) if share is not None else None)
            (routed,) = iterate_routings(catalog, [query], narrow)
            runs[share][query.id] = routed.prediction
        progress()
    measures = {share: compute_measures(labelled, found) for share, found in runs.items()}
    ranked = {share: _get_measure(found) for share, found in measures.items()}

    def find_best(rows: NDArray[np.bool_]) -> float:
        """Return the best share on these queries; of equally good ones the nearest to the default."""
        return max(
            TUNED_WEIGHTS,
            key=lambda share: (float(ranked[share].rows[rows].mean()), -abs(share - DenseScorer.weight)),
        )

    places = np.arange(len(labelled))
    unseen: dict[str, Prediction] = {}
    for fold in range(_TUNING_FOLDS):
        chosen = find_best(places % _TUNING_FOLDS != fold)
        unseen |= {query.id: runs[chosen][query.id] for query in labelled[fold::_TUNING_FOLDS]}
    return TuningReport(
        measures={share: measures[share] for share in TUNED_WEIGHTS},
        best=find_best(places >= 0),
        differences=[
            one
            for one in compare_runs(measures[None], compute_measures(labelled, unseen))
            if one.name in ("recall@1", "recall@5", TUNING_MEASURE)
        ],
    )


def _with_settings(narrower: Narrower, settings: Settings | None) -> NarrowFunction:
    return lambda request: narrower.narrow(replace(request, settings=settings))


def _get_measure(measures: Sequence[EvalMeasure]) -> EvalMeasure:
    return next(measure for measure in measures if measure.name == TUNING_MEASURE)

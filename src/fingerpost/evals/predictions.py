"""Predictions of the router for the queries of a set, and the comparison of two configurations."""

from __future__ import annotations

import os
import time
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final, Literal

from anyio.from_thread import BlockingPortal

from fingerpost.catalog import Snapshot
from fingerpost.choose.instructions import build_tool_instructions
from fingerpost.choose.selection import select_tool
from fingerpost.errors import ModelError
from fingerpost.evals.datasets import EvalCatalog, Prediction, QueryRecord, RankingEntry
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
# The model and the lexicons are loaded by the first request that needs them; that is not its own time.
_WARM_UP_TEXT: Final = ("what is the weather tomorrow?", "מה מזג האוויר מחר?")

ReadyProgress = Callable[[float], None]  # told the share that is done, 0..1


@contextmanager
def open_ready_narrower(
    snapshot: Snapshot,
    settings: Settings,
    *,
    parts: NarrowComponents | None = None,
    progress: ReadyProgress | None = None,
) -> Generator[Narrower]:
    """Narrows over this snapshot, with every vector in place. Blocks while they are made."""
    narrower = Narrower(settings, parts=parts)
    try:
        narrower.prepare(snapshot)
        _wait_for_vectors(narrower, progress or (lambda _: None))
        for text in _WARM_UP_TEXT:
            narrower.narrow(NarrowRequest(text=text))
        yield narrower
    finally:
        narrower.close()


def get_ready_share(narrower: Narrower, settings: Settings) -> float:
    """The share of tools that are compared by meaning too; 1 when that is switched off."""
    meaning = narrower.parts.meaning
    return 1.0 if meaning is None or not settings.flags.dense_scores else meaning.ready


def _wait_for_vectors(narrower: Narrower, progress: ReadyProgress) -> None:
    meaning = narrower.parts.meaning
    if not isinstance(meaning, DenseScorer):  # none, or one that is complete from the beginning
        return
    until = time.monotonic() + MAX_WAIT_S
    while not meaning.wait(_POLL_INTERVAL_S) and time.monotonic() < until:
        progress(meaning.ready)


RankingScope = Literal["catalog", "candidates"]
NarrowFunction = Callable[[NarrowRequest], Narrowing]

MAX_RANKING_LENGTH: Final = 200  # as many as the settings allow
MAX_THREADS: Final = 8


@frozen
class RoutedQuery:
    """One query, what narrowing found for it, and the line that says so."""

    query: QueryRecord
    found: Narrowing
    prediction: Prediction


def build_eval_settings(
    settings: Settings,
    queries: Sequence[QueryRecord],
    *,
    top: int,
    scope: RankingScope,
    lexical: bool = False,
) -> Settings:
    """The same settings, without memory between queries and with rankings as long as asked for."""
    places = top
    if scope == "candidates":  # the ranking of a candidate list holds all of them
        places = max([top, *(len(query.candidates or ()) for query in queries)])
    threads = max(settings.narrow.threads, min(os.cpu_count() or 1, MAX_THREADS))  # to fill the index
    flags = {"narrow_cache": False} | ({"dense_scores": False} if lexical else {})
    return settings.model_copy(
        update={
            "narrow": settings.narrow.model_copy(
                update={"candidates": min(places, MAX_RANKING_LENGTH), "threads": threads}
            ),
            "flags": settings.flags.model_copy(update=flags),
        }
    )


def iterate_predictions(
    eval_catalog: EvalCatalog,
    queries: Sequence[QueryRecord],
    narrow: NarrowFunction,
    *,
    top: int = 20,
    scope: RankingScope = "catalog",
) -> Iterator[Prediction]:
    """One prediction per query, in order."""
    return (
        routed.prediction for routed in iterate_routings(eval_catalog, queries, narrow, top=top, scope=scope)
    )


def iterate_routings(
    eval_catalog: EvalCatalog,
    queries: Sequence[QueryRecord],
    narrow: NarrowFunction,
    *,
    top: int = 20,
    scope: RankingScope = "catalog",
) -> Iterator[RoutedQuery]:
    """The same, with what each prediction was made from."""
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
        prediction = Prediction(
            id=query.id,
            verdict=found.need.verdict.value,
            need=found.need.score,
            fit=found.shortlist.fit,
            ranking=_build_ranking(eval_catalog, found, top if among is None else MAX_RANKING_LENGTH),
            ms=ms,
        )
        yield RoutedQuery(query=query, found=found, prediction=prediction)


def _build_ranking(eval_catalog: EvalCatalog, found: Narrowing, max_length: int) -> tuple[RankingEntry, ...]:
    """The set's ids in the order of the shortlist; several cards of one id count once."""
    best: dict[str, float] = {}
    for candidate in found.shortlist.candidates:
        best.setdefault(eval_catalog.ids[candidate.tool], candidate.score)
    return tuple(RankingEntry(tool=tool, score=score) for tool, score in list(best.items())[:max_length])


def count_unknown_candidates(eval_catalog: EvalCatalog, queries: Sequence[QueryRecord]) -> dict[str, int]:
    """Candidate ids that are no tool of the set, and how many queries name each."""
    counts: dict[str, int] = {}
    for query in queries:
        for tool in query.candidates or ():
            if tool not in eval_catalog.keys:
                counts[tool] = counts.get(tool, 0) + 1
    return counts


MAX_DISTINCT_NAME_LENGTH: Final = 64  # as long as names in the function format may be
MAX_SHOWN_PROBLEM: Final = 300


@dataclass(slots=True)
class SelectionTally:
    """What the selections of a run took."""

    calls: int = 0
    failures: int = 0
    tokens: int = 0
    first_failure: str = ""
    answered: bool = False  # at least once: a model that never answers is not asked on


class EvalSelector:
    """Asks the pool's selecting model about one routed query after another."""

    def __init__(self, pool: ModelPool, eval_catalog: EvalCatalog, settings: Settings) -> None:
        self._pool = pool
        self._shelf = eval_catalog
        self._settings = settings
        self.tally = SelectionTally()

    async def select(self, routing: RoutedQuery) -> JsonObject:
        """The line's `selection`. Raises `ModelError` when the model has never answered yet."""
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
            return self._record_failure(error)
        tool = None if chosen.selection is None else self._shelf.ids.get(chosen.selection.tool)
        return _build_selection_line(tool, chosen)

    def _get_offered_cards(self, routing: RoutedQuery) -> Sequence[ToolCard]:
        gated = self._settings.flags.need_gate and routing.found.need.verdict is NeedVerdict.NONE
        keys = [] if gated else [one.tool for one in routing.found.shortlist.offered]
        cards = (self._shelf.snapshot.get(key) for key in keys)
        return make_names_distinct([card for card in cards if card is not None])

    async def _ask(self, request: ModelRequest) -> ModelReply:
        self.tally.calls += 1
        reply = await self._pool.ask(Role.LITE, request)
        self.tally.answered = True
        self.tally.tokens += reply.usage.total if reply.usage is not None else 0
        return reply

    def _record_failure(self, error: ModelError) -> JsonObject:
        if not self.tally.answered:
            raise error
        self.tally.failures += 1
        self.tally.first_failure = self.tally.first_failure or str(error)[:MAX_SHOWN_PROBLEM]
        return {**_build_selection_line(None), "problem": str(error)[:MAX_SHOWN_PROBLEM]}


def make_names_distinct(cards: Sequence[ToolCard]) -> list[ToolCard]:
    """The cards with names a model can tell apart: a set may hold two tools of one server and name."""
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
        line["problem"] = chosen.problem[:MAX_SHOWN_PROBLEM]
    return line


def iterate_with_selections(
    routings: Iterable[RoutedQuery], selector: EvalSelector, portal: BlockingPortal, *, concurrency: int
) -> Iterator[Prediction]:
    """The predictions in order, with their selections; so many questions are on their way at a time."""
    waiting: deque[tuple[Prediction, Future[JsonObject]]] = deque()

    def first() -> Prediction:
        prediction, asked = waiting.popleft()
        return replace(prediction, selection=asked.result())

    try:
        for routing in routings:
            waiting.append((routing.prediction, portal.start_task_soon(selector.select, routing)))
            # Until the first answer is there, nothing more is asked: a wrong key costs one question.
            if len(waiting) >= (concurrency if selector.tally.answered else 1):
                yield first()
        while waiting:
            yield first()
    finally:
        _cancel_all(asked for _, asked in waiting)


def _cancel_all(asked: Iterable[Future[JsonObject]]) -> None:
    for one in asked:
        one.cancel()


@frozen
class OfferContrast:
    """One request, and the tools either configuration offers for it, best first."""

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
        """Whether other tools are offered. Their order alone makes no difference to a model."""
        return bool(self.gained or self.lost)


@frozen
class ShadowReport:
    """All contrasts, and what they come to."""

    contrasts: tuple[OfferContrast, ...]

    @property
    def differing(self) -> tuple[OfferContrast, ...]:
        return tuple(contrast for contrast in self.contrasts if contrast.is_different)

    @property
    def share(self) -> float:
        return len(self.differing) / len(self.contrasts) if self.contrasts else 0.0

    def count_moved_tools(self) -> list[tuple[str, int, int]]:
        """Every tool that is offered more or less often: how often newly, how often no longer."""
        gained = Counter(tool for contrast in self.contrasts for tool in contrast.gained)
        lost = Counter(tool for contrast in self.contrasts for tool in contrast.lost)
        tools = sorted({*gained, *lost}, key=lambda tool: (-gained[tool] - lost[tool], tool))
        return [(tool, gained[tool], lost[tool]) for tool in tools]


def compare_offers(requests: Iterable[str], before: NarrowFunction, after: NarrowFunction) -> ShadowReport:
    """What either configuration offers for each request."""
    return ShadowReport(
        contrasts=tuple(
            OfferContrast(
                request=text, before=_get_offered_keys(before, text), after=_get_offered_keys(after, text)
            )
            for text in requests
        )
    )


def _get_offered_keys(narrow: NarrowFunction, text: str) -> tuple[str, ...]:
    return tuple(candidate.tool for candidate in narrow(NarrowRequest(text=text)).shortlist.offered)


def remove_repeated_requests(requests: Iterable[str]) -> Sequence[str]:
    """The requests, each once, without empty ones."""
    return tuple(dict.fromkeys(text for one in requests if (text := one.strip())))

"""Which tool a model takes of those narrowing offers: the choosing stage, over a set's queries.

Everything is as for a real request: a request that needs no tool is not put before
a model, and the model sees the tools offered, their instructions and the conversation.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Final

from anyio.from_thread import BlockingPortal

from fingerpost.choose.instructions import build_tool_instructions
from fingerpost.choose.selection import select_tool
from fingerpost.errors import ModelError
from fingerpost.evals.predict import RoutedQuery
from fingerpost.evals.records import Prediction
from fingerpost.evals.shelf import EvalCatalog
from fingerpost.llm import ModelPool, ModelReply, ModelRequest, Role
from fingerpost.records import Json, JsonObject, NeedVerdict, Packet, ParsedSelection, ToolCard
from fingerpost.settings import Settings

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

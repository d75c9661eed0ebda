"""Chooses the servers of each turn, and never stands in its way.

With a model one light call chooses, once in a conversation, and its choice is kept: a
start, not a wall. A later turn adds the servers of its best tools, those the person names
and, where a model takes none of the tools it is offered, the next best. Without a model
the scores of the tools choose, each turn anew. Whatever goes wrong, all servers stay and
the developer finds the reason in the `smart_routing_end` event.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final

import anyio
import anyio.to_thread

from fingerpost.catalog import Snapshot
from fingerpost.errors import ModelReplyInvalid, ModelTimeout
from fingerpost.events import EventSink, SmartRoutingEnd, SmartRoutingStart
from fingerpost.llm import ChatModel, ModelRequest
from fingerpost.narrow.preselection.conversations import Conversations, Decision, Place
from fingerpost.narrow.preselection.costs import Count, DefinitionCosts, quarter
from fingerpost.narrow.preselection.names import ServerNames
from fingerpost.narrow.preselection.prompt import TEMPLATE, question
from fingerpost.narrow.preselection.reading import ASKED, read_choice
from fingerpost.narrow.preselection.relations import related_servers
from fingerpost.narrow.preselection.scores import best_outside, pick_by_scores
from fingerpost.records import Message, ServerChoice, Signals, ToolCard
from fingerpost.redaction import scrub
from fingerpost.settings import SmartRoutingSettings

ServerScores = Callable[[], Mapping[str, Sequence[float]]]

PATIENCE: Final = 20.0  # seconds for the model; a light call that takes longer helps nobody
CONVERSATIONS: Final = 1000
_LONGEST_ERROR: Final = 300
REMEMBERED: Final = "remembered"
WIDENED: Final = "widened"
ALL_STAY: Final = "the servers could not be chosen, so all stay"
NONE_TAKEN: Final = "none of the offered tools was taken"


@dataclass(frozen=True)
class _Turn:
    """One turn of a conversation, as the picker looks at it."""

    text: str
    history: Sequence[Message]
    conversation: str | None
    caller: str | None
    snapshot: Snapshot
    scores: ServerScores
    signals: Signals
    packet_id: str | None
    settings: SmartRoutingSettings  # as they were when it began
    model: ChatModel | None
    remembered: frozenset[str] = frozenset()  # were right for the same request before
    taught: frozenset[str] = frozenset()  # people said that one of its tools is the right one
    none_taken: bool = False  # a model took none of the tools it was offered for this turn

    @property
    def place(self) -> Place | None:
        """What a choice is kept by: the conversation, which is its caller's; alone, the request itself."""
        kept_by = self.conversation or self.packet_id
        return None if kept_by is None else _place(self.caller, kept_by)

    @cached_property
    def servers(self) -> frozenset[str]:
        return frozenset(card.server for card in self.snapshot.cards)

    @cached_property
    def names(self) -> ServerNames:
        return ServerNames(sorted(self.servers))

    @cached_property
    def mentions(self) -> frozenset[str]:
        """Servers named in the request, or one of whose tools is, there or by people who corrected it."""
        by_key = {card.key: card.server for card in self.snapshot.cards} if self.signals.mentions else {}
        named = {by_key.get(mention.name, mention.name) for mention in self.signals.mentions}
        return self.servers & (named | set(self.names.in_text(self.text)) | self.taught)


@dataclass(slots=True)
class _Run:
    """A choice in the making: what its end event will say."""

    by: str
    began: float = field(default_factory=time.perf_counter)
    error: str | None = None

    @property
    def milliseconds(self) -> float:
        return round((time.perf_counter() - self.began) * 1000, 3)


def is_wanted(settings: SmartRoutingSettings, *, tools: int, servers: int) -> bool:
    """Whether servers are chosen among so many: there is something to choose, and it is asked for."""
    if settings.mode == "off" or servers < 2:
        return False
    return settings.mode == "on" or (tools > settings.max_tools and servers > settings.max_servers)


class ServerPicker:
    """Chooses servers by `model` once in a conversation, or by scores each turn where there is none.

    `live` gives the settings as they are at each request, where they may change meanwhile.
    """

    def __init__(
        self,
        settings: SmartRoutingSettings,
        events: EventSink,
        *,
        live: Callable[[], SmartRoutingSettings] | None = None,
        model: ChatModel | None = None,
        template: str = TEMPLATE,
        count: Count = quarter,
        patience: float = PATIENCE,
        conversations: int = CONVERSATIONS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._live = live or (lambda: settings)
        self._events = events
        self._model = model
        self._template = template
        self._patience = patience
        self._costs = DefinitionCosts(count)
        self._conversations = Conversations(
            conversations, seconds=lambda: self._live().keep_minutes * 60, clock=clock
        )

    def is_on(self, tools: int, servers: int) -> bool:
        """Whether there is something to choose, and it is wanted."""
        return is_wanted(self._live(), tools=tools, servers=servers)

    def has_chosen(self, conversation: str | None, *, caller: str | None = None) -> bool:
        """Whether a model chose for this conversation already."""
        return conversation is not None and _place(caller, conversation) in self._conversations

    async def choose(
        self,
        text: str,
        history: Sequence[Message],
        conversation: str | None,
        snapshot: Snapshot,
        scores: ServerScores,
        packet_id: str | None = None,
        *,
        caller: str | None = None,
        signals: Signals | None = None,
        model: ChatModel | None = None,
        ask_model: bool = True,
        remembered: frozenset[str] = frozenset(),
        taught: frozenset[str] = frozenset(),
        none_taken: bool = False,
    ) -> ServerChoice:
        """The servers for this turn. Never raises: in doubt, all of them.

        `model` is asked instead of the picker's own, by whoever counts what it costs; without
        `ask_model` none is.
        `scores` is asked in a worker thread, unless a model has just chosen. Whatever
        policy hides from the caller must not be in `snapshot`: a model is shown it.
        `remembered` servers were right for the same request before: they are kept beside those that
        the scores keep, and no model is asked. `taught` ones are kept like those the request names.
        `none_taken`: a model took none of the tools of the servers chosen for this turn.
        """
        began = time.perf_counter()
        settings = self._live()
        turn = _Turn(
            text,
            history,
            conversation,
            caller,
            snapshot,
            scores,
            signals or Signals(),
            packet_id,
            settings,
            None if remembered or not ask_model else model or self._model,
            remembered,
            taught,
            none_taken,
        )
        if not is_wanted(settings, tools=len(snapshot.cards), servers=len(turn.servers)):
            return ServerChoice(servers=tuple(sorted(turn.servers)), by="off")
        decision = await self._decision(turn)
        kept = turn.servers & (decision.kept | (turn.servers - decision.known)) or turn.servers
        return ServerChoice(
            servers=tuple(sorted(kept)),
            left_out=tuple(sorted(turn.servers - kept)),
            by=decision.by,
            reasoning=decision.reasoning,
            widened=tuple(server for server in decision.widened if server in kept),
            milliseconds=round((time.perf_counter() - began) * 1000, 3),
        )

    async def _decision(self, turn: _Turn) -> Decision:
        """Of a model, made now or in an earlier turn and widened for this one; else of the scores."""
        place = turn.place
        if place is None or (turn.model is None and place not in self._conversations):
            return await self._decide(turn)
        made_now: list[Decision] = []

        async def decide() -> Decision:
            made_now.append(await self._decide(turn))
            return made_now[0]

        decision = await self._conversations.decided(place, decide)
        return decision if made_now else await self._widen(place, decision, turn)

    async def _widen(self, place: Place, decision: Decision, turn: _Turn) -> Decision:
        """The decision with the servers this turn adds to it, which stay."""
        outside = (turn.servers & decision.known) - decision.kept
        if not outside:
            return decision
        run = _Run(by=WIDENED)
        try:
            added, reasoning = await self._added(turn, decision.kept)
        except Exception as error:  # noqa: BLE001 - a scorer may fail in any way; the request goes on
            run.error = _described(error)
            added, reasoning = outside, ALL_STAY
        if not added & outside:
            return decision
        new = tuple(sorted(added & outside))
        wider = replace(decision, kept=decision.kept | added, widened=(*decision.widened, *new))
        self._conversations.keep(place, wider)
        self._began(turn)
        left_out = [card for card in turn.snapshot.cards if card.server not in wider.kept]
        told = replace(wider, reasoning=reasoning)
        self._ended(turn, run, told, saved=await self._cost(left_out), widened=new)
        return wider

    async def _added(self, turn: _Turn, kept: frozenset[str]) -> tuple[frozenset[str], str]:
        """The servers to add, and why."""
        found = await anyio.to_thread.run_sync(turn.scores)
        scores = {server: found.get(server, ()) for server in turn.servers}
        if turn.none_taken:
            next_best = frozenset(pick_by_scores(scores, turn.mentions).servers) - kept
            return next_best or turn.servers, NONE_TAKEN
        best = best_outside(scores, kept)
        reasons = [f"{server} is named" for server in sorted(turn.mentions - kept)]
        reasons += [f"{server} has one of the best tools ({best[server]:.2f})" for server in sorted(best)]
        return turn.mentions | best.keys(), "; ".join(reasons)

    async def _decide(self, turn: _Turn) -> Decision:
        """One run, between its two events."""
        run = _Run(by=REMEMBERED if turn.remembered else "scores" if turn.model is None else "model")
        self._began(turn)
        everything = Decision(kept=turn.servers, known=turn.servers, by=run.by, reasoning=ALL_STAY)
        try:
            decision = await self._decided(turn, run)
        except Exception as error:  # noqa: BLE001 - a model or a scorer may fail in any way; the request goes on
            run.error = _described(error)
            decision = everything
        except BaseException:
            run.error = "cancelled"
            self._ended(turn, run, everything, saved=0)
            raise
        left_out = [card for card in turn.snapshot.cards if card.server not in decision.kept]
        self._ended(turn, run, decision, saved=await self._cost(left_out))
        return decision

    async def _decided(self, turn: _Turn, run: _Run) -> Decision:
        if turn.model is not None:
            return await self._by_model(turn.model, turn)
        if turn.none_taken:
            return Decision(kept=turn.servers, known=turn.servers, by=run.by, reasoning=NONE_TAKEN)
        found = await anyio.to_thread.run_sync(turn.scores)
        scores = {server: found.get(server, ()) for server in turn.servers}
        choice = pick_by_scores(scores, turn.mentions, related_servers(turn.snapshot, turn.signals))
        before = turn.remembered & turn.servers
        return Decision(
            kept=frozenset(choice.servers) | before,
            known=turn.servers,
            by=run.by,
            reasoning=f"right for the same request before: {', '.join(sorted(before))}"
            if before
            else choice.reasoning,
        )

    async def _by_model(self, model: ChatModel, turn: _Turn) -> Decision:
        messages = await anyio.to_thread.run_sync(
            question, self._template, turn.snapshot, turn.text, turn.history
        )
        request = ModelRequest(
            messages=messages,
            temperature=turn.settings.temperature,
            max_tokens=turn.settings.max_tokens,
            schema=ASKED,
        )
        reply = None
        with anyio.move_on_after(self._patience):
            reply = await model.complete(request)
        if reply is None:
            message = f"{model.name} did not choose within {self._patience:g} s"
            raise ModelTimeout(message, model=model.name)
        picked = await anyio.to_thread.run_sync(read_choice, reply.text, turn.names)
        if not picked.servers:
            strangers = f" but {', '.join(picked.unknown[:5])}" if picked.unknown else ""
            message = f"{model.name} named no server there is{strangers}"
            raise ModelReplyInvalid(message, model=model.name)
        kept = frozenset(picked.servers) | turn.mentions
        return Decision(kept=kept, known=turn.servers, by="model", reasoning=picked.reasoning)

    async def _cost(self, cards: Sequence[ToolCard]) -> int:
        return await anyio.to_thread.run_sync(self._costs.total, cards)

    def _began(self, turn: _Turn) -> None:
        self._events.emit(
            SmartRoutingStart(
                packet_id=turn.packet_id,
                conversation=turn.conversation,
                total_tools=len(turn.snapshot.cards),
                total_servers=len(turn.servers),
                max_tools=turn.settings.max_tools,
                max_servers=turn.settings.max_servers,
            )
        )

    def _ended(
        self, turn: _Turn, run: _Run, decision: Decision, *, saved: int, widened: tuple[str, ...] = ()
    ) -> None:
        self._events.emit(
            SmartRoutingEnd(
                packet_id=turn.packet_id,
                conversation=turn.conversation,
                total_tools=len(turn.snapshot.cards),
                filtered_tools=sum(card.server in decision.kept for card in turn.snapshot.cards),
                total_servers=len(turn.servers),
                relevant_servers=tuple(sorted(decision.kept & turn.servers)),
                reasoning=decision.reasoning,
                by=run.by,
                milliseconds=run.milliseconds,
                tokens_saved=saved,
                success=run.error is None,
                error=run.error,
                widened=widened,
            )
        )


def _place(caller: str | None, conversation: str) -> Place:
    return (caller, conversation)


def _described(error: Exception) -> str:
    return scrub(f"{type(error).__name__}: {error}")[:_LONGEST_ERROR]

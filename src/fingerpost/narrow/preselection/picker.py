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
from fingerpost.narrow.preselection.conversations import ConversationKey, ServerDecision, ServerDecisionCache
from fingerpost.narrow.preselection.costs import DefinitionCosts, TokenCounter, estimate_tokens
from fingerpost.narrow.preselection.names import ServerNames
from fingerpost.narrow.preselection.prompt import DEFAULT_TEMPLATE, build_server_question
from fingerpost.narrow.preselection.reading import REPLY_SCHEMA, parse_server_choice
from fingerpost.narrow.preselection.relations import find_related_servers
from fingerpost.narrow.preselection.scores import find_best_outside, pick_by_scores
from fingerpost.records import Message, ServerChoice, Signals, ToolCard
from fingerpost.redaction import scrub
from fingerpost.settings import SmartRoutingSettings

ServerScores = Callable[[], Mapping[str, Sequence[float]]]

MODEL_TIMEOUT_S: Final = 20.0  # seconds for the model; a light call that takes longer helps nobody
MAX_CONVERSATIONS: Final = 1000
_MAX_ERROR_LENGTH: Final = 300
BY_MEMORY: Final = "remembered"
BY_WIDENING: Final = "widened"
ALL_STAY_REASON: Final = "the servers could not be chosen, so all stay"
NONE_TAKEN_REASON: Final = "none of the offered tools was taken"


@dataclass(frozen=True)
class _PickerTurn:
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
    corrected_servers: frozenset[str] = frozenset()  # people said that one of its tools is the right one
    none_taken: bool = False  # a model took none of the tools it was offered for this turn

    @property
    def conversation_key(self) -> ConversationKey | None:
        """What a choice is kept by: the conversation, which is its caller's; alone, the request itself."""
        kept_by = self.conversation or self.packet_id
        return None if kept_by is None else _build_conversation_key(self.caller, kept_by)

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
        return self.servers & (named | set(self.names.find_in_text(self.text)) | self.corrected_servers)


@dataclass(slots=True)
class _PickerRun:
    """A choice in the making: what its end event will say."""

    by: str
    began: float = field(default_factory=time.perf_counter)
    error: str | None = None

    @property
    def milliseconds(self) -> float:
        return round((time.perf_counter() - self.began) * 1000, 3)


def should_pick_servers(settings: SmartRoutingSettings, *, tools: int, servers: int) -> bool:
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
        template: str = DEFAULT_TEMPLATE,
        count: TokenCounter = estimate_tokens,
        timeout: float = MODEL_TIMEOUT_S,
        conversations: int = MAX_CONVERSATIONS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._live = live or (lambda: settings)
        self._events = events
        self._model = model
        self._template = template
        self._patience = timeout
        self._costs = DefinitionCosts(count)
        self._conversations = ServerDecisionCache(
            conversations, seconds=lambda: self._live().keep_minutes * 60, clock=clock
        )

    def is_enabled(self, tools: int, servers: int) -> bool:
        """Whether there is something to choose, and it is wanted."""
        return should_pick_servers(self._live(), tools=tools, servers=servers)

    def has_chosen(self, conversation: str | None, *, caller: str | None = None) -> bool:
        """Whether a model chose for this conversation already."""
        return (
            conversation is not None and _build_conversation_key(caller, conversation) in self._conversations
        )

    async def pick(
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
        the scores keep, and no model is asked. `corrected_servers` are kept like those it names.
        `none_taken`: a model took none of the tools of the servers chosen for this turn.
        """
        began = time.perf_counter()
        settings = self._live()
        turn = _PickerTurn(
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
        if not should_pick_servers(settings, tools=len(snapshot.cards), servers=len(turn.servers)):
            return ServerChoice(servers=tuple(sorted(turn.servers)), by="off")
        decision = await self._get_decision(turn)
        kept = turn.servers & (decision.kept | (turn.servers - decision.known)) or turn.servers
        return ServerChoice(
            servers=tuple(sorted(kept)),
            left_out=tuple(sorted(turn.servers - kept)),
            by=decision.by,
            reasoning=decision.reasoning,
            widened=tuple(server for server in decision.widened if server in kept),
            milliseconds=round((time.perf_counter() - began) * 1000, 3),
        )

    async def _get_decision(self, turn: _PickerTurn) -> ServerDecision:
        """Of a model, made now or in an earlier turn and widened for this one; else of the scores."""
        place = turn.conversation_key
        if place is None or (turn.model is None and place not in self._conversations):
            return await self._decide(turn)
        made_now: list[ServerDecision] = []

        async def decide() -> ServerDecision:
            made_now.append(await self._decide(turn))
            return made_now[0]

        decision = await self._conversations.get_or_decide(place, decide)
        return decision if made_now else await self._widen(place, decision, turn)

    async def _widen(
        self, place: ConversationKey, decision: ServerDecision, turn: _PickerTurn
    ) -> ServerDecision:
        """The decision with the servers this turn adds to it, which stay."""
        outside = (turn.servers & decision.known) - decision.kept
        if not outside:
            return decision
        run = _PickerRun(by=BY_WIDENING)
        try:
            added, reasoning = await self._find_added_servers(turn, decision.kept)
        except Exception as error:  # noqa: BLE001 - a scorer may fail in any way; the request goes on
            run.error = _describe_error(error)
            added, reasoning = outside, ALL_STAY_REASON
        if not added & outside:
            return decision
        new = tuple(sorted(added & outside))
        wider = replace(decision, kept=decision.kept | added, widened=(*decision.widened, *new))
        self._conversations.put(place, wider)
        self._emit_start(turn)
        left_out = [card for card in turn.snapshot.cards if card.server not in wider.kept]
        told = replace(wider, reasoning=reasoning)
        self._emit_end(turn, run, told, saved=await self._count_tokens(left_out), widened=new)
        return wider

    async def _find_added_servers(
        self, turn: _PickerTurn, kept: frozenset[str]
    ) -> tuple[frozenset[str], str]:
        """The servers to add, and why."""
        found = await anyio.to_thread.run_sync(turn.scores)
        scores = {server: found.get(server, ()) for server in turn.servers}
        if turn.none_taken:
            next_best = frozenset(pick_by_scores(scores, turn.mentions).servers) - kept
            return next_best or turn.servers, NONE_TAKEN_REASON
        best = find_best_outside(scores, kept)
        reasons = [f"{server} is named" for server in sorted(turn.mentions - kept)]
        reasons += [f"{server} has one of the best tools ({best[server]:.2f})" for server in sorted(best)]
        return turn.mentions | best.keys(), "; ".join(reasons)

    async def _decide(self, turn: _PickerTurn) -> ServerDecision:
        """One run, between its two events."""
        run = _PickerRun(by=BY_MEMORY if turn.remembered else "scores" if turn.model is None else "model")
        self._emit_start(turn)
        everything = ServerDecision(
            kept=turn.servers, known=turn.servers, by=run.by, reasoning=ALL_STAY_REASON
        )
        try:
            decision = await self._run_decision(turn, run)
        except Exception as error:  # noqa: BLE001 - a model or a scorer may fail in any way; the request goes on
            run.error = _describe_error(error)
            decision = everything
        except BaseException:
            run.error = "cancelled"
            self._emit_end(turn, run, everything, saved=0)
            raise
        left_out = [card for card in turn.snapshot.cards if card.server not in decision.kept]
        self._emit_end(turn, run, decision, saved=await self._count_tokens(left_out))
        return decision

    async def _run_decision(self, turn: _PickerTurn, run: _PickerRun) -> ServerDecision:
        if turn.model is not None:
            return await self._decide_by_model(turn.model, turn)
        if turn.none_taken:
            return ServerDecision(
                kept=turn.servers, known=turn.servers, by=run.by, reasoning=NONE_TAKEN_REASON
            )
        found = await anyio.to_thread.run_sync(turn.scores)
        scores = {server: found.get(server, ()) for server in turn.servers}
        choice = pick_by_scores(scores, turn.mentions, find_related_servers(turn.snapshot, turn.signals))
        before = turn.remembered & turn.servers
        return ServerDecision(
            kept=frozenset(choice.servers) | before,
            known=turn.servers,
            by=run.by,
            reasoning=f"right for the same request before: {', '.join(sorted(before))}"
            if before
            else choice.reasoning,
        )

    async def _decide_by_model(self, model: ChatModel, turn: _PickerTurn) -> ServerDecision:
        messages = await anyio.to_thread.run_sync(
            build_server_question, self._template, turn.snapshot, turn.text, turn.history
        )
        request = ModelRequest(
            messages=messages,
            temperature=turn.settings.temperature,
            max_tokens=turn.settings.max_tokens,
            schema=REPLY_SCHEMA,
        )
        reply = None
        with anyio.move_on_after(self._patience):
            reply = await model.complete(request)
        if reply is None:
            message = f"{model.name} did not choose within {self._patience:g} s"
            raise ModelTimeout(message, model=model.name)
        picked = await anyio.to_thread.run_sync(parse_server_choice, reply.text, turn.names)
        if not picked.servers:
            strangers = f" but {', '.join(picked.unknown[:5])}" if picked.unknown else ""
            message = f"{model.name} named no server there is{strangers}"
            raise ModelReplyInvalid(message, model=model.name)
        kept = frozenset(picked.servers) | turn.mentions
        return ServerDecision(kept=kept, known=turn.servers, by="model", reasoning=picked.reasoning)

    async def _count_tokens(self, cards: Sequence[ToolCard]) -> int:
        return await anyio.to_thread.run_sync(self._costs.count_total, cards)

    def _emit_start(self, turn: _PickerTurn) -> None:
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

    def _emit_end(
        self,
        turn: _PickerTurn,
        run: _PickerRun,
        decision: ServerDecision,
        *,
        saved: int,
        widened: tuple[str, ...] = (),
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


def _build_conversation_key(caller: str | None, conversation: str) -> ConversationKey:
    return (caller, conversation)


def _describe_error(error: Exception) -> str:
    return scrub(f"{type(error).__name__}: {error}")[:_MAX_ERROR_LENGTH]

"""Chooses the servers of a conversation, once, and never stands in its way.

With a model one light call chooses; without, the scores of the tools do. Whatever
goes wrong, all servers stay and the developer finds the reason in the
`smart_routing_end` event. A choice holds for all turns of its conversation, but it
only ever grows: a server that joins the catalog later, or that the person names,
is let in.
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
from fingerpost.narrow.preselection.conversations import Conversations, Decision
from fingerpost.narrow.preselection.costs import Count, DefinitionCosts, quarter
from fingerpost.narrow.preselection.names import ServerNames
from fingerpost.narrow.preselection.prompt import TEMPLATE, question
from fingerpost.narrow.preselection.reading import ASKED, read_choice
from fingerpost.narrow.preselection.relations import related_servers
from fingerpost.narrow.preselection.scores import pick_by_scores
from fingerpost.records import Message, ServerChoice, Signals, ToolCard
from fingerpost.redaction import scrub
from fingerpost.settings import SmartRoutingSettings

ServerScores = Callable[[], Mapping[str, Sequence[float]]]

PATIENCE: Final = 20.0  # seconds for the model; a light call that takes longer helps nobody
CONVERSATIONS: Final = 1000
_LONGEST_ERROR: Final = 300
REMEMBERED: Final = "remembered"
ALL_STAY: Final = "the servers could not be chosen, so all stay"


@dataclass(frozen=True)
class _Turn:
    """One turn of a conversation, as the picker looks at it."""

    text: str
    history: Sequence[Message]
    conversation: str | None
    snapshot: Snapshot
    scores: ServerScores
    signals: Signals
    packet_id: str | None
    settings: SmartRoutingSettings  # as they were when it began
    model: ChatModel | None
    remembered: frozenset[str] = frozenset()  # were right for the same request before
    taught: frozenset[str] = frozenset()  # people said that one of its tools is the right one

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
    """Chooses servers by `model`, or by scores where there is none.

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
    ) -> None:
        self._live = live or (lambda: settings)
        self._events = events
        self._model = model
        self._template = template
        self._patience = patience
        self._costs = DefinitionCosts(count)
        self._conversations = Conversations(conversations)

    def is_on(self, tools: int, servers: int) -> bool:
        """Whether there is something to choose, and it is wanted."""
        return is_wanted(self._live(), tools=tools, servers=servers)

    def has_chosen(self, conversation: str | None) -> bool:
        """Whether this conversation has its servers already."""
        return conversation is not None and conversation in self._conversations

    def end(self, conversation: str) -> None:
        """This conversation is over."""
        self._conversations.end(conversation)

    async def choose(
        self,
        text: str,
        history: Sequence[Message],
        conversation: str | None,
        snapshot: Snapshot,
        scores: ServerScores,
        packet_id: str | None = None,
        *,
        signals: Signals | None = None,
        model: ChatModel | None = None,
        remembered: frozenset[str] = frozenset(),
        taught: frozenset[str] = frozenset(),
    ) -> ServerChoice:
        """The servers for this turn. Never raises: in doubt, all of them.

        `model` is asked instead of the picker's own, by whoever counts what it costs.
        `scores` is asked, in a worker thread, only where there is no model. Whatever
        policy hides from the caller must not be in `snapshot`: a model is shown it.
        `remembered` servers were right for the same request before: they are kept beside those that
        the scores keep, and no model is asked. `taught` ones are kept like those the request names.
        """
        began = time.perf_counter()
        settings = self._live()
        turn = _Turn(
            text,
            history,
            conversation,
            snapshot,
            scores,
            signals or Signals(),
            packet_id,
            settings,
            None if remembered else model or self._model,
            remembered,
            taught,
        )
        if not is_wanted(settings, tools=len(snapshot.cards), servers=len(turn.servers)):
            return ServerChoice(servers=tuple(sorted(turn.servers)), by="off")
        again = False
        if conversation is None:
            decision = await self._decide(turn)
        else:
            again = conversation in self._conversations
            decision = await self._conversations.decided(conversation, lambda: self._decide(turn))
            decision = self._widened(conversation, decision, turn)
        kept = turn.servers & (decision.kept | (turn.servers - decision.known)) or turn.servers
        return ServerChoice(
            servers=tuple(sorted(kept)),
            left_out=tuple(sorted(turn.servers - kept)),
            by=decision.by,
            reasoning=decision.reasoning,
            # A remembered choice is the same value every time, which lets a narrowing be remembered, too.
            milliseconds=0.0 if again else round((time.perf_counter() - began) * 1000, 3),
        )

    def _widened(self, conversation: str, decision: Decision, turn: _Turn) -> Decision:
        """A server the person names now is let in, and stays."""
        if turn.mentions <= decision.kept:
            return decision
        wider = replace(decision, kept=decision.kept | turn.mentions)
        if decision.lasting:
            self._conversations.keep(conversation, wider)
        return wider

    async def _decide(self, turn: _Turn) -> Decision:
        """One run, between its two events."""
        run = _Run(by=REMEMBERED if turn.remembered else "scores" if turn.model is None else "model")
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
        everything = Decision(kept=turn.servers, known=turn.servers, by=run.by, reasoning=ALL_STAY)
        try:
            decision = await self._decided(turn, run)
        except Exception as error:  # noqa: BLE001 - a model or a scorer may fail in any way; the request goes on
            run.error = scrub(f"{type(error).__name__}: {error}")[:_LONGEST_ERROR]
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
            lasting=bool(choice.left_out),  # a greeting must not decide for the whole conversation
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

    def _ended(self, turn: _Turn, run: _Run, decision: Decision, *, saved: int) -> None:
        self._events.emit(
            SmartRoutingEnd(
                packet_id=turn.packet_id,
                conversation=turn.conversation,
                total_tools=len(turn.snapshot.cards),
                filtered_tools=sum(card.server in decision.kept for card in turn.snapshot.cards),
                total_servers=len(turn.servers),
                relevant_servers=tuple(sorted(decision.kept)),
                reasoning=decision.reasoning,
                by=run.by,
                milliseconds=run.milliseconds,
                tokens_saved=saved,
                success=run.error is None,
                error=run.error,
            )
        )

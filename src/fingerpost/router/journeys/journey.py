"""One packet on its way: what is known of it, who is asked, what is told.

The packet is the whole state. Whatever a model is told is made from it, so a journey
that waited for a person goes on after a restart from what the journal holds.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import anyio

from fingerpost.call import reread
from fingerpost.call.digest.results import handles_in
from fingerpost.call.digest.tokens import count_tokens
from fingerpost.call.path import CallPath
from fingerpost.catalog import Snapshot
from fingerpost.choose.brought import distinct
from fingerpost.choose.calibration import Calibration
from fingerpost.choose.fitting import Fitted
from fingerpost.choose.summaries import Summaries
from fingerpost.errors import ModelError
from fingerpost.events import (
    Event,
    EventSink,
    IntentDetected,
    ModelAnswered,
    PacketEvent,
    TaskScheduled,
    ToolsOffered,
)
from fingerpost.frozen import frozen
from fingerpost.llm import Ask, ChatModel, ModelPool, ModelReply, ModelRequest, ModelUsage, OnText, Role
from fingerpost.records import (
    Confidence,
    Entity,
    ErrorKind,
    JsonObject,
    Mode,
    Narrowing,
    Outcome,
    Packet,
    PacketState,
    SystemTask,
    ToolCard,
    UsageProfile,
)
from fingerpost.router.guide import Guide
from fingerpost.router.journeys.bringing import brought_by
from fingerpost.router.journeys.budget import Budget
from fingerpost.router.journeys.offers import Offers
from fingerpost.router.wanted import Asking
from fingerpost.settings import ProfileSettings, Settings
from fingerpost.settings.rollouts import assign, resolve
from fingerpost.store import Store

logger = logging.getLogger("fingerpost.router")

ERROR_SHOWN: Final = 300


@frozen
class House:
    """What every journey of one router shares."""

    settings: Settings
    events: EventSink
    guide: Guide
    calls: CallPath
    pool: ModelPool
    store: Store
    offers: Offers
    snapshot: Callable[[], Snapshot]
    calibration: Callable[[], Awaitable[Calibration]]
    settings_for: Callable[[ToolCard], Awaitable[Settings]]  # by which a call of this tool is judged
    learn: Callable[[Outcome, Packet], None]
    summaries: Summaries
    usage: Callable[[], Awaitable[Mapping[str, UsageProfile]]]  # of tools, where instructions may follow it
    profiles: Mapping[str, ProfileSettings]
    instance: str  # this process, among others on the same store


class Asked:
    """A way to ask, as a model."""

    def __init__(self, name: str, ask: Ask) -> None:
        self.name = name
        self._ask = ask

    async def complete(self, request: ModelRequest, *, on_text: OnText | None = None) -> ModelReply:
        return await self._ask(request)


class Journey:
    """What happens to one packet between the request and the answer."""

    def __init__(
        self,
        house: House,
        packet: Packet,
        *,
        mode: Mode,
        asking: Asking,
        narrowing: Narrowing | None = None,
        parent: Journey | None = None,
    ) -> None:
        """`parent` is the journey on whose behalf this one is made, and whose budget it spends."""
        self.house = house
        unit = asking.get("conversation") or packet.packet_id
        self.arms = assign(house.settings.rollout, unit) if parent is None else parent.arms
        self.settings = resolve(house.settings, self.arms)
        self.brought = brought_by(asking, prime=house.pool.name(Role.PRIME))
        self.packet = packet
        self.mode = mode
        self.asking = asking
        self.narrowing = narrowing
        self.profile = house.profiles.get(asking.get("profile") or "")  # to the end as it was at the start
        self.depth = 0 if parent is None else parent.depth + 1
        self.budget = Budget(
            self.settings.choose,
            seconds=asking.get("seconds"),
            tokens=asking.get("tokens"),
            parent=None if parent is None else parent.budget,
        )
        self.widened = False
        self.failures: list[Outcome] = []
        self.confidence: Confidence | None = None  # in the selection at hand
        self.note = ""  # what the answering model has to know about why no tool was used
        self.rejection = ""  # what a person did not allow, in words for the person who asked
        self.fitted: Fitted | None = None
        self.unused: tuple[Entity, ...] = ()  # what the request names and no argument took up
        self.undone: tuple[str, ...] = ()  # what it asks for and, without a model, no tool was found for
        self._names_kept_result = False  # the conversation does, and the caller can read it
        self._on_text: OnText | None = asking.get("on_text")
        self._said = ""  # everything that was streamed
        self._earlier = ""  # the part of it that is not of the text that is being written

    # -- telling ------------------------------------------------------------------------------------

    def tell(self, event: Event) -> None:
        """A fact: it changes the packet, and everybody may know."""
        if isinstance(event, PacketEvent):
            self.packet = event.apply(self.packet)
        self.house.events.emit(event)

    def schedule(self, task: SystemTask | None, state: PacketState = PacketState.PROCESSING) -> None:
        self.tell(TaskScheduled(packet_id=self.packet.packet_id, state=state, next_task=task))

    @property
    def streams(self) -> bool:
        return self._on_text is not None

    def say(self, text: str) -> None:
        """A piece of the answer for whoever listens. A listener that fails costs nobody the answer."""
        if text and self._on_text is not None:
            if self._said and self._said == self._earlier:
                text = f"\n\n{text}"
            self._said += text
            try:
                self._on_text(text)
            except Exception:
                logger.exception("whoever listened to the answer failed; it goes on without them")
                self._on_text = None

    def end_part(self) -> None:
        """What was streamed so far is not the end of it: what comes next stands apart from it."""
        self._earlier = self._said

    def complete(self, text: str) -> str:
        """The whole answer that ends with `text`: all that was streamed, and now also the rest of it."""
        if self._on_text is None or not text:
            return text
        if not self._part.startswith(text) and not text.startswith(self._part):
            self.end_part()
        self.say(text[len(self._part) :])
        return self._said

    @property
    def has_spoken(self) -> bool:
        """Whether some of the answer was streamed."""
        return bool(self._said)

    @property
    def _part(self) -> str:
        """What was streamed of the text that is being written."""
        part = self._said[len(self._earlier) :]
        return part.removeprefix("\n\n") if self._earlier else part

    # -- narrowing ----------------------------------------------------------------------------------

    async def narrow(self) -> Narrowing:
        """Which tools the request may use."""
        self.schedule(SystemTask.INTENT_DETECTION)
        found, facts = await self.house.guide.found(
            self.house.snapshot(), self.packet, self.asking, model=self._chooser(), arms=self.arms
        )
        for fact in facts:
            self.tell(fact)
        if self.brought.is_settled:
            self.with_cards(())
        self.narrowing = found
        return found

    async def narrow_for(self, text: str) -> Narrowing:
        """Which tools suit what is still to be done."""
        asking = self.asking.copy()
        asking["asked_for_tools"] = True
        used = (step.tool for step in self.packet.tool_routing.worked)
        asking["used"] = (*asking.get("used", ()), *used)
        found, facts = await self.house.guide.found(
            self.house.snapshot(),
            self.packet,
            asking,
            text=text,
            model=self._chooser(),
            arms=self.arms,
        )
        for fact in facts:
            if not isinstance(fact, IntentDetected):  # the request is about what it was about
                self.tell(fact)
        self.narrowing = found
        return found

    @property
    def can_widen(self) -> bool:
        """Whether a model that takes none of its tools may see those of servers that were left out, once."""
        choice = None if self.narrowing is None else self.narrowing.servers
        left_out = choice is not None and bool(choice.left_out)
        return left_out and self.settings.flags.widen and not self.widened

    async def narrow_wider(self, text: str | None = None) -> Narrowing:
        """The same when a model took none of the tools: servers that were left out are looked at, too."""
        asking = self.asking.copy()
        asking["asked_for_tools"] = True
        found, _ = await self.house.guide.found(
            self.house.snapshot(),
            self.packet,
            asking,
            text=text,
            model=self._chooser(),
            none_taken=True,
        )
        self.narrowing = found
        return found

    def _chooser(self) -> ChatModel | None:
        """Whoever chooses servers, counted and told like every other question."""
        pool = self.house.pool
        return Asked(pool.name(Role.LITE), self.asks(Role.LITE, "servers")) if pool.ready else None

    def cards(self) -> tuple[ToolCard, ...]:
        """The tools offered now, those that still exist, under names that no tool of the caller has."""
        if not self.settings.tool_routing.enabled:
            return ()
        snapshot = self.house.snapshot()
        found = (snapshot.get(key) for key in self.packet.context.available_tools)
        return distinct([card for card in found if card is not None], self.brought.names)

    @property
    def can_call(self) -> bool:
        """Whether the model may call another tool for this request."""
        return bool(self.packet.tool_routing.reinjections_left) and not self.looping_tool

    @property
    def looping_tool(self) -> str:
        """The tool that was called again and again with nothing new to show for it; empty where none was.

        Either the call path refused a repeated call, or the same call failed in the same way too often.
        """
        steps, limit = self.packet.tool_routing.steps, self.settings.call.repeat_limit
        refused = next((step for step in steps if step.error == ErrorKind.LOOP.value), None)
        if refused is not None:
            return refused.tool
        last = [(step.tool, step.arguments, step.error) for step in steps[-limit:] if not step.success]
        is_loop = len(last) == limit and last.count(last[0]) == limit
        return steps[-1].tool if is_loop and self.settings.flags.loop_guard else ""

    @property
    def own_tools(self) -> tuple[JsonObject, ...]:
        """Definitions of our own tools: `read_result`, while there is a result to read on in.

        That is one that was cut for this request, or one the conversation names (`find_kept_results`).
        Reading costs no round, so the pages that may be read are counted.
        """
        steps, brought = self.packet.tool_routing.steps, self.brought
        pages = sum(step.tool == reread.NAME for step in steps)
        is_cut = self._names_kept_result or any(step.handle for step in steps)
        can_read = is_cut and pages < reread.MOST_PAGES and not self.looping_tool
        return (
            (reread.FUNCTION,)
            if can_read and not brought.is_settled and reread.NAME not in brought.names
            else ()
        )

    async def find_kept_results(self) -> None:
        """Look whether the conversation names a result that was cut and that this caller can still read."""
        if not self.settings.tool_routing.enabled:
            return
        said = (*self.packet.context.history, *self.brought.since)
        results, caller = self.house.calls.results, self.packet.header.caller
        for handle in handles_in(message.text for message in said):
            if await results.is_kept(handle, caller=caller):
                self._names_kept_result = True
                return

    async def takes_tools(self) -> bool:
        """Whether the model that answers is given definitions, or told of tools in words."""
        known = await self.house.pool.capabilities(Role.PRIME, model=self.brought.model)
        return known.tools is not False

    # -- asking a model -----------------------------------------------------------------------------

    def asks(self, role: Role, purpose: str, *, on_text: OnText | None = None) -> Ask:
        """A way to ask a model that counts, bounds and tells."""

        async def ask(request: ModelRequest) -> ModelReply:
            self.budget.check()
            reply = None
            try:
                with anyio.move_on_after(self.budget.seconds_left):
                    reply = await self.house.pool.ask(role, request, on_text=on_text)
            except ModelError as error:
                self._tell_model(role, purpose, error=str(error)[:ERROR_SHOWN])
                raise
            except anyio.get_cancelled_exc_class():
                self._tell_model(role, purpose, error="the request was cancelled")
                raise
            if reply is None:
                self._tell_model(role, purpose, error="the time for the request is over")
                raise self.budget.too_late()
            self._count(role, purpose, request, reply)
            return reply

        return ask

    def _count(self, role: Role, purpose: str, request: ModelRequest, reply: ModelReply) -> None:
        usage = reply.usage
        counted = usage or _estimate(request, reply)
        self.budget.count(
            reply,
            prompt=counted.prompt_tokens,
            completion=counted.completion_tokens,
            cost=self._cost(role, request, reply, counted),
        )
        self.house.events.emit(
            ModelAnswered(
                packet_id=self.packet.packet_id,
                role=role.value,
                purpose=purpose,
                model=reply.model,
                prompt_tokens=None if usage is None else usage.prompt_tokens,
                completion_tokens=None if usage is None else usage.completion_tokens,
                milliseconds=reply.milliseconds,
                stood_in=reply.stood_in,
            )
        )

    def _cost(self, role: Role, request: ModelRequest, reply: ModelReply, usage: ModelUsage) -> float | None:
        """What a model costs that a caller asked for by name, nobody has told us."""
        if request.model is not None:
            return None
        return self.house.pool.cost(role, usage, stood_in=reply.stood_in)

    def _tell_model(self, role: Role, purpose: str, *, error: str) -> None:
        name = self.house.pool.name(role) or "no model"
        self.house.events.emit(
            ModelAnswered(
                packet_id=self.packet.packet_id, role=role.value, purpose=purpose, model=name, error=error
            )
        )

    def with_cards(self, keys: tuple[str, ...], *, kept: tuple[str, ...] = ()) -> None:
        """Offer exactly these from now on; `kept` are there because an earlier turn was offered them."""
        if keys != self.packet.context.available_tools:
            self.tell(ToolsOffered(packet_id=self.packet.packet_id, tools=keys, kept=kept))


def _estimate(request: ModelRequest, reply: ModelReply) -> ModelUsage:
    """What a reply cost whose server does not say it: a limit nobody counts towards would be none."""
    return ModelUsage(
        prompt_tokens=sum(count_tokens(message.text) for message in request.messages),
        completion_tokens=count_tokens(reply.text),
    )

"""Answering in this house: who is asked, which way a request goes, what is remembered for next time.

Loaded when the first request is answered, like everything that needs the models' side.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing, suppress
from dataclasses import replace
from typing import Final, Protocol
from weakref import WeakValueDictionary

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup

from fingerpost.call.path import CallPath
from fingerpost.catalog import Snapshot
from fingerpost.choose.calibration import Calibration
from fingerpost.choose.summaries import Summaries
from fingerpost.errors import CallError, ConfigError
from fingerpost.events import (
    Event,
    Fanout,
    PacketReceived,
    RouteBegan,
    RouteEnded,
    SubagentBegan,
    SubagentEnded,
)
from fingerpost.llm import ModelPool, Role
from fingerpost.records import (
    Approval,
    Chosen,
    Effort,
    Message,
    Mode,
    Narrowing,
    Outcome,
    Pending,
    Question,
    RouteOutcome,
    UsageProfile,
)
from fingerpost.router.conversations import recall
from fingerpost.router.elsewhere import hold_claim
from fingerpost.router.guide import Guide, packet_of
from fingerpost.router.journeys.endings import broken_off
from fingerpost.router.journeys.journey import House, Journey
from fingerpost.router.journeys.keyless import replied
from fingerpost.router.journeys.offers import Offers
from fingerpost.router.journeys.resuming import Remembered, answered, remembered, resume
from fingerpost.router.journeys.staged import selected
from fingerpost.router.journeys.ways import travel, within_limits
from fingerpost.router.profiles import Profiles
from fingerpost.router.route import AnswerPiece, Route, StreamItem
from fingerpost.router.switches import Switches
from fingerpost.router.thresholds import Thresholds
from fingerpost.router.wanted import Asking, Wanted
from fingerpost.router.witness import Witness
from fingerpost.settings import Settings
from fingerpost.store import Store

READ_AGAIN_S: Final = 30.0
EFFORT_MODES: Final = {Effort.QUICK: Mode.SINGLE, Effort.THOROUGH: Mode.STAGED}
TOLD_OF_REQUEST: Final = 500


class Learn(Protocol):
    """Takes the request, what came of it, where, and who asked."""

    def __call__(
        self, request: str, outcome: Outcome, conversation: str | None, *, caller: str | None = None
    ) -> None: ...


class Answerer:
    """Takes requests from `Router.route` to their end; one per router."""

    def __init__(
        self,
        settings: Settings,
        *,
        events: Fanout,
        store: Store,
        calls: CallPath,
        guide: Guide,
        pool: ModelPool,
        snapshot: Callable[[], Snapshot],
        tasks: TaskGroup,
        switches: Switches,
        learn: Learn,
        profiles: Profiles,
        instance: str,
    ) -> None:
        self._settings = settings
        self._profiles = profiles
        self._events = events
        self._store = store
        self._tasks = tasks
        self._switches = switches
        self._witness = Witness()
        events.add(self._witness)
        self.thresholds = Thresholds(settings, store, events)
        self._calibration = Calibration.identity()
        self._calibrated_at = -READ_AGAIN_S
        self._usage: Mapping[str, UsageProfile] = {}
        self._used_at = -READ_AGAIN_S
        self._under_way: dict[str, Journey] = {}  # by packet
        self._resuming: WeakValueDictionary[str, anyio.Lock] = WeakValueDictionary()  # by packet
        self._house = House(
            settings=settings,
            events=events,
            guide=guide,
            calls=calls,
            pool=pool,
            store=store,
            offers=Offers(),
            snapshot=snapshot,
            calibration=self._calibrate,
            settings_for=self.thresholds.settings_for,
            learn=lambda outcome, packet: learn(
                packet.content.original_prompt,
                outcome,
                packet.header.session_id,
                caller=packet.header.caller,
            ),
            summaries=Summaries(),
            usage=self._use,
            profiles=profiles,
            instance=instance,
        )

    async def route(self, text: str, asking: Asking) -> Route:
        """One request, from its words to its end."""
        journey = self._begin(text, await self._recalled(asking))
        return await self._watched(journey, lambda: self._set_out(journey))

    async def _recalled(self, asking: Asking) -> Asking:
        """With what was said before, where a conversation is named and its history is not given."""
        conversation = asking.get("conversation")
        if conversation is None or "history" in asking or asking.get("parent") is not None:
            return asking
        asking = asking.copy()
        asking["history"] = await recall(self._store, conversation, caller=asking.get("caller"))
        return asking

    async def resume(
        self, what: str, approval: Approval | None, asking: Asking, *, packet_id: str | None = None
    ) -> Route:
        """Go on with a request that waited for a person. Whoever comes second finds it done.

        Of several that wait for one call: the one that is named, else the first that has not gone on.
        """
        pending = await self._waiting(what)
        packet_id = packet_id or await self._next_of(pending)
        lock = self._resuming.setdefault(packet_id or what, anyio.Lock())
        async with lock, hold_claim(self._store, f"packet {packet_id or what}", self._house.instance):
            pending = await self._waiting(what)
            known, journey = await self._remembered(pending, asking, packet_id)

            async def go_on() -> Route:
                standing = pending if approval is None else await self._decided(approval)
                return await within_limits(journey, lambda journey: resume(journey, standing, known))

            return await self._watched(journey, go_on)

    async def _next_of(self, pending: Pending) -> str | None:
        """The first request that waits for this call and has not gone on; else the first of all."""
        for packet_id in pending.packets if pending.joined else ():
            known = await remembered(self._store, packet_id)
            if known.outcome is RouteOutcome.WAITING:
                return packet_id
        return pending.packet_id

    async def _waiting(self, what: str) -> Pending:
        pending = await self._house.calls.approvals.get(what)
        if pending is None:
            message = f"no call waits under {what}"
            raise CallError(message, hint="`fingerpost approvals` lists those that do.")
        return pending

    async def reply(self, asked: Route, answer: str, asking: Asking) -> Route:
        """Go on after the person answered a question.

        Where a tool asked, its call goes on with the answer. Otherwise a model is told the question and the
        answer as part of the conversation; without one, the answer fills in what was missing.
        """
        question, before = asked.question, asked.packet
        if question is None:
            message = "this route asks nothing"
            raise CallError(message, hint="Only a route whose outcome is 'asked' can be replied to.")
        if question.call is not None:
            return await self._answered(asked, question, answer, asking)
        if asked.mode is not Mode.KEYLESS:
            asking = asking.copy()
            asking["mode"] = asked.mode
            asking["history"] = (
                *before.context.history,
                Message(role="user", text=before.content.original_prompt),
                Message(role="assistant", text=question.text),
            )
            return await self.route(answer, asking)
        asking = self._profiles.applied(asking)
        journey = Journey(self._house, before, mode=Mode.KEYLESS, asking=asking, narrowing=asked.narrowing)
        return await self._watched(
            journey,
            lambda: within_limits(journey, lambda journey: replied(journey, question, answer)),
        )

    async def _answered(self, asked: Route, question: Question, answer: str, asking: Asking) -> Route:
        """The packet goes on, within the bounds it began in."""
        before = asked.packet
        known = await remembered(self._store, before.packet_id)
        asking = asking.copy()
        assert question.call is not None
        asking["conversation"] = question.call.conversation
        asking["caller"], asking["profile"] = before.header.caller, before.context.profile
        asking["scopes"] = tuple(dict.fromkeys((*known.scopes, *asking.get("scopes", ()))))
        journey = Journey(
            self._house,
            before,
            mode=asked.mode,
            asking=asking,
            narrowing=asked.narrowing or known.narrowing,
            parent=self._parent_of(asking),
        )
        journey.confidence = known.confidence
        return await self._watched(
            journey,
            lambda: within_limits(journey, lambda journey: answered(journey, question, answer)),
        )

    async def _decided(self, approval: Approval) -> Pending:
        """The call as it stands after the person's word; an earlier word may have settled it."""
        return await self._house.calls.decide(
            approval.pending_id,
            approval.decision,
            by=approval.by,
            reason=approval.reason,
            edited_arguments=approval.arguments,
            for_conversation=approval.for_conversation,
        )

    async def stream(self, text: str, asking: Asking) -> AsyncGenerator[StreamItem]:
        """Everything that happens to one request, the answer piece by piece, and the route at last."""
        asking = (await self._recalled(asking)).copy()
        asking["on_text"] = lambda piece: pass_on(AnswerPiece(text=piece))
        journey = self._begin(text, asking)  # it may raise, and then there is nothing to close
        send, receive = anyio.create_memory_object_stream[StreamItem](float("inf"))
        packet_id = journey.packet.packet_id
        scope, failures = anyio.CancelScope(), list[Exception]()

        def pass_on(item: StreamItem) -> None:
            with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):  # the reader has left
                send.send_nowait(item)

        async def run() -> None:
            with scope, send, self._witness.watch(packet_id, pass_on):
                try:
                    async with self._house.calls.under_way.one():
                        pass_on(await self._watched(journey, lambda: self._set_out(journey)))
                except Exception as error:  # noqa: BLE001 - it is the reader's, and must not end other tasks
                    failures.append(error)

        self._tasks.start_soon(run)
        try:
            async with aclosing(receive):
                async for item in receive:
                    yield item
        finally:
            scope.cancel()
        if failures:
            raise failures[0]

    async def select(self, text: str, narrowing: Narrowing, wanted: Wanted) -> Chosen:
        """What the selecting model takes of these tools."""
        asking = self._profiles.applied(Asking(**wanted))
        packet = packet_of(text, asking)
        if narrowing.packet_id is not None:  # one request, one packet
            packet = replace(packet, header=replace(packet.header, packet_id=narrowing.packet_id))
        journey = Journey(self._house, packet, mode=Mode.STAGED, asking=asking, narrowing=narrowing)
        offered = [candidate.tool for candidate in narrowing.shortlist.offered]
        cards = [self._house.snapshot().get(tool) for tool in offered]
        return await selected(journey, tuple(card for card in cards if card is not None))

    async def _set_out(self, journey: Journey) -> Route:
        self._announce(journey)
        return await travel(journey)

    async def _watched(self, journey: Journey, work: Callable[[], Awaitable[Route]]) -> Route:
        """The route, with everything that happened to its packet on the way."""
        events: list[Event] = []
        packet_id = journey.packet.packet_id
        self._under_way[packet_id] = journey
        with self._witness.watch(packet_id, events.append):
            try:
                route = await self._told_of(journey, work)
            except BaseException as error:
                if events and not any(isinstance(event, RouteEnded) for event in events):
                    broken_off(journey, left=not isinstance(error, Exception))
                raise
            finally:
                self._under_way.pop(packet_id, None)
        return replace(route, events=tuple(events))

    async def _told_of(self, journey: Journey, work: Callable[[], Awaitable[Route]]) -> Route:
        """The route; a subagent's beginning and end stand in its parent's trace."""
        parent_id, spent = journey.packet.header.parent_id, journey.budget.spent
        if parent_id is None:
            return await work()
        child, request = journey.packet.packet_id, journey.packet.content.original_prompt
        self._events.emit(SubagentBegan(packet_id=parent_id, child=child, request=request[:TOLD_OF_REQUEST]))
        outcome = RouteOutcome.LEFT
        try:
            route = await work()
            outcome = route.outcome
        except Exception:
            outcome = RouteOutcome.FAILED
            raise
        finally:
            self._events.emit(
                SubagentEnded(
                    packet_id=parent_id,
                    child=child,
                    outcome=outcome,
                    milliseconds=journey.budget.milliseconds,
                    tokens=spent.prompt_tokens + spent.completion_tokens,
                )
            )
        return route

    def _begin(self, text: str, asking: Asking) -> Journey:
        parent = self._parent_of(asking)
        if parent is not None:  # whoever acts for somebody acts under the same profile
            asking = asking.copy()
            asking["profile"] = asking.get("profile") or parent.asking.get("profile")
        asking = self._profiles.applied(asking)
        mode = self._mode(asking)
        enabled = self._settings.tool_routing.enabled
        rounds = self._switches.now.rounds(mode, asking.get("max_turns")) if enabled else 0
        packet = packet_of(text, _apart(asking), rounds=rounds, parent=asking.get("parent"))
        return Journey(self._house, packet, mode=mode, asking=asking, parent=parent)

    def _parent_of(self, asking: Asking) -> Journey | None:
        """The journey on whose behalf this is asked. Raises where it may not begin another."""
        name = asking.get("parent")
        if name is None:
            return None
        parent = self._under_way.get(name)
        if parent is None:
            message = f"{name} is not under way here, so nothing can be done on its behalf"
            raise CallError(message, hint="Ask without `parent`.")
        deepest = self._settings.builtin.subagents.max_depth
        if parent.depth >= deepest:
            message = f"subagents may begin each other {deepest} deep, and no deeper"
            raise CallError(message, hint="Do this part yourself, or raise builtin.subagents.max_depth.")
        return parent

    def _announce(self, journey: Journey) -> None:
        pool = self._house.pool
        journey.tell(PacketReceived.of(journey.packet))
        journey.tell(
            RouteBegan(
                packet_id=journey.packet.packet_id,
                mode=journey.mode,
                lite=pool.name(Role.LITE),
                prime=journey.brought.model or pool.name(Role.PRIME),
                profile=journey.asking.get("profile"),
                scopes=journey.asking.get("scopes", ()),
                working_directory=journey.asking.get("working_directory"),
                own_terms=journey.brought.own_terms,
                arms=journey.arms,
                instance=self._house.instance,
            )
        )

    def _mode(self, asking: Asking) -> Mode:
        wanted = asking.get("mode") or self._switches.now.mode
        effort = asking.get("effort")
        if effort is not None and asking.get("mode") in (None, "auto") and wanted != Mode.KEYLESS:
            wanted = EFFORT_MODES[Effort(effort)] if self._house.pool.ready else "auto"
        if wanted == "auto":
            return Mode.STAGED if self._house.pool.ready else Mode.KEYLESS
        try:
            mode = Mode(wanted)
        except ValueError:
            message = f"there is no mode {wanted!r}"
            raise ConfigError(message, hint=f"The modes are auto, {', '.join(Mode)}.") from None
        if mode is not Mode.KEYLESS and not self._house.pool.ready:
            message = f"the mode {mode} needs a language model, and none is configured"
            raise ConfigError(message, hint="Set models.prime (or models.lite), or use the mode keyless.")
        return mode

    async def _remembered(
        self, pending: Pending, asking: Asking, packet_id: str | None
    ) -> tuple[Remembered, Journey]:
        known = None if packet_id is None else await remembered(self._store, packet_id)
        packet = None if known is None else known.packet
        if known is None or packet is None or packet.context.mode is None:
            message = f"{pending.pending_id} belongs to a single call, not to a request"
            raise CallError(message, hint="Decide it with `fingerpost approvals`, then make the call again.")
        asking = asking.copy()
        asking["conversation"] = pending.conversation
        asking["caller"], asking["profile"] = packet.header.caller, packet.context.profile
        asking["scopes"] = tuple(dict.fromkeys((*known.scopes, *asking.get("scopes", ()))))
        asking.setdefault("history", packet.context.history)
        asking = self._profiles.applied(asking)
        journey = Journey(
            self._house,
            packet,
            mode=Mode(packet.context.mode),
            asking=asking,
            narrowing=known.narrowing,
            parent=self._parent_of(asking),
        )
        journey.confidence = known.confidence
        return known, journey

    # -- what is remembered -------------------------------------------------------------------------

    async def _calibrate(self) -> Calibration:
        """How sure we may be, from what came of being sure before; read again now and then."""
        if not self._settings.flags.calibration:
            return Calibration.identity()
        if time.monotonic() - self._calibrated_at >= READ_AGAIN_S:
            self._calibrated_at = time.monotonic()
            samples = await self._store.confidences.recent()
            self._calibration = await anyio.to_thread.run_sync(Calibration.fit, samples)
        return self._calibration

    async def _use(self) -> Mapping[str, UsageProfile]:
        """How tools were used before, for instructions that follow it; read again now and then."""
        stale = time.monotonic() - self._used_at >= READ_AGAIN_S
        if self._settings.flags.adaptive_instructions and stale:
            self._used_at = time.monotonic()
            self._usage = await self._store.usage.profiles()
        return self._usage


def _apart(asking: Asking) -> Asking:
    """What a subagent says is no part of its parent's conversation, though it acts within it."""
    if asking.get("parent") is None:
        return asking
    asking = asking.copy()
    asking["conversation"] = None
    return asking

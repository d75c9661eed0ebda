"""Starts requests and continues them after a person's decision: options, mode, events, calibration.

`router.pipeline` has the steps of a request.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping
from contextlib import aclosing, contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final, Generic, TypeAlias, TypeVar
from weakref import WeakValueDictionary

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup

from fingerpost.choose.confidence import (
    MIN_MOVE,
    AdaptedThreshold,
    Calibration,
    ThresholdBounds,
    adapt_threshold,
)
from fingerpost.choose.context_window import SummaryCache
from fingerpost.errors import CallError, ConfigError
from fingerpost.events import (
    Event,
    EventSink,
    PacketReceived,
    RouteBegan,
    RouteEnded,
    SubagentBegan,
    SubagentEnded,
    ThresholdMoved,
)
from fingerpost.frozen import copy_fields
from fingerpost.llm import ModelPool, Role
from fingerpost.records import (
    EVERYBODY,
    Approval,
    Effect,
    Effort,
    Mode,
    Narrowing,
    ParsedSelection,
    Pending,
    Question,
    RouteOutcome,
    Threshold,
    ToolCard,
    UsageProfile,
    utc_now,
)
from fingerpost.router.conversations import append_exchange, read_history
from fingerpost.router.modes.keyless import resume_with_reply
from fingerpost.router.modes.routes import record_interrupted_run
from fingerpost.router.modes.run_state import OfferedToolsCache, RunDeps, RunState
from fingerpost.router.modes.staged import ask_for_selection
from fingerpost.router.options import RouteOptions
from fingerpost.router.pipeline import run_request, run_to_end
from fingerpost.router.request_narrower import RequestNarrower, build_packet
from fingerpost.router.resume import RecordedRun, read_recorded_run, resume_run, resume_with_answer
from fingerpost.router.route import AnswerPiece, Route, StreamItem
from fingerpost.router.store_sync import hold_claim
from fingerpost.settings import Settings
from fingerpost.store import Store

if TYPE_CHECKING:
    from fingerpost.router.router import Router

T = TypeVar("T")
OnPacketEvent: TypeAlias = Callable[[Event], None]


class PacketSubscriptions:
    """A sink that passes each event to the watchers of its packet."""

    def __init__(self) -> None:
        self._watchers: dict[str, list[OnPacketEvent]] = {}

    def emit(self, event: Event) -> None:
        if event.packet_id is not None:
            for watcher in self._watchers.get(event.packet_id, ()):
                watcher(event)

    @contextmanager
    def watch(self, packet_id: str, watcher: OnPacketEvent) -> Generator[None]:
        """Call `watcher` with every event of this packet until the block ends."""
        watchers = self._watchers.setdefault(packet_id, [])
        watchers.append(watcher)
        try:
            yield
        finally:
            watchers.remove(watcher)
            if not watchers:
                self._watchers.pop(packet_id, None)


THRESHOLD_NAME: Final = "tool_routing.confidence_threshold"
MAX_RECORD_READS: Final = 40  # of a request that another process is still writing
RECORD_POLL_S: Final = 0.05
THRESHOLD_REFRESH_S: Final = 30.0


class ConfidenceThresholds:
    """The confidence threshold, adapted from results; one per router."""

    def __init__(self, settings: Settings, store: Store, events: EventSink) -> None:
        self._settings = settings
        self._store = store
        self._events = events
        self._value = settings.tool_routing.confidence_threshold
        self._read_at = -THRESHOLD_REFRESH_S
        self._reading = anyio.Lock()

    async def get_settings(self, card: ToolCard) -> Settings:
        """Return the settings that apply to calls of this tool."""
        if not self._settings.flags.adaptive_thresholds:
            return self._settings
        await self._refresh()
        base = self._settings.tool_routing.confidence_threshold
        value = self._value if card.effect.value is Effect.READ else max(base, self._value)
        if value == base:
            return self._settings
        routing = self._settings.tool_routing.model_copy(update={"confidence_threshold": value})
        return self._settings.model_copy(update={"tool_routing": routing})

    def reset(self) -> None:
        """Reset the threshold. It is computed again before the next call."""
        self._value = self._settings.tool_routing.confidence_threshold
        self._read_at = -THRESHOLD_REFRESH_S

    async def _refresh(self) -> None:
        async with self._reading:
            if time.monotonic() - self._read_at < THRESHOLD_REFRESH_S:
                return
            self._read_at = time.monotonic()
            before = await self._read_previous()
            adapted = await self._compute_adapted()
            if abs(adapted.value - before) < MIN_MOVE:
                self._value = before
                return
            self._value = adapted.value
            await self._move_threshold(before, adapted)

    async def _read_previous(self) -> float:
        """Return the last threshold of any process. A changed setting starts from its own value."""
        base = self._settings.tool_routing.confidence_threshold
        for moved in await self._store.learned.list_thresholds():
            if moved.name == THRESHOLD_NAME and moved.base == base:
                return moved.value
        return base

    async def _compute_adapted(self) -> AdaptedThreshold:
        settings, learning = self._settings, self._settings.learning
        marks = await self._store.learned.get_marks("thresholds")
        samples = await self._store.confidences.list_recent(since=marks.get(EVERYBODY))
        bounds = ThresholdBounds(
            base=settings.tool_routing.confidence_threshold,
            max_move=learning.threshold_reach,
            min_samples=learning.threshold_samples,
            target_accuracy=learning.threshold_right,
        )

        def work() -> AdaptedThreshold:
            fitted = Calibration.fit(samples) if settings.flags.calibration else Calibration()
            return adapt_threshold(samples, fitted, bounds)

        return await anyio.to_thread.run_sync(work)

    async def _move_threshold(self, before: float, adapted: AdaptedThreshold) -> None:
        base = self._settings.tool_routing.confidence_threshold
        moved = Threshold(
            name=THRESHOLD_NAME,
            base=base,
            value=adapted.value,
            at=utc_now(),
            reason=adapted.reason,
            samples=adapted.samples,
        )
        await self._store.learned.set_threshold(moved)
        self._events.emit(copy_fields(ThresholdMoved, moved, before=before, after=moved.value))


REFRESH_INTERVAL_S: Final = 30.0
EFFORT_MODES: Final = {Effort.QUICK: Mode.SINGLE, Effort.THOROUGH: Mode.STAGED}
MAX_REQUEST_LENGTH: Final = 500


class RefreshedValue(Generic[T]):
    """A value that is read again after a while. Without `read`, it stays the first one."""

    def __init__(self, value: T, read: Callable[[], Awaitable[T]] | None) -> None:
        self._value = value
        self._read = read
        self._read_at = -REFRESH_INTERVAL_S

    async def get(self) -> T:
        if self._read is not None and time.monotonic() - self._read_at >= REFRESH_INTERVAL_S:
            self._read_at = time.monotonic()
            self._value = await self._read()
        return self._value


class TrackedRun:
    """The events of a run so far, and its outcome once it has a route."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.outcome = RouteOutcome.LEFT

    def finish(self, route: Route) -> Route:
        """Return the route with all events of its packet."""
        self.outcome = route.outcome
        return replace(route, events=tuple(self.events))


class RequestRunner:
    """Runs the requests of `Router.route` to their end; one per router."""

    def __init__(self, router: Router, narrower: RequestNarrower, pool: ModelPool, tasks: TaskGroup) -> None:
        self._settings = settings = router.settings
        self._profiles = router.profiles
        self._events = events = router.events
        self._store = store = router.store
        self._tasks = tasks
        self._switches = router.switches
        self._subscriptions = PacketSubscriptions()
        events.add(self._subscriptions)
        self.thresholds = ConfidenceThresholds(settings, store, events)
        flags = settings.flags
        calibration = RefreshedValue(Calibration(), self._fit_calibration if flags.calibration else None)
        usage = RefreshedValue[Mapping[str, UsageProfile]](
            {}, store.usage.get_profiles if flags.adaptive_instructions else None
        )
        self._running: dict[str, RunState] = {}  # by packet
        self._resuming: WeakValueDictionary[str, anyio.Lock] = WeakValueDictionary()  # by packet
        self._deps = RunDeps(
            settings=settings,
            events=events,
            narrower=narrower,
            calls=router.calls,
            pool=pool,
            store=store,
            offers=OfferedToolsCache(),
            get_snapshot=lambda: router.catalog.full_snapshot,
            find_paths=router.servers.find_paths,
            get_calibration=calibration.get,
            get_settings=self.thresholds.get_settings,
            learn=lambda outcome, packet: router.learn(
                packet.content.original_prompt, outcome, packet.header.session_id, caller=packet.header.caller
            ),
            summaries=SummaryCache(),
            get_usage=usage.get,
            profiles=router.profiles,
            instance=router.instance,
            quotas=router.quotas,
        )

    async def route(self, text: str, options: RouteOptions) -> Route:
        """Run one request to its end."""
        run = self._build_run(text, await self._add_history(options))
        return await self._run_new(run)

    async def _add_history(self, options: RouteOptions) -> RouteOptions:
        """Return the options with the conversation's history, if a conversation is named without one."""
        conversation = options.conversation
        if conversation is None or options.history is not None or options.parent is not None:
            return options
        history = await read_history(self._store, conversation, caller=options.caller)
        return replace(options, history=history)

    async def resume(
        self,
        pending_id: str,
        approval: Approval | None,
        options: RouteOptions,
        *,
        packet_id: str | None = None,
    ) -> Route:
        """Continue a request that waited for a person. A second resume returns the existing result.

        If several requests wait for one call, continue `packet_id`, else the first that still waits.
        """
        pending = await self._get_pending(pending_id)
        packet_id = packet_id or await self._find_next_packet(pending)
        lock = self._resuming.setdefault(packet_id or pending_id, anyio.Lock())
        async with lock, hold_claim(self._store, f"packet {packet_id or pending_id}", self._deps.instance):
            pending = await self._get_pending(pending_id)
            known, run = await self._restore_run(pending, options, packet_id)
            with self._track_run(run) as tracked:
                decided = pending if approval is None else await self._apply_approval(approval)
                steps = partial(resume_run, pending=decided, known=known)
                return tracked.finish(await run_to_end(run, steps))

    async def _find_next_packet(self, pending: Pending) -> str | None:
        """Return the first packet that still waits for this call, else the first of all."""
        for packet_id in pending.packets if pending.joined else ():
            known = await read_recorded_run(self._store, packet_id)
            if known.outcome is RouteOutcome.WAITING:
                return packet_id
        return pending.packet_id

    async def _get_pending(self, pending_id: str) -> Pending:
        pending = await self._deps.calls.approvals.get(pending_id)
        if pending is None:
            message = f"no call waits under {pending_id}"
            raise CallError(message, hint="`fingerpost approvals` lists the waiting calls.")
        return pending

    async def reply(self, asked: Route, answer: str, options: RouteOptions) -> Route:
        """Continue after the person answered a question.

        If a tool asked, its call continues with the answer. Otherwise the model gets question and answer as
        part of the conversation. In keyless mode, the answer fills in the missing values.
        """
        question, before = asked.question, asked.packet
        if question is None:
            message = "this route asks nothing"
            raise CallError(message, hint="Only a route whose outcome is 'asked' can be replied to.")
        if question.call is not None:
            return await self._resume_with_answer(asked, question, answer, options)
        options = (await read_recorded_run(self._store, before.packet_id)).add_trail(options)
        if asked.mode is not Mode.KEYLESS:
            history = append_exchange(before, question.text)
            return await self.route(answer, replace(options, mode=asked.mode, history=history))
        options = self._profiles.apply_profile(options)
        run = RunState(self._deps, before, mode=Mode.KEYLESS, options=options, narrowing=asked.narrowing)
        return await self._run_to_end(run, partial(resume_with_reply, question=question, answer=answer))

    async def _resume_with_answer(
        self, asked: Route, question: Question, answer: str, options: RouteOptions
    ) -> Route:
        """Continue the packet with its original caller, profile and scopes."""
        before = asked.packet
        known = await read_recorded_run(self._store, before.packet_id)
        assert question.call is not None
        options = replace(
            known.add_trail(options),
            conversation=question.call.conversation,
            caller=before.header.caller,
            profile=before.context.profile,
            scopes=tuple(dict.fromkeys((*known.scopes, *options.scopes))),
        )
        run = RunState(
            self._deps,
            before,
            mode=asked.mode,
            options=options,
            narrowing=asked.narrowing or known.narrowing,
            confidence=known.confidence,
            parent=self._find_parent(options),
        )
        return await self._run_to_end(run, partial(resume_with_answer, question=question, answer=answer))

    async def _run_to_end(self, run: RunState, steps: Callable[[RunState], Awaitable[Route]]) -> Route:
        with self._track_run(run) as tracked:
            return tracked.finish(await run_to_end(run, steps))

    async def _apply_approval(self, approval: Approval) -> Pending:
        """Record the person's decision and return the call's state. An earlier decision may apply already."""
        return await self._deps.calls.decide(
            approval.pending_id,
            approval.decision,
            by=approval.by,
            reason=approval.reason,
            edited_arguments=approval.arguments,
            for_conversation=approval.for_conversation,
        )

    async def stream(self, text: str, options: RouteOptions) -> AsyncGenerator[StreamItem]:
        """Yield the events of one request, the pieces of its answer, and finally its route."""
        options = await self._add_history(options)

        def pass_on_text(piece: str) -> None:
            pass_on(AnswerPiece(text=piece))

        # May raise while there is nothing to close yet.
        run_state = self._build_run(text, replace(options, on_text=pass_on_text))
        send, receive = anyio.create_memory_object_stream[StreamItem](float("inf"))
        packet_id = run_state.packet.packet_id
        scope, failures = anyio.CancelScope(), list[Exception]()

        def pass_on(item: StreamItem) -> None:
            # The reader has disconnected.
            with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                send.send_nowait(item)

        async def run() -> None:
            with scope, send, self._subscriptions.watch(packet_id, pass_on):
                try:
                    async with self._deps.calls.in_flight.track():
                        pass_on(await self._run_new(run_state))
                except Exception as error:  # noqa: BLE001 - raised to the reader; must not end other tasks
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

    async def select(self, text: str, narrowing: Narrowing, options: RouteOptions) -> ParsedSelection:
        """Ask the selecting model which of these tools to call."""
        options = self._profiles.apply_profile(options)
        packet = build_packet(text, options)
        if narrowing.packet_id is not None:  # one packet per request
            packet = replace(packet, header=replace(packet.header, packet_id=narrowing.packet_id))
        run = RunState(self._deps, packet, mode=Mode.STAGED, options=options, narrowing=narrowing)
        offered = [candidate.tool for candidate in narrowing.shortlist.offered]
        cards = [self._deps.get_snapshot().get(tool) for tool in offered]
        return await ask_for_selection(run, tuple(card for card in cards if card is not None))

    async def _run_new(self, run: RunState) -> Route:
        await self._deps.quotas.check_spending(run.packet.header.caller, run.packet.context.profile)
        with self._track_run(run) as tracked:
            pool = self._deps.pool
            run.emit(PacketReceived.from_packet(run.packet))
            run.emit(
                RouteBegan(
                    packet_id=run.packet.packet_id,
                    mode=run.mode,
                    lite=pool.name(Role.LITE),
                    prime=run.client_options.model or pool.name(Role.PRIME),
                    profile=run.options.profile,
                    scopes=run.options.scopes,
                    working_directory=run.options.working_directory,
                    own_terms=run.client_options.sets_own_limits,
                    arms=run.arms,
                    instance=self._deps.instance,
                    trail=run.options.trail,
                    words_given=run.options.words is not None,
                )
            )
            return tracked.finish(await run_request(run))

    @contextmanager
    def _track_run(self, run: RunState) -> Generator[TrackedRun]:
        """Collect the events of the run. An end without a route is recorded, too."""
        tracked, packet_id = TrackedRun(), run.packet.packet_id
        self._running[packet_id] = run
        with self._subscriptions.watch(packet_id, tracked.events.append):
            try:
                with self._record_subagent(run, tracked):
                    yield tracked
            except BaseException as error:
                if tracked.events and not any(isinstance(event, RouteEnded) for event in tracked.events):
                    record_interrupted_run(run, left=not isinstance(error, Exception))
                raise
            finally:
                self._running.pop(packet_id, None)

    @contextmanager
    def _record_subagent(self, run: RunState, tracked: TrackedRun) -> Generator[None]:
        """Record the start and end of a subagent in its parent's trace."""
        parent_id, spent = run.packet.header.parent_id, run.budget.spent
        if parent_id is None:
            yield
            return
        child, request = run.packet.packet_id, run.packet.content.original_prompt
        self._events.emit(
            SubagentBegan(packet_id=parent_id, child=child, request=request[:MAX_REQUEST_LENGTH])
        )
        try:
            yield
        except Exception:
            tracked.outcome = RouteOutcome.FAILED
            raise
        finally:
            self._events.emit(
                SubagentEnded(
                    packet_id=parent_id,
                    child=child,
                    outcome=tracked.outcome,
                    milliseconds=run.budget.milliseconds,
                    tokens=spent.prompt_tokens + spent.completion_tokens,
                )
            )

    def _build_run(self, text: str, options: RouteOptions) -> RunState:
        parent = self._find_parent(options)
        if parent is not None:  # a subagent runs under its parent's profile
            options = replace(options, profile=options.profile or parent.options.profile)
        options = self._profiles.apply_profile(options)
        mode = self._choose_mode(options)
        enabled = self._settings.tool_routing.enabled
        rounds = self._switches.now.get_max_rounds(mode, options.max_turns) if enabled else 0
        packet = build_packet(text, _detach_from_parent(options), rounds=rounds, parent=options.parent)
        return RunState(self._deps, packet, mode=mode, options=options, parent=parent)

    def _find_parent(self, options: RouteOptions) -> RunState | None:
        """Return the run that started this one. Raises if it has ended or may not start another."""
        name = options.parent
        if name is None:
            return None
        parent = self._running.get(name)
        if parent is None:
            message = f"{name} is not running in this process, so nothing can be done on its behalf"
            raise CallError(message, hint="Ask without `parent`.")
        max_depth = self._settings.builtin.subagents.max_depth
        if parent.depth >= max_depth:
            message = f"subagents may be nested {max_depth} deep at most"
            raise CallError(
                message, hint="Do this part without a subagent, or raise builtin.subagents.max_depth."
            )
        return parent

    def _choose_mode(self, options: RouteOptions) -> Mode:
        wanted = options.mode or self._switches.now.mode
        effort = options.effort
        if effort is not None and options.mode in (None, "auto") and wanted != Mode.KEYLESS:
            wanted = EFFORT_MODES[Effort(effort)] if self._deps.pool.ready else "auto"
        if wanted == "auto":
            return Mode.STAGED if self._deps.pool.ready else Mode.KEYLESS
        try:
            mode = Mode(wanted)
        except ValueError:
            message = f"there is no mode {wanted!r}"
            raise ConfigError(message, hint=f"The modes are auto, {', '.join(Mode)}.") from None
        if mode is not Mode.KEYLESS and not self._deps.pool.ready:
            message = f"the mode {mode} needs a language model, and none is configured"
            raise ConfigError(message, hint="Set models.prime (or models.lite), or use the mode keyless.")
        return mode

    async def _restore_run(
        self, pending: Pending, options: RouteOptions, packet_id: str | None
    ) -> tuple[RecordedRun, RunState]:
        known = None if packet_id is None else await self._read_run(packet_id)
        packet = None if known is None else known.packet
        if known is None or packet is None or packet.context.mode is None:
            message = f"{pending.pending_id} belongs to a single call, not to a request"
            raise CallError(message, hint="Decide it with `fingerpost approvals`, then make the call again.")
        options = replace(
            known.add_trail(options),
            conversation=pending.conversation,
            caller=packet.header.caller,
            profile=packet.context.profile,
            scopes=tuple(dict.fromkeys((*known.scopes, *options.scopes))),
            history=packet.context.history if options.history is None else options.history,
        )
        options = self._profiles.apply_profile(options)
        run = RunState(
            self._deps,
            packet,
            mode=Mode(packet.context.mode),
            options=options,
            narrowing=known.narrowing,
            confidence=known.confidence,
            parent=self._find_parent(options),
        )
        return known, run

    async def _read_run(self, packet_id: str) -> RecordedRun:
        """Read the record of a run. The process that asked for approval may still be writing it."""
        known = await read_recorded_run(self._store, packet_id)
        for _ in range(MAX_RECORD_READS):
            if known.packet is not None and known.packet.context.mode is not None:
                break
            await anyio.sleep(RECORD_POLL_S)
            known = await read_recorded_run(self._store, packet_id)
        return known

    async def _fit_calibration(self) -> Calibration:
        """Return the confidence calibration from past results."""
        samples = await self._store.confidences.list_recent()
        return await anyio.to_thread.run_sync(Calibration.fit, samples)


def _detach_from_parent(options: RouteOptions) -> RouteOptions:
    """Return the options without the conversation: a subagent's messages are not part of its parent's."""
    return options if options.parent is None else replace(options, conversation=None)

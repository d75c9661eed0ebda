"""The state of one run: its packet, budget, offered tools, and access to models."""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import anyio

from fingerpost.call.digest.results import find_handles
from fingerpost.call.digest.tokens import count_tokens
from fingerpost.call.outcomes import MAX_PAGES, READ_RESULT_FUNCTION, READ_RESULT_TOOL_NAME
from fingerpost.call.pipeline import CallPipeline
from fingerpost.call.quotas import Quotas
from fingerpost.catalog import Snapshot
from fingerpost.choose.client_options import ClientOptions, rename_conflicting_cards
from fingerpost.choose.confidence import Calibration
from fingerpost.choose.context_window import FittedHistory, SummaryCache
from fingerpost.errors import ModelError
from fingerpost.events import (
    ConfidenceJudged,
    Event,
    EventSink,
    HistorySummarised,
    IntentDetected,
    ModelAnswered,
    PacketEvent,
    TaskScheduled,
    ToolsOffered,
)
from fingerpost.frozen import frozen
from fingerpost.llm import Ask, ModelPool, ModelReply, ModelRequest, ModelUsage, OnText, Role
from fingerpost.llm.content import to_text_only
from fingerpost.records import (
    Confidence,
    Entity,
    ErrorKind,
    JsonObject,
    Message,
    Mode,
    Narrowing,
    Outcome,
    Packet,
    PacketState,
    Scope,
    ServerPaths,
    SystemTask,
    ToolCard,
    UsageProfile,
)
from fingerpost.router.options import RouteOptions
from fingerpost.router.request_narrower import AskedModel, RequestNarrower
from fingerpost.settings import ChooseSettings, ProfileSettings, Settings
from fingerpost.settings.validation import apply_arms, assign_arms
from fingerpost.store import Store


class RunBudgetExceeded(Exception):
    """A limit of the run was reached. It never leaves the run, which ends with guidance instead."""

    def __init__(self, *, limit: str, detail: str) -> None:
        super().__init__(detail)
        self.limit = limit
        self.detail = detail


@dataclass(slots=True)
class ModelSpending:
    """Tokens and cost of all model calls so far."""

    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    milliseconds: float = 0.0
    cost: float | None = None


class RunBudget:
    """Counts time, tokens and cost, and raises when a limit is reached."""

    def __init__(
        self,
        settings: ChooseSettings,
        *,
        seconds: float | None = None,
        tokens: int | None = None,
        parent: RunBudget | None = None,
    ) -> None:
        """Spending is also counted in `parent`, and the parent's limits apply here."""
        self._settings = settings
        self._seconds = settings.max_seconds if seconds is None else min(seconds, settings.max_seconds)
        self._tokens = settings.max_tokens if tokens is None else min(tokens, settings.max_tokens)
        self._parent = parent
        self._began = time.monotonic()
        self.spent = ModelSpending()

    @property
    def milliseconds(self) -> float:
        return (time.monotonic() - self._began) * 1000

    @property
    def seconds_left(self) -> float:
        own = max(0.0, self._began + self._seconds - time.monotonic())
        return own if self._parent is None else min(own, self._parent.seconds_left)

    def check(self) -> None:
        """Raise `RunBudgetExceeded` if no further model call is allowed."""
        if self._parent is not None:
            self._parent.check()
        used = self.spent.prompt_tokens + self.spent.completion_tokens
        if used >= self._tokens:
            detail = f"{used:,} of {self._tokens:,} tokens are used ({self._describe_limit('max_tokens')})"
            raise RunBudgetExceeded(limit="tokens", detail=detail)
        most = self._settings.max_cost
        if most is not None and self.spent.cost is not None and self.spent.cost >= most:
            detail = f"{self.spent.cost:.4f} of {most:g} is spent (choose.max_cost)"
            raise RunBudgetExceeded(limit="cost", detail=detail)
        if self.seconds_left <= 0:
            raise self.build_timeout()

    def build_timeout(self) -> RunBudgetExceeded:
        is_own = self._parent is None and self._seconds < self._settings.max_seconds
        named = "as long as the request was given" if is_own else self._describe_limit("max_seconds")
        return RunBudgetExceeded(limit="seconds", detail=f"{self._seconds:g} s are over ({named})")

    def _describe_limit(self, limit: str) -> str:
        return f"choose.{limit}" if self._parent is None else f"builtin.subagents.{limit}"

    def count(self, reply: ModelReply, *, prompt: int, completion: int, cost: float | None) -> None:
        """Count a reply. `prompt` and `completion` are reported by the server, or estimated."""
        if self._parent is not None:
            self._parent.count(reply, prompt=prompt, completion=completion, cost=cost)
        spent = self.spent
        spent.calls += 1
        spent.prompt_tokens += prompt
        spent.completion_tokens += completion
        spent.milliseconds += reply.milliseconds
        if cost is not None:
            spent.cost = (spent.cost or 0.0) + cost


def build_client_options(options: RouteOptions, *, prime: str) -> ClientOptions:
    """Build the client's options. Naming `prime`, which answers by default, changes nothing."""
    model = options.model
    return ClientOptions(
        tools=options.caller_tools,
        tool_choice=options.tool_choice,
        later_messages=options.since,
        content_parts=options.parts,
        options=options.options,
        sets_own_limits=options.own_terms,
        model=None if model in (None, "", prime) else model,
        history=options.history or (),
    )


def restore_content_parts(fitted: Sequence[Message], written: Sequence[Message]) -> tuple[Message, ...]:
    """Return the fitted history with the non-text parts of the original messages, where the text is the same.

    The beginning may have been cut, so both are compared from their ends.
    """
    found = list(fitted)
    for behind in range(1, min(len(found), len(written)) + 1):
        if written[-behind].parts and to_text_only(written[-behind]) == found[-behind]:
            found[-behind] = written[-behind]
    return tuple(found)


MAX_KEPT_OFFERS: Final = 500  # conversations

OfferKey = tuple[str, str | None, str | None, tuple[Scope, ...]]  # conversation, caller, profile, bounds


class OfferedToolsCache:
    """The latest offered tools by caller and conversation (LRU)."""

    def __init__(self) -> None:
        self._offers: OrderedDict[OfferKey, tuple[str, ...]] = OrderedDict()

    def get_last(self, key: OfferKey | None) -> tuple[str, ...]:
        return () if key is None else self._offers.get(key, ())

    def keep(self, key: OfferKey | None, tools: tuple[str, ...]) -> None:
        if key is None:
            return
        self._offers[key] = tools
        self._offers.move_to_end(key)
        while len(self._offers) > MAX_KEPT_OFFERS:
            self._offers.popitem(last=False)


def build_offer_key(options: RouteOptions) -> OfferKey | None:
    """Return the cache key for offered tools, or None if the request belongs to no conversation."""
    conversation = options.conversation
    if conversation is None:
        return None
    return (conversation, options.caller, options.profile, options.scopes)


logger = logging.getLogger("fingerpost.router")

MAX_ERROR_LENGTH: Final = 300


@frozen
class RunDeps:
    """Dependencies that all runs of one router share."""

    settings: Settings
    events: EventSink
    narrower: RequestNarrower
    calls: CallPipeline
    pool: ModelPool
    store: Store
    offers: OfferedToolsCache
    get_snapshot: Callable[[], Snapshot]
    find_paths: Callable[[Iterable[str]], Awaitable[Mapping[str, ServerPaths]]]  # by server
    get_calibration: Callable[[], Awaitable[Calibration]]
    get_settings: Callable[[ToolCard], Awaitable[Settings]]  # settings that apply to calls of this tool
    learn: Callable[[Outcome, Packet], None]
    summaries: SummaryCache
    get_usage: Callable[[], Awaitable[Mapping[str, UsageProfile]]]  # for adaptive instructions
    profiles: Mapping[str, ProfileSettings]
    instance: str  # the id of this process among those that share the store
    quotas: Quotas


class RunState:
    """The state of one packet between the request and the answer.

    Only this class assigns its attributes. Other modules read them, and call the method that says what
    happened.
    """

    # What the run was started with.
    deps: Final[RunDeps]
    options: Final[RouteOptions]
    client_options: Final[ClientOptions]
    mode: Final[Mode]
    arms: Final[dict[str, str]]  # of the rollout
    settings: Final[Settings]  # with those arms
    profile: Final[ProfileSettings | None]
    depth: Final[int]  # 0 for a request, 1 for its subagents
    budget: Final[RunBudget]

    # What happened so far.
    packet: Packet  # changed by events only: `emit`
    narrowing: Narrowing | None  # the latest
    widened: bool = False  # more tools were offered, which is possible once
    confidence: Confidence | None  # in the latest selection
    failures: tuple[Outcome, ...] = ()  # of calls, oldest first
    note: str = ""  # tells the answering model why no tool was used
    rejection: str = ""  # what a person rejected, as text for the requester
    fitted: FittedHistory | None = None  # the history as it fits into the model's window
    has_drafted: bool = False  # the answer was written once: a call in it was the last one
    unused: tuple[Entity, ...] = ()  # entities of the request that no argument used, in keyless mode
    undone: tuple[str, ...] = ()  # parts of the request without a tool, in keyless mode

    def __init__(
        self,
        deps: RunDeps,
        packet: Packet,
        *,
        mode: Mode,
        options: RouteOptions,
        narrowing: Narrowing | None = None,
        confidence: Confidence | None = None,
        parent: RunState | None = None,
    ) -> None:
        """`parent` is the run that started this one. Its budget is used."""
        self.deps = deps
        self.options = options
        self.client_options = build_client_options(options, prime=deps.pool.name(Role.PRIME))
        self.mode = mode
        unit = options.conversation or packet.packet_id
        self.arms = assign_arms(deps.settings.rollout, unit) if parent is None else parent.arms
        self.settings = apply_arms(deps.settings, self.arms)
        self.profile = deps.profiles.get(options.profile or "")
        self.depth = 0 if parent is None else parent.depth + 1
        self.budget = RunBudget(
            self.settings.choose,
            seconds=options.seconds,
            tokens=options.tokens,
            parent=None if parent is None else parent.budget,
        )
        self.packet = packet
        self.narrowing = narrowing
        self.confidence = confidence
        self._names_kept_result = False  # the conversation names a result that the caller can read
        self._on_text: OnText | None = options.on_text
        self._streamed_text = ""  # everything that was streamed
        self._earlier = ""  # the streamed text before the current text

    def record_confidence(self, confidence: Confidence) -> None:
        """Record the confidence in the selection."""
        self.confidence = confidence
        self.emit(ConfidenceJudged(packet_id=self.packet.packet_id, confidence=confidence))

    def record_declined(self, tool: str, reason: str) -> None:
        """Record that the selected tool is not used. The answering model is told."""
        self.note = f"{tool} was considered and not used: {reason}"

    def record_rejections(self, text: str) -> None:
        """Record what a person rejected. An empty text: nothing."""
        self.rejection = text

    def record_widening(self) -> None:
        """Record that more tools were looked for."""
        self.widened = True

    def record_failure(self, outcome: Outcome) -> None:
        """Record a call that failed."""
        self.failures = (*self.failures, outcome)

    def record_draft(self) -> None:
        """Record that the answer is being written for the first time."""
        self.has_drafted = True

    def record_fitted_history(self, fitted: FittedHistory) -> None:
        """Record the history as it fits into the model's window."""
        self.fitted = fitted
        if fitted.by:
            self.emit(
                HistorySummarised(
                    packet_id=self.packet.packet_id,
                    messages=fitted.left_out,
                    tokens_before=fitted.tokens_before,
                    tokens_after=fitted.tokens_after,
                    by=fitted.by,
                )
            )

    def record_unused_entities(self, entities: tuple[Entity, ...]) -> None:
        """Record entities of the request that no argument used."""
        self.unused += entities

    def record_undone_needs(self, needs: tuple[str, ...]) -> None:
        """Record parts of the request for which there is no tool."""
        self.undone += needs

    def emit(self, event: Event) -> None:
        """Apply the event to the packet and send it to all sinks."""
        if isinstance(event, PacketEvent):
            self.packet = event.apply(self.packet)
        self.deps.events.emit(event)

    def schedule(self, task: SystemTask | None, state: PacketState = PacketState.PROCESSING) -> None:
        self.emit(TaskScheduled(packet_id=self.packet.packet_id, state=state, next_task=task))

    @property
    def is_streaming(self) -> bool:
        return self._on_text is not None

    def stream_text(self, text: str) -> None:
        """Send a piece of the answer to the listener. A failing listener does not end the run."""
        if text and self._on_text is not None:
            if self._streamed_text and self._streamed_text == self._earlier:
                text = f"\n\n{text}"
            self._streamed_text += text
            try:
                self._on_text(text)
            except Exception:
                logger.exception("the on_text callback failed; streaming stops and the run continues")
                self._on_text = None

    def end_text_part(self) -> None:
        """Separate the text streamed so far from the text that follows."""
        self._earlier = self._streamed_text

    def complete_answer(self, text: str) -> str:
        """Return the whole answer that ends with `text`, and stream the part not streamed yet."""
        if self._on_text is None or not text:
            return text
        if not self._streamed_part.startswith(text) and not text.startswith(self._streamed_part):
            self.end_text_part()
        self.stream_text(text[len(self._streamed_part) :])
        return self._streamed_text

    @property
    def has_streamed(self) -> bool:
        """Whether part of the answer was streamed."""
        return bool(self._streamed_text)

    @property
    def _streamed_part(self) -> str:
        """The streamed part of the current text."""
        part = self._streamed_text[len(self._earlier) :]
        return part.removeprefix("\n\n") if self._earlier else part

    async def narrow(self, *, min_fit: float | None = None) -> Narrowing:
        """Find the tools for the request. With `min_fit`, fitting tools are offered even without a need."""
        self.schedule(SystemTask.INTENT_DETECTION)
        options = self.options if min_fit is None else replace(self.options, asked_for_tools=True)
        found, events = await self._narrow_packet(options, min_fit=min_fit or 0.0)
        for event in events:
            self.emit(event)
        if self.client_options.excludes_routed_tools:
            self.offer_only(())
        return found

    async def narrow_for(self, text: str) -> Narrowing:
        """Find the tools for the part of the request that is still to be done."""
        used = (step.tool for step in self.packet.tool_routing.worked)
        asking = replace(self.options, asked_for_tools=True, used=(*self.options.used, *used))
        found, events = await self._narrow_packet(asking, text=text)
        for event in events:
            if not isinstance(event, IntentDetected):  # the intent of the request does not change
                self.emit(event)
        return found

    async def narrow_wider(self, text: str | None = None) -> Narrowing:
        """Narrow again, including servers that were left out, because the model used none of the tools."""
        asking = replace(self.options, asked_for_tools=True)
        return (await self._narrow_packet(asking, text=text, widened=True))[0]

    async def _narrow_packet(
        self, options: RouteOptions, *, text: str | None = None, widened: bool = False, min_fit: float = 0.0
    ) -> tuple[Narrowing, tuple[PacketEvent, ...]]:
        """Narrow and keep the result. The model that chooses servers is counted and recorded like others."""
        pool, ask = self.deps.pool, self.build_ask(Role.LITE, "servers")
        chooser = AskedModel(pool.name(Role.LITE), ask) if pool.ready else None
        found, events = await self.deps.narrower.narrow_packet(
            self.deps.get_snapshot(),
            self.packet,
            options,
            text=text,
            model=chooser,
            widened=widened,
            arms=self.arms,
            min_fit=min_fit,
            compare_small_talk=False,
        )
        self.narrowing = found
        return found, events

    @property
    def can_widen(self) -> bool:
        """Whether tools of servers that were left out may still be offered. This is possible once."""
        choice = None if self.narrowing is None else self.narrowing.servers
        left_out = choice is not None and bool(choice.left_out)
        return left_out and self.settings.flags.widen and not self.widened

    def get_cards(self) -> tuple[ToolCard, ...]:
        """Return the offered tools that still exist, renamed where a caller's tool has the same name."""
        if not self.settings.tool_routing.enabled:
            return ()
        snapshot = self.deps.get_snapshot()
        found = (snapshot.get(key) for key in self.packet.context.available_tools)
        cards = [card for card in found if card is not None]
        return rename_conflicting_cards(cards, self.client_options.tool_names)

    @property
    def can_call(self) -> bool:
        """Whether the model may call another tool for this request."""
        return bool(self.packet.tool_routing.reinjections_left) and not self.looping_tool

    @property
    def looping_tool(self) -> str:
        """The tool that was called repeatedly without progress, or an empty text.

        Either the call pipeline refused a repeated call, or the same call failed too often with the same
        error.
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
        """Definitions of Fingerpost's own tools: `read_result`, while there is a trimmed result to read.

        The result was trimmed in this request, or is named in the conversation (`detect_kept_results`).
        Reading does not count as a round, so the number of pages is limited.
        """
        steps, client = self.packet.tool_routing.steps, self.client_options
        pages = sum(step.tool == READ_RESULT_TOOL_NAME for step in steps)
        is_cut = self._names_kept_result or any(step.handle for step in steps)
        can_read = is_cut and pages < MAX_PAGES and not self.looping_tool
        is_free = not client.excludes_routed_tools and READ_RESULT_TOOL_NAME not in client.tool_names
        return (READ_RESULT_FUNCTION,) if can_read and is_free else ()

    async def detect_kept_results(self) -> None:
        """Set whether the conversation names a trimmed result that this caller can still read."""
        if not self.settings.tool_routing.enabled:
            return
        messages = (*self.packet.context.history, *self.client_options.later_messages)
        results, caller = self.deps.calls.results, self.packet.header.caller
        for handle in find_handles(message.text for message in messages):
            if await results.is_kept(handle, caller=caller):
                self._names_kept_result = True
                return

    async def can_take_definitions(self) -> bool:
        """Return whether the answering model gets tools as definitions. Otherwise text describes them."""
        return await self.deps.pool.takes_definitions(Role.PRIME, model=self.client_options.model)

    def build_ask(self, role: Role, purpose: str, *, on_text: OnText | None = None) -> Ask:
        """Return a function that asks a model within the budget, counts its usage and records it."""

        async def ask(request: ModelRequest) -> ModelReply:
            self.budget.check()
            reply = None
            try:
                with anyio.move_on_after(self.budget.seconds_left):
                    reply = await self.deps.pool.ask(role, request, on_text=on_text)
            except ModelError as error:
                self._emit_model_error(role, purpose, error=str(error)[:MAX_ERROR_LENGTH])
                raise
            except anyio.get_cancelled_exc_class():
                self._emit_model_error(role, purpose, error="the request was cancelled")
                raise
            if reply is None:
                self._emit_model_error(role, purpose, error="the time for the request is over")
                raise self.budget.build_timeout()
            self._count_usage(role, purpose, request, reply)
            return reply

        return ask

    def _count_usage(self, role: Role, purpose: str, request: ModelRequest, reply: ModelReply) -> None:
        usage = reply.usage
        # Estimated if the server does not report it, so that token limits still apply.
        counted = usage or ModelUsage(
            prompt_tokens=sum(count_tokens(message.text) for message in request.messages),
            completion_tokens=count_tokens(reply.text),
        )
        prompt, completion = counted.prompt_tokens, counted.completion_tokens
        # The price of a model that the caller named is unknown.
        named = request.model is not None
        cost = None if named else self.deps.pool.cost(role, counted, stood_in=reply.stood_in)
        self.budget.count(reply, prompt=prompt, completion=completion, cost=cost)
        caller, profile = self.packet.header.caller, self.packet.context.profile
        self.deps.quotas.add_spending(caller, profile, tokens=prompt + completion, cost=cost)
        self.deps.events.emit(
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

    def _emit_model_error(self, role: Role, purpose: str, *, error: str) -> None:
        name = self.deps.pool.name(role) or "no model"
        self.deps.events.emit(
            ModelAnswered(
                packet_id=self.packet.packet_id, role=role.value, purpose=purpose, model=name, error=error
            )
        )

    def offer_only(self, keys: tuple[str, ...], *, kept: tuple[str, ...] = ()) -> None:
        """Offer exactly these tools from now on. `kept` are those that an earlier turn was offered."""
        if keys != self.packet.context.available_tools:
            self.emit(ToolsOffered(packet_id=self.packet.packet_id, tools=keys, kept=kept))

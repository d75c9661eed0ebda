"""Narrowing for one router: policy, server health, learned data and the model that chooses servers."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from datetime import timedelta
from itertools import chain
from typing import Final

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup

from fingerpost.catalog import Snapshot
from fingerpost.events import (
    Fanout,
    IntentDetected,
    PacketEvent,
    PacketReceived,
    RequestNarrowed,
    ToolsOffered,
)
from fingerpost.llm import Ask, ChatModel, ModelPool, ModelReply, ModelRequest, OnText, Role
from fingerpost.llm.content import to_text_only
from fingerpost.narrow.components import build_default_components
from fingerpost.narrow.dense.encoder import model_processes
from fingerpost.narrow.feedback import (
    Corrections,
    PastDecisions,
    Preferences,
    RememberedDecision,
    RequestVectors,
)
from fingerpost.narrow.history_scorer import Floats, HistoryScorer
from fingerpost.narrow.narrower import Narrower
from fingerpost.narrow.request import NarrowRequest
from fingerpost.narrow.scorer import Scorer
from fingerpost.narrow.server_picker import DefinitionCosts, RecentRoutingStats, ServerPicker, adapt_settings
from fingerpost.narrow.server_prompt import read_template
from fingerpost.policy.visibility import VisibilityCache, VisibleCatalog
from fingerpost.records import (
    EVERYBODY,
    MAX_REINJECTIONS,
    Effort,
    Intent,
    Message,
    Narrowing,
    NeedVerdict,
    Packet,
    ServerChoice,
    Signals,
    utc_now,
)
from fingerpost.regex import compile_prepared
from fingerpost.router.options import NarrowOptions, RuntimeSwitches
from fingerpost.settings import Settings, SmartRoutingSettings
from fingerpost.settings.validation import apply_arms, assign_arms
from fingerpost.store import Store

logger = logging.getLogger(__name__)

REFRESH_INTERVAL_S: Final = 5.0
CHECK_INTERVAL_S: Final = 30.0


class LearnedData:
    """Learned data, one instance per narrower, refreshed in the event loop and read in threads."""

    def __init__(self, settings: Settings, store: Store, *, tasks: TaskGroup | None = None) -> None:
        """`tasks` runs refreshes in the background. Without it, requests refresh stale data."""
        flags = settings.flags
        self._flags = flags
        self._settings = settings.learning
        self._store = store
        self.history_scorer = HistoryScorer()
        self.corrections = Corrections(shared=settings.learning.shared)
        self.preferences = Preferences()
        self.decisions = PastDecisions()
        self._is_on = (
            flags.learned_use or flags.learn_from_feedback or flags.preferences or flags.decision_cache
        )
        self._vectors: RequestVectors | None = None
        self._stale = True
        self._read_at = -CHECK_INTERVAL_S
        self._seen: tuple[object, ...] | None = None
        self._tasks = tasks
        self._is_awaited = True  # the next request reads the data itself
        self._is_new = False  # the data was read again since the last refresh
        self._is_reading = False
        self._read_lock = anyio.Lock()  # older data never replaces newer data

    def set_encoder(self, encode: Callable[[str], Floats]) -> None:
        """Set the encoder. From now on, requests are also compared by vectors."""
        self._vectors = RequestVectors(encode)

    def mark_stale(self, *, at_once: bool = False) -> None:
        """Mark the data as out of date. With `at_once`, the next request waits for the refresh."""
        self._stale = True
        if at_once:
            self._read_at = -CHECK_INTERVAL_S
            self._is_awaited = True

    @property
    def is_personal(self) -> bool:
        """Whether results may depend on the caller."""
        return self._flags.learn_from_feedback or self._flags.preferences

    def find_decision(self, text: str, vector: Floats | None) -> RememberedDecision | None:
        """Return the remembered decision for this request, if the decision cache is enabled."""
        return self.decisions.recall(text, vector) if self._flags.decision_cache else None

    async def refresh(self) -> bool:
        """Refresh stale data. Return whether there is new data."""
        if not self._is_on:
            return False
        if (self._is_awaited or not self._is_reading) and await self._is_stale():
            self._stale, self._read_at = False, time.monotonic()
            if self._is_awaited or self._tasks is None:
                self._is_awaited = False
                async with self._read_lock:
                    await self._read()
            else:
                self._is_reading = True
                self._tasks.start_soon(self._read_in_background)
        is_new, self._is_new = self._is_new, False
        return is_new

    async def _read_in_background(self) -> None:
        """Read the data in the background, while requests use the old data; again if it fails."""
        try:
            async with self._read_lock:
                await self._read()
        except Exception:
            logger.warning("learned data could not be refreshed", exc_info=True)
            self._stale = True
        finally:
            self._is_reading = False

    async def _read(self) -> None:
        store = self._store
        choices = await store.choices.list_recent()
        followings = await store.choices.list_followers()
        feedback = await store.feedback.list_recent()
        habits_since = await store.learned.get_marks("preferences")
        decisions_since = await store.learned.get_marks("decisions")
        now = utc_now()
        half_life = timedelta(days=self._settings.half_life_days)
        oldest = now - timedelta(days=self._settings.decision_days)
        since = max(oldest, decisions_since.get(EVERYBODY, oldest))

        def learn() -> None:
            rows = self._encode_rows([one.request for one in feedback], [one.request for one in choices])
            self.history_scorer.learn(choices, followings, vectors=rows[1])
            self.corrections.learn(feedback, now=now, half_life=half_life, vectors=rows[0])
            self.preferences.learn(choices, feedback, now=now, half_life=half_life, marks=habits_since)
            known = None if self._vectors is None else self._vectors.known
            self.decisions.learn(choices, feedback, since=since, vectors=known)

        await anyio.to_thread.run_sync(learn)
        self._is_new = True

    async def _is_stale(self) -> bool:
        waited = time.monotonic() - self._read_at
        if waited < REFRESH_INTERVAL_S:
            return False
        if self._stale:
            self._seen = await self._store.learned.get_version()
            return True
        if waited < CHECK_INTERVAL_S:
            return False
        self._read_at = time.monotonic()
        seen, self._seen = self._seen, await self._store.learned.get_version()
        return seen != self._seen

    def _encode_rows(
        self, feedback_texts: list[str], choice_texts: list[str]
    ) -> tuple[Floats | None, Floats | None]:
        """Return the vectors of both lists. Feedback is encoded first; the rest may follow later."""
        if self._vectors is None:
            return None, None
        self._stale = not self._vectors.fill(chain(feedback_texts, choice_texts)) or self._stale
        return self._vectors.get_rows(feedback_texts), self._vectors.get_rows(choice_texts)


_NEEDS_TOOL_BY_VERDICT: Final = {NeedVerdict.TOOL: True, NeedVerdict.NONE: False, NeedVerdict.UNCLEAR: None}


class RequestNarrower:
    """Narrows requests; one per router, used from the event loop.

    The constructor reads files and loads heavy libraries, so it is called in a worker thread.
    """

    def __init__(
        self,
        settings: Settings,
        events: Fanout,
        store: Store,
        *,
        get_unusable: Callable[[], Mapping[str, str]],
        get_absent: Callable[[], Mapping[str, str]] = dict[str, str],
        pool: ModelPool | None = None,
        switches: RuntimeSwitches | None = None,
        visibility: VisibilityCache | None = None,
        tasks: TaskGroup | None = None,
        scorers: Sequence[Scorer] = (),
        encoder_idle_seconds: float | None = None,
    ) -> None:
        """`scorers` are those of programs and packages. With `encoder_idle_seconds`, the encoder runs in a
        process of its own, which ends after that time without a text (0: when this is closed).
        """
        self._processes = ExitStack()
        if encoder_idle_seconds is not None:
            self._processes.enter_context(model_processes.use(encoder_idle_seconds))
        self._settings = settings
        self._events = events
        self._store = store
        self._get_unusable = get_unusable
        self.get_absent = get_absent  # servers that are not connected, each with the reason
        self._visibility = visibility or VisibilityCache(settings.policy)
        self._learned = LearnedData(settings, store, tasks=tasks)
        lite = None if pool is None or not pool.ready else _build_lite_model(pool)
        self._narrower = Narrower(
            settings,
            parts=build_default_components(
                settings,
                history=self._learned.history_scorer,
                corrections=self._learned.corrections,
                preferences=self._learned.preferences,
                scorers=scorers,
                lite=lite,
            ),
        )
        if self._narrower.parts.meaning is not None:
            self._learned.set_encoder(self._narrower.encode)
        self._switches = switches
        self._routing_stats = RecentRoutingStats(store)
        self._picker = ServerPicker(
            settings.smart_routing,
            events,
            live=self._get_smart_routing,
            model=lite,
            template=read_template(settings.smart_routing),
        )
        self._costs = DefinitionCosts()
        self._counted_view: tuple[VisibleCatalog, int] | None = None  # the last counted view and its tokens

    def _get_smart_routing(self) -> SmartRoutingSettings:
        """Return the current smart routing settings. Their thresholds may be adapted from results."""
        now = self._settings.smart_routing if self._switches is None else self._switches.now.smart_routing
        adapts = self._settings.flags.adaptive_thresholds
        return adapt_settings(now, self._routing_stats.figures) if adapts else now

    def mark_stale(self, *, at_once: bool = False) -> None:
        """Mark the learned data as out of date. With `at_once`, the next request waits for the refresh."""
        self._learned.mark_stale(at_once=at_once)

    async def read_signals(self, text: str) -> Signals:
        """Return the signals found in a text."""
        return await anyio.to_thread.run_sync(self._narrower.read_signals, text)

    async def wait_until_indexed(self, snapshot: Snapshot, seconds: float) -> bool:
        """Wait until every tool can be compared by meaning. Return whether this happened within `seconds`."""

        def work() -> bool:
            self._narrower.prepare(snapshot)
            return self._narrower.wait_until_ready(seconds)

        return await anyio.to_thread.run_sync(work)

    async def warm_up(self, snapshot: Snapshot, seconds: float) -> None:
        """Load the encoder and the vectors of all tools, and narrow once without recording it."""
        await anyio.to_thread.run_sync(compile_prepared)
        await self.wait_until_indexed(snapshot, seconds)
        options = NarrowOptions(ask_model=False)
        await self.narrow_packet(snapshot, build_packet("What time is it?", options), options)

    async def close(self) -> None:
        """Stop background tasks."""
        await anyio.to_thread.run_sync(self._narrower.close)
        await anyio.to_thread.run_sync(self._processes.close)

    async def narrow(self, snapshot: Snapshot, text: str, options: NarrowOptions) -> Narrowing:
        """Narrow a request and record it in the journal as a new packet."""
        packet = build_packet(text, options)
        self._events.emit(PacketReceived.from_packet(packet))
        narrowing, events = await self.narrow_packet(snapshot, packet, options)
        for event in events:
            self._events.emit(event)
        return narrowing

    async def narrow_packet(
        self,
        snapshot: Snapshot,
        packet: Packet,
        options: NarrowOptions,
        *,
        text: str | None = None,
        model: ChatModel | None = None,
        widened: bool = False,
        arms: Mapping[str, str] | None = None,
        min_fit: float = 0.0,
    ) -> tuple[Narrowing, tuple[PacketEvent, ...]]:
        """Narrow for a packet of a run. Return the result and the events to record.

        `text` replaces the request if only a part of it is left. `model` chooses servers, if one is asked.
        `widened`: a model used none of the offered tools, so more servers are included. `arms` are the run's.
        A request that needs no tool is offered none below `min_fit`, also where tools were asked for.
        """
        if arms is None:
            arms = assign_arms(self._settings.rollout, options.conversation or packet.packet_id)
        settings = apply_arms(self._settings, arms)
        if await self._learned.refresh():
            self._narrower.clear_cache()
        if self._settings.flags.adaptive_thresholds:
            await self._routing_stats.refresh()
        view = await self.find_visible(snapshot, options)
        request = self._build_request(snapshot, packet, view, options)
        if settings is not self._settings:
            request = replace(request, settings=settings)
        if text is not None:
            request = replace(request, text=text)
        gate = settings.flags.need_gate and not options.asked_for_tools
        choice = options.chosen_servers or await self._choose_servers(
            snapshot,
            request,
            view,
            packet.packet_id,
            model=model,
            gate=gate,
            widened=widened,
            later_messages=[to_text_only(message) for message in options.since],
            ask_model=options.ask_model,
        )
        narrowing = await self._narrower.narrow_snapshot(snapshot, replace(request, servers=choice))
        narrowing = replace(narrowing, packet_id=packet.packet_id)
        if gate or (settings.flags.need_gate and narrowing.shortlist.fit < min_fit):
            narrowing = drop_unneeded(narrowing)
        return narrowing, _build_events(
            packet, narrowing, *await self._count_tokens(snapshot, view, narrowing), arms
        )

    async def find_visible(self, snapshot: Snapshot, options: NarrowOptions) -> VisibleCatalog:
        """Return the tools that the caller may see, and the hidden ones with the rules that hide them."""
        return await self._visibility.compute_view(snapshot, options.caller, options.profile, options.scopes)

    async def filter_usable(
        self, snapshot: Snapshot, tools: Sequence[str], options: NarrowOptions
    ) -> tuple[str, ...]:
        """Return those of `tools` (keys) that the caller may use now, in the same order."""
        if not tools:
            return ()
        view = await self.find_visible(snapshot, options)
        unusable, server = self._get_unusable(), options.server
        found = [card for key in tools if (card := view.visible.get(key)) is not None]
        return tuple(
            card.key for card in found if card.server not in unusable and server in (None, card.server)
        )

    async def _count_tokens(
        self, snapshot: Snapshot, view: VisibleCatalog, narrowing: Narrowing
    ) -> tuple[int, int]:
        """Return the tokens of the definitions of all visible tools and of the offered ones.

        The count of all visible tools is cached while the view is unchanged.
        """
        if self._counted_view is None or self._counted_view[0] is not view:
            total = await anyio.to_thread.run_sync(self._costs.count_total, view.visible.cards)
            self._counted_view = (view, total)
        found = (snapshot.get(candidate.tool) for candidate in narrowing.shortlist.offered)
        return self._counted_view[1], self._costs.count_total(card for card in found if card is not None)

    def _build_request(
        self, snapshot: Snapshot, packet: Packet, view: VisibleCatalog, options: NarrowOptions
    ) -> NarrowRequest:
        server = options.server
        scope = None if server is None else frozenset(card.key for card in snapshot.by_server(server))
        return NarrowRequest(
            text=packet.content.original_prompt,
            history=packet.context.history,
            conversation=options.conversation,
            caller=options.caller,
            profile=options.profile,
            allowed=scope,
            hidden=view.hidden,
            max_tools=options.max_tools,
            health=self._get_unusable(),
            used=options.used,
            about=options.about,
            effort=None if (effort := options.effort) is None else Effort(effort),
            person=options.caller if self._learned.is_personal else None,
        )

    async def _choose_servers(
        self,
        snapshot: Snapshot,
        request: NarrowRequest,
        view: VisibleCatalog,
        packet_id: str,
        *,
        model: ChatModel | None,
        gate: bool,
        widened: bool,
        ask_model: bool,
        later_messages: Sequence[Message] = (),
    ) -> ServerChoice | None:
        """Return the servers of this turn. None: nothing to choose, or no tool is needed."""
        if request.allowed is not None or not self._picker.is_enabled(
            len(view.visible.cards), view.server_count
        ):
            return None
        signals = await self.read_signals(request.text)
        new = not self._picker.has_chosen(request.conversation, caller=request.caller)
        if gate and new and await anyio.to_thread.run_sync(self._narrower.is_tool_unneeded, request, signals):
            return None  # a greeting needs no servers

        def scores() -> Mapping[str, Sequence[float]]:
            self._narrower.prepare(snapshot)
            return self._narrower.score_servers(request, signals)

        remembered, corrected = await self._find_known_servers(request, view, signals, new=new)
        return await self._picker.pick(
            request.text,
            (*request.history, *later_messages),
            request.conversation,
            view.visible,
            scores,
            packet_id,
            caller=request.caller,
            signals=signals,
            model=model,
            ask_model=ask_model,
            none_taken=widened,
            remembered=remembered,
            corrected_servers=corrected,
        )

    async def _find_known_servers(
        self, request: NarrowRequest, view: VisibleCatalog, signals: Signals, *, new: bool
    ) -> tuple[frozenset[str], frozenset[str]]:
        """Return the usable servers of the tools that were right for this request before, and the servers of
        tools that enough corrections name as right.

        The first are looked up for a new conversation only; the second are always included.
        """
        flags, learned = self._settings.flags, self._learned

        def recall() -> tuple[frozenset[str], frozenset[str]]:
            vector = self._narrower.encode_signals(request.text, signals)
            found = learned.find_decision(request.text, vector) if new else None
            remembered = _get_servers(() if found is None else found.tools, view) - request.health.keys()
            if not flags.learn_from_feedback:
                return remembered, frozenset()
            corrections = learned.corrections.find_corrections(request.text, vector, person=request.person)
            return remembered, _get_servers((tool for tool, one in corrections.items() if one.settled), view)

        if not (flags.decision_cache or flags.learn_from_feedback):
            return frozenset(), frozenset()
        return await anyio.to_thread.run_sync(recall)


def _get_servers(tools: Iterable[str], view: VisibleCatalog) -> frozenset[str]:
    cards = (view.visible.get(tool) for tool in tools)
    return frozenset(card.server for card in cards if card is not None)


def build_packet(
    text: str, options: NarrowOptions, *, rounds: int = MAX_REINJECTIONS, parent: str | None = None
) -> Packet:
    """Build the packet of a request. It holds text only, so that the journal contains no images."""
    return Packet.start(
        text,
        session_id=options.conversation,
        caller=options.caller,
        parent_id=parent,
        history=tuple(to_text_only(message) for message in options.history or ()),
        max_reinjections=rounds,
    )


def _build_events(
    packet: Packet, narrowing: Narrowing, tokens_all: int, tokens_offered: int, arms: Mapping[str, str]
) -> tuple[PacketEvent, ...]:
    best = narrowing.signals.intents[:1]
    intent = Intent(
        name="tool_routing" if narrowing.need.verdict is not NeedVerdict.NONE else "answer",
        confidence=narrowing.need.score,
        reasons=(*narrowing.need.reasons, *(f"about {match.category}" for match in best)),
    )
    offered = tuple(candidate.tool for candidate in narrowing.shortlist.offered)
    needs = _NEEDS_TOOL_BY_VERDICT[narrowing.need.verdict]
    return (
        IntentDetected(packet_id=packet.packet_id, intent=intent, needs_tool=needs),
        RequestNarrowed(
            packet_id=packet.packet_id,
            narrowing=narrowing,
            tokens_all=tokens_all,
            tokens_offered=tokens_offered,
            arms=dict(arms),
        ),
        ToolsOffered(packet_id=packet.packet_id, tools=offered),
    )


class AskedModel:
    """Adapts a function that asks a model to the `ChatModel` interface."""

    def __init__(self, name: str, ask: Ask) -> None:
        self.name = name
        self._ask = ask

    async def complete(self, request: ModelRequest, *, on_text: OnText | None = None) -> ModelReply:
        return await self._ask(request)


def _build_lite_model(pool: ModelPool) -> AskedModel:
    """Return the light model of the pool, or its fallback."""
    return AskedModel(pool.name(Role.LITE) or "", lambda request: pool.ask(Role.LITE, request))


def drop_unneeded(narrowing: Narrowing) -> Narrowing:
    """Offer no tools if the request needs none. The candidates are kept for inspection."""
    if narrowing.need.verdict is not NeedVerdict.NONE:
        return narrowing
    lost = "the request needs no tool"
    found = narrowing.shortlist.candidates
    candidates = tuple(replace(one, offered=False, lost=lost) if one.offered else one for one in found)
    return replace(narrowing, shortlist=replace(narrowing.shortlist, candidates=candidates))

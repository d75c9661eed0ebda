"""Narrowing for one router: policy, server health, learned data and the model that chooses servers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

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
    prepare_records,
)
from fingerpost.llm import Ask, ChatModel, ModelPool, ModelReply, ModelRequest, OnText, Role
from fingerpost.llm.content import to_text_only
from fingerpost.narrow.gloss.gloss import gloss_text
from fingerpost.narrow.need.rules import MAX_SMALL_TALK_LENGTH, SURELY_NOT_SCORE, find_small_talk
from fingerpost.narrow.request import NarrowRequest
from fingerpost.narrow.scorer import Scorer
from fingerpost.narrow.server_picker import DefinitionCosts, RecentRoutingStats, ServerPicker, adapt_settings
from fingerpost.narrow.server_prompt import read_template
from fingerpost.narrow.signals.reader import detect_language
from fingerpost.policy.visibility import VisibilityCache, VisibleCatalog
from fingerpost.records import (
    MAX_REINJECTIONS,
    Effort,
    Intent,
    Message,
    Narrowing,
    Need,
    NeedVerdict,
    Packet,
    ServerChoice,
    Shortlist,
    Signals,
)
from fingerpost.regex import compile_prepared
from fingerpost.router.options import NarrowOptions, RuntimeSwitches
from fingerpost.settings import Settings, SmartRoutingSettings
from fingerpost.settings.validation import apply_arms, assign_arms
from fingerpost.store import Store

if TYPE_CHECKING:
    from fingerpost.router.request_ranker import RequestRanker

_NEEDS_TOOL_BY_VERDICT: Final = {NeedVerdict.TOOL: True, NeedVerdict.NONE: False, NeedVerdict.UNCLEAR: None}


# Their records are made by every request.
_MODULES_OF_REQUESTS: Final = (
    "fingerpost.choose.keyless.arguments",
    "fingerpost.choose.keyless.choice",
    "fingerpost.choose.keyless.parameters",
    "fingerpost.choose.keyless.values",
    "fingerpost.events.packet",
    "fingerpost.events.route",
    "fingerpost.records.calls",
    "fingerpost.records.packet",
    "fingerpost.records.shortlist",
    "fingerpost.router.options",
    "fingerpost.router.route",
)


class RequestNarrower:
    """Narrows requests; one per router, used from the event loop.

    The constructor reads files, so it is called in a worker thread. What ranks tools is loaded with the first
    request that is no small talk.
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
        self._settings = settings
        self._events = events
        self._store = store
        self._get_unusable = get_unusable
        self.get_absent = get_absent  # servers that are not connected, each with the reason
        self._visibility = visibility or VisibilityCache(settings.policy)
        lite = None if pool is None or not pool.ready else _build_lite_model(pool)

        def build_ranker() -> RequestRanker:
            from fingerpost.router.request_ranker import RequestRanker  # loads numpy

            return RequestRanker(
                settings,
                store,
                tasks=tasks,
                scorers=scorers,
                lite=lite,
                encoder_idle_seconds=encoder_idle_seconds,
            )

        self._build_ranker = build_ranker
        self._ranker: RequestRanker | None = None
        self._ranker_lock = anyio.Lock()
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

    async def _get_ranker(self) -> RequestRanker:
        async with self._ranker_lock:
            if self._ranker is None:
                self._ranker = await anyio.to_thread.run_sync(self._build_ranker)
        return self._ranker

    def mark_stale(self, *, at_once: bool = False) -> None:
        """Mark the learned data as out of date. With `at_once`, the next request waits for the refresh."""
        if self._ranker is not None:
            self._ranker.learned.mark_stale(at_once=at_once)

    async def read_signals(self, text: str) -> Signals:
        """Return the signals found in a text."""
        return await anyio.to_thread.run_sync((await self._get_ranker()).narrower.read_signals, text)

    async def wait_until_indexed(self, snapshot: Snapshot, seconds: float) -> bool:
        """Wait until every tool can be compared by meaning. Return whether this happened within `seconds`."""
        narrower = (await self._get_ranker()).narrower

        def work() -> bool:
            narrower.prepare(snapshot)
            return narrower.wait_until_ready(seconds)

        return await anyio.to_thread.run_sync(work)

    async def warm_up(self, snapshot: Snapshot, seconds: float) -> None:
        """Load the encoder and the vectors of all tools, and narrow once without recording it."""
        await anyio.to_thread.run_sync(compile_prepared)
        await anyio.to_thread.run_sync(prepare_records, *_MODULES_OF_REQUESTS)
        await self.wait_until_indexed(snapshot, seconds)
        options = NarrowOptions(ask_model=False)
        await self.narrow_packet(snapshot, build_packet("What time is it?", options), options)

    async def close(self) -> None:
        """Stop background tasks."""
        if self._ranker is not None:
            await anyio.to_thread.run_sync(self._ranker.close)

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
        compare_small_talk: bool = True,
    ) -> tuple[Narrowing, tuple[PacketEvent, ...]]:
        """Narrow for a packet of a run. Return the result and the events to record.

        `text` replaces the request if only a part of it is left. `model` chooses servers, if one is asked.
        `widened`: a model used none of the offered tools, so more servers are included. `arms` are the run's.
        A request that needs no tool is offered none below `min_fit`, also where tools were asked for. Without
        `compare_small_talk`, a greeting or thanks has no candidates, and nothing is loaded for it.
        """
        if arms is None:
            arms = assign_arms(self._settings.rollout, options.conversation or packet.packet_id)
        settings = apply_arms(self._settings, arms)
        view = await self.find_visible(snapshot, options)
        may_drop = settings.flags.need_gate and (not options.asked_for_tools or min_fit > 0)
        if may_drop and text is None and not compare_small_talk:
            asked, history = packet.content.original_prompt, packet.context.history
            found = await anyio.to_thread.run_sync(self._read_small_talk, asked, history, view.visible)
            if found is not None:
                shortlist = Shortlist(needs=(asked,), catalog_version=snapshot.version)
                talk = Narrowing(
                    signals=found[0], need=found[1], shortlist=shortlist, packet_id=packet.packet_id
                )
                return talk, _build_events(
                    packet, talk, *await self._count_tokens(snapshot, view, talk), arms
                )
        ranker = await self._get_ranker()
        await ranker.refresh()
        if self._settings.flags.adaptive_thresholds:
            await self._routing_stats.refresh()
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
        narrowing = await ranker.narrower.narrow_snapshot(snapshot, replace(request, servers=choice))
        narrowing = replace(narrowing, packet_id=packet.packet_id)
        if gate or (settings.flags.need_gate and narrowing.shortlist.fit < min_fit):
            narrowing = drop_unneeded(narrowing)
        return narrowing, _build_events(
            packet, narrowing, *await self._count_tokens(snapshot, view, narrowing), arms
        )

    async def is_small_talk(self, snapshot: Snapshot, text: str) -> bool:
        """Return whether a request without a conversation is compared with no tool."""
        has_gate = self._settings.flags.need_gate
        return (
            has_gate and await anyio.to_thread.run_sync(self._read_small_talk, text, (), snapshot) is not None
        )

    def _read_small_talk(
        self, text: str, history: Sequence[Message], snapshot: Snapshot
    ) -> tuple[Signals, Need] | None:
        """Return the signals and the need of a greeting or thanks that names no tool."""
        if len(text) > MAX_SMALL_TALK_LENGTH or self._settings.narrow.none_below < SURELY_NOT_SCORE:
            return None
        language = detect_language(text)
        signals = Signals(language=language, gloss=gloss_text(text, language))
        if (finding := find_small_talk(text, signals, history, snapshot.cards)) is None:
            return None
        return signals, Need(
            verdict=NeedVerdict.NONE, score=finding.score, reasons=(finding.reason,), certain=True
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
        server, flags = options.server, self._settings.flags
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
            person=options.caller if flags.learn_from_feedback or flags.preferences else None,
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
        narrower = (await self._get_ranker()).narrower
        signals = await self.read_signals(request.text)
        new = not self._picker.has_chosen(request.conversation, caller=request.caller)
        if gate and new and await anyio.to_thread.run_sync(narrower.is_tool_unneeded, request, signals):
            return None  # a greeting needs no servers

        def scores() -> Mapping[str, Sequence[float]]:
            narrower.prepare(snapshot)
            return narrower.score_servers(request, signals)

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
        flags = self._settings.flags
        if not (flags.decision_cache or flags.learn_from_feedback):
            return frozenset(), frozenset()
        ranker = await self._get_ranker()
        remembered, corrected = await anyio.to_thread.run_sync(
            partial(ranker.find_known_tools, request, signals, new=new)
        )
        return _get_servers(remembered, view) - request.health.keys(), _get_servers(corrected, view)


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

"""Narrowing in this house: what policy hides, which servers are well, what was learned, whom to ask.

`Narrower` ranks tools and knows nothing of the world; here it is told about it.
Everything this module needs is heavy to load, so the router loads it when the
first request is narrowed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final, Unpack

import anyio.to_thread

from fingerpost.catalog import Snapshot
from fingerpost.events import Fanout, IntentDetected, PacketReceived, RequestNarrowed, ToolsOffered
from fingerpost.llm import ChatModel, OpenAIChat
from fingerpost.narrow.experience import Experience
from fingerpost.narrow.narrower import Narrower
from fingerpost.narrow.parts import shipped
from fingerpost.narrow.preselection import ServerPicker, read_template
from fingerpost.narrow.request import NarrowRequest
from fingerpost.records import (
    Intent,
    Narrowing,
    NeedVerdict,
    Packet,
    ServerChoice,
)
from fingerpost.router.sight import Sight, View
from fingerpost.router.wanted import Wanted
from fingerpost.settings import Settings
from fingerpost.store import Store

LEARN_AGAIN_S: Final = 5.0
_NEEDS: Final = {NeedVerdict.TOOL: True, NeedVerdict.NONE: False, NeedVerdict.UNCLEAR: None}


class Guide:
    """Answers questions; one per router, used from the event loop.

    Making one reads files and loads heavy libraries, so it is made in a worker thread.
    """

    def __init__(
        self,
        settings: Settings,
        events: Fanout,
        store: Store,
        *,
        unusable: Callable[[], Mapping[str, str]],
        model: ChatModel | None = None,
    ) -> None:
        self._settings = settings
        self._events = events
        self._store = store
        self._unusable = unusable
        self._sight = Sight(settings.policy)
        self._experience = Experience()
        self._narrower = Narrower(settings, parts=shipped(settings, learned=self._experience))
        lite = settings.models.lite
        self._own_model = OpenAIChat(lite) if lite is not None and model is None else None
        self._picker = ServerPicker(
            settings.smart_routing,
            events,
            model=model or self._own_model,
            template=read_template(settings.smart_routing),
        )
        self._stale = True
        self._learned_at = -LEARN_AGAIN_S

    def learned_something(self) -> None:
        """A choice was recorded: what is known is out of date."""
        self._stale = True

    async def settle(self, snapshot: Snapshot, seconds: float) -> bool:
        """Wait, at most so long, until every tool can be compared by meaning."""

        def work() -> bool:
            self._narrower.prepare(snapshot)
            return self._narrower.settle(seconds)

        return await anyio.to_thread.run_sync(work)

    async def close(self) -> None:
        """Stop what runs in the background; a model that was given stays open."""
        await anyio.to_thread.run_sync(self._narrower.close)
        if self._own_model is not None:
            await self._own_model.aclose()

    async def narrow(self, snapshot: Snapshot, text: str, **wanted: Unpack[Wanted]) -> Narrowing:
        """The whole answer; the journal of a new packet tells it too."""
        packet = Packet.start(
            text,
            session_id=wanted.get("conversation"),
            caller=wanted.get("caller"),
            history=wanted.get("history", ()),
        )
        self._events.emit(PacketReceived.of(packet))
        await self._learn()
        view = await anyio.to_thread.run_sync(
            self._sight.of, snapshot, wanted.get("caller"), wanted.get("profile")
        )
        request = self._request(snapshot, packet, view, wanted)
        choice = await self._servers(snapshot, request, view, packet.packet_id)
        narrowing = await self._narrower.look(snapshot, replace(request, servers=choice))
        narrowing = replace(narrowing, packet_id=packet.packet_id)
        if self._settings.flags.need_gate and not wanted.get("asked_for_tools", False):
            narrowing = gated(narrowing)
        self._tell(packet, narrowing)
        return narrowing

    def _request(self, snapshot: Snapshot, packet: Packet, view: View, wanted: Wanted) -> NarrowRequest:
        server = wanted.get("server")
        scope = None if server is None else frozenset(card.key for card in snapshot.by_server(server))
        return NarrowRequest(
            text=packet.content.original_prompt,
            history=packet.context.history,
            conversation=wanted.get("conversation"),
            caller=wanted.get("caller"),
            profile=wanted.get("profile"),
            allowed=scope,
            hidden=view.hidden,
            max_tools=wanted.get("max_tools"),
            health=self._unusable(),
            used=wanted.get("used", ()),
            about=wanted.get("about"),
        )

    async def _servers(
        self, snapshot: Snapshot, request: NarrowRequest, view: View, packet_id: str
    ) -> ServerChoice | None:
        """The servers of the conversation; None where there is nothing to choose."""
        if request.allowed is not None or not self._picker.is_on(len(view.visible.cards), view.servers):
            return None
        signals = await anyio.to_thread.run_sync(self._narrower.read, request.text)

        def scores() -> Mapping[str, Sequence[float]]:
            self._narrower.prepare(snapshot)
            return self._narrower.by_server(request, signals)

        return await self._picker.choose(
            request.text,
            request.history,
            request.conversation,
            view.visible,
            scores,
            packet_id,
            signals=signals,
        )

    async def _learn(self) -> None:
        """Take in what the store remembers, when there is something new and not at every request."""
        if not self._settings.flags.learned_use:
            return
        if not self._stale or time.monotonic() - self._learned_at < LEARN_AGAIN_S:
            return
        self._stale, self._learned_at = False, time.monotonic()
        choices = await self._store.choices.recent()
        followings = await self._store.choices.followers()
        await anyio.to_thread.run_sync(self._experience.learn, choices, followings)
        self._narrower.forget()

    def _tell(self, packet: Packet, narrowing: Narrowing) -> None:
        best = narrowing.signals.intents[:1]
        intent = Intent(
            name="tool_routing" if narrowing.need.verdict is not NeedVerdict.NONE else "answer",
            confidence=narrowing.need.score,
            reasons=(*narrowing.need.reasons, *(f"about {match.category}" for match in best)),
        )
        offered = tuple(candidate.tool for candidate in narrowing.shortlist.offered)
        needs = _NEEDS[narrowing.need.verdict]
        self._events.emit(IntentDetected(packet_id=packet.packet_id, intent=intent, needs_tool=needs))
        self._events.emit(RequestNarrowed(packet_id=packet.packet_id, narrowing=narrowing))
        self._events.emit(ToolsOffered(packet_id=packet.packet_id, tools=offered))


def gated(narrowing: Narrowing) -> Narrowing:
    """Nothing is offered for a request that needs no tool; what was found stays to be looked at."""
    if narrowing.need.verdict is not NeedVerdict.NONE:
        return narrowing
    candidates = tuple(
        replace(candidate, offered=False, lost="the request needs no tool")
        if candidate.offered
        else candidate
        for candidate in narrowing.shortlist.candidates
    )
    return replace(narrowing, shortlist=replace(narrowing.shortlist, candidates=candidates))

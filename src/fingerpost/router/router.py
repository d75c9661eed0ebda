"""The whole pipeline on one page.

Servers report listings, the catalog turns them into cards, the guide narrows them
for a request, the call path runs what is asked for, pins and facts go to the
store. Choosing joins here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Self, Unpack

import anyio
import anyio.to_thread

from fingerpost.call.execution import Background, BreakerState
from fingerpost.call.lessons import lesson
from fingerpost.call.path import CallPath
from fingerpost.catalog import Catalog, Snapshot
from fingerpost.errors import StoreUnavailable, UnknownServer
from fingerpost.events import EventSink, Fanout, LiveFeed
from fingerpost.records import (
    CallContext,
    JsonObject,
    Listing,
    Narrowing,
    Outcome,
    Pin,
    ServerSpec,
    ServerState,
    ServerStatus,
    ToolCall,
    new_id,
    utc_now,
)
from fingerpost.router.wanted import Circumstances, Wanted
from fingerpost.servers import Servers, login
from fingerpost.settings import Settings
from fingerpost.store import Store

if TYPE_CHECKING:
    from fingerpost.llm import ChatModel
    from fingerpost.router.guide import Guide

log = logging.getLogger("fingerpost.router")

SAVE_AGAIN_S = 1.0


class Router:
    """Everything Fingerpost knows and holds open, between `async with` and its end.

    Nothing connects until `connect` is called or a tool of that server is needed.
    """

    def __init__(
        self,
        servers: Iterable[ServerSpec] = (),
        *,
        settings: Settings | None = None,
        sinks: Iterable[EventSink] = (),
        model: ChatModel | None = None,
    ) -> None:
        self.settings = settings or Settings()
        self._model = model
        self._guide: Guide | None = None
        self._making_guide = anyio.Lock()
        self.live = LiveFeed()
        self.events = Fanout(self.live, *sinks)
        self.catalog = Catalog(events=self.events, overrides=self.settings.tools, flags=self.settings.flags)
        self._specs = tuple(servers)
        self._stack = AsyncExitStack()
        self._taken: dict[str, Listing] = {}
        self._unsaved = anyio.Event()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            self.store = await stack.enter_async_context(
                Store.open(
                    self.settings.store.url,
                    flush_ms=self.settings.store.flush_ms,
                    audit=self.settings.flags.audit,
                )
            )
            self.events.add(self.store.journal)
            self.catalog.use_pins(await self.store.pins.all())
            self.catalog.learn(await self.store.usage.profiles())
            stack.push_async_callback(self._save_pins)
            saving = await stack.enter_async_context(anyio.create_task_group())
            stack.callback(saving.cancel_scope.cancel)
            saving.start_soon(self._keep_saving)
            self.servers = await stack.enter_async_context(
                Servers(
                    self._specs,
                    events=self.events,
                    limits=self.settings.limits,
                    tokens=self.store.tokens,
                )
            )
            self.calls = CallPath(
                catalog=self.catalog,
                servers=self.servers,
                store=self.store,
                settings=self.settings,
                events=self.events,
            )
            stack.callback(self.servers.watch(self._take_listing))
            stack.push_async_callback(self._close_guide)
            self.background = await stack.enter_async_context(Background[Outcome]())
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._stack.__aexit__(exc_type, exc, traceback)

    async def connect(self, *names: str, timeout: float | None = None) -> tuple[ServerStatus, ...]:
        """Connect these servers (all when none is named), side by side, and say how each is doing.

        Returns when every one has come up or failed, or when `timeout` seconds have
        passed; whoever is still connecting goes on doing so.
        """
        self.servers.start(*names)
        await self.servers.settled(timeout=self._patience if timeout is None else timeout)
        return self.servers.statuses

    @property
    def _patience(self) -> float:
        """Each server is bounded by its own time-out; a little more lets the slowest report it."""
        return 5.0 + max((spec.connect_timeout for spec in self._specs), default=0.0)

    async def narrow(self, text: str, **wanted: Unpack[Wanted]) -> Narrowing:
        """Whether the request needs a tool at all, and which few suit it, with reasons for everything."""
        guide = await self._ready_guide()
        return await guide.narrow(self.tools, text, **wanted)

    async def settle(self, seconds: float) -> bool:
        """Wait, at most so long, until every tool can be compared by meaning and not by words alone."""
        guide = await self._ready_guide()
        return await guide.settle(self.tools, seconds)

    async def _ready_guide(self) -> Guide:
        """What narrows. Made when it is first needed: numpy and the encoder take time to load."""
        async with self._making_guide:
            if self._guide is None:
                self._guide = await anyio.to_thread.run_sync(self._make_guide)
        return self._guide

    def _make_guide(self) -> Guide:
        from fingerpost.router.guide import Guide

        return Guide(
            self.settings, self.events, self.store, unusable=self._unusable_servers, model=self._model
        )

    async def _close_guide(self) -> None:
        if self._guide is not None:
            await self._guide.close()

    def _unusable_servers(self) -> dict[str, str]:
        """Servers whose tools cannot be called now, each with the reason."""
        reasons = {
            status.name: status.reason or "it is down"
            for status in self.servers.statuses
            if status.state is ServerState.DOWN
        }
        for server, breaker in self.calls.runner.breakers.items():
            if breaker.state is BreakerState.OPEN:
                reasons.setdefault(server, f"it failed too often: {breaker.reason}")
        return reasons

    async def call(self, name: str, arguments: JsonObject, **context: Unpack[Circumstances]) -> Outcome:
        """Call a tool through the whole path. Whatever happens comes back as an `Outcome`.

        A call that needs a person comes back with a `pending_id`; after
        `router.calls.decide`, `router.calls.resume` goes on with it.
        """
        wish = ToolCall(name=name, arguments=arguments)
        outcome = await self.calls.call(wish, CallContext(call_id=new_id("cal"), **context))
        self._learn_from(outcome, context)
        return outcome

    def _learn_from(self, outcome: Outcome, context: Circumstances) -> None:
        """Remember whether the tool was the right one for the request it was called for."""
        if not self.settings.flags.learned_use:
            return
        learned = lesson(
            context.get("request", ""), outcome, at=utc_now(), conversation=context.get("conversation")
        )
        if learned is not None:
            self.store.choices.note(learned)
            if self._guide is not None:
                self._guide.learned_something()

    def start(self, name: str, arguments: JsonObject, **context: Unpack[Circumstances]) -> str:
        """The same in the background: a handle for `router.background`'s poll, result and cancel."""
        return self.background.start(lambda _: self.call(name, arguments, **context), tool=name)

    async def sign_in(self, server: str, *, open_browser: Callable[[str], None]) -> ServerStatus:
        """Sign in to a server with OAuth, keep the token, and connect."""
        spec = next((spec for spec in self._specs if spec.name == server), None)
        if spec is None:
            return self.servers.status(server)  # raises, naming the servers that are meant perhaps
        await login(spec, self.store.tokens, open_browser=open_browser)
        await self.servers.ensure(server, timeout=spec.connect_timeout)
        return self.servers.status(server)

    @property
    def tools(self) -> Snapshot:
        """Every tool there is right now; the view does not change under its reader."""
        return self.catalog.snapshot

    async def accept(self, key: str, *, by: str, fingerprint: str) -> Pin:
        """A person accepts the changed definition of a quarantined tool; it is offered again.

        `fingerprint` is of the definition they were shown: one that changed once more is refused.
        """
        pin = self.catalog.accept(key, by, fingerprint=fingerprint)
        await self.store.pins.put(pin)
        await self.store.journal.flush()
        return pin

    def _take_listing(self, server: str) -> None:
        """A server changed. Its last tools stay while it is down: it comes back, and lists stay stable."""
        try:
            listing = self.servers.listing(server)
        except UnknownServer:
            self._taken.pop(server, None)
            self.catalog.remove_server(server)
            return
        if self.servers.status(server).state in (ServerState.READY, ServerState.DEGRADED):
            self.calls.runner.reconnected(server)
        if listing is not None and listing is not self._taken.get(server):
            self._taken[server] = listing
            self.catalog.replace_server(listing)
            self._unsaved.set()

    async def _keep_saving(self) -> None:
        while True:
            await self._unsaved.wait()
            self._unsaved = anyio.Event()
            if not await self._save_pins():
                self._unsaved.set()
                await anyio.sleep(SAVE_AGAIN_S)

    async def _save_pins(self) -> bool:
        """Whether nothing is left to save. A store that cannot write now may do so later: pins wait."""
        pins = self.catalog.take_new_pins()
        try:
            await self.store.pins.put(*pins)
        except BaseException as failure:
            self.catalog.return_new_pins(pins)
            if not isinstance(failure, StoreUnavailable):
                raise
            log.warning("%d new pins are not stored yet: %s", len(pins), failure)
            return False
        return True

"""One server, kept connected: connect, list, serve until lost, wait, again.

Everything that happens to a server happens in its one task, so its states
follow each other in order and no other server ever waits for it.
"""

from __future__ import annotations

import logging
import math
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import cast

import anyio
from anyio.abc import TaskGroup
from mcp.client.subscriptions import SubscriptionLost
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import SUBSCRIPTION_ID_META_KEY

from fingerpost.errors import FingerpostError, ServerUnavailable
from fingerpost.events import EventSink, ToolDropped
from fingerpost.frozen import frozen
from fingerpost.records import JsonObject, Listing, ServerSpec, ServerState
from fingerpost.servers.backoff import Backoff, wait_before
from fingerpost.servers.caller import Passage
from fingerpost.servers.connection import Connection
from fingerpost.servers.failures import (
    Broken,
    SessionLost,
    from_exception,
    is_loss,
    needs_callers_key,
    setback_of,
)
from fingerpost.servers.heartbeat import keep_probing
from fingerpost.servers.isolated import Isolated
from fingerpost.servers.lifeline import STRAYS_HINT, Lifeline, Pace, Setback
from fingerpost.servers.materials import CHANGED, Kind, Shelf
from fingerpost.servers.oauth import stored_sign_in
from fingerpost.servers.opening import Surroundings, open_connection
from fingerpost.servers.own_era import OwnEra
from fingerpost.servers.own_lists import CONNECT_NOTE, NOTE, REFUSALS, OwnLists
from fingerpost.servers.ring import Ring
from fingerpost.servers.standing import Standing, flaw_of
from fingerpost.servers.watches import Watches
from fingerpost.tasks import kept_up

logger = logging.getLogger("fingerpost.servers")

DEBOUNCE_SECONDS = 0.1  # a server that adds ten tools says so ten times
SUBSCRIBE_SECONDS = 0.5  # a slow subscription does not delay readiness; the list is then read twice
DROPPED_EVENTS = 100  # of one listing; the status counts them all
LOOK_NOW_SECONDS = 5.0  # after which a list is read again when something is asked for that is not in it
SECONDS_PER_TOOL = 0.01  # a long list is read again less often
KEYED_SECONDS = 300.0  # after which a server that wants callers' keys is tried without one again
WANTS_TLS = "if the server wants TLS, use https:// in its url"
ANNOUNCED = ("tools", "prompts", "resources")


@frozen
class Shared:
    """What all servers of a pool share."""

    events: EventSink
    around: Surroundings
    changed: Callable[[str], None]
    heard: Callable[[str, str, JsonObject, str | None], None]
    study: Callable[[Listing], Awaitable[None]]  # before a listing is shown


class Supervisor:
    """Keeps one server connected, and knows how it is doing."""

    def __init__(self, spec: ServerSpec, shared: Shared) -> None:
        self.spec = spec
        self._shared = shared
        self._limits = limits = shared.around.limits
        self._stderr = Ring(limits.stderr_bytes)
        self.standing = Standing(spec, self._stderr, events=shared.events, changed=shared.changed)
        self.listing: Listing | None = None
        self.shelf = Shelf(spec.name, limits, self._materials_changed)
        self.watches = Watches(spec.name, reconnect_max=limits.reconnect_max)
        self.isolated = Isolated(spec, shared.around, self._hear)
        self.own_era = OwnEra(spec, shared.around)
        self._own_lists = OwnLists()
        self._common = Listing(server=spec.name)  # what it lists without a caller's key
        self._refused = False  # to list without one
        self.keyed = False  # it refuses to connect without a caller's key
        self._by_key = Isolated(spec, replace(shared.around, tokens=None), self._hear)
        self.connection: Connection | None = None
        self.started = False
        self.shut = False  # switched off by a person while we run
        self._forgotten = False  # the last connection ended because the server did not know it any more
        self._stale = anyio.Event()
        self._list_begun = False
        self._listing_lock = anyio.Lock()
        self._listed_at = -math.inf

    async def until_settled(self) -> None:
        """Return when the server can be asked, or is known to be down or disabled."""
        while not self.askable and self.standing.state not in (ServerState.DOWN, ServerState.DISABLED):
            await self.standing.moved()

    def let_callers_go(self) -> None:
        """End the connections that are single callers' own."""
        self.isolated.close()
        self.own_era.close()
        self._by_key.close()

    def rest(self) -> None:
        """Its task was ended: it may be started again."""
        self.connection = None
        self.started = False
        self.keyed = False

    @property
    def usable(self) -> bool:
        """Whether there is a connection of which nobody knows yet that it is over."""
        return self.connection is not None and self.connection.lifeline.setback is None

    @property
    def askable(self) -> bool:
        """Whether requests can be sent: on the shared connection, or on one with the caller's own key."""
        return self.usable or self.keyed

    def unavailable(self) -> ServerUnavailable:
        """Why nothing can be asked of it now."""
        error = self.standing.unavailable()
        if self._forgotten and self.standing.state is ServerState.DOWN:
            return SessionLost(str(error), server=self.spec.name, hint=error.hint)
        return error

    @property
    def tool_count(self) -> int:
        """How many tools it listed last."""
        return len(self.listing.definitions) if self.listing is not None else 0

    # -- the task -----------------------------------------------------------------------------------

    async def run(self) -> None:
        """Keep the server connected until this task is cancelled."""
        backoff = Backoff(longest=self._limits.reconnect_max)
        reason: str | None = None
        while True:
            began = anyio.current_time()
            if not self.keyed:
                self.standing.move(ServerState.CONNECTING, reason, attempts=backoff.failures)
            setback = await self._attempt()
            self.connection = None
            self.own_era.close()
            if setback.refused and await self._may_connect_with_keys():
                self._expect_keys()
                await anyio.sleep(KEYED_SECONDS)
                continue
            self.keyed = False
            delay = backoff.after(setback.pace, began=began, now=anyio.current_time())
            reason = setback.reason
            self._forgotten = setback.pace is Pace.NOW
            if delay > 0:
                self.standing.move(
                    ServerState.DOWN, reason, hint=setback.hint, retry_in=delay, attempts=backoff.failures
                )
                await anyio.sleep(delay)

    async def _may_connect_with_keys(self) -> bool:
        """Whether a refusal to connect means that a caller's key is wanted, and not that ours is wrong."""
        signed_in = await stored_sign_in(self.spec, self._shared.around.tokens)
        return self.spec.forward_authorization and not self._has_own_key and signed_in is None

    def _expect_keys(self) -> None:
        """From here on it is connected for each caller who brings a key, with that key."""
        if not self.keyed:
            self.keyed = True
            self._common = Listing(server=self.spec.name, prefix=self.spec.prefix)
            self._take(self._common)
        self.standing.move(ServerState.READY, CONNECT_NOTE)

    @asynccontextmanager
    async def with_key(self, passage: Passage | None, tasks: TaskGroup) -> AsyncGenerator[Connection]:
        """The connection that was opened with this caller's own key. Raises our errors."""
        caller = None if passage is None else passage.caller
        given = caller or passage
        key = None if given is None else given.authorization
        if key is None:
            raise needs_callers_key(self.spec.name)
        session = caller.key if caller is not None and self.spec.isolate else ""
        name = self._own_lists.connection_key(key, session)
        headers = {"Authorization": key}
        async with self._by_key.use(name, tasks, self.listing, headers) as connection:
            yield connection

    async def _attempt(self) -> Setback:
        """One connection from its first byte to its end. Returns why it ended."""
        lifeline = Lifeline(self.spec.name, stderr=self._stderr)
        began = anyio.current_time()
        seconds = self.spec.connect_timeout
        with anyio.CancelScope(deadline=began + seconds) as patience:
            try:
                async with open_connection(
                    self.spec, self._shared.around, lifeline=lifeline, outside=self._hear
                ) as connection:
                    async with anyio.create_task_group() as tasks:
                        await self._hear_of_changes(connection, tasks)
                        await self._first_listing(connection)
                        patience.deadline = math.inf
                        self._go_up(connection, milliseconds=(anyio.current_time() - began) * 1000)
                        await self._serve(connection, tasks)
                    return lifeline.setback or Setback(reason="the connection ended")
            except Exception as error:  # noqa: BLE001 - whatever a server or the library does to us ends here
                return self._explain(error, lifeline)
        hint = "give it a longer connect_timeout if it is only slow"
        if lifeline.strays:
            reason = f"no answer within {seconds:g} s{lifeline.strays_told()}"
            return Setback(reason=reason, hint=f"{STRAYS_HINT}; {hint}")
        return Setback(reason=f"no answer within {seconds:g} s{self.standing.last_words()}", hint=hint)

    def _explain(self, error: Exception, lifeline: Lifeline) -> Setback:
        if lifeline.setback is not None:
            return lifeline.setback
        known = from_exception(self.spec.name, error)
        logger.debug("%s: connection failed", self.spec.name, exc_info=error)
        setback = setback_of(known, cause=error)
        if isinstance(known, Broken) and known.mute and (self.spec.url or "").startswith("http://"):
            return replace(setback, hint=WANTS_TLS)
        return setback

    # -- being up -----------------------------------------------------------------------------------

    async def _hear_of_changes(self, connection: Connection, tasks: TaskGroup) -> None:
        """Modern era: subscribe before listing, so that no change falls between the two."""
        self._list_begun = False
        if connection.modern and any(map(connection.announces, ANNOUNCED)):
            subscribed = anyio.Event()
            tasks.start_soon(kept_up, self._listen, connection, subscribed)
            with anyio.move_on_after(SUBSCRIBE_SECONDS):
                await subscribed.wait()

    async def _first_listing(self, connection: Connection) -> None:
        """List before announcing readiness. A list that cannot be read is a flaw, not the end."""
        self._stale = anyio.Event()
        self._list_begun = True
        try:
            self._take(await self._list(connection))
        except FingerpostError as error:
            if is_loss(error):
                raise
            self._take(Listing(server=self.spec.name, truncated=f"the tools could not be listed: {error}"))
            self._stale.set()

    async def _list(self, connection: Connection) -> Listing:
        try:
            common = await connection.list_tools()
            self._refused = False
        except REFUSALS:
            if not self._may_want_own_keys or connection.lifeline.setback is not None:
                raise
            self._refused = True
            common = Listing(server=self.spec.name, prefix=self.spec.prefix)
        self._listed_at = anyio.current_time()
        self._common = common
        return await self._with_own_lists(connection)

    async def _with_own_lists(self, connection: Connection | None) -> Listing:
        """What it lists to all, and to callers with a key of their own."""
        if not self.wants_own_keys:
            await self._shared.study(self._common)
            return self._common
        listing = self._own_lists.added_to(self._common, most=self._limits.tools_per_server)
        if connection is not None:
            connection.mirror(listing)
        await self._shared.study(listing)
        return listing

    @property
    def _may_want_own_keys(self) -> bool:
        """Whether a refusal to list means that a caller's key is wanted, and not that ours is wrong."""
        return self.wants_own_keys and not self._has_own_key

    @property
    def _has_own_key(self) -> bool:
        return any(name.casefold() == "authorization" for name in self.spec.headers)

    @property
    def wants_own_keys(self) -> bool:
        """Whether callers' own keys go to this server and it lists nothing without one."""
        return self.spec.forward_authorization and not self._common.definitions

    async def own_tools(
        self, caller: str, authorization: str, tasks: TaskGroup, *, timeout: float
    ) -> frozenset[str]:
        """The names of the tools it lists to this caller's own key; they are in the listing then."""
        connection = self.connection
        if connection is not None:
            ask = partial(connection.list_tools_with, authorization)
        else:
            ask = partial(self._list_with_key, Passage(authorization=authorization), tasks)
        if await self._own_lists.read(caller, authorization, ask, seconds=timeout):
            async with self._listing_lock:
                self._take(await self._with_own_lists(connection))
        return self._own_lists.names(caller, authorization, self.listing or self._common)

    async def _list_with_key(self, passage: Passage, tasks: TaskGroup) -> Listing:
        async with self.with_key(passage, tasks) as connection:
            return await connection.list_tools()

    def _go_up(self, connection: Connection, *, milliseconds: float) -> None:
        self.connection = connection
        self.keyed = False
        self._by_key.close()
        self.shelf.greet(connection)
        self.standing.note(protocol=connection.protocol, product=connection.product, connect_ms=milliseconds)
        self._show_listing()

    def _show_listing(self) -> None:
        reason = flaw_of(self.listing)
        if reason is None and self.wants_own_keys:
            self.standing.move(ServerState.READY, NOTE)
            return
        self.standing.move(ServerState.READY if reason is None else ServerState.DEGRADED, reason)

    async def _serve(self, connection: Connection, tasks: TaskGroup) -> None:
        # Each begins anew where it breaks: calls under way on this connection are not to suffer from it.
        tasks.start_soon(kept_up, self._follow_changes, connection)
        tasks.start_soon(kept_up, self.shelf.follow, connection)
        tasks.start_soon(kept_up, self.watches.follow, connection, tasks)
        if self.spec.transport in ("http", "sse"):
            tasks.start_soon(kept_up, keep_probing, connection)
        await connection.lifeline.ended.wait()
        self.connection = None
        await connection.last_answers()
        tasks.cancel_scope.cancel()

    async def _follow_changes(self, connection: Connection) -> None:
        """List again whenever the list is said to have changed."""
        failures = 0
        while True:
            await self._stale.wait()
            await anyio.sleep(DEBOUNCE_SECONDS)
            try:
                with anyio.fail_after(self.spec.connect_timeout):
                    await self.relist(connection)
                failures = 0
            except (FingerpostError, TimeoutError) as error:
                failures += 1
                self.standing.move(
                    ServerState.DEGRADED, f"the tools could not be listed again: {error or 'no answer'}"
                )
                self._stale.set()
                pause = wait_before(failures, pace=Pace.SOON, longest=self._limits.reconnect_max)
                await anyio.sleep(pause)

    async def relist(self, connection: Connection) -> None:
        """Read the list now and show what is in it."""
        async with self._listing_lock:
            if self._stale.is_set():
                self._stale = anyio.Event()
            self._take(await self._list(connection))
            self._show_listing()

    def look_again(self) -> None:
        """Somebody looks at the tools: have the list read anew, if it may have changed without a word."""
        if self._may_have_changed(self._limits.relist_seconds):
            self._stale.set()

    async def look_now(self) -> None:
        """Somebody asks for a tool that is not in the list: read it now, if it may be new."""
        seconds = min(LOOK_NOW_SECONDS, self._limits.relist_seconds)
        if self._may_have_changed(seconds) and self.connection is not None:
            with suppress(FingerpostError):
                await self.relist(self.connection)

    def _may_have_changed(self, seconds: float) -> bool:
        """A server that says when its list changes is believed; a long list is read less often."""
        if self.connection is None or (self.connection.announces("tools") and not self._refused):
            return False
        return anyio.current_time() - self._listed_at > max(seconds, SECONDS_PER_TOOL * self.tool_count)

    async def _listen(self, connection: Connection, subscribed: anyio.Event) -> None:
        """Hold a subscription open; after every break, subscribe and list again."""
        backoff = Backoff(longest=self._limits.reconnect_max)
        while True:
            began = anyio.current_time()
            try:
                async with connection.listen() as changes:
                    subscribed.set()
                    if self._list_begun:
                        self._mark_all_stale(connection)  # what changed before was not announced to us
                    async for _ in changes:
                        pass  # each is heard as a notification, too
            except (SubscriptionLost, MCPError, TimeoutError):
                connection.lifeline.doubt()
            await anyio.sleep(backoff.after(Pace.SOON, began=began, now=anyio.current_time()))

    # -- telling ------------------------------------------------------------------------------------

    def _hear(self, method: str, params: JsonObject, caller: str | None) -> None:
        """A notification that belongs to no request; for this caller alone where one is named."""
        if method == "notifications/tools/list_changed":
            self._stale.set()
        elif (kind := CHANGED.get(method)) is not None:
            self.shelf.mark(kind)
        else:
            self._shared.heard(self.spec.name, method, _without_our_id(params), caller)

    def _mark_all_stale(self, connection: Connection) -> None:
        self._stale.set()
        for kind in CHANGED.values():
            if kind in connection.capabilities:
                self.shelf.mark(kind)

    def _materials_changed(self, kind: Kind) -> None:
        self._shared.heard(self.spec.name, f"notifications/{kind}/list_changed", {}, None)

    def _take(self, listing: Listing) -> None:
        known = self.listing.dropped if self.listing is not None else ()
        for dropped in listing.dropped[:DROPPED_EVENTS]:
            if dropped not in known:
                self._shared.events.emit(
                    ToolDropped(server=dropped.server, tool=dropped.name, reason=dropped.reason)
                )
        changed = listing != self.listing
        self.listing = listing
        self.standing.note(tools=len(listing.definitions), dropped=len(listing.dropped))
        if changed:
            self._shared.changed(self.spec.name)


def _without_our_id(params: JsonObject) -> JsonObject:
    """A notification of a standing request names it; that name is ours and nobody else's."""
    meta = params.get("_meta")
    if not isinstance(meta, Mapping) or SUBSCRIPTION_ID_META_KEY not in meta:
        return params
    rest = {key: value for key, value in cast("JsonObject", meta).items() if key != SUBSCRIPTION_ID_META_KEY}
    kept = {key: value for key, value in params.items() if key != "_meta"}
    return {**kept, "_meta": rest} if rest else kept

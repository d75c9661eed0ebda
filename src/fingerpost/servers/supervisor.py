"""One server, kept connected: connect, list, serve until lost, wait, again.

Everything that happens to a server happens in its one task, so its states
follow each other in order and no other server ever waits for it.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import anyio
from anyio.abc import TaskGroup
from mcp.client.subscriptions import SubscriptionLost
from mcp.shared.exceptions import MCPError

from fingerpost.errors import FingerpostError, ServerUnavailable, ToolTimeout
from fingerpost.events import EventSink, ServerStateChanged, ToolDropped
from fingerpost.records import Listing, ServerSpec, ServerState, ServerStatus, utc_now
from fingerpost.redaction import scrub
from fingerpost.servers.backoff import wait_before
from fingerpost.servers.connection import Connection, open_connection
from fingerpost.servers.failures import from_exception, is_loss, setback_of
from fingerpost.servers.http import HttpStack
from fingerpost.servers.lifeline import Lifeline, Pace, Setback
from fingerpost.servers.oauth import TokenBook
from fingerpost.servers.ring import Ring
from fingerpost.settings.model import LimitSettings

logger = logging.getLogger("fingerpost.servers")

STEADY_SECONDS = 30.0  # a connection that held this long was a good one: waits start small again
HEARTBEAT_SECONDS = 15.0  # for servers at an address: a child's end is seen without asking
PROBE_TIMEOUT = 10.0
MISSED_PROBES = 2
DEBOUNCE_SECONDS = 0.1  # a server that adds ten tools says so ten times
SUBSCRIBE_SECONDS = 0.5  # a slow subscription does not delay readiness; the list is then read twice
DROPPED_EVENTS = 100  # of one listing; the status counts them all
STDERR_SHOWN = 2000

SETTLED = frozenset({ServerState.READY, ServerState.DEGRADED, ServerState.DOWN, ServerState.DISABLED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """What all servers of a pool share."""

    events: EventSink
    limits: LimitSettings
    http: HttpStack
    tokens: TokenBook | None
    changed: Callable[[str], None]


class Supervisor:
    """Keeps one server connected, and knows how it is doing."""

    def __init__(self, spec: ServerSpec, shared: Shared) -> None:
        self.spec = spec
        self._shared = shared
        self._stderr = Ring(shared.limits.stderr_bytes)
        self._status = ServerStatus(
            name=spec.name,
            transport=spec.transport,
            state=ServerState.IDLE if spec.enabled else ServerState.DISABLED,
            since=utc_now(),
        )
        self.listing: Listing | None = None
        self.connection: Connection | None = None
        self.started = False
        self.settled = anyio.Event()
        self._moved = anyio.Event()
        self._stale = anyio.Event()
        self._list_begun = False
        self._listing_lock = anyio.Lock()
        if not spec.enabled:
            self.settled.set()

    @property
    def status(self) -> ServerStatus:
        return replace(self._status, stderr_tail=scrub(self._stderr.text(STDERR_SHOWN)))

    @property
    def state(self) -> ServerState:
        return self._status.state

    async def until_settled(self) -> None:
        """Return when the server can be asked, or is known to be down or disabled."""
        while not self.usable and self.state not in (ServerState.DOWN, ServerState.DISABLED):
            await self._moved.wait()

    @property
    def usable(self) -> bool:
        """Whether there is a connection of which nobody knows yet that it is over."""
        return self.connection is not None and self.connection.lifeline.setback is None

    # -- the task -----------------------------------------------------------------------------------

    async def run(self) -> None:
        """Keep the server connected until this task is cancelled."""
        failures = 0
        reason: str | None = None
        while True:
            began = anyio.current_time()
            self._move(ServerState.CONNECTING, reason, attempts=failures)
            setback = await self._attempt()
            self.connection = None
            failures = 1 if anyio.current_time() - began >= STEADY_SECONDS else failures + 1
            delay = wait_before(failures, pace=setback.pace, longest=self._shared.limits.reconnect_max)
            reason = setback.reason
            if delay > 0:
                self._move(ServerState.DOWN, reason, hint=setback.hint, retry_in=delay, attempts=failures)
                await anyio.sleep(delay)

    async def _attempt(self) -> Setback:
        """One connection from its first byte to its end. Returns why it ended."""
        lifeline = Lifeline(self.spec.name, stderr=self._stderr)
        began = anyio.current_time()
        seconds = self.spec.connect_timeout
        with anyio.CancelScope(deadline=began + seconds) as patience:
            try:
                async with open_connection(
                    self.spec,
                    limits=self._shared.limits,
                    http=self._shared.http,
                    tokens=self._shared.tokens,
                    lifeline=lifeline,
                    on_list_changed=self._mark_stale,
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
        reason = f"no answer within {seconds:g} s" + self._last_words()
        return Setback(reason=reason, hint="give it a longer connect_timeout if it is only slow")

    def _explain(self, error: Exception, lifeline: Lifeline) -> Setback:
        if lifeline.setback is not None:
            return lifeline.setback
        known = from_exception(self.spec.name, error)
        logger.debug("%s: connection failed", self.spec.name, exc_info=error)
        return setback_of(known, cause=error)

    def _last_words(self) -> str:
        lines = self._stderr.text(STDERR_SHOWN).strip().splitlines()
        return f"; it last said: {scrub(lines[-1])[:200]}" if lines else ""

    # -- being up -----------------------------------------------------------------------------------

    async def _hear_of_changes(self, connection: Connection, tasks: TaskGroup) -> None:
        """Modern era: subscribe before listing, so that no change falls between the two."""
        self._list_begun = False
        if connection.modern and connection.announces_changes:
            subscribed = anyio.Event()
            tasks.start_soon(self._listen, connection, subscribed)
            with anyio.move_on_after(SUBSCRIBE_SECONDS):
                await subscribed.wait()

    async def _first_listing(self, connection: Connection) -> None:
        """List before announcing readiness. A list that cannot be read is a flaw, not the end."""
        self._stale = anyio.Event()
        self._list_begun = True
        try:
            self._take(await connection.list_tools())
        except FingerpostError as error:
            if is_loss(error):
                raise
            self._take(Listing(server=self.spec.name, truncated=f"the tools could not be listed: {error}"))
            self._stale.set()

    def _go_up(self, connection: Connection, *, milliseconds: float) -> None:
        self.connection = connection
        self._status = replace(
            self._status,
            protocol=connection.protocol,
            product=connection.product,
            connect_ms=milliseconds,
        )
        self._show_listing()

    def _show_listing(self) -> None:
        reason = _flaw(self.listing)
        self._move(ServerState.READY if reason is None else ServerState.DEGRADED, reason)

    async def _serve(self, connection: Connection, tasks: TaskGroup) -> None:
        tasks.start_soon(self._follow_changes, connection)
        if self.spec.transport in ("http", "sse"):
            tasks.start_soon(self._keep_probing, connection)
        await connection.lifeline.ended.wait()
        self.connection = None
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
                self._move(
                    ServerState.DEGRADED, f"the tools could not be listed again: {error or 'no answer'}"
                )
                self._stale.set()
                pause = wait_before(failures, pace=Pace.SOON, longest=self._shared.limits.reconnect_max)
                await anyio.sleep(pause)

    async def relist(self, connection: Connection) -> None:
        """Read the list now and show what is in it."""
        async with self._listing_lock:
            if self._stale.is_set():
                self._stale = anyio.Event()
            self._take(await connection.list_tools())
            self._show_listing()

    async def _listen(self, connection: Connection, subscribed: anyio.Event) -> None:
        """Hold a subscription open; after every break, subscribe and list again."""
        failures = 0
        while True:
            began = anyio.current_time()
            try:
                async with connection.listen() as changes:
                    subscribed.set()
                    if self._list_begun:
                        self._mark_stale()  # what changed before this moment was not announced to us
                    async for _ in changes:
                        self._mark_stale()
            except (SubscriptionLost, MCPError, TimeoutError):
                connection.lifeline.doubt()
            failures = 1 if anyio.current_time() - began >= STEADY_SECONDS else failures + 1
            await anyio.sleep(
                wait_before(failures, pace=Pace.SOON, longest=self._shared.limits.reconnect_max)
            )

    async def _keep_probing(self, connection: Connection) -> None:
        missed = 0
        while True:
            with anyio.move_on_after(HEARTBEAT_SECONDS) as quiet:
                await connection.lifeline.doubted()
            if quiet.cancelled_caught and connection.busy:
                continue  # calls under way are sign of life enough, or will fail on their own
            try:
                with anyio.fail_after(PROBE_TIMEOUT):
                    await connection.probe()
                missed = 0
            except (TimeoutError, ToolTimeout):
                missed += 1
                if missed >= MISSED_PROBES:
                    connection.lifeline.end(
                        Setback(reason=f"no sign of life for {missed * PROBE_TIMEOUT:g} s")
                    )
            except FingerpostError as error:
                if is_loss(error):
                    connection.lifeline.end(setback_of(error))

    # -- telling ------------------------------------------------------------------------------------

    def _mark_stale(self) -> None:
        self._stale.set()

    def _take(self, listing: Listing) -> None:
        known = self.listing.dropped if self.listing is not None else ()
        for dropped in listing.dropped[:DROPPED_EVENTS]:
            if dropped not in known:
                self._shared.events.emit(
                    ToolDropped(server=dropped.server, tool=dropped.name, reason=dropped.reason)
                )
        changed = listing != self.listing
        self.listing = listing
        self._status = replace(self._status, tools=len(listing.definitions), dropped=len(listing.dropped))
        if changed:
            self._shared.changed(self.spec.name)

    def _move(
        self,
        state: ServerState,
        reason: str | None,
        *,
        hint: str | None = None,
        retry_in: float | None = None,
        attempts: int = 0,
    ) -> None:
        before = self._status
        same = before.state is state
        self._status = replace(
            before,
            state=state,
            reason=reason,
            hint=hint,
            since=before.since if same else utc_now(),
            retry_in=retry_in,
            attempts=attempts,
        )
        if state in SETTLED:
            self.settled.set()
        self._moved.set()
        self._moved = anyio.Event()
        if same and before.reason == reason:
            return
        self._shared.events.emit(
            ServerStateChanged(server=self.spec.name, previous=before.state, state=state, reason=reason)
        )
        self._shared.changed(self.spec.name)

    def unavailable(self) -> ServerUnavailable:
        """Why nothing can be asked of this server now."""
        status = self._status
        name = self.spec.name
        if status.state is ServerState.DISABLED:
            return ServerUnavailable(
                f"{name} is disabled", server=name, hint="enable it in the configuration"
            )
        reason = status.reason or "it is not connected"
        hint = status.hint
        if hint is None and status.retry_in is not None:
            hint = f"the next attempt follows within {status.retry_in:.1f} s"
        return ServerUnavailable(f"{name} is {status.state}: {reason}", server=name, hint=hint)


def _flaw(listing: Listing | None) -> str | None:
    """What is missing or wrong with a listing, in one sentence."""
    if listing is None:
        return None
    parts: list[str] = []
    if listing.truncated is not None:
        parts.append(listing.truncated)
    if listing.dropped:
        first = listing.dropped[0]
        count = len(listing.dropped)
        more = f" and {count - 1} more" if count > 1 else ""
        parts.append(f"{count} of its tools dropped: {first.name}{more} ({first.reason})")
    return "; ".join(parts) or None

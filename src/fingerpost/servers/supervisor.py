"""Keeps one server connected: connect, list, serve until lost, wait, repeat. Also tracks its status."""

from __future__ import annotations

import logging
import math
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

import anyio
from anyio.abc import TaskGroup

from fingerpost.errors import FingerpostError, ServerUnavailable, ToolTimeout
from fingerpost.events import EventSink, ServerStateChanged, ToolDropped
from fingerpost.frozen import frozen
from fingerpost.records import (
    JsonObject,
    KnownServer,
    Lifecycle,
    Listing,
    ServerSpec,
    ServerState,
    ServerStatus,
    utc_now,
)
from fingerpost.redaction import scrub
from fingerpost.servers.connection_state import (
    STRAY_OUTPUT_HINT,
    Backoff,
    ConnectionFailure,
    ConnectionState,
    RetryPace,
    compute_delay,
)
from fingerpost.servers.errors import (
    ConnectionBroken,
    SessionRejected,
    build_caller_key_required,
    build_connection_failure,
    is_connection_lost,
)
from fingerpost.servers.library import ConnectDeps
from fingerpost.servers.per_caller import (
    CALLER_KEY_CONNECT_NOTE,
    CALLER_KEY_NOTE,
    REFUSALS,
    USER_SIGN_IN_NOTE,
    CallerConnections,
    CallerToolLists,
    LegacySessions,
)
from fingerpost.servers.process import RingBuffer
from fingerpost.servers.requests import RequestContext
from fingerpost.servers.resources import (
    CHANGED_METHODS,
    ResourceKind,
    ResourceSubscriptions,
    ServerResourceCache,
)
from fingerpost.servers.spec import get_package
from fingerpost.settings.model import LifecycleSettings
from fingerpost.tasks import run_restarting

if TYPE_CHECKING:
    from fingerpost.servers.connection import ServerConnection
    from fingerpost.servers.oauth import TokenExchange

# `SUBSCRIPTION_ID_META_KEY` of the MCP library, which is loaded with the first connection.
SUBSCRIPTION_ID_META_KEY: Final = "io.modelcontextprotocol/subscriptionId"
HEARTBEAT_SECONDS = 15.0
PROBE_TIMEOUT = 10.0
MAX_MISSED_PROBES = 2


async def probe_periodically(connection: ServerConnection) -> None:
    """Probe the server after idle time or on request, and end the connection if it does not respond."""
    missed = 0
    while True:
        with anyio.move_on_after(HEARTBEAT_SECONDS) as quiet:
            await connection.state.wait_for_probe_request()
        if quiet.cancelled_caught and connection.in_flight_count:
            continue  # calls in flight prove that the server works, or fail on their own
        try:
            with anyio.fail_after(PROBE_TIMEOUT):
                await connection.probe()
            missed = 0
        except (TimeoutError, ToolTimeout):
            missed += 1
            if missed >= MAX_MISSED_PROBES:
                connection.state.end(ConnectionFailure(reason=f"no answer for {missed * PROBE_TIMEOUT:g} s"))
        except FingerpostError as error:
            if is_connection_lost(error):
                connection.state.end(build_connection_failure(error))


MAX_STDERR_SHOWN = 2000

SETTLED_STATES = frozenset(
    {
        ServerState.READY,
        ServerState.DEGRADED,
        ServerState.DOWN,
        ServerState.DISABLED,
        ServerState.ASLEEP,
    }
)


class StatusTracker:
    """The status of one server, updated by its supervisor."""

    def __init__(
        self, spec: ServerSpec, stderr: RingBuffer, *, events: EventSink, on_change: Callable[[str], None]
    ) -> None:
        self._name = spec.name
        self._stderr = stderr
        self._events = events
        self._changed = on_change
        self._status = ServerStatus(
            name=spec.name,
            transport=spec.transport,
            state=ServerState.IDLE if spec.enabled else ServerState.DISABLED,
            since=utc_now(),
        )
        self.settled = anyio.Event()
        self._state_changed = anyio.Event()
        if not spec.enabled:
            self.settled.set()

    @property
    def status(self) -> ServerStatus:
        return replace(self._status, stderr_tail=scrub(self._stderr.read_text(MAX_STDERR_SHOWN)))

    @property
    def state(self) -> ServerState:
        return self._status.state

    def describe_last_stderr(self) -> str:
        """Return the last line of stderr as the end of a sentence."""
        lines = self._stderr.read_text(MAX_STDERR_SHOWN).strip().splitlines()
        return f"; last line of stderr: {scrub(lines[-1])[:200]}" if lines else ""

    def update(self, **facts: Any) -> None:
        """Update facts that do not change the server's state."""
        self._status = replace(self._status, **facts)

    async def wait_for_change(self) -> None:
        """Wait until the state changes."""
        await self._state_changed.wait()

    def set_state(
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
        if state in SETTLED_STATES:
            self.settled.set()
        self._state_changed.set()
        self._state_changed = anyio.Event()
        if same and before.reason == reason:
            return
        self._events.emit(
            ServerStateChanged(server=self._name, previous=before.state, state=state, reason=reason)
        )
        self._changed(self._name)

    def reset(self) -> None:
        """Return to the initial state."""
        self.unsettle()
        self.set_state(ServerState.IDLE, None)

    def unsettle(self) -> None:
        """Let tasks that wait for a settled state wait for the next attempt."""
        self.settled = anyio.Event()

    def build_unavailable(self) -> ServerUnavailable:
        """Build the error for requests while the server is unavailable."""
        status = self._status
        name = self._name
        if status.state is ServerState.DISABLED and status.reason is not None:
            return ServerUnavailable(f"{name} is {status.reason}", server=name, hint="switch it on again")
        if status.state is ServerState.DISABLED:
            return ServerUnavailable(
                f"{name} is disabled", server=name, hint="enable it in the configuration"
            )
        reason = status.reason or "it is not connected"
        hint = status.hint
        if hint is None and status.retry_in is not None:
            hint = f"the next attempt follows within {status.retry_in:.1f} s"
        return ServerUnavailable(f"{name} is {status.state}: {reason}", server=name, hint=hint)


def describe_listing_fault(listing: Listing | None) -> str | None:
    """Return what is missing or wrong in a listing, in one sentence."""
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


logger = logging.getLogger("fingerpost.servers")

DEBOUNCE_SECONDS = 0.1  # a server that adds ten tools sends ten notifications
SUBSCRIBE_SECONDS = 0.5  # a slow subscription does not delay readiness; the list is then read twice
MAX_DROPPED_EVENTS = 100  # events for one listing; the status counts all of them
RELIST_SECONDS = 5.0  # minimum age of a list before it is read again for an unknown tool
SECONDS_PER_TOOL = 0.01  # a long list is read again less often
CALLER_KEY_RETRY_SECONDS = 300.0  # delay before a server that needs callers' keys is tried without one again
TLS_HINT = "if the server wants TLS, use https:// in its url"
MAX_IDLE_CHECK_SECONDS = 5.0
ASLEEP_HINT = "the first call of one of its tools starts it"
ANNOUNCED_KINDS = ("tools", "prompts", "resources")


@frozen
class PoolDeps:
    """Dependencies shared by all servers of a pool."""

    events: EventSink
    connect_deps: ConnectDeps
    on_change: Callable[[str], None]
    on_notification: Callable[[str, str, JsonObject, str | None], None]
    on_listing: Callable[[Listing], Awaitable[None]]  # awaited before a listing is published
    lifecycle: LifecycleSettings
    has_state: Callable[[Listing], bool]  # whether the server keeps state between calls, judged by its list


class ServerUse:
    """Counts the requests that use a server or wait for it. Entering the context counts one more."""

    __slots__ = ("count", "ended_at")

    def __init__(self) -> None:
        self.count = 0
        self.ended_at = -math.inf  # when the last one ended

    def __enter__(self) -> None:
        self.count += 1

    def __exit__(self, *_: object) -> None:
        self.count -= 1
        self.ended_at = anyio.current_time()


class Supervisor:
    """Keeps one server connected and tracks its state."""

    def __init__(self, spec: ServerSpec, shared: PoolDeps) -> None:
        self.spec = spec
        self._shared = shared
        self._limits = limits = shared.connect_deps.limits
        self._stderr = RingBuffer(limits.stderr_bytes)
        self.status_tracker = StatusTracker(
            spec, self._stderr, events=shared.events, on_change=shared.on_change
        )
        self.listing: Listing | None = None
        self.resource_cache = ServerResourceCache(
            spec.name, limits, self._on_resources_changed, on_loaded=partial(shared.on_change, spec.name)
        )
        self.subscriptions = ResourceSubscriptions(spec.name, reconnect_max=limits.reconnect_max)
        self.caller_connections = CallerConnections(spec, shared.connect_deps, self._on_notification)
        self.legacy_sessions = LegacySessions(spec, shared.connect_deps)
        self._caller_lists = CallerToolLists()
        self._shared_listing = Listing(server=spec.name)  # tools listed without a caller's key
        self._listing_refused = False  # whether listing without a caller's key was refused
        self.token_exchange: TokenExchange | None = None  # made by the first call that needs it
        self.needs_caller_keys = False  # whether connecting without a caller's key was refused
        self._key_connections = CallerConnections(
            spec, replace(shared.connect_deps, tokens=None), self._on_notification
        )
        self.connection: ServerConnection | None = None
        self.started = False
        self.disabled = False  # by a user at run time
        self._session_lost = False  # whether the last connection ended because the server lost our session
        self._stale = anyio.Event()
        self._listing_started = False
        self._listing_lock = anyio.Lock()
        self._listed_at = -math.inf
        self.needs_listing = True  # what is known of the server is missing or old
        self.use = ServerUse()
        self._stopped_idle = False  # the connection was ended because it was not used

    @property
    def lifecycle(self) -> Lifecycle:
        return self.spec.lifecycle or self._shared.lifecycle.default

    @property
    def should_start(self) -> bool:
        """Whether to connect it before a request needs it."""
        return self.needs_listing or self.lifecycle != "on_demand"

    @property
    def can_be_known(self) -> bool:
        """Whether what the server lists is shown to everyone and may be kept."""
        spec = self.spec
        return spec.enabled and spec.transport != "in_process" and not spec.forward_authorization

    def build_known(self) -> KnownServer | None:
        """Return what to keep of the server, or None if it is not connected or could not list its tools."""
        listing, status = self.listing, self.status_tracker.status
        if not self.can_be_known or listing is None:
            return None
        if self.spec.identifies_callers and not listing.definitions:  # no user has signed in yet
            return None
        if not self.accepts_requests:
            return None
        if listing.truncated is not None and not listing.definitions:
            return None
        return KnownServer(
            listing=listing,
            listed_at=utc_now(),
            resources=self.resource_cache.resources if self.resource_cache.loaded.is_set() else None,
            product=status.product,
            protocol=status.protocol,
        )

    async def offer_known(self, known: KnownServer, *, is_old: bool) -> None:
        """Offer what the server listed before, without starting it."""
        spec = self.spec
        listing = replace(
            known.listing,
            server=spec.name,
            prefix=spec.prefix,
            package=get_package(spec),
            trust_hints=spec.trust_hints,
            new_tools=spec.new_tools,
            review_new=spec.review_new,
        )
        if self.spec.identifies_callers:  # it is connected and listed as if nothing were known
            self._caller_lists.offer_before(listing.definitions)
            self._accept_listing(await self._merge_caller_lists(None))
            return
        await self._shared.on_listing(listing)
        if self.started:  # by a request meanwhile
            return
        self.listing = self._shared_listing = listing
        if known.resources is not None:
            self.resource_cache.resources = known.resources
            self.resource_cache.loaded.set()
        self.needs_listing = is_old
        self.status_tracker.update(
            product=known.product,
            protocol=known.protocol,
            tools=len(listing.definitions),
            dropped=len(listing.dropped),
        )
        if self.disabled:  # it stays so, and its tools are known
            self._shared.on_change(spec.name)
        else:
            self.status_tracker.set_state(ServerState.ASLEEP, None, hint=ASLEEP_HINT)

    @property
    def _idle_seconds(self) -> float:
        """How long the server may be unused before it is stopped, or infinity."""
        spec = self.spec
        if spec.transport != "stdio" or spec.isolate or spec.keep_running or self.lifecycle == "always":
            return math.inf
        seconds = self._shared.lifecycle.idle_seconds if spec.idle_seconds is None else spec.idle_seconds
        return seconds or math.inf

    @property
    def is_used(self) -> bool:
        """Whether a request uses the server or waits for it."""
        return bool(self.use.count or (self.connection is not None and self.connection.in_flight_count))

    async def _stop_when_idle(self, connection: ServerConnection) -> None:
        """End the connection when nothing has used it for a while."""
        began = anyio.current_time()
        while True:
            limit = self._idle_seconds
            unused = anyio.current_time() - max(began, self.use.ended_at)
            if self.is_used or self.subscriptions.is_watching:
                unused = 0.0
            if unused >= limit:
                if self.listing is not None and self._shared.has_state(self.listing):
                    return
                self._stopped_idle = True
                connection.state.end(ConnectionFailure(reason="it was not used"))
                return
            await anyio.sleep(min(limit - unused, MAX_IDLE_CHECK_SECONDS))

    async def wait_until_settled(self) -> None:
        """Wait until the server accepts requests, or is down or disabled."""
        while not self.accepts_requests and self.status_tracker.state not in (
            ServerState.DOWN,
            ServerState.DISABLED,
        ):
            await self.status_tracker.wait_for_change()

    def close_caller_connections(self) -> None:
        """Close the connections that belong to single callers."""
        self.caller_connections.close()
        self.legacy_sessions.close()
        self._key_connections.close()

    def reset(self) -> None:
        """Reset after the task was stopped, so that it can be started again."""
        self.connection = None
        self.started = False
        self.needs_caller_keys = False

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection that has not failed."""
        return self.connection is not None and self.connection.state.failure is None

    @property
    def accepts_requests(self) -> bool:
        """Whether requests can be sent, on the shared connection or with the caller's own key."""
        return self.is_connected or self.needs_caller_keys

    def build_unavailable(self) -> ServerUnavailable:
        """Build the error for requests while the server is unavailable."""
        error = self.status_tracker.build_unavailable()
        if self._session_lost and self.status_tracker.state is ServerState.DOWN:
            return SessionRejected(str(error), server=self.spec.name, hint=error.hint)
        return error

    @property
    def tool_count(self) -> int:
        """The number of tools in the last listing."""
        return len(self.listing.definitions) if self.listing is not None else 0

    async def run(self) -> None:
        """Keep the server connected until this task is cancelled."""
        backoff = Backoff(max_delay=self._limits.reconnect_max)
        reason: str | None = None
        while True:
            began = anyio.current_time()
            if not self.needs_caller_keys:
                self.status_tracker.set_state(ServerState.CONNECTING, reason, attempts=backoff.failures)
            self._stopped_idle = False  # also after this task was cancelled while it stopped the server
            failure = await self._run_connection()
            self.connection = None
            self.legacy_sessions.close()
            if self._stopped_idle:
                if self.use.count:  # a request came while the server was stopping
                    reason = None
                    continue
                self.started = False
                self.status_tracker.set_state(ServerState.ASLEEP, None, hint=ASLEEP_HINT)
                return
            if failure.refused and await self._accepts_caller_keys():
                self._switch_to_caller_keys()
                await anyio.sleep(CALLER_KEY_RETRY_SECONDS)
                continue
            self.needs_caller_keys = False
            delay = backoff.next_delay(failure.pace, began=began, now=anyio.current_time())
            reason = failure.reason
            self._session_lost = failure.pace is RetryPace.NOW
            if delay > 0:
                self.status_tracker.set_state(
                    ServerState.DOWN, reason, hint=failure.hint, retry_in=delay, attempts=backoff.failures
                )
                await anyio.sleep(delay)

    async def _accepts_caller_keys(self) -> bool:
        """Return whether a refusal means that a caller's key is needed, not that our own is wrong."""
        connect = await self._shared.connect_deps.library.load()
        signed_in = await connect.load_sign_in(self.spec, self._shared.connect_deps.tokens)
        return self.spec.identifies_callers and not self._has_own_key and signed_in is None

    def _switch_to_caller_keys(self) -> None:
        """From now on, connect separately for each caller with that caller's key."""
        if not self.needs_caller_keys:
            self.needs_caller_keys = True
            self._shared_listing = Listing(server=self.spec.name, prefix=self.spec.prefix)
            self._accept_listing(self._add_caller_lists())
        self.status_tracker.set_state(ServerState.READY, self._describe_need(CALLER_KEY_CONNECT_NOTE))

    @asynccontextmanager
    async def connect_with_caller_key(
        self, context: RequestContext | None, tasks: TaskGroup
    ) -> AsyncGenerator[ServerConnection]:
        """Yield the connection opened with this caller's key. Raises `FingerpostError`."""
        caller = None if context is None else context.caller
        key = None if context is None else context.credentials
        if key is None:
            raise build_caller_key_required(self.spec.name)
        session = caller.key if caller is not None and self.spec.isolate else ""
        name = self._caller_lists.build_connection_key(key, session)
        headers = {"Authorization": key}
        async with self._key_connections.use(name, tasks, self.listing, headers) as connection:
            yield connection

    async def _run_connection(self) -> ConnectionFailure:
        """Run one connection from start to end. Return why it ended."""
        logs = self._shared.connect_deps.logs()
        state = ConnectionState(self.spec.name, stderr=self._stderr, logs=logs)
        connect = await self._shared.connect_deps.library.load()
        began = anyio.current_time()
        seconds = self.spec.connect_timeout
        with anyio.CancelScope(deadline=began + seconds) as connect_scope:
            try:
                async with connect.open_connection(
                    self.spec,
                    self._shared.connect_deps,
                    state=state,
                    on_notification=self._on_notification,
                ) as connection:
                    async with anyio.create_task_group() as tasks:
                        await self._start_listening(connection, tasks)
                        await self._read_first_listing(connection, connect_scope)
                        self._set_ready(connection, milliseconds=(anyio.current_time() - began) * 1000)
                        await self._serve(connection, tasks)
                    return state.failure or ConnectionFailure(reason="the connection ended")
            except Exception as error:  # noqa: BLE001 - any error of a server or the library
                if state.failure is not None:
                    return state.failure
                known = connect.from_exception(self.spec.name, error)
                return self._build_failure(known, error, needs_user=connect.requires_user_action(error))
        hint = "if it is only slow, raise its connect_timeout"
        if state.stray_lines:
            reason = f"no answer within {seconds:g} s{state.describe_stray_lines()}"
            return ConnectionFailure(reason=reason, hint=f"{STRAY_OUTPUT_HINT}; {hint}")
        return ConnectionFailure(
            reason=f"no answer within {seconds:g} s{self.status_tracker.describe_last_stderr()}", hint=hint
        )

    def _build_failure(
        self, known: FingerpostError, error: Exception, *, needs_user: bool
    ) -> ConnectionFailure:
        logger.debug("%s: connection failed", self.spec.name, exc_info=error)
        failure = build_connection_failure(known, needs_user=needs_user)
        if (
            isinstance(known, ConnectionBroken)
            and known.no_valid_response
            and (self.spec.url or "").startswith("http://")
        ):
            return replace(failure, hint=TLS_HINT)
        return failure

    async def _start_listening(self, connection: ServerConnection, tasks: TaskGroup) -> None:
        """Modern protocol: subscribe before listing, so that no change is missed."""
        self._listing_started = False
        if connection.modern and any(map(connection.announces_changes, ANNOUNCED_KINDS)):
            subscribed = anyio.Event()
            tasks.start_soon(run_restarting, self._listen, connection, subscribed)
            with anyio.move_on_after(SUBSCRIBE_SECONDS):
                await subscribed.wait()

    async def _read_first_listing(
        self, connection: ServerConnection, connect_scope: anyio.CancelScope
    ) -> None:
        """List the tools before the server is reported as ready. A failure does not end the connection.

        `connect_scope` has no deadline from then on: preparing what was listed may take longer.
        """
        self._stale = anyio.Event()
        self._listing_started = True
        try:
            await self._read_listing(connection)
            connect_scope.deadline = math.inf
            self._accept_listing(await self._merge_caller_lists(connection))
        except FingerpostError as error:
            if is_connection_lost(error):
                raise
            self._accept_listing(
                Listing(server=self.spec.name, truncated=f"the tools could not be listed: {error}")
            )
            self._stale.set()
        connect_scope.deadline = math.inf

    async def _read_listing(self, connection: ServerConnection) -> None:
        """Read what is listed for all callers."""
        try:
            common = await connection.list_tools()
            self._listing_refused = False
        except REFUSALS:
            if not self._may_need_caller_key or connection.state.failure is not None:
                raise
            self._listing_refused = True
            common = Listing(server=self.spec.name, prefix=self.spec.prefix)
        self._listed_at = anyio.current_time()
        self._shared_listing = common

    async def _merge_caller_lists(self, connection: ServerConnection | None) -> Listing:
        """Return the tools listed for all callers and for single callers' keys, also those that are listed
        while these are prepared.
        """
        while True:
            listing = self._get_merged_listing()
            if connection is not None and self.lists_only_with_caller_key:
                connection.learn_mirrored_headers(listing)
            await self._shared.on_listing(listing)
            if listing == self._get_merged_listing():
                return listing

    def _get_merged_listing(self) -> Listing:
        return self._add_caller_lists() if self.lists_only_with_caller_key else self._shared_listing

    def _add_caller_lists(self) -> Listing:
        return self._caller_lists.add_to_listing(
            self._shared_listing,
            max_tools=self._limits.tools_per_server,
            personal=self.spec.forward_authorization,  # others see the tools, and are told what is missing
        )

    def _describe_need(self, note: str) -> str:
        return USER_SIGN_IN_NOTE if self.spec.auth == "per_user" else note

    @property
    def _may_need_caller_key(self) -> bool:
        """Whether a refused listing means that a caller's key is needed, not that our own is wrong."""
        return self.lists_only_with_caller_key and not self._has_own_key

    @property
    def _has_own_key(self) -> bool:
        return any(name.casefold() == "authorization" for name in self.spec.headers)

    @property
    def lists_only_with_caller_key(self) -> bool:
        """Whether the server gets callers' keys and lists nothing without one."""
        return self.spec.identifies_callers and not self._shared_listing.definitions

    async def list_caller_tools(
        self, caller: str, authorization: str, tasks: TaskGroup, *, timeout: float
    ) -> frozenset[str]:
        """Return the names of the tools listed for this caller's key, after adding them to the listing."""
        connection = self.connection
        if connection is not None:
            ask = partial(connection.list_tools_with, authorization)
        else:
            ask = partial(self._list_with_key, RequestContext(authorization=authorization), tasks)

        async def publish() -> None:
            async with self._listing_lock:
                self._accept_listing(await self._merge_caller_lists(connection))

        await self._caller_lists.refresh(caller, authorization, ask, publish, timeout=timeout)
        return self._caller_lists.get_tool_names(caller, authorization, self.listing or self._shared_listing)

    async def _list_with_key(self, context: RequestContext, tasks: TaskGroup) -> Listing:
        async with self.connect_with_caller_key(context, tasks) as connection:
            return await connection.list_tools()

    def _set_ready(self, connection: ServerConnection, *, milliseconds: float) -> None:
        self.connection = connection
        self.needs_listing = False
        self.needs_caller_keys = False
        self._key_connections.close()
        self.resource_cache.start(connection)
        self.status_tracker.update(
            protocol=connection.protocol, product=connection.product, connect_ms=milliseconds
        )
        self._publish_listing()

    def _publish_listing(self) -> None:
        reason = describe_listing_fault(self.listing)
        if reason is None and self.lists_only_with_caller_key:
            self.status_tracker.set_state(ServerState.READY, self._describe_need(CALLER_KEY_NOTE))
            return
        self.status_tracker.set_state(ServerState.READY if reason is None else ServerState.DEGRADED, reason)

    async def _serve(self, connection: ServerConnection, tasks: TaskGroup) -> None:
        # Each task restarts after a failure, so that calls on this connection are not affected.
        tasks.start_soon(run_restarting, self._relist_on_changes, connection)
        tasks.start_soon(run_restarting, self.resource_cache.refresh_stale, connection)
        tasks.start_soon(run_restarting, self.subscriptions.run, connection, tasks)
        tasks.start_soon(run_restarting, self._stop_when_idle, connection)
        if self.spec.transport in ("http", "sse"):
            tasks.start_soon(run_restarting, probe_periodically, connection)
        await connection.state.ended.wait()
        self.connection = None
        await connection.drain()
        tasks.cancel_scope.cancel()

    async def _relist_on_changes(self, connection: ServerConnection) -> None:
        """List the tools again after each change notification."""
        failures = 0
        while True:
            await self._stale.wait()
            await anyio.sleep(DEBOUNCE_SECONDS)
            try:
                await self.relist(connection, timeout=self.spec.connect_timeout)
                failures = 0
            except (FingerpostError, TimeoutError) as error:
                failures += 1
                self.status_tracker.set_state(
                    ServerState.DEGRADED, f"the tools could not be listed again: {error or 'no answer'}"
                )
                self._stale.set()
                pause = compute_delay(failures, pace=RetryPace.SOON, max_delay=self._limits.reconnect_max)
                await anyio.sleep(pause)

    async def relist(self, connection: ServerConnection, *, timeout: float | None = None) -> None:
        """Read the list now and publish it. The server must answer within `timeout` seconds."""
        async with self._listing_lock:
            if self._stale.is_set():
                self._stale = anyio.Event()
            with anyio.fail_after(timeout):
                await self._read_listing(connection)
            try:
                self._accept_listing(await self._merge_caller_lists(connection))
            except anyio.get_cancelled_exc_class():  # the caller does not wait: prepare it in the background
                self._stale.set()
                raise
            self._publish_listing()

    def relist_in_background(self) -> None:
        """List the tools again in the background if they may have changed without a notification."""
        if self._may_have_changed(self._limits.relist_seconds):
            self._stale.set()

    async def relist_if_stale(self) -> None:
        """List the tools again now if a requested tool may be new."""
        seconds = min(RELIST_SECONDS, self._limits.relist_seconds)
        if self._may_have_changed(seconds) and self.connection is not None:
            with suppress(FingerpostError):
                await self.relist(self.connection)

    def _may_have_changed(self, seconds: float) -> bool:
        """Return whether the list may be outdated: no changes are announced, and it is old for its length."""
        if self.connection is None or (
            self.connection.announces_changes("tools") and not self._listing_refused
        ):
            return False
        return anyio.current_time() - self._listed_at > max(seconds, SECONDS_PER_TOOL * self.tool_count)

    async def _listen(self, connection: ServerConnection, subscribed: anyio.Event) -> None:
        """Keep a subscription open. After an interruption, subscribe and list again."""
        backoff = Backoff(max_delay=self._limits.reconnect_max)
        while True:
            began = anyio.current_time()
            try:
                async with connection.subscribe() as changes:
                    subscribed.set()
                    if self._listing_started:
                        self._mark_all_stale(connection)  # earlier changes were not announced to us
                    async for _ in changes:
                        pass  # each also arrives as a notification
            except (FingerpostError, TimeoutError):
                connection.state.request_probe()
            await anyio.sleep(backoff.next_delay(RetryPace.SOON, began=began, now=anyio.current_time()))

    def _on_notification(self, method: str, params: JsonObject, caller: str | None) -> None:
        """Handle a notification that belongs to no request. `caller` is its only recipient, if given."""
        if method == "notifications/tools/list_changed":
            self._stale.set()
        elif (kind := CHANGED_METHODS.get(method)) is not None:
            self.resource_cache.mark_stale(kind)
        else:
            self._shared.on_notification(self.spec.name, method, _strip_subscription_id(params), caller)

    def _mark_all_stale(self, connection: ServerConnection) -> None:
        self._stale.set()
        for kind in CHANGED_METHODS.values():
            if kind in connection.capabilities:
                self.resource_cache.mark_stale(kind)

    def _on_resources_changed(self, kind: ResourceKind) -> None:
        self._shared.on_notification(self.spec.name, f"notifications/{kind}/list_changed", {}, None)

    def _accept_listing(self, listing: Listing) -> None:
        known = self.listing.dropped if self.listing is not None else ()
        for dropped in listing.dropped[:MAX_DROPPED_EVENTS]:
            if dropped not in known:
                self._shared.events.emit(
                    ToolDropped(server=dropped.server, tool=dropped.name, reason=dropped.reason)
                )
        changed = listing != self.listing
        if changed:
            self.listing = listing
        self.status_tracker.update(tools=len(listing.definitions), dropped=len(listing.dropped))
        if changed:
            self._shared.on_change(self.spec.name)


def _strip_subscription_id(params: JsonObject) -> JsonObject:
    """Remove the subscription id, which is internal."""
    meta = params.get("_meta")
    if not isinstance(meta, Mapping) or SUBSCRIPTION_ID_META_KEY not in meta:
        return params
    rest = {key: value for key, value in cast("JsonObject", meta).items() if key != SUBSCRIPTION_ID_META_KEY}
    kept = {key: value for key, value in params.items() if key != "_meta"}
    return {**kept, "_meta": rest} if rest else kept

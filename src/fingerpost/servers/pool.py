"""All configured servers: starting, listing, calling and monitoring them."""

from __future__ import annotations

import difflib
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVarTuple

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup

from fingerpost.errors import (
    ConfigError,
    ServerReplyInvalid,
    ServerUnavailable,
    ToolFailed,
    ToolTimeout,
    UnknownServer,
)
from fingerpost.events import EventSink
from fingerpost.records import (
    LOCAL_NAME,
    Call,
    CallContext,
    CallerAuthorization,
    Json,
    JsonObject,
    KnownServer,
    Listing,
    Precheck,
    ServerPaths,
    ServerResources,
    ServerSpec,
    ServerState,
    ServerStatus,
    utc_now,
)
from fingerpost.records.json import find_json_fault, is_large_value
from fingerpost.servers.errors import (
    SessionForgotten,
    SessionRejected,
    SignInRequired,
    build_token_refused,
    build_user_sign_in_required,
)
from fingerpost.servers.library import (
    ALL_CAPABILITIES,
    ConnectDeps,
    ConnectLibrary,
    GatewaySearch,
    HoldRenewal,
    SignInStore,
    SignOutResult,
    build_user_token_name,
)
from fingerpost.servers.process import LogFolder
from fingerpost.servers.requests import ProgressCallback, RequestClock, RequestContext
from fingerpost.servers.resources import SUBSCRIBE_METHOD, UNSUBSCRIBE_METHOD
from fingerpost.servers.spec import find_server_paths, fingerprint_entry, register_secrets
from fingerpost.servers.supervisor import PoolDeps, Supervisor
from fingerpost.settings.model import LifecycleSettings, LimitSettings
from fingerpost.tasks import cancel_and_exit, run_contained, run_in_thread, run_restarting

if TYPE_CHECKING:
    from fingerpost.servers.connection import ServerConnection

logger = logging.getLogger("fingerpost.servers")

DEFAULT_TIMEOUT_S = 60.0  # of a call without a deadline
RETIRE_TIMEOUT_S = 3600.0  # longest wait for calls of a removed server: the longest timeout of a call
RETIRE_POLL_S = 0.1

CALLER_AUTHS = frozenset({"per_user", "exchange"})  # of servers that get a token of each caller

CallbackArgs = TypeVarTuple("CallbackArgs")


class CallbackList(Generic[*CallbackArgs]):
    """Callbacks for one kind of event."""

    def __init__(self) -> None:
        self._callbacks: dict[object, Callable[[*CallbackArgs], None]] = {}

    def add(self, callback: Callable[[*CallbackArgs], None]) -> Callable[[], None]:
        """Add a callback. The returned function removes it."""
        token = object()
        self._callbacks[token] = callback

        def stop() -> None:
            self._callbacks.pop(token, None)

        return stop

    def call_all(self, *arguments: *CallbackArgs) -> None:
        for callback in tuple(self._callbacks.values()):
            try:
                callback(*arguments)
            except Exception:
                logger.exception("a listener of the servers failed on %s", " ".join(map(str, arguments[:2])))


REPEATABLE_METHODS = frozenset({"resources/read", "prompts/get", "completion/complete"})


class _SupervisorTask:
    """The task of one supervisor. It can be stopped without stopping the others."""

    def __init__(self) -> None:
        self._scope = anyio.CancelScope()
        self._over = anyio.Event()

    async def __call__(self, supervisor: Supervisor) -> None:
        try:
            with self._scope:
                await run_restarting(supervisor.run)
        finally:
            self._over.set()

    async def stop(self) -> None:
        self._scope.cancel()
        await self._over.wait()


class ServerPool:
    """The configured servers. Entering the context connects nothing: `start`, `ensure` and `call` do."""

    def __init__(
        self,
        specs: Iterable[ServerSpec],
        *,
        events: EventSink,
        limits: LimitSettings,
        tokens: SignInStore | None = None,
        on_listing: Callable[[Listing], Awaitable[None]] | None = None,
        lifecycle: LifecycleSettings | None = None,
        has_state: Callable[[Listing], bool] = lambda _: False,
        hold_renewal: HoldRenewal = nullcontext,
    ) -> None:
        """`on_listing` receives each listing and is awaited before the listing is published. `has_state` says
        whether a server with these tools keeps state between calls, so that it must not be stopped. Processes
        that share `tokens` renew them within `hold_renewal`.
        """
        self._lifecycle = lifecycle or LifecycleSettings()
        self._change_callbacks: CallbackList[str] = CallbackList()
        self._notification_callbacks: CallbackList[str, str, JsonObject, str | None] = CallbackList()
        self._library = ConnectLibrary()
        self._for_callers = False
        self._gateways: GatewaySearch | None = None
        self.logs: LogFolder | None = None
        self._shared = PoolDeps(
            events=events,
            connect_deps=ConnectDeps(
                limits=limits,
                library=self._library,
                tokens=tokens,
                hold_renewal=hold_renewal,
                abilities=lambda: ALL_CAPABILITIES if self._for_callers else {},
                gateways=lambda: self._gateways,
                logs=lambda: self.logs,
            ),
            on_change=self._change_callbacks.call_all,
            on_notification=self._notification_callbacks.call_all,
            on_listing=on_listing or _accept_listing,
            lifecycle=self._lifecycle,
            has_state=has_state,
        )
        self.sign_in_page: str | None = None  # where callers sign in to servers
        self._sign_in_callbacks: CallbackList[str, str] = CallbackList()
        self._renewals: dict[str, anyio.Lock] = {}  # by name of the user's token
        self._supervisors: dict[str, Supervisor] = {}
        self._entries: Mapping[str, str] = {}
        self._runs: dict[str, _SupervisorTask] = {}
        self._tasks: TaskGroup | None = None
        for spec in specs:
            self._add_supervisor(spec)

    def __repr__(self) -> str:
        return f"ServerPool({', '.join(f'{status.name}: {status.state}' for status in self.statuses):.300})"

    async def __aenter__(self) -> Self:
        self._tasks = anyio.create_task_group()
        await self._tasks.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        assert self._tasks is not None
        try:
            return await cancel_and_exit(self._tasks, kind, error, trace)
        finally:
            self._tasks = None  # not before: calls that end meanwhile use it
            with anyio.CancelScope(shield=True):
                await self._library.aclose()
                if self.logs is not None:
                    await anyio.to_thread.run_sync(self.logs.close)

    def advertise_client_capabilities(self) -> None:
        """Declare that callers can answer questions, for all connections made from now on."""
        self._for_callers = True

    def use_gateways(
        self, sockets: Path, report: Callable[[str], None], *, wait_seconds: float = 0.0
    ) -> None:
        """Use the connections of gateways that run on this machine, for all connections made from now on.

        `sockets` is where those of the same store are found; `report` gets a line if one cannot be used. With
        `wait_seconds` it is waited for, and only the programs that it started are used.
        """
        self._gateways = GatewaySearch(sockets=sockets, report=report, wait_seconds=wait_seconds)

    def keep_logs(self, folder: Path) -> None:
        """Write what servers write to stderr to log files, for all connections made from now on."""
        self.logs = LogFolder(folder)

    async def load_library(self) -> None:
        """Load the code that connects now, so that the first call does not wait for it."""
        if self._supervisors:
            await self._library.load()

    async def read_entries(self) -> Mapping[str, str]:
        """Return the hash of the entry of each server."""
        specs = [one.spec for one in self._supervisors.values()]
        entries = await run_in_thread(lambda: [fingerprint_entry(spec) for spec in specs])
        self._entries = {
            spec.name: entry
            for spec, entry in zip(specs, entries, strict=True)
            if (one := self._supervisors.get(spec.name)) is not None and one.spec is spec
        }
        return self._entries

    def select_knowable(self, *names: str) -> dict[str, str]:
        """Return the hash of the entry of each of these servers that can be known without running."""
        return {
            name: entry
            for name, entry in self._entries.items()
            if name in names and self._get_supervisor(name).can_be_known
        }

    def get_known(self, name: str) -> tuple[str, KnownServer] | None:
        """Return the hash of the entry of a connected server and what to keep of it, or None."""
        known, entry = self._get_supervisor(name).build_known(), self._entries.get(name)
        return None if known is None or entry is None else (entry, known)

    def list_unlisted_for_users(self) -> list[str]:
        """Return the servers that list tools only for signed-in users, and have not done so here yet."""
        return [
            name
            for name, supervisor in self._supervisors.items()
            if supervisor.spec.auth in CALLER_AUTHS and not supervisor.tool_count
        ]

    async def offer_known(self, known: Mapping[str, KnownServer]) -> None:
        """Offer what these servers listed before. They are started by the first request that needs them."""
        oldest = utc_now() - timedelta(days=self._lifecycle.relist_days)
        for name, found in known.items():
            supervisor = self._supervisors.get(name)
            if supervisor is None or not supervisor.spec.enabled:
                continue
            if not supervisor.started or supervisor.spec.identifies_callers:
                await supervisor.offer_known(found, is_old=found.listed_at < oldest)

    def start(self, *names: str) -> None:
        """Start connecting these servers in parallel. Returns at once.

        Without names, start those that are not known well enough, and those that run from the start.
        """
        if self._tasks is None:
            message = "servers are started inside `async with ServerPool(...)`"
            raise RuntimeError(message)
        wanted = [self._get_supervisor(name) for name in names] or [
            supervisor for supervisor in self._supervisors.values() if supervisor.should_start
        ]
        for supervisor in wanted:
            if supervisor.spec.enabled and not supervisor.started and not supervisor.disabled:
                supervisor.started = True
                if names:
                    supervisor.status_tracker.unsettle()
                self._runs[supervisor.spec.name] = run = _SupervisorTask()
                self._tasks.start_soon(run, supervisor)

    def start_needed(self, name: str) -> None:
        """Start connecting this server, unless it is known well enough and runs on demand."""
        if self._get_supervisor(name).should_start:
            self.start(name)

    def start_unread(self) -> None:
        """Start the sleeping servers whose resources and prompts are not known."""
        unread = [
            name
            for name, supervisor in self._supervisors.items()
            if supervisor.status_tracker.state is ServerState.ASLEEP
            and supervisor.resource_cache.resources is None
        ]
        if unread:
            self.start(*unread)

    async def wait_until_settled(self, *, timeout: float) -> bool:
        """Wait until every started server is up, down or disabled. Return False on timeout."""
        with anyio.move_on_after(timeout):
            for supervisor in list(self._supervisors.values()):
                if supervisor.started:
                    await supervisor.status_tracker.settled.wait()
            return True
        return False

    async def wait_until_resources_read(self, *, timeout: float) -> bool:
        """Wait until resources and prompts of each running server were read once. Return False on timeout."""
        with anyio.move_on_after(timeout):
            for supervisor in list(self._supervisors.values()):
                if supervisor.is_connected:
                    await supervisor.resource_cache.loaded.wait()
            return True
        return False

    async def ensure(self, name: str, *, timeout: float) -> None:
        """Connect this server if needed. Raises `ServerUnavailable` with the reason if it is not connected.

        A server that waits for its next attempt is not connected earlier, so that failing calls do not drive
        a crash loop.
        """
        supervisor = self._get_supervisor(name)
        if supervisor.accepts_requests:
            return
        with supervisor.use, anyio.move_on_after(timeout):
            self.start(name)
            await supervisor.wait_until_settled()
        if not supervisor.accepts_requests:
            raise supervisor.build_unavailable()

    def hold(self, name: str) -> AbstractContextManager[None]:
        """Keep this server running while the context is open, once it runs."""
        return self._get_supervisor(name).use

    @property
    def statuses(self) -> tuple[ServerStatus, ...]:
        """The status of every server, in configured order."""
        return tuple(supervisor.status_tracker.status for supervisor in self._supervisors.values())

    def get_status(self, name: str) -> ServerStatus:
        return self._get_supervisor(name).status_tracker.status

    def get_spec(self, name: str) -> ServerSpec:
        return self._get_supervisor(name).spec

    async def find_paths(self, names: Iterable[str]) -> dict[str, ServerPaths]:
        """Return the directories and repositories that these servers were given, by server."""
        specs = [self._supervisors[name].spec for name in names if name in self._supervisors]
        return await run_in_thread(lambda: {spec.name: find_server_paths(spec) for spec in specs})

    def get_precheck(self, name: str) -> Precheck | None:
        """Return the check that runs before calls of this server. Only in-process servers have one."""
        supervisor = self._supervisors.get(name)
        return None if supervisor is None else supervisor.spec.precheck

    async def announce_write(self, call: Call, context: CallContext) -> None:
        """Tell the other in-process servers that a call which may change something is about to be sent."""
        spec = self._get_supervisor(call.server).spec
        for other in tuple(self._supervisors.values()):
            if other.spec.precheck is not None and other.spec.name != call.server:
                await other.spec.precheck.note_write(call, spec, context)

    def get_listing(self, name: str) -> Listing | None:
        """Return the last listing, or None if there was none. It is kept while the server is down."""
        return self._get_supervisor(name).listing

    def get_resources(self, name: str) -> ServerResources | None:
        """Return capabilities, resources and prompts, or None if the server was never up or is disabled."""
        supervisor = self._get_supervisor(name)
        return None if supervisor.disabled else supervisor.resource_cache.resources

    def subscribe_to_notifications(
        self, callback: Callable[[str, str, JsonObject, str | None], None]
    ) -> Callable[[], None]:
        """Call `callback` with server, method, params and caller key of every notification outside of
        requests.

        The caller key names the only caller who may receive it; None means all. Changed resources and prompts
        are reported after the new lists were read. Changed tools are reported by `subscribe_to_changes`.
        """
        return self._notification_callbacks.add(callback)

    def subscribe_to_changes(self, callback: Callable[[str], None]) -> Callable[[], None]:
        """Call `callback` with a server's name whenever its status or listing changes."""
        return self._change_callbacks.add(callback)

    async def call(
        self,
        name: str,
        tool: str,
        arguments: JsonObject,
        *,
        timeout: float | None = None,
        clock: RequestClock | None = None,
        on_progress: ProgressCallback | None = None,
        meta: Mapping[str, Json] | None = None,
        context: RequestContext | None = None,
    ) -> JsonObject:
        """Call a tool and return its raw result. The caller owns the deadline `clock`; without it, `timeout`
        covers everything, including connecting.

        `meta` is sent to in-process servers only. A call is never retried automatically, because after a
        failure it is unknown whether it took effect.
        """
        supervisor = self._get_supervisor(name)
        if clock is None:
            began, timeout = anyio.current_time(), DEFAULT_TIMEOUT_S if timeout is None else timeout
            await self.ensure(name, timeout=timeout)
            with RequestClock.start(timeout, began=began) as own:
                return await self.call(
                    name, tool, arguments, clock=own, on_progress=on_progress, meta=meta, context=context
                )
            raise own.build_error(f"{tool} on {name}", server=name)
        if supervisor.spec.auth in CALLER_AUTHS:
            context = await self._add_user_credentials(supervisor, context)
        if not supervisor.accepts_requests:
            await self.ensure(name, timeout=clock.remaining)
        params: dict[str, Any] = {"name": tool, "arguments": arguments}
        if meta and supervisor.spec.transport == "in_process":
            params["_meta"] = meta
        async with self._lease_connection(supervisor, context, for_call=True) as connection:
            try:
                result = await connection.ask(
                    "tools/call", params, context=context, on_progress=on_progress, clock=clock
                )
            except SignInRequired as error:
                raise self._explain_refusal(supervisor, context, error) from error
            except ToolFailed as error:
                unsupported = supervisor.legacy_sessions.build_unsupported_error(error, context, connection)
                raise (unsupported or error) from error.__cause__
            result = await _check_result(name, result)
        if result.get("isError") is True:
            unsupported = supervisor.legacy_sessions.build_unsupported_error(result, context, connection)
            if unsupported is not None:
                raise unsupported
        return result

    @property
    def has_user_servers(self) -> bool:
        """Whether a server gets tokens of its users: their sign-ins, or exchanged ones."""
        return any(supervisor.spec.auth in CALLER_AUTHS for supervisor in self._supervisors.values())

    async def _add_user_credentials(
        self, supervisor: Supervisor, context: RequestContext | None
    ) -> RequestContext:
        """Return the request with the sign-in of its user, or with the token that the caller's own is
        exchanged for. Raises `SignInRequired` or `ServerUnavailable`.
        """
        context, spec = context or RequestContext(), supervisor.spec
        if spec.auth == "exchange":
            own = await self._exchange_token(supervisor, context.user or LOCAL_NAME, context.subject_token)
            return replace(context, authorization=own)
        if context.user is not None:
            own = await self._load_user_authorization(spec, context.user)
            if own is not None:
                return replace(context, authorization=own)
        raise build_user_sign_in_required(spec.name, self.sign_in_page)

    async def _exchange_token(self, supervisor: Supervisor, user: str, token: str | None) -> str:
        exchange = supervisor.token_exchange
        if exchange is None:
            opened = await self._library.open_exchange(supervisor.spec)
            # Another call may have opened one meanwhile.
            exchange = supervisor.token_exchange = supervisor.token_exchange or opened
        return await exchange.get_authorization(user, token)

    def _explain_refusal(
        self, supervisor: Supervisor, context: RequestContext | None, error: SignInRequired
    ) -> SignInRequired:
        """Return what the caller can do about a server that refused the caller's credentials."""
        spec = supervisor.spec
        if spec.auth == "per_user":
            return build_user_sign_in_required(spec.name, self.sign_in_page)
        if supervisor.token_exchange is None or context is None:
            return error
        supervisor.token_exchange.forget(context.credentials or "")
        return build_token_refused(spec.name, "the server does not accept the exchanged one")

    async def sign_in_user(
        self,
        name: str,
        user: str,
        *,
        redirect: str,
        open_page: Callable[[str], Awaitable[None]],
        wait_for_answer: Callable[[], Awaitable[Mapping[str, str]]],
    ) -> None:
        """Sign one user in to a server with `auth = "per_user"`, at the page given to `open_page`.

        The page leads back to `redirect`; `wait_for_answer` returns the parameters it was called with. Raises
        `FingerpostError`.
        """
        connect = await self._library.load()
        await connect.sign_in_user(
            self.get_spec(name),
            self._get_tokens(),
            user,
            redirect=redirect,
            open_page=open_page,
            wait_for_answer=wait_for_answer,
        )
        self._sign_in_callbacks.call_all(name, user)

    def subscribe_to_sign_ins(self, callback: Callable[[str, str], None]) -> Callable[[], None]:
        """Call `callback` with server and user whenever a user has signed in to a server in this process."""
        return self._sign_in_callbacks.add(callback)

    async def has_user_token(self, name: str, user: str) -> bool:
        """Return whether calls of this user can use a sign-in to the server. It is renewed if needed."""
        return await self._load_user_authorization(self.get_spec(name), user) is not None

    async def sign_out(self, name: str, *, user: str | None = None) -> SignOutResult:
        """Delete the stored sign-in to a server, or a user's, and revoke it. Open connections stay.

        The server may have been removed.
        """
        connect = await self._library.load()
        return await connect.sign_out(name, self._get_tokens(), user)

    async def is_signed_in(self, name: str, user: str) -> bool:
        """Return whether this user's sign-in to the server is stored."""
        return await self._get_tokens().has(build_user_token_name(name, user))

    def _get_tokens(self) -> SignInStore:
        tokens = self._shared.connect_deps.tokens
        assert tokens is not None  # a router has a store
        return tokens

    async def _load_user_authorization(self, spec: ServerSpec, user: str) -> str | None:
        deps = self._shared.connect_deps
        if deps.tokens is None:
            return None
        connect = await self._library.load()
        lock = self._renewals.setdefault(build_user_token_name(spec.name, user), anyio.Lock())
        async with lock:
            return await connect.load_user_authorization(spec, deps.tokens, user, deps.hold_renewal)

    def _lease_connection(
        self, supervisor: Supervisor, context: RequestContext | None, *, for_call: bool = False
    ) -> AbstractAsyncContextManager[ServerConnection]:
        """Return the connection for this caller's request: the shared one, or one of the caller's own."""
        assert self._tasks is not None
        if supervisor.needs_caller_keys:
            return supervisor.connect_with_caller_key(context, self._tasks)
        caller = context.caller if context is not None else None
        if caller is not None and supervisor.spec.isolate:
            return supervisor.caller_connections.use(caller.key, self._tasks, supervisor.listing)
        shared = _get_connection(supervisor)
        if not for_call:
            return nullcontext(shared)
        return supervisor.legacy_sessions.use(
            context, shared, self._tasks, tool_count=supervisor.tool_count
        ) or nullcontext(shared)

    async def ask(
        self,
        name: str,
        method: str,
        params: JsonObject,
        *,
        timeout: float,
        context: RequestContext | None = None,
    ) -> JsonObject:
        """Send a request other than a tool call and return the raw result. Raises like `call`.

        The request is retried once if the server lost our session and it is safe to repeat.
        """
        supervisor = self._get_supervisor(name)
        if supervisor.spec.auth in CALLER_AUTHS and context is not None:
            context = await self._add_user_credentials(supervisor, context)
        clock = RequestClock.start(timeout)
        until = anyio.current_time() + timeout
        with supervisor.use:
            if method == UNSUBSCRIBE_METHOD:
                await self._ensure_or_forget(supervisor, params, timeout=timeout)
                return await self._ask_connected(supervisor, method, params, clock, context)
            try:
                await self.ensure(name, timeout=timeout)
                return await self._ask_connected(supervisor, method, params, clock, context)
            except SessionForgotten as error:
                left = until - anyio.current_time()
                if left <= 0 or not _may_repeat(method, error, clock):
                    raise
            await self.ensure(name, timeout=left)
            return await self._ask_connected(supervisor, method, params, RequestClock.start(left), context)

    async def _ensure_or_forget(self, supervisor: Supervisor, params: JsonObject, *, timeout: float) -> None:
        """Connect a server to tell it that a resource is no longer watched. Where that fails, only forget it:
        a server whose resources are watched is never idle.
        """
        try:
            await self.ensure(supervisor.spec.name, timeout=timeout)
        except BaseException:
            supervisor.subscriptions.forget_subscriber(params.get("uri"))
            raise

    async def _ask_connected(
        self,
        supervisor: Supervisor,
        method: str,
        params: JsonObject,
        clock: RequestClock,
        context: RequestContext | None,
    ) -> JsonObject:
        name = supervisor.spec.name
        with clock:
            async with self._lease_connection(supervisor, context) as connection:
                if method in (SUBSCRIBE_METHOD, UNSUBSCRIBE_METHOD):
                    result = await supervisor.subscriptions.change(connection, method, params, context)
                elif context is None and method not in REPEATABLE_METHODS:
                    # Not a caller's request, so the server's questions are not about it.
                    result = await connection.fetch(method, params)
                else:
                    result = await connection.ask(method, params, context=context, clock=clock)
            return await _check_result(name, result)
        raise clock.build_error(f"{method} on {name}", server=name)

    async def refresh(self, name: str) -> None:
        """List this server's tools again now."""
        supervisor = self._get_supervisor(name)
        seconds = supervisor.spec.connect_timeout
        with supervisor.use:
            await self.ensure(name, timeout=seconds)
            if supervisor.needs_caller_keys:  # it lists tools only for callers, with their own keys
                return
            with anyio.move_on_after(seconds):
                await supervisor.relist(_get_connection(supervisor))
                return
        raise ToolTimeout(f"{name} did not list its tools within {seconds:g} s", server=name)

    async def list_caller_tools(
        self, caller: str, authorization: CallerAuthorization | None, *, user: str, timeout: float
    ) -> tuple[tuple[str, str], ...]:
        """Return server and name of each tool that is listed only for this caller's key or sign-in.

        Servers that accept callers' keys are asked in parallel, each for at most `timeout` seconds. Lists are
        cached for a short time.
        """
        found: list[tuple[str, str]] = []
        assert self._tasks is not None
        connections = self._tasks

        async def ask(supervisor: Supervisor) -> None:
            context = RequestContext(authorization=authorization, user=user)
            if supervisor.spec.auth in CALLER_AUTHS:
                try:
                    context = await self._add_user_credentials(supervisor, context)
                except ServerUnavailable as error:  # what the caller brought is not sent instead
                    if not isinstance(error, SignInRequired):
                        logger.warning("%s: %s", error, error.hint)
                    return
            if (own := context.credentials) is None:
                return
            names = await supervisor.list_caller_tools(caller, own, connections, timeout=timeout)
            found.extend((supervisor.spec.name, name) for name in names)

        async with anyio.create_task_group() as tasks:
            for supervisor in self._supervisors.values():
                if supervisor.accepts_requests and supervisor.lists_only_with_caller_key:
                    tasks.start_soon(run_contained, ask, supervisor)
        return tuple(sorted(found))

    def refresh_in_background(self) -> None:
        """Read possibly outdated tool lists again in the background. Called when tools are listed."""
        for supervisor in self._supervisors.values():
            supervisor.relist_in_background()

    async def refresh_stale_listings(self, *, timeout: float) -> None:
        """Read possibly outdated tool lists again now. Called when an unknown tool is requested."""
        with anyio.move_on_after(timeout):
            async with anyio.create_task_group() as tasks:
                for supervisor in self._supervisors.values():
                    tasks.start_soon(run_contained, supervisor.relist_if_stale)

    async def probe(self, name: str, *, timeout: float) -> None:
        """Check that a connected server responds. `get_latency` returns how long it took."""
        connection = self._get_supervisor(name).connection
        if connection is not None:
            with anyio.move_on_after(timeout):
                await connection.probe()

    def get_latency(self, name: str) -> float | None:
        """Return the duration of the last probe on this connection in milliseconds."""
        connection = self._get_supervisor(name).connection
        return None if connection is None else connection.latency_ms

    async def add(self, spec: ServerSpec) -> None:
        """Add a server. It connects when it is started or needed."""
        self._add_supervisor(spec)
        await self.read_entries()
        self._change_callbacks.call_all(spec.name)

    async def disable(self, name: str, reason: str) -> None:
        """Disconnect this server and keep it disconnected until `enable`."""
        supervisor = self._get_supervisor(name)
        supervisor.disabled = True
        if supervisor.spec.enabled:
            await self._disconnect(supervisor)
            supervisor.reset()
            supervisor.status_tracker.set_state(ServerState.DISABLED, reason)

    def enable(self, name: str) -> None:
        """Allow this server to connect again, and start it."""
        supervisor = self._get_supervisor(name)
        was_disabled, supervisor.disabled = supervisor.disabled, False
        if was_disabled and supervisor.spec.enabled:
            supervisor.status_tracker.reset()
            self.start(name)

    async def reconnect(self, name: str) -> None:
        """Close the connection, if any, and connect again at once."""
        supervisor = self._get_supervisor(name)
        if supervisor.spec.enabled and not supervisor.disabled and await self._disconnect(supervisor):
            supervisor.reset()
            supervisor.status_tracker.reset()
        if supervisor.disabled or not supervisor.spec.enabled:  # it may have changed while disconnecting
            raise supervisor.status_tracker.build_unavailable()
        self.start(name)

    async def _disconnect(self, supervisor: Supervisor) -> bool:
        """Stop the server's task. Return False if it has none or another task is stopping it."""
        supervisor.close_caller_connections()
        if (run := self._runs.pop(supervisor.spec.name, None)) is None:
            return False
        with anyio.CancelScope(shield=True):  # must complete even if the caller is cancelled
            await run.stop()
        return True

    async def replace(self, spec: ServerSpec) -> None:
        """Replace the server of this name. What runs on the old one finishes, then it is disconnected."""
        places = {name: place for place, name in enumerate(self._supervisors)}
        self.retire(spec.name)
        await self.add(spec)
        in_order = sorted(self._supervisors.items(), key=lambda one: places.get(one[0], len(places)))
        self._supervisors = dict(in_order)

    async def remove(self, name: str) -> None:
        """Disconnect this server and remove it."""
        self._get_supervisor(name).close_caller_connections()
        if (run := self._runs.pop(name, None)) is not None:
            await run.stop()
        del self._supervisors[name]
        self._change_callbacks.call_all(name)

    def retire(self, name: str) -> None:
        """Remove this server. What runs on it finishes, then it is disconnected."""
        supervisor = self._get_supervisor(name)
        del self._supervisors[name]
        self._change_callbacks.call_all(name)
        run = self._runs.pop(name, None)
        assert self._tasks is not None

        async def stop() -> None:
            with anyio.move_on_after(RETIRE_TIMEOUT_S):
                while supervisor.is_used:  # noqa: ASYNC110 - counted where requests are made
                    await anyio.sleep(RETIRE_POLL_S)
            supervisor.close_caller_connections()
            if run is not None:
                await run.stop()

        self._tasks.start_soon(stop)

    def _add_supervisor(self, spec: ServerSpec) -> None:
        if spec.name in self._supervisors:
            raise ConfigError(f"there are two servers named {spec.name!r}", hint="rename one of them")
        register_secrets(spec)
        # What it lists must not be kept as that of the entry before.
        self._entries = {name: entry for name, entry in self._entries.items() if name != spec.name}
        self._supervisors[spec.name] = Supervisor(spec, self._shared)

    def _get_supervisor(self, name: str) -> Supervisor:
        supervisor = self._supervisors.get(name)
        if supervisor is None:
            near = difflib.get_close_matches(name, self._supervisors, n=3, cutoff=0.5)
            hint = f"Did you mean {' or '.join(near)}?" if near else "`fingerpost servers` lists them all"
            raise UnknownServer(f"there is no server named {name!r}", hint=hint)
        return supervisor


def _get_connection(supervisor: Supervisor) -> ServerConnection:
    if supervisor.connection is None:
        raise supervisor.build_unavailable()
    return supervisor.connection


def _may_repeat(method: str, error: SessionForgotten, clock: RequestClock) -> bool:
    """Return whether a request may be sent again. A rejected request did not run. An interrupted one may have
    run, so only reads without user interaction are repeated.
    """
    return isinstance(error, SessionRejected) or (method in REPEATABLE_METHODS and not clock.was_paused)


async def _check_result(name: str, result: JsonObject) -> JsonObject:
    reason = (
        await run_in_thread(find_json_fault, result) if is_large_value(result) else find_json_fault(result)
    )
    if reason is not None:
        raise ServerReplyInvalid(f"the result of {name} {reason}", server=name)
    return result


async def _accept_listing(_: Listing) -> None:
    """Accept every listing."""

"""Connections, legacy sessions and tool lists that belong to one caller of a server."""

from __future__ import annotations

import hashlib
import math
import secrets
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final, cast

import anyio
from anyio.abc import TaskGroup

from fingerpost.errors import FingerpostError, ServerUnavailable, ToolFailed, ToolTimeout
from fingerpost.frozen import frozen
from fingerpost.records import Json, JsonObject, Listing, ServerSpec
from fingerpost.servers.connection_state import ConnectionState
from fingerpost.servers.errors import INVALID_REQUEST, SignInRequired
from fingerpost.servers.library import ConnectDeps, ConnectionProfile
from fingerpost.servers.process import RingBuffer
from fingerpost.servers.requests import (
    LOG_METHOD,
    QUESTION_CAPABILITIES,
    CallerChannel,
    NotificationCallback,
    RequestContext,
)

if TYPE_CHECKING:
    from fingerpost.servers.connection import ServerConnection

MAX_CALLERS = 32
IDLE_SECONDS = 600.0


class CallerConnection:
    """The connection of one caller."""

    def __init__(self) -> None:
        self.ready = anyio.Event()
        self.connection: ServerConnection | None = None
        self.error: FingerpostError | None = None
        self.scope = anyio.CancelScope()
        self.is_closing = False  # because it was not used
        self.use_count = 0
        self.last_used = time.monotonic()
        self.log_level: str | None = None  # level sent to the server; None if not sent

    @property
    def is_busy(self) -> bool:
        return self.use_count > 0

    def release(self) -> None:
        """Mark one use of the connection as finished."""
        self.use_count -= 1
        self.last_used = time.monotonic()  # the clock used by event loops

    @property
    def is_closed(self) -> bool:
        lost = self.connection is not None and self.connection.state.failure is not None
        return lost or self.is_closing or self.error is not None or self.scope.cancel_called


class CallerConnections:
    """The connections of one server's callers."""

    def __init__(
        self,
        spec: ServerSpec,
        deps: ConnectDeps,
        on_notification: NotificationCallback,
        *,
        max_callers: int = MAX_CALLERS,
        idle_seconds: float = IDLE_SECONDS,
    ) -> None:
        self._spec = spec
        self._deps = deps
        self._notify = on_notification
        self._max_callers = max_callers
        self._idle_seconds = idle_seconds
        self._own: dict[str, CallerConnection] = {}

    def __len__(self) -> int:
        return len(self._own)

    def get_open(self, key: str) -> CallerConnection | None:
        """Return this caller's connection if it is open, else None."""
        own = self._own.get(key)
        return own if own is not None and own.connection is not None and not own.is_closed else None

    def get_pending_or_open(self, key: str) -> CallerConnection | None:
        """Return this caller's connection, even if it is still being opened, else None."""
        own = self._own.get(key)
        return None if own is None or own.is_closed else own

    def open_in_background(self, key: str, tasks: TaskGroup, deps: ConnectDeps) -> CallerConnection | None:
        """Start opening a connection for a caller. Return None at the limit, or if it was started."""
        if key in self._own or (len(self._own) >= self._max_callers and not self._list_idle()):
            return None
        self._make_room()
        return self._open(key, tasks, None, deps)

    @asynccontextmanager
    async def use(
        self, key: str, tasks: TaskGroup, listing: Listing | None, headers: Mapping[str, str] | None = None
    ) -> AsyncGenerator[ServerConnection]:
        """Yield this caller's connection. It is opened if needed and kept until the block ends.

        `headers` are sent with every request on it.
        """
        own = self._own.get(key)
        if own is None or own.is_closed:
            if own is None:
                self._make_room()
            own = self._open(key, tasks, listing, self._deps, headers)
        own.use_count += 1
        try:
            await own.ready.wait()
            if own.connection is None:
                assert own.error is not None
                raise own.error
            yield own.connection
        finally:
            own.release()

    def _open(
        self,
        key: str,
        tasks: TaskGroup,
        listing: Listing | None,
        deps: ConnectDeps,
        headers: Mapping[str, str] | None = None,
    ) -> CallerConnection:
        own = self._own[key] = CallerConnection()
        spec = replace(self._spec, headers={**self._spec.headers, **headers}) if headers else self._spec
        tasks.start_soon(self._run, key, own, listing, deps, spec)
        return own

    def _make_room(self) -> None:
        if len(self._own) < self._max_callers:
            return
        idle = self._list_idle()
        if not idle:
            message = f"{self._spec.name} already serves {self._max_callers} callers"
            raise ServerUnavailable(message, server=self._spec.name, hint="try again when one has finished")
        self._own.pop(min(idle)[1]).scope.cancel()

    def _list_idle(self) -> list[tuple[float, str]]:
        return [(own.last_used, key) for key, own in self._own.items() if not own.is_busy]

    async def _run(
        self,
        key: str,
        caller_connection: CallerConnection,
        listing: Listing | None,
        deps: ConnectDeps,
        spec: ServerSpec,
    ) -> None:
        """Run one connection from start to end."""
        stderr = RingBuffer(self._deps.limits.stderr_bytes)
        state = ConnectionState(self._spec.name, stderr=stderr, logs=self._deps.logs())
        try:
            connect = await deps.library.load()
            caller_connection.scope.deadline = anyio.current_time() + self._spec.connect_timeout
            try:
                with caller_connection.scope:
                    async with connect.open_connection(
                        spec, deps, state=state, on_notification=self._on_notification
                    ) as connection:
                        if listing is not None:
                            connection.learn_mirrored_headers(listing)
                        caller_connection.scope.deadline = math.inf
                        caller_connection.connection = connection
                        caller_connection.ready.set()
                        await self._wait_until_idle(caller_connection, state)
                        caller_connection.is_closing = True  # closing can take seconds
                        await connection.drain()
            except Exception as error:  # noqa: BLE001 - any error of a server or the library
                caller_connection.error = connect.from_exception(self._spec.name, error)
        finally:
            if caller_connection.connection is None and caller_connection.error is None:
                seconds = self._spec.connect_timeout
                caller_connection.error = ServerUnavailable(
                    f"{self._spec.name} did not connect within {seconds:g} s", server=self._spec.name
                )
            caller_connection.ready.set()
            if self._own.get(key) is caller_connection:
                del self._own[key]

    async def _wait_until_idle(self, caller_connection: CallerConnection, state: ConnectionState) -> None:
        while True:
            quiet_until = caller_connection.last_used + self._idle_seconds
            with anyio.move_on_at(quiet_until):
                await state.ended.wait()
                return
            if (
                not caller_connection.is_busy
                and caller_connection.last_used + self._idle_seconds <= anyio.current_time()
            ):
                return
            if caller_connection.is_busy:
                caller_connection.last_used = anyio.current_time()

    def _on_notification(self, method: str, params: JsonObject, caller: str | None) -> None:
        # Log messages belong to one caller. Changes concern all callers.
        if method != LOG_METHOD or caller is not None:
            self._notify(method, params, caller)

    def close(self) -> None:
        for own in tuple(self._own.values()):
            own.scope.cancel()


LEGACY_VERSION: Final = "2025-11-25"
_UNSUPPORTED_PHRASE: Final = "server-initiated requests"
_MAX_TEXT_LENGTH: Final = 1000  # characters; longer texts are not this error message


class ServerRequestUnsupported(ToolFailed):
    """The tool failed because its server could not ask the caller. `result` is the tool's failed result, if
    it returned one.

    `again` is true if a repeated call could be answered by the caller.
    """

    def __init__(self, message: str, *, server: str, code: int, data: object, again: bool) -> None:
        super().__init__(message, server=server, code=code, data=data)
        self.result: JsonObject | None = None
        self.again = again


def is_unsupported_request_failure(failed: JsonObject | ToolFailed) -> bool:
    """Return whether a call failed because the server could not send a request to the caller."""
    texts = [str(failed)] if isinstance(failed, ToolFailed) else _get_texts(failed)
    return any(_UNSUPPORTED_PHRASE in text[:_MAX_TEXT_LENGTH] for text in texts)


def build_unsupported_request(
    server: str, failed: JsonObject | ToolFailed, advice: str, *, again: bool
) -> ServerRequestUnsupported:
    """Build the error from the failed call, with advice added."""
    if isinstance(failed, ToolFailed):
        message = f"{str(failed).rstrip('.')}. {advice}"
        return ServerRequestUnsupported(
            message, server=server, code=failed.code, data=failed.data, again=again
        )
    texts = [*_get_texts(failed), advice]
    error = ServerRequestUnsupported(
        "\n".join(texts), server=server, code=INVALID_REQUEST, data=None, again=again
    )
    content = cast("Sequence[Json]", failed["content"])
    error.result = {**failed, "content": [*content, {"type": "text", "text": advice}]}
    return error


def _get_texts(result: JsonObject) -> list[str]:
    content = result.get("content")
    if not isinstance(content, list | tuple):
        return []
    blocks = [block for block in cast("Sequence[Json]", content) if isinstance(block, dict)]
    return [text for block in blocks if isinstance(text := cast("JsonObject", block).get("text"), str)]


# Calls of one session; opening another session costs about as much as twenty calls.
FREQUENT_CALLS: Final = 64
# Calls times listed tools, because the server may build its tool list for every call.
FREQUENT_CALLS_TIMES_TOOLS: Final = 1920
RETRY_SECONDS: Final = 300.0  # wait after a server refused the legacy protocol or offered less in it
MAX_COUNTED_CALLERS: Final = 1000  # sessions
SET_LEVEL_METHOD: Final = "logging/setLevel"


class LegacySessions:
    """Legacy protocol sessions for callers that call often, or that the server cannot ask otherwise."""

    def __init__(self, spec: ServerSpec, deps: ConnectDeps) -> None:
        self._server = spec.name
        self._possible = spec.transport == "http" and spec.era == "auto" and not spec.isolate
        self._deps = deps
        self._sessions = CallerConnections(replace(spec, era=LEGACY_VERSION), deps, _ignore_notification)
        self._calls: OrderedDict[str, int] = OrderedDict()
        self._last_opened: CallerConnection | None = None  # the most recently opened one
        self._not_before = 0.0
        self._refusal = ""  # why the last one failed
        # Whether the server asks during a call, which works only in the legacy protocol.
        self._server_asks = False

    def __len__(self) -> int:
        return len(self._sessions)

    def select_connection(
        self, context: RequestContext | None, shared: ServerConnection, tasks: TaskGroup, *, tool_count: int
    ) -> CallerConnection | None:
        """Return the caller's own connection, or None to use the shared one. `tool_count` is the number of
        tools of the server. Counts the call, and opens a connection in the background for callers that call
        often.

        A connection that is still being opened is returned only to callers that must wait for it with
        `wait_for_connection`.
        """
        if not self._possible or context is None or not shared.modern:
            return None
        caller = context.caller
        if caller is None or caller.accepts_input_required:
            return None
        if self._server_asks and _can_answer_questions(caller):
            return self._sessions.get_pending_or_open(caller.key) or self._begin(
                caller, shared, tasks, tool_count
            )
        # The log level belongs to a request in the modern protocol and to a session in the legacy protocol.
        if not shared.is_direct or (context.log_level is not None and not context.is_default_log_level):
            return None
        own = self._sessions.get_open(caller.key)
        if own is None:
            calls = self._count(caller.key)
            if calls >= FREQUENT_CALLS or calls * tool_count >= FREQUENT_CALLS_TIMES_TOOLS:
                self._begin(caller, shared, tasks, tool_count)
        return own

    def use(
        self, context: RequestContext | None, shared: ServerConnection, tasks: TaskGroup, *, tool_count: int
    ) -> AbstractAsyncContextManager[ServerConnection] | None:
        """Return a lease on the caller's own session, or None to use the shared connection."""
        own = self.select_connection(context, shared, tasks, tool_count=tool_count)
        return None if own is None else self._lease(own, context, shared)

    @asynccontextmanager
    async def _lease(
        self, own: CallerConnection, context: RequestContext | None, shared: ServerConnection
    ) -> AsyncGenerator[ServerConnection]:
        """Yield the caller's own session, or the shared connection if it could not be opened."""
        own.use_count += 1
        try:
            yield await self.wait_for_connection(own, context) or shared
        except ServerUnavailable:
            shared.state.request_probe()  # the shared connection may be lost too
            raise
        finally:
            own.release()

    def _begin(
        self, caller: CallerChannel, shared: ServerConnection, tasks: TaskGroup, tool_count: int
    ) -> CallerConnection | None:
        if self._is_refused():
            return None
        deps = self._build_caller_deps(caller.capabilities, shared, tool_count)
        own = self._sessions.open_in_background(caller.key, tasks, deps)
        self._last_opened = own or self._last_opened
        return own

    async def wait_for_connection(
        self, caller_connection: CallerConnection, context: RequestContext | None
    ) -> ServerConnection | None:
        """Wait until the connection is open and set the session's log level. Return None if it failed."""
        if caller_connection.connection is None:
            await caller_connection.ready.wait()
        opened = caller_connection.connection
        if opened is None or context is None or context.is_default_log_level:
            return opened
        level = context.log_level
        if level is not None and level != caller_connection.log_level and "logging" in opened.capabilities:
            caller_connection.log_level = level
            with suppress(ToolFailed):  # the session still filters by its own level
                await opened.fetch(SET_LEVEL_METHOD, {"level": level})
        return opened

    def build_unsupported_error(
        self, failed: JsonObject | ToolFailed, context: RequestContext | None, shared: ServerConnection
    ) -> ServerRequestUnsupported | None:
        """Return an error if a call on the shared connection failed because its caller could not be asked,
        else None.

        After that, legacy callers get their own sessions if possible.
        """
        caller = None if context is None else context.caller
        if (
            caller is None
            or caller.accepts_input_required
            or not shared.modern
            or not _can_answer_questions(caller)
        ):
            return None
        if not is_unsupported_request_failure(failed):
            return None
        if not self._server_asks:
            self._server_asks = True
            # An earlier refusal may concern a capability that is not required now.
            self._last_opened, self._not_before = None, 0.0
        again = self._possible and not self._is_refused()
        return build_unsupported_request(self._server, failed, self._build_hint(again=again), again=again)

    def _build_hint(self, *, again: bool) -> str:
        if again:
            return (
                f"{self._server} can ask this in protocol {LEGACY_VERSION} "
                "alone, and is spoken to in it from now on "
                "for this session: the next call can be asked about. Check what this one did before it is "
                "repeated."
            )
        if self._possible:
            return f"It could be asked in protocol {LEGACY_VERSION} alone, but {self._refusal}."
        return (
            f"{self._server} can ask this in protocol {LEGACY_VERSION} alone: where it speaks that as well, "
            f'`era = "{LEGACY_VERSION}"` in its entry lets it ask.'
        )

    def _build_caller_deps(
        self, capabilities: JsonObject, shared: ServerConnection, tool_count: int
    ) -> ConnectDeps:
        """Return dependencies with the caller's capabilities. The server must offer at least what it offers
        now.

        If the server asks questions, extensions are not required, because servers name them only in the
        modern protocol.
        """
        given = shared.capabilities
        if self._server_asks:
            given = {name: value for name, value in given.items() if name != "extensions"}
        standard = ConnectionProfile(capabilities=given, tool_count=tool_count)
        return replace(self._deps, abilities=lambda: capabilities, standard=standard)

    def close(self) -> None:
        self._sessions.close()

    def _count(self, key: str) -> int:
        self._calls[key] = calls = self._calls.pop(key, 0) + 1
        if len(self._calls) > MAX_COUNTED_CALLERS:
            self._calls.popitem(last=False)
        return calls

    def _is_refused(self) -> bool:
        if (
            self._last_opened is not None
            and self._last_opened.connection is None
            and self._last_opened.error is not None
        ):
            self._refusal = str(self._last_opened.error)
            self._last_opened = None
            self._not_before = anyio.current_time() + RETRY_SECONDS
        return anyio.current_time() < self._not_before


def _can_answer_questions(caller: CallerChannel) -> bool:
    return not _QUESTION_CAPABILITIES.isdisjoint(caller.capabilities)


_QUESTION_CAPABILITIES: Final = frozenset(QUESTION_CAPABILITIES.values())


def _ignore_notification(method: str, params: JsonObject, caller: str | None) -> None:
    """Ignore changes: the shared connection receives them too."""


LIST_SECONDS: Final = 60.0  # a caller's list is read again after this
FAILED_SECONDS: Final = 5.0  # a failed read is repeated after this
MAX_LISTED_CALLERS: Final = 100  # lists kept; the least recently used one is dropped
MAX_CONCURRENT_READS: Final = 4  # lists read from one server at the same time
CALLER_KEY_NOTE: Final = "needs the caller's own key to list its tools"
USER_SIGN_IN_NOTE: Final = "each user signs in with the own account, on the console page Sign-ins"
CALLER_KEY_CONNECT_NOTE: Final = "needs the caller's own key to connect"

# Many servers refuse with code -32001, which also means a timeout.
REFUSALS: Final = (SignInRequired, ToolFailed, ToolTimeout)
_NO_TOOLS: Final[Mapping[str, JsonObject]] = {}


@frozen
class _CallerToolList:
    """The definitions listed for one caller, by name."""

    definitions: Mapping[str, JsonObject]
    since: float  # when this caller first got a list, in event loop time
    until: float  # when it is read again


class CallerToolLists:
    """The tool lists of one server's callers, each read with the caller's key."""

    def __init__(self) -> None:
        self._secret = secrets.token_bytes(32)
        self._lists: OrderedDict[bytes, _CallerToolList] = OrderedDict()
        self._before: Sequence[JsonObject] = ()  # definitions from before this process has read a list
        self._reading: dict[bytes, anyio.Event] = {}
        self._slots = anyio.Semaphore(MAX_CONCURRENT_READS)

    def offer_before(self, definitions: Sequence[JsonObject]) -> None:
        """Use definitions that other processes have listed, until a list is read here."""
        if not self._lists:
            self._before = definitions

    def add_to_listing(self, listing: Listing, *, max_tools: int, personal: bool) -> Listing:
        """Return the listing with the callers' tools added after it, marked as theirs if `personal`.

        If callers have different definitions of a tool, the first one seen is used while its list is valid.
        """
        known = {cast("str", definition["name"]) for definition in listing.definitions}
        found: dict[str, JsonObject] = {}
        now = anyio.current_time()
        in_order = sorted(self._lists.values(), key=lambda own: (own.until <= now, own.since))
        for definition in (*self._before, *(each for own in in_order for each in own.definitions.values())):
            name = cast("str", definition["name"])
            if name not in known and len(known) + len(found) < max_tools:
                found.setdefault(name, definition)
        if not found:
            return listing
        return replace(
            listing,
            definitions=(*listing.definitions, *found.values()),
            personal=frozenset(found if personal else ()),
        )

    def get_tool_names(self, caller: str, authorization: str, listing: Listing) -> frozenset[str]:
        """Return the tools of this caller's list whose definition is the one in the listing."""
        own = self._lists.get(self._build_key(caller, authorization))
        if own is None:
            return frozenset()
        return frozenset(
            name
            for definition in listing.definitions
            if (name := cast("str", definition["name"])) in listing.personal
            and own.definitions.get(name) == definition
        )

    async def refresh(
        self,
        caller: str,
        authorization: str,
        ask: Callable[[], Awaitable[Listing]],
        publish: Callable[[], Awaitable[None]],
        *,
        timeout: float,
    ) -> None:
        """Read this caller's list if there is no valid one, and publish it.

        Concurrent requests share one read, and wait until it is published. A refusal empties the list. If the
        server does not respond, the old list is kept.
        """
        key = self._build_key(caller, authorization)
        while (reading := self._reading.get(key)) is not None:
            await reading.wait()
        if (own := self._lists.get(key)) is not None and own.until > anyio.current_time():
            self._lists.move_to_end(key)
            return
        reading = self._reading[key] = anyio.Event()
        try:
            before = _NO_TOOLS if own is None else own.definitions
            definitions, valid = await self._read_definitions(ask, before, timeout)
            now = anyio.current_time()
            since = now if own is None else own.since
            self._lists[key] = _CallerToolList(definitions=definitions, since=since, until=now + valid)
            self._lists.move_to_end(key)
            while len(self._lists) > MAX_LISTED_CALLERS:
                self._lists.popitem(last=False)
            try:
                await publish()
            except BaseException:
                self._lists.pop(key, None)  # read and published by the next request
                raise
        finally:
            del self._reading[key]
            reading.set()

    async def _read_definitions(
        self, ask: Callable[[], Awaitable[Listing]], before: Mapping[str, JsonObject], timeout: float
    ) -> tuple[Mapping[str, JsonObject], float]:
        """Return the caller's current definitions and for how many seconds they are valid."""
        with anyio.move_on_after(timeout):
            try:
                async with self._slots:
                    listing = await ask()
            except REFUSALS:
                return _NO_TOOLS, FAILED_SECONDS
            except FingerpostError:
                return before, FAILED_SECONDS
            self._before = ()
            return {cast("str", given["name"]): given for given in listing.definitions}, LIST_SECONDS
        return before, FAILED_SECONDS

    def build_connection_key(self, authorization: str, session: str) -> str:
        """Return the key of the connection opened with this authorization in this session."""
        return self._build_key(session, authorization).hex()

    def _build_key(self, caller: str, authorization: str) -> bytes:
        name = caller.encode("utf-8", "surrogatepass")
        given = authorization.encode("utf-8", "surrogatepass")
        joined = len(name).to_bytes(8, "big") + name + given
        return hashlib.blake2b(joined, key=self._secret, digest_size=32).digest()

"""A connection for each caller, for servers that keep state between calls.

The shared connection still lists and tells of the server's health; these only
carry calls. There are few of them, and they go when nobody uses them.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import replace

import anyio
from anyio.abc import TaskGroup

from fingerpost.errors import FingerpostError, ServerUnavailable
from fingerpost.records import JsonObject, Listing, ServerSpec
from fingerpost.servers.connection import ServerConnection
from fingerpost.servers.failures import from_exception
from fingerpost.servers.lifeline import ConnectionState
from fingerpost.servers.opening import ConnectDeps, NotificationCallback, open_connection
from fingerpost.servers.ring import RingBuffer
from fingerpost.servers.talk import LOG_METHOD

MAX_CALLERS = 32
IDLE_SECONDS = 600.0


class CallerConnection:
    """The connection of one caller."""

    def __init__(self) -> None:
        self.ready = anyio.Event()
        self.connection: ServerConnection | None = None
        self.error: FingerpostError | None = None
        self.scope = anyio.CancelScope()
        self.users = 0
        self.used = time.monotonic()
        self.log_level: str | None = None  # what the server was told; None: nothing

    @property
    def is_busy(self) -> bool:
        return self.users > 0

    def release(self) -> None:
        """One of those who use it is done."""
        self.users -= 1
        self.used = time.monotonic()  # what event loops count by

    @property
    def is_closed(self) -> bool:
        lost = self.connection is not None and self.connection.lifeline.failure is not None
        return lost or self.error is not None or self.scope.cancel_called


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
        self._around = deps
        self._outside = on_notification
        self._most = max_callers
        self._idle_seconds = idle_seconds
        self._own: dict[str, CallerConnection] = {}

    def __len__(self) -> int:
        return len(self._own)

    def get_open(self, key: str) -> CallerConnection | None:
        """This caller's connection where there is one that can be used now."""
        own = self._own.get(key)
        return own if own is not None and own.connection is not None and not own.is_closed else None

    def get_pending_or_open(self, key: str) -> CallerConnection | None:
        """This caller's connection, be it one that is still being opened."""
        own = self._own.get(key)
        return None if own is None or own.is_closed else own

    def open_in_background(self, key: str, tasks: TaskGroup, deps: ConnectDeps) -> CallerConnection | None:
        """Open a connection for a caller without anybody waiting for it. None: no room, or begun already."""
        if key in self._own or (len(self._own) >= self._most and not self._list_idle()):
            return None
        self._make_room()
        return self._open(key, tasks, None, deps)

    def use(
        self, key: str, tasks: TaskGroup, listing: Listing | None, headers: Mapping[str, str] | None = None
    ) -> _CallerConnectionLease:
        """This caller's connection, opened where there is none, kept at least until the block ends.

        `headers` go with everything that is sent on it.
        """
        return _CallerConnectionLease(self, key, tasks, listing, headers)

    def acquire(
        self, key: str, tasks: TaskGroup, listing: Listing | None, headers: Mapping[str, str] | None
    ) -> CallerConnection:
        own = self._own.get(key)
        if own is None or own.is_closed:
            if own is None:
                self._make_room()
            own = self._open(key, tasks, listing, self._around, headers)
        own.users += 1
        return own

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
        if len(self._own) < self._most:
            return
        idle = self._list_idle()
        if not idle:
            message = f"{self._spec.name} serves {self._most} callers at once already"
            raise ServerUnavailable(message, server=self._spec.name, hint="try again when one has finished")
        self._own.pop(min(idle)[1]).scope.cancel()

    def _list_idle(self) -> list[tuple[float, str]]:
        return [(own.used, key) for key, own in self._own.items() if not own.is_busy]

    async def _run(
        self,
        key: str,
        caller_connection: CallerConnection,
        listing: Listing | None,
        deps: ConnectDeps,
        spec: ServerSpec,
    ) -> None:
        """One connection from its first byte to its end."""
        lifeline = ConnectionState(self._spec.name, stderr=RingBuffer(self._around.limits.stderr_bytes))
        caller_connection.scope.deadline = anyio.current_time() + self._spec.connect_timeout
        try:
            with caller_connection.scope:
                async with open_connection(
                    spec, deps, state=lifeline, on_notification=self._on_notification
                ) as connection:
                    if listing is not None:
                        connection.learn_mirrored_headers(listing)
                    caller_connection.scope.deadline = math.inf
                    caller_connection.connection = connection
                    caller_connection.ready.set()
                    await self._wait_until_idle(caller_connection, lifeline)
                    await connection.drain()
        except Exception as error:  # noqa: BLE001 - whatever a server or the library does to us ends here
            caller_connection.error = from_exception(self._spec.name, error)
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
            quiet_until = caller_connection.used + self._idle_seconds
            with anyio.move_on_at(quiet_until):
                await state.ended.wait()
                return
            if (
                not caller_connection.is_busy
                and caller_connection.used + self._idle_seconds <= anyio.current_time()
            ):
                return
            if caller_connection.is_busy:
                caller_connection.used = anyio.current_time()

    def _on_notification(self, method: str, params: JsonObject, caller: str | None) -> None:
        # What is said to one caller is nobody else's; only that something changed concerns all.
        if method != LOG_METHOD or caller is not None:
            self._outside(method, params, caller)

    def close(self) -> None:
        for own in tuple(self._own.values()):
            own.scope.cancel()


class _CallerConnectionLease:
    """A claim on a caller's connection."""

    def __init__(
        self,
        pool: CallerConnections,
        key: str,
        tasks: TaskGroup,
        listing: Listing | None,
        headers: Mapping[str, str] | None,
    ) -> None:
        self._pool = pool
        self._arguments = (key, tasks, listing, headers)
        self._own: CallerConnection | None = None

    async def __aenter__(self) -> ServerConnection:
        self._own = own = self._pool.acquire(*self._arguments)
        try:
            await own.ready.wait()
            if own.connection is None:
                assert own.error is not None
                raise own.error
        except BaseException:
            own.release()
            raise
        return own.connection

    async def __aexit__(self, *_: object) -> None:
        assert self._own is not None
        self._own.release()

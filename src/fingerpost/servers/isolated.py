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
from fingerpost.servers.connection import Connection
from fingerpost.servers.failures import from_exception
from fingerpost.servers.lifeline import Lifeline
from fingerpost.servers.opening import Outside, Surroundings, open_connection
from fingerpost.servers.ring import Ring
from fingerpost.servers.talk import LOG

MOST_CALLERS = 32
IDLE_SECONDS = 600.0


class Own:
    """The connection of one caller."""

    def __init__(self) -> None:
        self.ready = anyio.Event()
        self.connection: Connection | None = None
        self.error: FingerpostError | None = None
        self.scope = anyio.CancelScope()
        self.users = 0
        self.used = time.monotonic()
        self.log_level: str | None = None  # what the server was told; None: nothing

    @property
    def busy(self) -> bool:
        return self.users > 0

    def leave(self) -> None:
        """One of those who use it is done."""
        self.users -= 1
        self.used = time.monotonic()  # what event loops count by

    @property
    def over(self) -> bool:
        lost = self.connection is not None and self.connection.lifeline.setback is not None
        return lost or self.error is not None or self.scope.cancel_called


class Isolated:
    """The connections of one server's callers."""

    def __init__(
        self,
        spec: ServerSpec,
        around: Surroundings,
        outside: Outside,
        *,
        most: int = MOST_CALLERS,
        idle_seconds: float = IDLE_SECONDS,
    ) -> None:
        self._spec = spec
        self._around = around
        self._outside = outside
        self._most = most
        self._idle_seconds = idle_seconds
        self._own: dict[str, Own] = {}

    def __len__(self) -> int:
        return len(self._own)

    def opened(self, key: str) -> Own | None:
        """This caller's connection where there is one that can be used now."""
        own = self._own.get(key)
        return own if own is not None and own.connection is not None and not own.over else None

    def begun(self, key: str) -> Own | None:
        """This caller's connection, be it one that is still being opened."""
        own = self._own.get(key)
        return None if own is None or own.over else own

    def begin(self, key: str, tasks: TaskGroup, around: Surroundings) -> Own | None:
        """Open a connection for a caller without anybody waiting for it. None: no room, or begun already."""
        if key in self._own or (len(self._own) >= self._most and not self._idle()):
            return None
        self._make_room()
        return self._open(key, tasks, None, around)

    def use(
        self, key: str, tasks: TaskGroup, listing: Listing | None, headers: Mapping[str, str] | None = None
    ) -> _Use:
        """This caller's connection, opened where there is none, kept at least until the block ends.

        `headers` go with everything that is sent on it.
        """
        return _Use(self, key, tasks, listing, headers)

    def claim(
        self, key: str, tasks: TaskGroup, listing: Listing | None, headers: Mapping[str, str] | None
    ) -> Own:
        own = self._own.get(key)
        if own is None or own.over:
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
        around: Surroundings,
        headers: Mapping[str, str] | None = None,
    ) -> Own:
        own = self._own[key] = Own()
        spec = replace(self._spec, headers={**self._spec.headers, **headers}) if headers else self._spec
        tasks.start_soon(self._run, key, own, listing, around, spec)
        return own

    def _make_room(self) -> None:
        if len(self._own) < self._most:
            return
        idle = self._idle()
        if not idle:
            message = f"{self._spec.name} serves {self._most} callers at once already"
            raise ServerUnavailable(message, server=self._spec.name, hint="try again when one has finished")
        self._own.pop(min(idle)[1]).scope.cancel()

    def _idle(self) -> list[tuple[float, str]]:
        return [(own.used, key) for key, own in self._own.items() if not own.busy]

    async def _run(
        self, key: str, own: Own, listing: Listing | None, around: Surroundings, spec: ServerSpec
    ) -> None:
        """One connection from its first byte to its end."""
        lifeline = Lifeline(self._spec.name, stderr=Ring(self._around.limits.stderr_bytes))
        own.scope.deadline = anyio.current_time() + self._spec.connect_timeout
        try:
            with own.scope:
                async with open_connection(spec, around, lifeline=lifeline, outside=self._hear) as connection:
                    if listing is not None:
                        connection.mirror(listing)
                    own.scope.deadline = math.inf
                    own.connection = connection
                    own.ready.set()
                    await self._until_idle(own, lifeline)
                    await connection.last_answers()
        except Exception as error:  # noqa: BLE001 - whatever a server or the library does to us ends here
            own.error = from_exception(self._spec.name, error)
        finally:
            if own.connection is None and own.error is None:
                seconds = self._spec.connect_timeout
                own.error = ServerUnavailable(
                    f"{self._spec.name} did not connect within {seconds:g} s", server=self._spec.name
                )
            own.ready.set()
            if self._own.get(key) is own:
                del self._own[key]

    async def _until_idle(self, own: Own, lifeline: Lifeline) -> None:
        while True:
            quiet_until = own.used + self._idle_seconds
            with anyio.move_on_at(quiet_until):
                await lifeline.ended.wait()
                return
            if not own.busy and own.used + self._idle_seconds <= anyio.current_time():
                return
            if own.busy:
                own.used = anyio.current_time()

    def _hear(self, method: str, params: JsonObject, caller: str | None) -> None:
        # What is said to one caller is nobody else's; only that something changed concerns all.
        if method != LOG or caller is not None:
            self._outside(method, params, caller)

    def close(self) -> None:
        for own in tuple(self._own.values()):
            own.scope.cancel()


class _Use:
    """A claim on a caller's connection."""

    def __init__(
        self,
        pool: Isolated,
        key: str,
        tasks: TaskGroup,
        listing: Listing | None,
        headers: Mapping[str, str] | None,
    ) -> None:
        self._pool = pool
        self._arguments = (key, tasks, listing, headers)
        self._own: Own | None = None

    async def __aenter__(self) -> Connection:
        self._own = own = self._pool.claim(*self._arguments)
        try:
            await own.ready.wait()
            if own.connection is None:
                assert own.error is not None
                raise own.error
        except BaseException:
            own.leave()
            raise
        return own.connection

    async def __aexit__(self, *_: object) -> None:
        assert self._own is not None
        self._own.leave()

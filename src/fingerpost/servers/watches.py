"""Which resources of a server somebody wants to hear of, asked for once however many they are.

The eras differ: a handshake server is told each address once, a modern one
gets all of them with one standing request, renewed when they change.
"""

from __future__ import annotations

import anyio
from anyio.abc import TaskGroup
from mcp.client.subscriptions import SubscriptionLost
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS

from fingerpost.errors import FingerpostError, LimitReached, ToolFailed
from fingerpost.records import JsonObject
from fingerpost.servers.backoff import compute_delay
from fingerpost.servers.caller import RequestContext
from fingerpost.servers.connection import ServerConnection
from fingerpost.servers.failures import from_reply
from fingerpost.servers.lifeline import RetryPace
from fingerpost.tasks import run_contained

SUBSCRIBE_METHOD = "resources/subscribe"
UNSUBSCRIBE_METHOD = "resources/unsubscribe"
MAX_SUBSCRIPTIONS = 1000  # addresses of one server
OVERLAP_SECONDS = 5.0  # for a renewed request to be acknowledged before the old one ends


class ResourceSubscriptions:
    """The resource subscriptions of one server, which outlast its connections."""

    def __init__(self, server: str, *, reconnect_max: float) -> None:
        self._server = server
        self._reconnect_max = reconnect_max
        self._counts: dict[str, int] = {}
        self._lock = anyio.Lock()
        self._changed = anyio.Event()
        self._moved = anyio.Event()
        self._heard: frozenset[str] = frozenset()  # modern: what is asked for and acknowledged
        self._refusal: FingerpostError | None = None

    async def change(
        self, connection: ServerConnection, method: str, params: JsonObject, context: RequestContext | None
    ) -> JsonObject:
        """Subscribe or unsubscribe for one more or one less. Raises our errors."""
        uri = params.get("uri")
        if not isinstance(uri, str) or not uri:
            message = "a subscription needs the uri of a resource"
            raise ToolFailed(message, server=self._server, code=INVALID_PARAMS)
        async with self._lock:
            if method == SUBSCRIBE_METHOD:
                return await self._subscribe(connection, uri, params, context)
            return await self._unsubscribe(connection, uri, params, context)

    async def _subscribe(
        self, connection: ServerConnection, uri: str, params: JsonObject, context: RequestContext | None
    ) -> JsonObject:
        result: JsonObject = {}
        if uri not in self._counts:
            if len(self._counts) >= MAX_SUBSCRIPTIONS:
                message = f"more than {MAX_SUBSCRIPTIONS} resources of {self._server} are watched"
                raise LimitReached(message, hint="unsubscribe from some of them")
            if not connection.modern:
                result = await _ask_server(connection, SUBSCRIBE_METHOD, params, context)
            self._counts[uri] = 0
            if connection.modern:
                await self._wait_for_acknowledgement(uri)
        self._counts[uri] += 1
        return result

    async def _wait_for_acknowledgement(self, uri: str) -> None:
        self._refusal = None
        self._changed.set()
        try:
            while uri not in self._heard:
                if self._refusal is not None:
                    raise self._refusal
                await self._moved.wait()
        except BaseException:
            del self._counts[uri]
            self._changed.set()
            raise

    async def _unsubscribe(
        self, connection: ServerConnection, uri: str, params: JsonObject, context: RequestContext | None
    ) -> JsonObject:
        count = self._counts.get(uri, 0)
        if count > 1:
            self._counts[uri] = count - 1
            return {}
        self._counts.pop(uri, None)
        self._changed.set()
        return {} if connection.modern else await _ask_server(connection, UNSUBSCRIBE_METHOD, params, context)

    # -- while connected ----------------------------------------------------------------------------

    async def run(self, connection: ServerConnection, tasks: TaskGroup) -> None:
        """Keep the server informed of what is watched, for as long as this connection lasts."""
        if not connection.modern:
            for uri in tuple(self._counts):
                try:
                    await connection.fetch(SUBSCRIBE_METHOD, {"uri": uri})
                except FingerpostError:
                    self._counts.pop(uri, None)  # it is gone; whoever subscribes again hears why
            return
        self._heard = frozenset()
        holding: anyio.CancelScope | None = None
        while True:
            self._changed = anyio.Event()
            uris = tuple(sorted(self._counts))
            scope = anyio.CancelScope()
            if uris:
                acknowledged = anyio.Event()
                tasks.start_soon(
                    run_contained, self._hold_subscription, connection, uris, scope, acknowledged
                )
                with anyio.move_on_after(OVERLAP_SECONDS):
                    await acknowledged.wait()
            if holding is not None:
                holding.cancel()
            holding = scope
            await self._changed.wait()

    async def _hold_subscription(
        self,
        connection: ServerConnection,
        uris: tuple[str, ...],
        scope: anyio.CancelScope,
        acknowledged: anyio.Event,
    ) -> None:
        """One standing request. What comes of it is heard by the session, like any other notification."""
        failures = 0
        with scope:
            while True:
                try:
                    async with connection.subscribe(uris=uris) as changes:
                        failures = 0
                        acknowledged.set()
                        self._heard = frozenset(uris)
                        self._restart()
                        async for _ in changes:
                            pass
                except (SubscriptionLost, TimeoutError):
                    connection.lifeline.request_probe()
                except MCPError as error:
                    self._refusal = from_reply(self._server, error, failure=connection.lifeline.failure)
                    self._restart()
                failures += 1
                await anyio.sleep(compute_delay(failures, pace=RetryPace.SOON, max_delay=self._reconnect_max))

    def _restart(self) -> None:
        self._moved.set()
        self._moved = anyio.Event()


async def _ask_server(
    connection: ServerConnection, method: str, params: JsonObject, context: RequestContext | None
) -> JsonObject:
    """For this caller; where there is none it is our own, and what the server says then about nobody's."""
    if context is None:
        return await connection.fetch(method, params)
    return await connection.ask(method, params, context=context)

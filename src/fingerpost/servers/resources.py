"""Resources, templates and prompts of a server, and subscriptions to resources."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, cast

import anyio
from anyio.abc import TaskGroup
from pydantic_core import to_json

from fingerpost.errors import FingerpostError, LimitReached, ServerReplyInvalid, ToolFailed
from fingerpost.records import JsonObject, ServerResources, find_json_problem
from fingerpost.servers.connection_state import RetryPace, compute_delay
from fingerpost.servers.errors import INVALID_PARAMS, METHOD_NOT_FOUND, SubscriptionEnded
from fingerpost.servers.requests import RequestContext
from fingerpost.settings.model import LimitSettings
from fingerpost.tasks import run_contained

if TYPE_CHECKING:
    from fingerpost.servers.connection import ServerConnection

logger = logging.getLogger("fingerpost.servers")

ResourceKind = Literal["resources", "prompts"]
AskServer = Callable[[str, Mapping[str, Any]], Awaitable[dict[str, Any]]]

RESOURCE_KINDS: tuple[ResourceKind, ...] = ("resources", "prompts")
CHANGED_METHODS: dict[str, ResourceKind] = {
    f"notifications/{kind}/list_changed": kind for kind in RESOURCE_KINDS
}
DEBOUNCE_SECONDS = 0.1
MAX_ATTEMPTS = 6  # for a list that cannot be read; a later change notification starts again


class ServerResourceCache:
    """Resources, templates and prompts of one server. They are kept while it is down."""

    def __init__(
        self,
        server: str,
        limits: LimitSettings,
        on_change: Callable[[ResourceKind], None],
        *,
        on_loaded: Callable[[], None] = lambda: None,
    ) -> None:
        self._server = server
        self._limits = limits
        self._changed = on_change
        self._on_loaded = on_loaded
        self._stale: set[ResourceKind] = set()
        self._wake = anyio.Event()
        self.resources: ServerResources | None = None
        self.loaded = anyio.Event()  # set when everything was read once or failed

    def start(self, connection: ServerConnection) -> None:
        """Store the capabilities of a new connection and mark all lists as stale."""
        known = self.resources or ServerResources(server=self._server)
        self.resources = replace(known, capabilities=connection.capabilities)
        for kind in RESOURCE_KINDS:
            if kind in connection.capabilities or self._has(kind):
                self.mark_stale(kind)
        if not self._stale:
            self.loaded.set()

    def _has(self, kind: ResourceKind) -> bool:
        known = self.resources
        if known is None:
            return False
        return bool(known.prompts if kind == "prompts" else known.resources or known.templates)

    def mark_stale(self, kind: ResourceKind) -> None:
        self._stale.add(kind)
        self._wake.set()

    async def refresh_stale(self, connection: ServerConnection) -> None:
        """Read stale lists for as long as the connection lasts."""
        failures = 0
        while True:
            await self._wake.wait()
            if failures == 0:
                await anyio.sleep(DEBOUNCE_SECONDS)
            self._wake = anyio.Event()
            failed: set[ResourceKind] = set()
            while self._stale:
                kind = self._stale.pop()
                try:
                    await self._read(kind, connection)
                except FingerpostError as error:
                    logger.debug("%s: its %s could not be listed: %s", self._server, kind, error)
                    failed.add(kind)
                except Exception:
                    logger.exception("%s: its %s could not be listed", self._server, kind)
                    failed.add(kind)
            self.loaded.set()
            self._on_loaded()
            failures = failures + 1 if failed else 0
            if failed and failures < MAX_ATTEMPTS:
                await anyio.sleep(
                    compute_delay(failures, pace=RetryPace.SOON, max_delay=self._limits.reconnect_max)
                )
                for kind in failed:
                    self.mark_stale(kind)
            else:
                failures = 0

    async def _read(self, kind: ResourceKind, connection: ServerConnection) -> None:
        assert self.resources is not None
        before = self.resources
        ask = connection.fetch if kind in connection.capabilities else _raise_method_not_found
        if kind == "prompts":
            prompts = await self._list(ask, "prompts/list", "prompts", "name")
            self.resources = replace(self.resources, prompts=prompts)
        else:
            resources = await self._list(ask, "resources/list", "resources", "uri")
            templates = await self._list(ask, "resources/templates/list", "resourceTemplates", "uriTemplate")
            self.resources = replace(self.resources, resources=resources, templates=templates)
        if self.resources != before:
            self._changed(kind)

    async def _list(self, ask: AskServer, method: str, field: str, key: str) -> tuple[JsonObject, ...]:
        """Return all entries, read page by page. Invalid entries are dropped."""
        entries: dict[str, JsonObject] = {}
        cursor: str | None = None
        seen: set[str] = set()
        for _ in range(self._limits.list_pages):
            try:
                page = await ask(method, {} if cursor is None else {"cursor": cursor})
            except ToolFailed as error:
                if error.code == METHOD_NOT_FOUND:
                    break
                raise
            listed: object = page.get(field)
            if not isinstance(listed, list):
                message = f"{self._server} answered {method} without a list"
                raise ServerReplyInvalid(message, server=self._server)
            for entry in cast("list[object]", listed):
                if len(entries) >= self._limits.tools_per_server:
                    return tuple(entries.values())
                if (name := self._get_entry_name(entry, key)) is not None:
                    entries.setdefault(name, cast("JsonObject", entry))
            following: object = page.get("nextCursor")
            if not isinstance(following, str) or not following or following in seen:
                break
            seen.add(following)
            cursor = following
        return tuple(entries.values())

    def _get_entry_name(self, entry: object, key: str) -> str | None:
        """Return the identifier of a valid entry, or None."""
        if not isinstance(entry, Mapping):
            return None
        entry = cast("Mapping[str, object]", entry)
        name = entry.get(key)
        if not isinstance(name, str) or not name:
            return None
        if find_json_problem(entry, max_depth=self._limits.schema_depth) is not None:
            return None
        return name if len(to_json(entry)) <= self._limits.definition_bytes else None


async def _raise_method_not_found(method: str, params: Mapping[str, Any]) -> dict[str, Any]:
    raise ToolFailed(method, server="", code=METHOD_NOT_FOUND)


SUBSCRIBE_METHOD = "resources/subscribe"
UNSUBSCRIBE_METHOD = "resources/unsubscribe"
MAX_SUBSCRIPTIONS = 1000  # resource URIs of one server
OVERLAP_SECONDS = 5.0  # time for a renewed subscription to be acknowledged before the old one ends


class ResourceSubscriptions:
    """Resource subscriptions of one server. They survive reconnects."""

    def __init__(self, server: str, *, reconnect_max: float) -> None:
        self._server = server
        self._reconnect_max = reconnect_max
        self._counts: dict[str, int] = {}
        self._lock = anyio.Lock()
        self._changed = anyio.Event()
        self._resolved = anyio.Event()
        self._acknowledged: frozenset[str] = frozenset()  # modern protocol: requested and acknowledged
        self._refusal: FingerpostError | None = None

    @property
    def is_watching(self) -> bool:
        """Whether a client watches a resource of the server."""
        return bool(self._counts)

    async def change(
        self, connection: ServerConnection, method: str, params: JsonObject, context: RequestContext | None
    ) -> JsonObject:
        """Add or remove one subscriber. Raises `FingerpostError`."""
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
            while uri not in self._acknowledged:
                if self._refusal is not None:
                    raise self._refusal
                await self._resolved.wait()
        except BaseException:
            del self._counts[uri]
            self._changed.set()
            raise

    async def _unsubscribe(
        self, connection: ServerConnection, uri: str, params: JsonObject, context: RequestContext | None
    ) -> JsonObject:
        is_last = self.forget_subscriber(uri)
        if connection.modern or not is_last:
            return {}
        return await _ask_server(connection, UNSUBSCRIBE_METHOD, params, context)

    def forget_subscriber(self, uri: object) -> bool:
        """Remove one subscriber without telling the server. Return False if others are left."""
        if isinstance(uri, str):
            count = self._counts.get(uri, 0)
            if count > 1:
                self._counts[uri] = count - 1
                return False
            self._counts.pop(uri, None)
            self._changed.set()
        return True

    async def run(self, connection: ServerConnection, tasks: TaskGroup) -> None:
        """Keep the server's subscriptions up to date for as long as this connection lasts."""
        if not connection.modern:
            for uri in tuple(self._counts):
                try:
                    await connection.fetch(SUBSCRIBE_METHOD, {"uri": uri})
                except FingerpostError:
                    self._counts.pop(uri, None)  # the resource is gone; a new subscription returns the error
            return
        self._acknowledged = frozenset()
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
        """Keep one subscription request open. The session receives its notifications."""
        failures = 0
        with scope:
            while True:
                try:
                    async with connection.subscribe(uris=uris) as changes:
                        failures = 0
                        acknowledged.set()
                        self._acknowledged = frozenset(uris)
                        self._wake_waiters()
                        async for _ in changes:
                            pass
                except (SubscriptionEnded, TimeoutError):
                    connection.state.request_probe()
                except FingerpostError as error:
                    self._refusal = error
                    self._wake_waiters()
                failures += 1
                await anyio.sleep(compute_delay(failures, pace=RetryPace.SOON, max_delay=self._reconnect_max))

    def _wake_waiters(self) -> None:
        self._resolved.set()
        self._resolved = anyio.Event()


async def _ask_server(
    connection: ServerConnection, method: str, params: JsonObject, context: RequestContext | None
) -> JsonObject:
    """Send the request for this caller, or as an internal request if there is none."""
    if context is None:
        return await connection.fetch(method, params)
    return await connection.ask(method, params, context=context)

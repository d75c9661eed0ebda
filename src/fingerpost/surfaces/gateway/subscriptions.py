"""Resource subscriptions, and notifications about changed lists."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, cast

import anyio
from anyio.abc import TaskGroup
from mcp_types.jsonrpc import INVALID_PARAMS

from fingerpost.errors import FingerpostError, ToolFailed
from fingerpost.events import CatalogChanged, Event, ProfilesChanged, SettingsChanged
from fingerpost.records import Json, JsonObject
from fingerpost.router import Router
from fingerpost.surfaces.gateway.listing.resources import (
    RESOURCE_KINDS,
    ResourceKind,
    ResourceListing,
    ResourceViewer,
    VisibleResources,
)
from fingerpost.surfaces.gateway.listing.tools import ToolListing
from fingerpost.surfaces.gateway.protocol import (
    ClientExchange,
    ClientRequest,
    JsonRpcError,
    NotificationAudience,
)
from fingerpost.surfaces.gateway.request_context import LogLevels, keep_setting
from fingerpost.surfaces.gateway.resource_methods import (
    ResourceMethods,
    build_not_found_error,
    build_server_error,
    build_unavailable_error,
    get_text_param,
)
from fingerpost.surfaces.gateway.sessions import RESOURCE_UPDATED
from fingerpost.tasks import run_contained

SUBSCRIBE: Final = "resources/subscribe"
UNSUBSCRIBE: Final = "resources/unsubscribe"
MAX_SUBSCRIPTIONS_PER_SESSION: Final = 1000
# Kinds a client can ask for.
LIST_CHANGE_KINDS: Final = ("toolsListChanged", "promptsListChanged", "resourcesListChanged")
_UNSUBSCRIBE_TIMEOUT_S: Final = 10.0
_NOTHING: Final[JsonObject] = {}

WatchedResource = tuple[str, str]  # server, and the server's own URI


class SessionSubscriptions:
    """The resources that sessions and listening streams watch, by the URIs they use."""

    def __init__(
        self,
        router: Router,
        *,
        audience: NotificationAudience,
        resource_methods: ResourceMethods,
        tasks: TaskGroup,
        seconds: float,
    ) -> None:
        self._router = router
        self._audience = audience
        self._resource_methods = resource_methods
        self._tasks = tasks
        self._seconds = seconds
        self._watching: dict[str, dict[str, WatchedResource]] = {}  # by session, then by the session's URI
        self._watchers: dict[WatchedResource, dict[str, set[str]]] = {}  # sessions by the URI they use

    async def subscribe(self, request: ClientRequest, exchange: ClientExchange) -> JsonObject:
        """Answer `resources/subscribe` of a session."""
        uri = get_text_param(request, "uri")
        await self._watch(request, uri)

        def add(record: dict[str, Any]) -> None:
            record["watched"] = [*(one for one in record.get("watched", ()) if one != uri), uri]

        await keep_setting(self._router, request, add)
        return {}

    async def unsubscribe(self, request: ClientRequest, exchange: ClientExchange) -> JsonObject:
        """Answer `resources/unsubscribe`. A resource that was not watched is not an error."""
        uri = get_text_param(request, "uri")
        await self._stop_watching(_get_session_id(request), uri)

        def remove(record: dict[str, Any]) -> None:
            record["watched"] = [one for one in record.get("watched", ()) if one != uri]

        await keep_setting(self._router, request, remove)
        return {}

    async def _stop_watching(self, session: str, uri: str) -> None:
        watched = self._watching.get(session, {}).get(uri)
        if watched is not None:
            self._drop(session, uri)
            with suppress(FingerpostError):  # a disconnected server sends no updates anyway
                await self._send_to_server(UNSUBSCRIBE, watched)

    async def restore(self, request: ClientRequest, record: JsonObject) -> None:
        """Watch what a session watches in other processes, and nothing else."""
        session, listed = _get_session_id(request), record.get("watched", [])
        wanted = [uri for uri in cast("list[Json]", listed) if isinstance(uri, str)]
        for uri in set(self._watching.get(session, {})) - set(wanted):
            await self._stop_watching(session, uri)
        await self._watch_all(request, wanted)

    async def listen(self, request: ClientRequest, exchange: ClientExchange) -> JsonObject:
        """Answer `subscriptions/listen` with the accepted filter, without unsupported kinds and resources."""
        given = request.params.get("notifications")
        wanted = cast("JsonObject", given) if isinstance(given, Mapping) else _NOTHING
        honoured: dict[str, Json] = {
            change: True for change in LIST_CHANGE_KINDS if wanted.get(change) is True
        }
        uris = wanted.get("resourceSubscriptions")
        if isinstance(uris, list | tuple):
            honoured["resourceSubscriptions"] = await self._watch_all(request, cast("Sequence[Json]", uris))
        return {"notifications": honoured}

    async def _watch_all(self, request: ClientRequest, uris: Sequence[Json]) -> list[str]:
        watched: list[str] = []
        for uri in dict.fromkeys(uri for uri in uris[:MAX_SUBSCRIPTIONS_PER_SESSION] if isinstance(uri, str)):
            try:
                await self._watch(request, uri)
            except JsonRpcError:
                continue
            watched.append(uri)
        return watched

    async def _watch(self, request: ClientRequest, uri: str) -> None:
        session = _get_session_id(request)
        mine = self._watching.setdefault(session, {})
        if uri in mine:
            return
        if len(mine) >= MAX_SUBSCRIPTIONS_PER_SESSION:
            message = (
                f"more than {MAX_SUBSCRIPTIONS_PER_SESSION} resources are "
                "watched already: unsubscribe from some first"
            )
            raise JsonRpcError(INVALID_PARAMS, message)
        watched = (await self._resource_methods.get_resources(request)).collection.find_resource(uri)
        if watched is None:
            raise build_not_found_error(request, uri)
        mine[uri] = watched  # set first: the server may send an update at once
        self._watchers.setdefault(watched, {}).setdefault(uri, set()).add(session)
        try:
            await self._send_to_server(SUBSCRIBE, watched)
        except BaseException as failed:
            self._drop(session, uri)
            if isinstance(failed, ToolFailed):
                raise build_server_error(failed, request, uri) from failed
            if isinstance(failed, FingerpostError):
                raise build_unavailable_error(failed) from failed
            raise

    async def _send_to_server(self, method: str, watched: WatchedResource) -> None:
        server, uri = watched
        await self._router.servers.ask(server, method, {"uri": uri}, timeout=self._seconds)

    def _drop(self, session: str, uri: str) -> None:
        mine = self._watching.get(session, {})
        watched = mine.pop(uri, None)
        if not mine:
            self._watching.pop(session, None)
        if watched is None:
            return
        names = self._watchers.get(watched, {})
        names.get(uri, set()).discard(session)
        if not names.get(uri):
            names.pop(uri, None)
        if not names:
            self._watchers.pop(watched, None)

    def forget_session(self, session: str) -> None:
        """Drop all subscriptions of a session or stream that ended."""
        mine = dict(self._watching.get(session, {}))
        for uri in mine:
            self._drop(session, uri)
        if mine:
            self._tasks.start_soon(run_contained, self._unwatch, tuple(mine.values()))

    async def _unwatch(self, watched: Sequence[WatchedResource]) -> None:
        for each in watched:
            with anyio.move_on_after(_UNSUBSCRIBE_TIMEOUT_S), suppress(FingerpostError):
                await self._send_to_server(UNSUBSCRIBE, each)

    def on_resource_updated(self, server: str, params: JsonObject) -> None:
        """Notify every watcher of a changed resource, by the URI the watcher uses."""
        uri = params.get("uri")
        if not isinstance(uri, str):
            return
        for name, sessions in tuple(self._watchers.get((server, uri), {}).items()):
            among = frozenset(sessions)
            self._audience.publish(
                RESOURCE_UPDATED,
                {**params, "uri": name},
                should_receive=lambda request, among=among: request.session in among,
            )


def _get_session_id(request: ClientRequest) -> str:
    return request.session or request.caller_key


COLLECT_DELAY_S: Final = 0.1
LOG_MESSAGE_METHOD: Final = "notifications/message"
TOOLS_CHANGED: Final = "notifications/tools/list_changed"
RESOURCES_CHANGED: Final = "notifications/resources/list_changed"
PROMPTS_CHANGED: Final = "notifications/prompts/list_changed"
_METHODS_BY_KIND: Final[tuple[tuple[ResourceKind, str], ...]] = (
    ("resources", RESOURCES_CHANGED),
    ("resourceTemplates", RESOURCES_CHANGED),
    ("prompts", PROMPTS_CHANGED),
)


class ChangeNotifier:
    """Observes all changes and notifies the callers they affect."""

    def __init__(
        self,
        router: Router,
        *,
        audience: NotificationAudience,
        tools: ToolListing,
        resources: ResourceListing,
        subscriptions: SessionSubscriptions,
        levels: LogLevels,
    ) -> None:
        self._router = router
        self._audience = audience
        self._tool_listing = tools
        self._resource_listing = resources
        self._subscriptions = subscriptions
        self._levels = levels
        self._woken = anyio.Event()
        self._over = False
        self._known: dict[ResourceViewer, dict[ResourceKind, bytes]] = {}

    async def run(self) -> None:
        """Send notifications until cancelled."""
        stop = (
            self._router.servers.subscribe_to_notifications(self.on_server_notification),
            self._router.servers.subscribe_to_changes(lambda _: self._wake()),
        )
        self._router.events.add(self)
        try:
            while True:
                await self._woken.wait()
                await anyio.sleep(COLLECT_DELAY_S)
                self._woken = anyio.Event()
                await self._notify_tools_changed()
                self._notify_resources_changed()
        finally:
            self._over = True
            for each in stop:
                each()

    def emit(self, event: Event) -> None:
        """Receive events. The catalog also changes for other reasons than a server's list."""
        if type(event) in (CatalogChanged, ProfilesChanged, SettingsChanged) and not self._over:
            self._wake()

    def _wake(self) -> None:
        self._woken.set()

    def on_server_notification(
        self, server: str, method: str, params: JsonObject, caller: str | None
    ) -> None:
        """Handle a server's notification outside of a request. `caller` limits it to one caller."""
        if method == RESOURCE_UPDATED:
            self._subscriptions.on_resource_updated(server, params)
        elif method == LOG_MESSAGE_METHOD:
            self._forward_log_message(server, params, caller)
        elif method.endswith("/list_changed"):
            self._wake()

    def _forward_log_message(self, server: str, params: JsonObject, caller: str | None) -> None:
        """Forward a log message without a request to sessions that may use the server and want its level."""

        def should_receive(request: ClientRequest) -> bool:
            if caller not in (None, request.caller_key):
                return False
            viewer = self._find_viewer(request)
            if viewer is None or not self._levels.wants(request.session, params.get("level")):
                return False
            return self._resource_listing.is_permitted(viewer, server)

        self._audience.publish(LOG_MESSAGE_METHOD, params, should_receive=should_receive)

    async def _notify_tools_changed(self) -> None:
        changed = await self._tool_listing.find_changed_viewers()
        if changed:
            self._audience.publish(
                TOOLS_CHANGED,
                {},
                should_receive=lambda request: self._tool_listing.is_one_of(
                    request.endpoint, request.principal, changed
                ),
            )

    def remember_list(self, viewer: ResourceViewer, kind: ResourceKind, fingerprint: bytes) -> None:
        """Remember that this list was sent, to notify its viewer of changes."""
        self._known.setdefault(viewer, {})[kind] = fingerprint
        if len(self._known) > 1000:
            self._known.pop(next(iter(self._known)))

    def remember_client(self, resources: VisibleResources) -> None:
        """Remember a client that has not listed anything yet, so that it is notified of changes."""
        known = self._known.get(resources.viewer, {})
        for kind in RESOURCE_KINDS:
            if kind not in known:
                self.remember_list(resources.viewer, kind, resources.get_pages(kind).fingerprint)

    def _notify_resources_changed(self) -> None:
        changed: dict[str, set[ResourceViewer]] = {}
        for viewer, lists in self._known.items():
            resources = self._resource_listing.get_viewed_resources(viewer)
            for kind, method in _METHODS_BY_KIND:
                before = lists.get(kind)
                if before is not None and before != (now := resources.get_pages(kind).fingerprint):
                    lists[kind] = now
                    changed.setdefault(method, set()).add(viewer)
        for method, viewers in changed.items():
            self._audience.publish(
                method,
                {},
                should_receive=lambda request, viewers=viewers: self._find_viewer(request) in viewers,
            )

    def _find_viewer(self, request: ClientRequest) -> ResourceViewer | None:
        """Return the viewer of a request, or None if its profile was deleted."""
        try:
            return self._resource_listing.get_viewer(request.endpoint, request.principal)
        except JsonRpcError:
            return None

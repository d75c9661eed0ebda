"""Who wants to hear of which resource."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final, cast

import anyio
from anyio.abc import TaskGroup

from fingerpost.errors import FingerpostError, ToolFailed
from fingerpost.records import Json, JsonObject
from fingerpost.router import Router
from fingerpost.surfaces.gateway.exchange import (
    ClientExchange,
    ClientRequest,
    JsonRpcError,
    NotificationAudience,
)
from fingerpost.surfaces.gateway.methods.materials import (
    ResourceMethods,
    build_not_found_error,
    build_server_error,
    build_unavailable_error,
    get_text_param,
)
from fingerpost.tasks import run_contained

RESOURCE_UPDATED: Final = "notifications/resources/updated"
SUBSCRIBE: Final = "resources/subscribe"
UNSUBSCRIBE: Final = "resources/unsubscribe"
MAX_SUBSCRIPTIONS_PER_SESSION: Final = 1000  # resources one session may watch
INVALID_PARAMS: Final = -32602
LIST_CHANGE_KINDS: Final = (
    "toolsListChanged",
    "promptsListChanged",
    "resourcesListChanged",
)  # what is told when asked
_UNSUBSCRIBE_TIMEOUT_S: Final = 10.0
_NOTHING: Final[JsonObject] = {}

WatchedResource = tuple[str, str]  # server, and its own name for the resource


class SessionSubscriptions:
    """Sessions and listening streams, each with the resources they watch by the names they know."""

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
        self._materials = resource_methods
        self._tasks = tasks
        self._seconds = seconds
        self._watching: dict[str, dict[str, WatchedResource]] = {}  # by session, then by the name known there
        self._watchers: dict[
            WatchedResource, dict[str, set[str]]
        ] = {}  # sessions by the name they know it by

    async def subscribe(self, request: ClientRequest, exchange: ClientExchange) -> JsonObject:
        """`resources/subscribe` of a session."""
        await self._watch(request, get_text_param(request, "uri"))
        return {}

    async def unsubscribe(self, request: ClientRequest, exchange: ClientExchange) -> JsonObject:
        """`resources/unsubscribe`. What was never watched is not an error: it is not watched now."""
        uri = get_text_param(request, "uri")
        watched = self._watching.get(_get_session_id(request), {}).get(uri)
        if watched is not None:
            self._drop(_get_session_id(request), uri)
            with suppress(FingerpostError):  # a server that is gone tells nobody anything either
                await self._send_to_server(UNSUBSCRIBE, watched)
        return {}

    async def listen(self, request: ClientRequest, exchange: ClientExchange) -> JsonObject:
        """`subscriptions/listen`: what of it is honoured. What we never tell or cannot watch is left out."""
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
        watched = (await self._materials.get_resources(request)).collection.find_resource(uri)
        if watched is None:
            raise build_not_found_error(request, uri)
        mine[uri] = watched  # before the server is told: what it says at once is for us
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
        """A session or a stream is over: nobody watches for it any more."""
        mine = dict(self._watching.get(session, {}))
        for uri in mine:
            self._drop(session, uri)
        if mine:
            self._tasks.start_soon(run_contained, self._unwatch, tuple(mine.values()))

    async def _unwatch(self, watched: Sequence[WatchedResource]) -> None:
        with anyio.move_on_after(_UNSUBSCRIBE_TIMEOUT_S):
            for each in watched:
                with suppress(FingerpostError):
                    await self._send_to_server(UNSUBSCRIBE, each)

    def on_resource_updated(self, server: str, params: JsonObject) -> None:
        """A server says that a resource changed: each who watches it hears it by the name they know."""
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

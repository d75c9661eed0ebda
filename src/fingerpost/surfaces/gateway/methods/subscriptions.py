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
from fingerpost.surfaces.gateway.exchange import Audience, ClientRequest, Exchange, Refusal
from fingerpost.surfaces.gateway.methods.materials import (
    MaterialMethods,
    not_found,
    refusal_of,
    text_of,
    unavailable,
)
from fingerpost.tasks import contained

UPDATED: Final = "notifications/resources/updated"
SUBSCRIBE: Final = "resources/subscribe"
UNSUBSCRIBE: Final = "resources/unsubscribe"
MOST_OF_ONE: Final = 1000  # resources one session may watch
INVALID_PARAMS: Final = -32602
CHANGES: Final = ("toolsListChanged", "promptsListChanged", "resourcesListChanged")  # what is told when asked
_LEAVING_S: Final = 10.0
_NOTHING: Final[JsonObject] = {}

Watched = tuple[str, str]  # server, and its own name for the resource


class Subscriptions:
    """Sessions and listening streams, each with the resources they watch by the names they know."""

    def __init__(
        self,
        router: Router,
        *,
        audience: Audience,
        materials: MaterialMethods,
        tasks: TaskGroup,
        seconds: float,
    ) -> None:
        self._router = router
        self._audience = audience
        self._materials = materials
        self._tasks = tasks
        self._seconds = seconds
        self._watching: dict[str, dict[str, Watched]] = {}  # by session, then by the name known there
        self._watchers: dict[Watched, dict[str, set[str]]] = {}  # sessions by the name they know it by

    async def subscribe(self, request: ClientRequest, exchange: Exchange) -> JsonObject:
        """`resources/subscribe` of a session."""
        await self._watch(request, text_of(request, "uri"))
        return {}

    async def unsubscribe(self, request: ClientRequest, exchange: Exchange) -> JsonObject:
        """`resources/unsubscribe`. What was never watched is not an error: it is not watched now."""
        uri = text_of(request, "uri")
        watched = self._watching.get(_session(request), {}).get(uri)
        if watched is not None:
            self._drop(_session(request), uri)
            with suppress(FingerpostError):  # a server that is gone tells nobody anything either
                await self._tell_server(UNSUBSCRIBE, watched)
        return {}

    async def listen(self, request: ClientRequest, exchange: Exchange) -> JsonObject:
        """`subscriptions/listen`: what of it is honoured. What we never tell or cannot watch is left out."""
        given = request.params.get("notifications")
        wanted = cast("JsonObject", given) if isinstance(given, Mapping) else _NOTHING
        honoured: dict[str, Json] = {change: True for change in CHANGES if wanted.get(change) is True}
        uris = wanted.get("resourceSubscriptions")
        if isinstance(uris, list | tuple):
            honoured["resourceSubscriptions"] = await self._watch_all(request, cast("Sequence[Json]", uris))
        return {"notifications": honoured}

    async def _watch_all(self, request: ClientRequest, uris: Sequence[Json]) -> list[str]:
        watched: list[str] = []
        for uri in dict.fromkeys(uri for uri in uris[:MOST_OF_ONE] if isinstance(uri, str)):
            try:
                await self._watch(request, uri)
            except Refusal:
                continue
            watched.append(uri)
        return watched

    async def _watch(self, request: ClientRequest, uri: str) -> None:
        session = _session(request)
        mine = self._watching.setdefault(session, {})
        if uri in mine:
            return
        if len(mine) >= MOST_OF_ONE:
            message = f"more than {MOST_OF_ONE} resources are watched already: unsubscribe from some first"
            raise Refusal(INVALID_PARAMS, message)
        watched = (await self._materials.shelf(request)).collection.resource(uri)
        if watched is None:
            raise not_found(request, uri)
        mine[uri] = watched  # before the server is told: what it says at once is for us
        self._watchers.setdefault(watched, {}).setdefault(uri, set()).add(session)
        try:
            await self._tell_server(SUBSCRIBE, watched)
        except BaseException as failed:
            self._drop(session, uri)
            if isinstance(failed, ToolFailed):
                raise refusal_of(failed, request, uri) from failed
            if isinstance(failed, FingerpostError):
                raise unavailable(failed) from failed
            raise

    async def _tell_server(self, method: str, watched: Watched) -> None:
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

    def left(self, session: str) -> None:
        """A session or a stream is over: nobody watches for it any more."""
        mine = dict(self._watching.get(session, {}))
        for uri in mine:
            self._drop(session, uri)
        if mine:
            self._tasks.start_soon(contained, self._let_go, tuple(mine.values()))

    async def _let_go(self, watched: Sequence[Watched]) -> None:
        with anyio.move_on_after(_LEAVING_S):
            for each in watched:
                with suppress(FingerpostError):
                    await self._tell_server(UNSUBSCRIBE, each)

    def updated(self, server: str, params: JsonObject) -> None:
        """A server says that a resource changed: each who watches it hears it by the name they know."""
        uri = params.get("uri")
        if not isinstance(uri, str):
            return
        for name, sessions in tuple(self._watchers.get((server, uri), {}).items()):
            among = frozenset(sessions)
            self._audience.publish(
                UPDATED, {**params, "uri": name}, to=lambda request, among=among: request.session in among
            )


def _session(request: ClientRequest) -> str:
    return request.session or request.caller_key

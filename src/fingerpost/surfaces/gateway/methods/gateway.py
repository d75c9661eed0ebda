"""Every method on one page: who answers what."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Final

import anyio
from anyio.abc import TaskGroup

from fingerpost.records import JsonObject, Principal
from fingerpost.router import Router
from fingerpost.surfaces.gateway.asking import AskedCalls, open_asking
from fingerpost.surfaces.gateway.exchange import Audience, ClientRequest, Encoded, Exchange, Refusal
from fingerpost.surfaces.gateway.methods.description import describe
from fingerpost.surfaces.gateway.methods.kept import kept_resource
from fingerpost.surfaces.gateway.methods.levels import Levels
from fingerpost.surfaces.gateway.methods.logging import Logging
from fingerpost.surfaces.gateway.methods.materials import LISTS, MaterialMethods
from fingerpost.surfaces.gateway.methods.news import News
from fingerpost.surfaces.gateway.methods.readiness import Readiness
from fingerpost.surfaces.gateway.methods.subscriptions import Subscriptions
from fingerpost.surfaces.gateway.methods.tools import ToolMethods
from fingerpost.surfaces.gateway.offers import Offer, ToolOffers
from fingerpost.surfaces.gateway.offers.materials import MaterialOffers, Shelf
from fingerpost.surfaces.web.gate import Endpoint
from fingerpost.tasks import kept_up, leave

METHOD_NOT_FOUND: Final = -32601

Answer = Callable[[ClientRequest, Exchange], Awaitable[JsonObject | Encoded]]


class GatewayMethods:
    """Answers requests of every era; see `Methods`."""

    def __init__(self, router: Router, *, audience: Audience, calls: AskedCalls, tasks: TaskGroup) -> None:
        seconds = router.settings.call.timeout
        self._router = router
        self._readiness = Readiness(router)
        self._levels = Levels()
        self._offers = ToolOffers(router)
        self._shelves = MaterialOffers(router, self._offers.places)
        self._tools = ToolMethods(
            router,
            offers=self._offers,
            shelves=self._shelves,
            calls=calls,
            readiness=self._readiness,
            levels=self._levels,
        )
        self._materials = MaterialMethods(
            self._shelves,
            calls=calls,
            events=router.events,
            readiness=self._readiness,
            levels=self._levels,
            seconds=seconds,
        )
        self._subscriptions = Subscriptions(
            router, audience=audience, materials=self._materials, tasks=tasks, seconds=seconds
        )
        self.logging = Logging(router, levels=self._levels, tasks=tasks, seconds=seconds)
        self.news = News(
            router,
            audience=audience,
            tools=self._offers,
            materials=self._shelves,
            subscriptions=self._subscriptions,
            levels=self._levels,
        )
        self._materials.listed = self.news.listed
        self._handshake, self._modern = self._table(modern=False), self._table(modern=True)

    def _table(self, *, modern: bool) -> Mapping[str, Answer]:
        """What there is in this era."""
        common: dict[str, Answer] = {
            "tools/call": self._tools.call,
            "tools/list": self._tools.list,
            "resources/read": self._read,
            "prompts/get": self._materials.prompt,
            "completion/complete": self._materials.complete,
            **dict.fromkeys(LISTS, self._materials.list),
        }
        if modern:
            return {**common, "subscriptions/listen": self._listen}
        return {
            **common,
            "resources/subscribe": self._subscriptions.subscribe,
            "resources/unsubscribe": self._subscriptions.unsubscribe,
            "logging/setLevel": self.logging.set_level,
        }

    async def answer(self, request: ClientRequest, exchange: Exchange) -> JsonObject | Encoded:
        """The result of any request. Raises `Refusal`."""
        answer = (self._modern if request.modern else self._handshake).get(request.method)
        if answer is None:
            message = f"this gateway has no method {request.method[:80]!r} in protocol {request.version}"
            raise Refusal(METHOD_NOT_FOUND, message)
        if request.authorization is not None:
            await self._readiness.wait()
            principal = await self._router.with_own_tools(request.principal, request.authorization)
            request = replace(request, principal=principal)
        return await answer(request, exchange)

    async def _read(self, request: ClientRequest, exchange: Exchange) -> JsonObject:
        kept = await kept_resource(self._router.calls.results, request)
        return kept if kept is not None else await self._materials.read(request, exchange)

    async def _listen(self, request: ClientRequest, exchange: Exchange) -> JsonObject:
        await self._offers.prepared(request.endpoint, request.principal)
        self._welcome(request.endpoint, request.principal)
        return await self._subscriptions.listen(request, exchange)

    async def ready(self, endpoint: Endpoint, principal: Principal) -> None:
        """Wait, the first time and not for long, until servers said what they have. Before `describe`."""
        await self._readiness.wait()
        await self._offers.prepared(endpoint, principal)

    def describe(self, endpoint: Endpoint, principal: Principal, version: str) -> JsonObject:
        """What `initialize` and `server/discover` say of this endpoint."""
        return describe(self._router, *self._welcome(endpoint, principal))

    def _welcome(self, endpoint: Endpoint, principal: Principal) -> tuple[Offer, Shelf]:
        """What there is for somebody who came, and who is told from now on when it changes."""
        offer, shelf = self._offers.of(endpoint, principal), self._shelves.of(endpoint, principal)
        self._offers.came(offer)
        self.news.came(shelf)
        return offer, shelf

    def input_schema(self, endpoint: Endpoint, principal: Principal, name: str) -> JsonObject | None:
        """The schema of a tool's arguments, for checking `Mcp-Param-*` headers against the body."""
        return self._offers.header_schema(endpoint, principal, name)

    def left(self, session: str) -> None:
        """A session or a listening stream ended: drop what was held for it."""
        self.logging.left(session)
        self._subscriptions.left(session)


@asynccontextmanager
async def open_methods(
    router: Router, *, audience: Audience, console: str | None = None
) -> AsyncGenerator[GatewayMethods]:
    """The methods of a running gateway. News go to `audience` for as long as this is open.

    `console` is where people find one, if they do: whoever must approve a call is sent there.
    """
    router.servers.expect_callers()
    async with open_asking(router, console=console) as asking:
        tasks = await anyio.create_task_group().__aenter__()
        methods = GatewayMethods(router, audience=audience, calls=asking, tasks=tasks)
        tasks.start_soon(kept_up, methods.news.run)
        stop = router.servers.watch(methods.logging.moved)
        try:
            yield methods
        finally:
            stop()
            await leave(tasks, *sys.exc_info())

"""The MCP methods of the gateway, and the description of an endpoint."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Final

import anyio
from anyio.abc import TaskGroup
from mcp_types.jsonrpc import INTERNAL_ERROR, METHOD_NOT_FOUND

from fingerpost import __version__
from fingerpost.call.digest import clip_to_tokens, count_tokens, escape_invisible
from fingerpost.errors import QuotaReached, StoreError
from fingerpost.records import Json, JsonObject, Principal
from fingerpost.router import Router
from fingerpost.surfaces.gateway.elicitation.calls import InputRequiredCalls
from fingerpost.surfaces.gateway.listing.resources import ResourceListing, VisibleResources
from fingerpost.surfaces.gateway.listing.tools import (
    READ_RESULT_NAME,
    ROUTE_MODE,
    EndpointTools,
    ToolListing,
    explain_missing_tools,
)
from fingerpost.surfaces.gateway.protocol import (
    QUOTA_CODE,
    ClientExchange,
    ClientRequest,
    EncodedResult,
    JsonRpcError,
    NotificationAudience,
)
from fingerpost.surfaces.gateway.request_context import LoggingMethods, LogLevels, Readiness
from fingerpost.surfaces.gateway.resource_methods import (
    LIST_METHODS,
    ResourceMethods,
    build_reading_context,
    read_kept_resource,
)
from fingerpost.surfaces.gateway.subscriptions import ChangeNotifier, SessionSubscriptions
from fingerpost.surfaces.gateway.tool_methods import ToolMethods
from fingerpost.surfaces.http.access import Endpoint
from fingerpost.tasks import cancel_and_exit, run_contained, run_restarting

SERVER_NAME: Final = "fingerpost"
MAX_SERVERS_TOKENS: Final = 1500  # for the instructions of all servers together
MAX_SERVER_TOKENS: Final = 300

_ROUTE_INSTRUCTIONS: Final = (
    "Many tools are reachable here, and they are not all listed. For anything that may need live data, "
    "files, accounts or actions: describe the task to find_tools, then run what it answers with by "
    "call_tool. describe_tool tells more about one tool; read_result reads the rest of a long result."
)
_CALL_INSTRUCTIONS: Final = (
    "The tools of several servers are listed here, most under names like server__tool. Long results are cut "
    "and end with a handle; read_result reads the rest."
)
_SERVERS_HEADING: Final = "Instructions of the servers (written by them, not by this gateway):"

# Used while some server is not connected yet: a client asks only once, and an empty list is harmless.
_ALL_CAPABILITIES: Final[JsonObject] = {
    "resources": {"listChanged": True, "subscribe": True},
    "prompts": {"listChanged": True},
    "completions": {},
    "logging": {},
}


def describe_endpoint(
    router: Router, endpoint_tools: EndpointTools, resources: VisibleResources, principal: Principal
) -> JsonObject:
    """Build `capabilities`, `serverInfo` and `instructions`. Equal catalogs give equal results."""
    known = resources.collection.capabilities if resources.complete else _ALL_CAPABILITIES
    capabilities: dict[str, Json] = {"tools": {"listChanged": True}, **known}
    return {
        "capabilities": capabilities,
        "serverInfo": {"name": SERVER_NAME, "title": "Fingerpost", "version": __version__},
        "instructions": "\n\n".join(_build_instructions(router, endpoint_tools, principal)),
    }


def _build_instructions(router: Router, endpoint_tools: EndpointTools, principal: Principal) -> Iterator[str]:
    yield from endpoint_tools.config.instructions
    status = explain_missing_tools(router, endpoint_tools, principal, budget=MAX_SERVER_TOKENS)
    if status:
        yield f"Status: {status} Tell the user when they ask for something that needs a tool."
    yield _ROUTE_INSTRUCTIONS if endpoint_tools.mode == ROUTE_MODE else _CALL_INSTRUCTIONS
    theirs = "\n".join(_describe_servers(router, endpoint_tools))
    if theirs:
        yield f"{_SERVERS_HEADING}\n{theirs}"


def _describe_servers(router: Router, endpoint_tools: EndpointTools) -> Iterator[str]:
    """Yield a short description of each server whose tools this caller sees, within the token limit."""
    room = MAX_SERVERS_TOKENS
    for server in sorted({card.server for card in endpoint_tools.view.visible.cards}):
        instructions = router.catalog.get_instructions(server)  # empty while a change waits for review
        if not instructions:
            continue
        words = " ".join(escape_invisible(instructions[: MAX_SERVER_TOKENS * 12]).split())
        line = f"- {server}: {clip_to_tokens(words, min(MAX_SERVER_TOKENS, room))}"
        room -= count_tokens(line)
        if room <= 0:
            return
        yield line


MethodHandler = Callable[[ClientRequest, ClientExchange], Awaitable[JsonObject | EncodedResult]]


class GatewayMethods:
    """Answers requests of both eras; see `McpMethods`."""

    def __init__(
        self, router: Router, *, audience: NotificationAudience, calls: InputRequiredCalls, tasks: TaskGroup
    ) -> None:
        seconds = router.settings.call.timeout
        self._router = router
        self._tasks = tasks
        self._readiness = Readiness(router)
        self._levels = LogLevels()
        self._tool_listing = ToolListing(router)
        self._resource_listing = ResourceListing(router, self._tool_listing.endpoint_configs)
        self._tools = ToolMethods(
            router,
            listing=self._tool_listing,
            resource_listing=self._resource_listing,
            calls=calls,
            readiness=self._readiness,
            levels=self._levels,
        )
        self._resource_methods = ResourceMethods(
            self._resource_listing,
            calls=calls,
            note_material=router.calls.note_material,
            events=router.events,
            readiness=self._readiness,
            levels=self._levels,
            seconds=seconds,
        )
        self._subscriptions = SessionSubscriptions(
            router, audience=audience, resource_methods=self._resource_methods, tasks=tasks, seconds=seconds
        )
        self.logging = LoggingMethods(router, levels=self._levels, tasks=tasks, seconds=seconds)
        self.news = ChangeNotifier(
            router,
            audience=audience,
            tools=self._tool_listing,
            resources=self._resource_listing,
            subscriptions=self._subscriptions,
            levels=self._levels,
        )
        self._resource_methods.on_list_sent = self.news.remember_list
        self._handshake, self._modern = self._build_handlers(modern=False), self._build_handlers(modern=True)

    def _build_handlers(self, *, modern: bool) -> Mapping[str, MethodHandler]:
        """Return the handlers of this era by method."""
        common: dict[str, MethodHandler] = {
            "tools/call": self._tools.call_tool,
            "tools/list": self._tools.list_page,
            "resources/read": self._read_resource,
            "prompts/get": self._resource_methods.get_prompt,
            "completion/complete": self._resource_methods.complete,
            **dict.fromkeys(LIST_METHODS, self._resource_methods.list_page),
        }
        if modern:
            return {**common, "subscriptions/listen": self._listen_for_changes}
        return {
            **common,
            "resources/subscribe": self._subscriptions.subscribe,
            "resources/unsubscribe": self._subscriptions.unsubscribe,
            "logging/setLevel": self.logging.set_level,
        }

    async def answer(self, request: ClientRequest, exchange: ClientExchange) -> JsonObject | EncodedResult:
        """Return the result of a request. Raises `JsonRpcError`."""
        handler = (self._modern if request.modern else self._handshake).get(request.method)
        if handler is None:
            message = f"this gateway has no method {request.method[:80]!r} in protocol {request.version}"
            raise JsonRpcError(METHOD_NOT_FOUND, message)
        if self._router.may_have_own_tools(request.authorization):
            await self._readiness.wait_for_tools()
            principal = await self._router.with_own_tools(request.principal, request.authorization)
            request = replace(request, principal=principal)
        if self._router.quotas.active:
            async with self._admit(request):
                return await handler(request, exchange)
        return await handler(request, exchange)

    async def count_session(self, request: ClientRequest) -> None:
        """Count the request that opens a session. Raises `JsonRpcError` beyond a quota."""
        if self._router.quotas.active:
            async with self._admit(request):
                pass

    @asynccontextmanager
    async def _admit(self, request: ClientRequest) -> AsyncGenerator[None]:
        """Count the request, and hold the slot of a call. Raises `JsonRpcError` beyond a quota."""
        profile = self._tool_listing.endpoint_configs.get_config(request.endpoint, request.principal).profile
        is_call = request.method == "tools/call"
        try:
            async with self._router.quotas.admit(request.principal, profile, calls=is_call, runs=is_call):
                yield
        except QuotaReached as reached:
            data: JsonObject = {"retryAfter": reached.seconds, "limit": reached.limit}
            raise JsonRpcError(QUOTA_CODE, f"{reached}. {reached.hint}", data) from None
        except StoreError as error:
            raise JsonRpcError(INTERNAL_ERROR, f"{error}. Try again later.") from error

    async def _read_resource(self, request: ClientRequest, exchange: ClientExchange) -> JsonObject:
        kept = await read_kept_resource(self._router.calls.results, request)
        if kept is None:
            return await self._resource_methods.read_resource(request, exchange)
        result, private = kept
        context = build_reading_context(request)
        await self._router.calls.data_trails.note_untrusted(READ_RESULT_NAME, context, "", private=private)
        return result

    async def _listen_for_changes(self, request: ClientRequest, exchange: ClientExchange) -> JsonObject:
        await self._tool_listing.prepare_tools(request.endpoint, request.principal)
        self._register_client(request.endpoint, request.principal)
        return await self._subscriptions.listen(request, exchange)

    async def wait_until_ready(self, endpoint: Endpoint, principal: Principal) -> None:
        """Wait for the first lists of the servers, up to a timeout, and until their instructions are scanned.
        Called before `describe`.
        """
        await self._readiness.wait_for_tools()
        await self._router.scan_instructions()
        await self._tool_listing.prepare_tools(endpoint, principal)

    def describe(self, endpoint: Endpoint, principal: Principal, version: str) -> JsonObject:
        """Return what `initialize` and `server/discover` report about this endpoint."""
        return describe_endpoint(self._router, *self._register_client(endpoint, principal), principal)

    def _register_client(
        self, endpoint: Endpoint, principal: Principal
    ) -> tuple[EndpointTools, VisibleResources]:
        """Return the tools and resources of a new client, which is notified of changes from now on."""
        endpoint_tools, resources = (
            self._tool_listing.get_tools(endpoint, principal),
            self._resource_listing.get_resources(endpoint, principal),
        )
        self._tool_listing.remember_client(endpoint_tools)
        self.news.remember_client(resources)
        return endpoint_tools, resources

    def get_input_schema(self, endpoint: Endpoint, principal: Principal, name: str) -> JsonObject | None:
        """Return a tool's input schema, to compare `Mcp-Param-*` headers with the body."""
        return self._tool_listing.get_header_schema(endpoint, principal, name)

    def restore_session(self, request: ClientRequest, record: JsonObject) -> None:
        """Apply what a session has set in other processes, and notify it of changes from now on."""
        self._tasks.start_soon(run_contained, self._restore_session, request, record)

    async def _restore_session(self, request: ClientRequest, record: JsonObject) -> None:
        self.logging.restore_level(request, record)
        await self.wait_until_ready(request.endpoint, request.principal)
        self._register_client(request.endpoint, request.principal)
        await self._subscriptions.restore(request, record)

    def forget_session(self, session: str) -> None:
        """Drop everything held for a session or listening stream that ended."""
        self.logging.forget_session(session)
        self._subscriptions.forget_session(session)


@asynccontextmanager
async def open_methods(
    router: Router, *, audience: NotificationAudience, console: str | None = None
) -> AsyncGenerator[GatewayMethods]:
    """Open the methods of a running gateway. Notifications go to `audience` while this is open.

    `console` is the console's address, if any. It is shown when a call needs an approval.
    """
    router.servers.advertise_client_capabilities()
    async with InputRequiredCalls(router, console=console, audience=audience) as calls:
        tasks = await anyio.create_task_group().__aenter__()
        methods = GatewayMethods(router, audience=audience, calls=calls, tasks=tasks)
        tasks.start_soon(run_restarting, methods.news.run)
        stop = router.servers.subscribe_to_changes(methods.logging.on_server_change)
        try:
            yield methods
        finally:
            stop()
            await cancel_and_exit(tasks, *sys.exc_info())


__all__ = ["GatewayMethods", "open_methods"]

"""Opening a connection to a server: transport, handshake and capability check."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from types import TracebackType
from typing import Any, Self, cast

import anyio
import httpx2
import mcp_types as types
from mcp.client.sse import sse_client
from mcp.server import Server as McpServer
from mcp.server.context import ServerRequestContext
from mcp.shared.message import SessionMessage
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from fingerpost.errors import ServerUnavailable
from fingerpost.records import JsonObject, ServerSpec
from fingerpost.servers.connection import (
    NO_CAPABILITIES,
    PROBE_SECONDS,
    RawClient,
    RawSession,
    RequestTransport,
    ServerConnection,
    SessionTransport,
    build_client_capabilities,
    build_client_info,
)
from fingerpost.servers.connection_state import ConnectionFailure, ConnectionState
from fingerpost.servers.failures import from_exception as from_exception
from fingerpost.servers.failures import requires_user_action as requires_user_action
from fingerpost.servers.http_client import (
    EVENT_STREAM_TYPE,
    build_common_headers,
    check_address,
    parse_content_type,
)
from fingerpost.servers.http_client import HttpClients as HttpClients
from fingerpost.servers.in_flight import RequestRegistry
from fingerpost.servers.library import ConnectDeps, ConnectionProfile
from fingerpost.servers.oauth import TokenExchange as TokenExchange
from fingerpost.servers.oauth import load_sign_in as load_sign_in
from fingerpost.servers.oauth import load_user_authorization as load_user_authorization
from fingerpost.servers.oauth import sign_in as sign_in
from fingerpost.servers.oauth import sign_in_user as sign_in_user
from fingerpost.servers.oauth import sign_out as sign_out
from fingerpost.servers.relay import (
    PROGRAM_VERSION,
    BorrowedConnection,
    borrow_connection,
    open_borrowed_transport,
)
from fingerpost.servers.requests import NotificationCallback
from fingerpost.servers.spec import FunctionServer, ServerSecrets
from fingerpost.servers.stdio import ChildServer, DirectStdio, open_stdio_transport
from fingerpost.servers.streamable_http import DirectHttp, StreamableTransport, open_http_transport


class WatchedTransport:
    """A transport of the MCP library that reports its end to the `ConnectionState`."""

    def __init__(self, transport: AbstractAsyncContextManager[Any], state: ConnectionState) -> None:
        self._transport = transport
        self._state = state

    async def __aenter__(self) -> tuple[Any, Any]:
        incoming, outgoing = await self._transport.__aenter__()
        return _WatchedStream(incoming, self._state), outgoing

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._transport.__aexit__(kind, error, trace)


class _WatchedStream:
    def __init__(self, stream: Any, state: ConnectionState) -> None:
        self._stream = stream
        self._state = state

    async def receive(self) -> SessionMessage | Exception:
        return await self._stream.receive()

    async def aclose(self) -> None:
        await self._stream.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self._stream.__anext__()
        except (StopAsyncIteration, anyio.ClosedResourceError, anyio.EndOfStream):
            self._state.end(ConnectionFailure(reason="its event stream ended"))
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        await self.aclose()
        return None


def build_function_server(functions: FunctionServer) -> McpServer[Any]:
    """Build the MCP server of functions that a program registered."""

    async def list_tools(
        ctx: ServerRequestContext[Any], params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        listed = [types.Tool.model_validate(tool.definition) for tool in functions.tools.values()]
        return types.ListToolsResult(tools=listed)

    async def call_tool(
        ctx: ServerRequestContext[Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        result = await functions.call(params.name, params.arguments or {})
        content: list[types.ContentBlock] = [types.TextContent(type="text", text=result.text)]
        return types.CallToolResult(content=content, structured_content=result.data, is_error=result.failed)

    return McpServer(
        functions.name,
        version="1.0",
        get_tool_input_schema=functions.get_input_schema,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


# Share of the connect timeout that a server may use if it ignores the modern handshake.
PROBE_TIMEOUT_SHARE = 0.3


@asynccontextmanager
async def open_connection(
    spec: ServerSpec, deps: ConnectDeps, *, state: ConnectionState, on_notification: NotificationCallback
) -> AsyncGenerator[ServerConnection]:
    """Connect, complete the handshake and keep the connection open until the block ends.

    `on_notification` receives every notification that belongs to no request. Raises `FingerpostError`, also
    when the server does not satisfy `deps.standard`.
    """
    registry = RequestRegistry(spec.name, on_notification, secrets=ServerSecrets(spec))
    async with AsyncExitStack() as stack:
        connector = _Connector(spec, deps, state=state, registry=registry)
        target = await connector.build_target(stack)
        borrowed = connector.borrowed
        client = RawClient(
            cast("Any", target),
            client_info=build_client_info(PROGRAM_VERSION),
            mode="legacy" if spec.era == "2025-11-25" or borrowed is not None else "auto",
            cache=None,
            registry=registry,
            declared_capabilities=build_client_capabilities(deps.abilities()),
            probe_seconds=min(PROBE_SECONDS, spec.connect_timeout * PROBE_TIMEOUT_SHARE),
        )
        await stack.enter_async_context(client)
        spoken = client.protocol_version if borrowed is None else borrowed.protocol
        if spec.era not in ("auto", spoken) and spec.era in MODERN_PROTOCOL_VERSIONS:
            message = f"{spec.name} speaks {spoken}, and {spec.era} was asked for"
            raise ServerUnavailable(message, server=spec.name, hint='set its era to "auto"')
        state.is_initialized = True
        modern = client.protocol_version in MODERN_PROTOCOL_VERSIONS
        if not modern:
            await connector.wait_until_initialized()
        stack.callback(registry.abandon)
        connection = ServerConnection(
            spec,
            client,
            deps.limits,
            state,
            registry=registry,
            transport=await connector.choose_transport(client, modern=modern),
        )
        connection.protocol = spoken or connection.protocol
        if deps.standard is not None and (lacking := await connector.find_missing(deps.standard, connection)):
            message = f"{spec.name} serves {connection.protocol} without {lacking}"
            raise ServerUnavailable(message, server=spec.name)
        yield connection


class _Connector:
    """Builds the transports of one server."""

    def __init__(
        self, spec: ServerSpec, deps: ConnectDeps, *, state: ConnectionState, registry: RequestRegistry
    ) -> None:
        self._spec = spec
        self._deps = deps
        self._state = state
        self._registry = registry
        self._client: httpx2.AsyncClient | None = None
        self._transport: StreamableTransport | None = None
        self._child: ChildServer | None = None
        self.borrowed: BorrowedConnection | None = None  # the connection of a running gateway
        self._is_streaming = False  # whether the handshake was answered with an event stream

    async def build_target(self, stack: AsyncExitStack) -> object:
        """Return what the library's client connects to: a server object or one of our transports."""
        spec, limits = self._spec, self._deps.limits
        if spec.transport == "in_process":
            server = spec.in_process
            return build_function_server(server) if isinstance(server, FunctionServer) else server
        if (borrowed := await self._borrow(limits.response_bytes)) is not None:
            self.borrowed = borrowed
            stack.push_async_callback(borrowed.lines.aclose)
            return open_borrowed_transport(spec, borrowed, self._state, max_bytes=limits.response_bytes)
        if spec.transport == "stdio":
            return open_stdio_transport(spec, limits, self._state, on_open=self._on_child_started)
        if not spec.url:
            raise ServerUnavailable(f"{spec.name} has no address", server=spec.name, hint="give it a url")
        await check_address(spec)
        auth = await load_sign_in(spec, self._deps.tokens, self._deps.hold_renewal)
        client = await self._get_clients().build_client(headers=spec.headers, auth=auth)
        if spec.transport == "http":
            self._client = await stack.enter_async_context(client)
            if self._deps.standard is not None:
                client.event_hooks["response"].append(self._note_streaming)
            return open_http_transport(
                spec, client, limits, self._state, registry=self._registry, on_open=self._on_transport_opened
            )

        def use_client(*_: object, **__: object) -> httpx2.AsyncClient:
            return client

        return WatchedTransport(sse_client(spec.url, httpx_client_factory=use_client), self._state)

    def _get_clients(self) -> HttpClients:
        shared = self._deps.library
        shared.clients = clients = shared.clients or HttpClients()
        return clients

    async def _borrow(self, max_bytes: int) -> BorrowedConnection | None:
        """Return the connection of a running gateway, if there is one that may be used."""
        search = self._deps.gateways() if self._deps.standard is None else None
        return None if search is None else await borrow_connection(self._spec, search, max_bytes=max_bytes)

    async def _note_streaming(self, response: httpx2.Response) -> None:
        if response.request.method == "POST" and response.status_code == 200:
            self._is_streaming = (
                parse_content_type(response.headers.get("content-type", "")) == EVENT_STREAM_TYPE
            )

    async def find_missing(self, profile: ConnectionProfile, connection: ServerConnection) -> str | None:
        """Return what a legacy server lacks compared with `profile`, or None.

        A server without sessions or streams cannot send requests during a call. Raises `FingerpostError` when
        the server cannot list its tools, because some results may not exist in this protocol version.
        """
        if self._transport is None or self._transport.session_id is None:
            return "sessions"
        answers_questions = build_client_capabilities(self._deps.abilities()) != NO_CAPABILITIES
        if answers_questions and not self._is_streaming:
            return "streams"
        if missing := _get_capability_names(profile.capabilities) - _get_capability_names(
            connection.capabilities
        ):
            return ", ".join(sorted(missing))
        page = await connection.fetch("tools/list", {})
        complete = not page.get("nextCursor")
        return "some of its tools" if complete and len(page.get("tools") or ()) < profile.tool_count else None

    async def wait_until_initialized(self) -> None:
        """Wait until the server received `notifications/initialized`. No request may be sent earlier."""
        if self._transport is not None:
            await self._transport.initialized.wait()

    def _on_transport_opened(self, transport: StreamableTransport) -> None:
        self._transport = transport

    def _on_child_started(self, child: ChildServer) -> None:
        self._child = child

    async def choose_transport(self, client: RawClient, *, modern: bool) -> RequestTransport:
        """Return the way of all requests. The MCP library's is used where OAuth or a proxy needs it."""
        session = cast("RawSession", client.session)
        if self._child is not None:
            return DirectStdio(self._spec.name, self._child, self._state)
        if self._client is None or self._transport is None or self._client.auth is not None:
            return SessionTransport(session)
        limits = self._deps.limits
        headers = build_common_headers(self._spec, self._client.cookies, session=self._transport.session_id)
        endpoint = await self._get_clients().build_endpoint(self._spec, headers, limit=limits.response_bytes)
        if endpoint is None:
            return SessionTransport(session)
        return DirectHttp(
            self._spec.name,
            endpoint,
            self._transport,
            limits=limits,
            state=self._state,
            registry=self._registry,
            modern=modern,
        )


def _get_capability_names(capabilities: JsonObject) -> frozenset[str]:
    """Return the names of the server's capabilities; their values differ between protocol versions."""
    further = (capabilities.get(group) for group in ("extensions", "experimental"))
    own = (name for group in further if isinstance(group, Mapping) for name in group)
    return frozenset((*capabilities, *own))

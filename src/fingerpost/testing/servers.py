"""Valid MCP servers for tests, serving of ASGI applications, and specs of faulty programs."""

from __future__ import annotations

import socket
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterable, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import anyio
import mcp_types as types
import uvicorn
from mcp.server import Server
from mcp.server.connection import Connection
from mcp.server.context import ServerRequestContext
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ToolsListChanged
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic_core import to_json

from fingerpost.records import Era, ServerSpec

if TYPE_CHECKING:
    from starlette.applications import Starlette


class MemoryTokens:
    """A `SignInStore` in memory."""

    def __init__(self) -> None:
        self.entries: dict[str, bytes] = {}

    async def get(self, server: str) -> bytes | None:
        return self.entries.get(server)

    async def put(self, server: str, data: bytes) -> None:
        self.entries[server] = data

    async def has(self, server: str) -> bool:
        return server in self.entries

    async def remove(self, server: str) -> None:
        self.entries.pop(server, None)


CallFunction = Callable[[str, dict[str, Any]], Awaitable[str]]


class ToolServer:
    """An MCP server whose tools can be replaced while clients are connected.

    `server` is the MCP server object: pass it to `Server.in_process`, to `served`, or to an MCP client.
    `calls` contains every call it received.
    """

    def __init__(
        self,
        name: str,
        tools: Iterable[Mapping[str, Any]],
        *,
        call: CallFunction | None = None,
        page_size: int | None = None,
        instructions: str | None = None,
    ) -> None:
        self.name = name
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self._tools = _to_mcp_tools(tools)
        self._call = call
        self._page_size = page_size
        self._clients: WeakSet[Connection] = WeakSet()
        self._bus = InMemorySubscriptionBus()
        self.server: Server[Any] = Server(
            name,
            version="1.0",
            instructions=instructions,
            get_tool_input_schema=self._find_schema,
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
            on_subscriptions_listen=ListenHandler(self._bus),
        )

    def spec(self, *, era: Era = "auto", connect_timeout: float = 30.0) -> ServerSpec:
        """Return the spec of this server with the in-process transport."""
        return ServerSpec(
            name=self.name,
            transport="in_process",
            in_process=self.server,
            era=era,
            connect_timeout=connect_timeout,
        )

    async def replace(self, tools: Iterable[Mapping[str, Any]]) -> None:
        """Replace the tools and notify every client, as its protocol era requires."""
        self.change_silently(tools)
        await self._bus.publish(ToolsListChanged())
        for client in tuple(self._clients):
            await client.send_tool_list_changed()

    def change_silently(self, tools: Iterable[Mapping[str, Any]]) -> None:
        """Replace the tools without a notification."""
        self._tools = _to_mcp_tools(tools)

    def _find_schema(self, name: str) -> Mapping[str, Any] | None:
        return next((tool.input_schema for tool in self._tools if tool.name == name), None)

    async def _list_tools(
        self, ctx: ServerRequestContext[Any], params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        if ctx.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            # A session exists for one request only; the object for the whole connection is private.
            self._clients.add(ctx.session._connection)  # pyright: ignore[reportPrivateUsage] - see above
        begin = int(params.cursor) if params is not None and params.cursor is not None else 0
        end = len(self._tools) if self._page_size is None else begin + self._page_size
        following = str(end) if end < len(self._tools) else None
        return types.ListToolsResult(tools=self._tools[begin:end], next_cursor=following)

    async def _call_tool(
        self, ctx: ServerRequestContext[Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        arguments = dict(params.arguments or {})
        self.calls.append((params.name, arguments))
        if not any(tool.name == params.name for tool in self._tools):
            text = types.TextContent(type="text", text=f"unknown tool: {params.name}")
            return types.CallToolResult(content=[text], is_error=True)
        answer = (
            to_json(arguments).decode() if self._call is None else await self._call(params.name, arguments)
        )
        return types.CallToolResult(content=[types.TextContent(type="text", text=answer)])


def tool_server(
    name: str,
    tools: Iterable[Mapping[str, Any] | str] = ("echo",),
    *,
    call: CallFunction | None = None,
    page_size: int | None = None,
    instructions: str | None = None,
) -> ToolServer:
    """Create a server that offers `tools` (definitions or names) and answers calls with `call`.

    Without `call`, it returns the arguments as JSON.
    """
    records = [{"name": tool} if isinstance(tool, str) else tool for tool in tools]
    return ToolServer(name, records, call=call, page_size=page_size, instructions=instructions)


def _to_mcp_tools(records: Iterable[Mapping[str, Any]]) -> list[types.Tool]:
    return [types.Tool.model_validate({"inputSchema": {"type": "object"}, **record}) for record in records]


LIFESPAN_TIMEOUT_S = 2.0
LAST_ANSWERS_S = 0.1
DATE_INTERVAL_S = 1.0


class _QuietServer(uvicorn.Server):
    """A server that does not handle signals, because the test runner does, and starts and ends without delay:
    uvicorn checks every tenth of a second whether it should.
    """

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.running = anyio.Event()
        self.ending = anyio.Event()

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield

    async def main_loop(self) -> None:
        await self.on_tick(0)
        self.running.set()
        while not self.ending.is_set():
            with anyio.move_on_after(DATE_INTERVAL_S):
                await self.ending.wait()
            await self.on_tick(0)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop running requests after a moment, and let the application end.

        Otherwise the garbage collector would destroy its task, with a warning in a later test.
        """
        for server in self.servers:
            server.close()
        for listening in sockets or ():
            listening.close()
        for connection in tuple(self.server_state.connections):
            connection.shutdown()
        with anyio.move_on_after(LAST_ANSWERS_S):
            while (  # noqa: ASYNC110 - uvicorn offers no event for it
                self.server_state.connections or self.server_state.tasks
            ):
                await anyio.sleep(0.001)
        for task in self.server_state.tasks:
            task.cancel()
        with anyio.move_on_after(LIFESPAN_TIMEOUT_S, shield=True):
            await self.lifespan.shutdown()


@asynccontextmanager
async def served(app: Starlette | Any, *, port: int = 0) -> AsyncGenerator[str]:
    """Serve `app` until the block ends. Yield its base URL (`http://127.0.0.1:PORT`)."""
    # With an explicit protocol, the event loop disables Nagle's algorithm. Otherwise each answer
    # waits 40 ms for an acknowledgement.
    listener = socket.socket(proto=socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    config = uvicorn.Config(app, log_level="critical", lifespan="on")
    server = _QuietServer(config)

    async def serve() -> None:
        await server.serve(sockets=[listener])

    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(serve)
            with anyio.fail_after(10):
                await server.running.wait()
            try:
                yield f"http://127.0.0.1:{listener.getsockname()[1]}"
            finally:
                server.ending.set()
    finally:
        listener.close()


def stdio_fault(
    fault: str, *arguments: str, name: str | None = None, connect_timeout: float = 10.0
) -> ServerSpec:
    """Return the spec of a stdio server with this fault (`python -m fingerpost.testing.faults.stdio`)."""
    return ServerSpec(
        name=name or fault,
        transport="stdio",
        command=sys.executable,
        args=("-m", "fingerpost.testing.faults.stdio", fault, *arguments),
        connect_timeout=connect_timeout,
    )

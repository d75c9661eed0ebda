"""A well-behaved MCP server made from plain tool records.

Records, not decorated functions: building schemas from functions costs
milliseconds per tool, and a catalog of ten thousand tools is a test like any other.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any
from weakref import WeakSet

import mcp_types as types
from mcp.server import Server
from mcp.server.connection import Connection
from mcp.server.context import ServerRequestContext
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ToolsListChanged
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic_core import to_json

from fingerpost.records import Era, ServerSpec

CallFunction = Callable[[str, dict[str, Any]], Awaitable[str]]


class ToolServer:
    """An MCP server whose tools can be replaced while clients are connected.

    `server` is the MCP server object: hand it to `ResolvedServer.in_process`, to
    `served`, or to an MCP client. `calls` holds every call it got.
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
        """This server as an in-process entry for `Servers`."""
        return ServerSpec(
            name=self.name,
            transport="in_process",
            in_process=self.server,
            era=era,
            connect_timeout=connect_timeout,
        )

    async def replace(self, tools: Iterable[Mapping[str, Any]]) -> None:
        """Offer these tools from now on, and tell every client, each in the way of its era."""
        self.change_silently(tools)
        await self._bus.publish(ToolsListChanged())
        for client in tuple(self._clients):
            await client.send_tool_list_changed()

    def change_silently(self, tools: Iterable[Mapping[str, Any]]) -> None:
        """Offer these tools from now on, and tell nobody."""
        self._tools = _to_mcp_tools(tools)

    def _find_schema(self, name: str) -> Mapping[str, Any] | None:
        return next((tool.input_schema for tool in self._tools if tool.name == name), None)

    async def _list_tools(
        self, ctx: ServerRequestContext[Any], params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        if ctx.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            # A session lives for one request only; what lasts as long as the client has no public name.
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
    """A server that offers `tools` (definitions, or just names) and answers calls with `call`.

    Without `call`, a call is answered with its own arguments as JSON.
    """
    records = [{"name": tool} if isinstance(tool, str) else tool for tool in tools]
    return ToolServer(name, records, call=call, page_size=page_size, instructions=instructions)


def _to_mcp_tools(records: Iterable[Mapping[str, Any]]) -> list[types.Tool]:
    return [types.Tool.model_validate({"inputSchema": {"type": "object"}, **record}) for record in records]

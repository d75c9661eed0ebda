"""A gateway's methods in front of real servers, asked without a wire between."""

from __future__ import annotations

import json
import warnings
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from weakref import WeakSet

import anyio
import mcp_types as types
from mcp.server import Server
from mcp.server.connection import Connection
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError

from fingerpost import Router, Settings
from fingerpost.events import MemorySink
from fingerpost.records import Era, Principal, Right, ServerSpec, create_id
from fingerpost.surfaces.gateway.methods import GatewayMethods, open_methods
from fingerpost.surfaces.gateway.protocol import (
    MODERN_VERSION,
    NEWEST_HANDSHAKE_VERSION,
    ClientRequest,
    EncodedResult,
    JsonRpcError,
)
from fingerpost.surfaces.http.access import Endpoint
from tests.kit.stores import place_empty_store

LOCAL = Principal(name="local", rights=(Right.USE, Right.CONFIRM))  # as over stdio
ALL = Endpoint(path="/mcp/all", mode="all")
ROUTE = Endpoint(path="/mcp/route", mode="route")
AUTO = Endpoint(path="/mcp", mode="auto")


def profile(name: str) -> Endpoint:
    return Endpoint(path=f"/mcp/p/{name}", mode="auto", profile=name)


def reading_tool(name: str, description: str = "", **parameters: str) -> dict[str, Any]:
    """A tool that only reads, so that no rule is needed to call it. Parameters by JSON type."""
    properties = {parameter: {"type": kind} for parameter, kind in parameters.items()}
    return {
        "name": name,
        "description": description or f"Read {name}",
        "inputSchema": {"type": "object", "properties": properties},
        "annotations": {"readOnlyHint": True},
    }


@dataclass
class SilentClient:
    """A client that records notifications and cannot be asked anything."""

    notifications: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list[Any])

    async def notify(self, method: str, params: Mapping[str, Any]) -> None:
        self.notifications.append((method, params))

    async def ask(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        raise JsonRpcError(-32601, f"{method} cannot be answered")


@dataclass
class RecordingAudience:
    """Everybody who listens: what was published, and to whom of `listeners`."""

    listeners: list[ClientRequest] = field(default_factory=list[ClientRequest])
    published: list[tuple[str | None, str, Mapping[str, Any]]] = field(default_factory=list[Any])

    def publish(
        self,
        method: str,
        params: Mapping[str, Any],
        *,
        should_receive: Callable[[ClientRequest], bool] | None = None,
    ) -> None:
        self.published.extend(
            (listener.session, method, params)
            for listener in self.listeners
            if should_receive is None or should_receive(listener)
        )

    def of(self, session: str) -> list[str]:
        return [method for who, method, _ in self.published if who == session]

    async def until(self, count: int) -> None:
        await until(lambda: len(self.published) >= count)


@dataclass
class OpenMethods:
    """A running gateway without a wire."""

    router: Router
    methods: GatewayMethods
    audience: RecordingAudience
    events: MemorySink

    async def ask(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        at: Endpoint = ALL,
        by: Principal = LOCAL,
        modern: bool = False,
        session: str | None = "session-1",
    ) -> Any:
        """The result of one request, decoded."""
        answer = await self.methods.answer(
            request(method, params, at=at, by=by, modern=modern, session=session), SilentClient()
        )
        return json.loads(answer.body) if isinstance(answer, EncodedResult) else answer

    async def call(self, name: str, arguments: Mapping[str, Any] | None = None, **how: Any) -> Any:
        return await self.ask("tools/call", {"name": name, "arguments": dict(arguments or {})}, **how)

    async def names(self, **how: Any) -> list[str]:
        """The names of all tools, page by page."""
        found: list[str] = []
        cursor: dict[str, str] = {}
        while True:
            page = await self.ask("tools/list", cursor, **how)
            found += [tool["name"] for tool in page["tools"]]
            if "nextCursor" not in page:
                return found
            cursor = {"cursor": page["nextCursor"]}


def request(
    method: str,
    params: Mapping[str, Any] | None = None,
    *,
    at: Endpoint = ALL,
    by: Principal = LOCAL,
    modern: bool = False,
    session: str | None = "session-1",
) -> ClientRequest:
    return ClientRequest(
        id=create_id("req"),
        method=method,
        params=dict(params or {}),
        version=MODERN_VERSION if modern else NEWEST_HANDSHAKE_VERSION,
        endpoint=at,
        principal=by,
        session=session,
    )


@asynccontextmanager
async def open_gateway_methods(
    folder: Path, *servers: ServerSpec, connect: bool = True, **settings: Any
) -> AsyncGenerator[OpenMethods]:
    """A gateway in front of these servers."""
    store = {"url": place_empty_store(folder, "fingerpost.db")}
    events, crowd = MemorySink(), RecordingAudience()
    made = Settings.model_validate({"store": store, **settings})
    async with (
        Router(servers, settings=made, sinks=[events]) as router,
        open_methods(router, audience=crowd) as methods,
    ):
        if connect:
            await router.connect()
        yield OpenMethods(router, methods, crowd, events)


async def until(holds: Callable[[], bool], *, seconds: float = 10) -> None:
    """Wait for something that happens behind the answer to a request."""
    with anyio.fail_after(seconds):
        while not holds():  # noqa: ASYNC110 - the servers of these tests have nothing to wait on
            await anyio.sleep(0.01)


def text_of(result: Mapping[str, Any]) -> str:
    """All texts of a result."""
    return "\n".join(block["text"] for block in result["content"] if block["type"] == "text")


class LibraryServer:
    """An MCP server with resources, templates, prompts and completions, that remembers what it was asked."""

    def __init__(
        self,
        name: str,
        *,
        resources: Sequence[str] = (),
        templates: Sequence[str] = (),
        prompts: Sequence[str] = (),
    ) -> None:
        self.name = name
        self.resources = list(resources)
        self.templates = list(templates)
        self.prompts = list(prompts)
        self.found: list[dict[str, Any]] = []  # what its tool answers with, and its prompts end with
        self.refusal: MCPError | None = None  # with which it refuses to be read
        self.asked: list[tuple[str, Any]] = []
        self._clients: WeakSet[Connection] = WeakSet()
        with warnings.catch_warnings(action="ignore"):  # it still has what is deprecated: logging
            self.server: Server[Any] = Server(  # pyright: ignore[reportDeprecated] - see above
                name,
                version="1.0",
                instructions=f"{name} keeps books.",
                on_list_tools=self._tools,
                on_call_tool=self._look_up,
                on_list_resources=self._resources,
                on_list_resource_templates=self._templates,
                on_read_resource=self._read,
                on_list_prompts=self._prompts,
                on_get_prompt=self._prompt,
                on_completion=self._complete,
                on_subscribe_resource=self._subscribe,
                on_unsubscribe_resource=self._unsubscribe,
                on_set_logging_level=self._level,
            )

    def spec(self, **more: Any) -> ServerSpec:
        era = more.pop("era", "2025-11-25")
        return ServerSpec(name=self.name, transport="in_process", in_process=self.server, era=era, **more)

    async def notify_clients(self, method: str) -> None:
        """Say to every client that a list changed."""
        for client in tuple(self._clients):
            if "prompts" in method:
                await client.send_prompt_list_changed()
            else:
                await client.send_resource_list_changed()

    async def _tools(self, ctx: ServerRequestContext[Any], params: Any) -> types.ListToolsResult:
        # A session lives for one request only; what lasts as long as the client has no public name.
        self._clients.add(ctx.session._connection)  # pyright: ignore[reportPrivateUsage] - see above
        return types.ListToolsResult(tools=[types.Tool.model_validate(reading_tool("look_up"))])

    async def _look_up(
        self, ctx: ServerRequestContext[Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        return types.CallToolResult.model_validate({"content": self.found})

    async def _resources(self, ctx: ServerRequestContext[Any], params: Any) -> types.ListResourcesResult:
        listed = [types.Resource(uri=uri, name=uri.rpartition("/")[2]) for uri in self.resources]
        return types.ListResourcesResult(resources=listed)

    async def _templates(
        self, ctx: ServerRequestContext[Any], params: Any
    ) -> types.ListResourceTemplatesResult:
        listed = [types.ResourceTemplate(uri_template=text, name="books") for text in self.templates]
        return types.ListResourceTemplatesResult(resource_templates=listed)

    async def _read(
        self, ctx: ServerRequestContext[Any], params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        uri = str(params.uri)
        self.asked.append(("read", uri))
        if self.refusal is not None:
            raise self.refusal
        contents = types.TextResourceContents(uri=uri, text=f"{self.name}: {uri}")
        return types.ReadResourceResult(contents=[contents])

    async def _prompts(self, ctx: ServerRequestContext[Any], params: Any) -> types.ListPromptsResult:
        return types.ListPromptsResult(prompts=[types.Prompt(name=name) for name in self.prompts])

    async def _prompt(
        self, ctx: ServerRequestContext[Any], params: types.GetPromptRequestParams
    ) -> types.GetPromptResult:
        self.asked.append(("prompt", (params.name, params.arguments)))
        if self.refusal is not None:
            raise self.refusal
        content = types.TextContent(type="text", text=f"{self.name} says {params.name}")
        blocks = [content.model_dump(by_alias=True, exclude_none=True), *self.found]
        messages = [{"role": "user", "content": block} for block in blocks]
        return types.GetPromptResult.model_validate({"messages": messages})

    async def _complete(
        self, ctx: ServerRequestContext[Any], params: types.CompleteRequestParams
    ) -> types.CompleteResult:
        self.asked.append(("complete", params.ref))
        return types.CompleteResult(completion=types.Completion(values=[f"{self.name}!"]))

    async def _subscribe(
        self, ctx: ServerRequestContext[Any], params: types.SubscribeRequestParams
    ) -> types.EmptyResult:
        self.asked.append(("subscribe", str(params.uri)))
        return types.EmptyResult()

    async def _unsubscribe(
        self, ctx: ServerRequestContext[Any], params: types.UnsubscribeRequestParams
    ) -> types.EmptyResult:
        self.asked.append(("unsubscribe", str(params.uri)))
        return types.EmptyResult()

    async def _level(
        self, ctx: ServerRequestContext[Any], params: types.SetLevelRequestParams
    ) -> types.EmptyResult:
        self.asked.append(("level", params.level))
        return types.EmptyResult()


class FixedResultServer:
    """An MCP server whose tools answer with exactly these results, or refuse with these errors."""

    def __init__(
        self,
        name: str,
        tools: Mapping[str, Mapping[str, Any]],
        results: Mapping[str, Mapping[str, Any] | MCPError],
    ) -> None:
        self.name = name
        self.seen: list[types.CallToolRequestParams] = []
        self._results = results
        self._tools = [
            types.Tool.model_validate({**reading_tool(tool), **definition})
            for tool, definition in tools.items()
        ]
        self.server: Server[Any] = Server(
            name, version="1.0", on_list_tools=self._list, on_call_tool=self._call
        )

    def spec(self, era: Era = "2026-07-28", **more: Any) -> ServerSpec:
        return ServerSpec(name=self.name, transport="in_process", in_process=self.server, era=era, **more)

    async def _list(self, ctx: ServerRequestContext[Any], params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=self._tools)

    async def _call(
        self, ctx: ServerRequestContext[Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        self.seen.append(params)
        result = self._results[params.name]
        if isinstance(result, MCPError):
            raise result
        return types.CallToolResult.model_validate(result)

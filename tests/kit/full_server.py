"""A server that does all a server may do besides answering: it reports, asks, logs, offers and announces.

Run as a program it speaks over its standard streams.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, MutableMapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
import mcp_types as types
from mcp.server import Server
from mcp.server.connection import Connection
from mcp.server.context import ServerRequestContext
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    PromptsListChanged,
    ResourceUpdated,
)
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from fingerpost.testing import served

Context = ServerRequestContext[Any]

SCHEMA: dict[str, Any] = {"type": "object", "properties": {"colour": {"type": "string"}}}
STATE = 'só "state"\\n … {"a": 1}'  # whatever a server likes to put there
NOTES = "notes://one"


class FullServer:
    """The server, and what it saw."""

    def __init__(self, *, further_tools: int = 0) -> None:
        self._further_tools = further_tools
        self.metas: list[dict[str, Any]] = []
        self.states: list[str | None] = []
        self.resources = [types.Resource(uri=NOTES, name="one", title="One")]
        self.prompts = [types.Prompt(name="greet")]
        self.subscribed: list[str] = []
        self.sessions: set[int] = set()
        self.stubborn: list[types.CallToolResult] = []
        self.cancelled = anyio.Event()
        self.began = anyio.Event()
        self._clients: list[Connection] = []
        self._bus = InMemorySubscriptionBus()
        self.server: Server[Any] = Server(
            "talkative",
            version="1",
            on_list_tools=self._list_tools,
            on_call_tool=self._call,
            on_list_resources=self._list_resources,
            on_list_resource_templates=self._list_templates,
            on_read_resource=self._read,
            on_subscribe_resource=self._subscribe,
            on_unsubscribe_resource=self._unsubscribe,
            on_list_prompts=self._list_prompts,
            on_get_prompt=self._get_prompt,
            on_completion=self._complete,
            on_subscriptions_listen=ListenHandler(self._bus),
        )

    # -- tools --------------------------------------------------------------------------------------

    async def _list_tools(self, ctx: Context, params: object) -> types.ListToolsResult:
        if ctx.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            self._clients.append(ctx.session._connection)  # pyright: ignore[reportPrivateUsage] - no public name
        schema: dict[str, Any] = {"type": "object"}
        names = ("meta", "report", "ask", "ask_outside", "twice", "wait", "endless", "fail", "sample")
        names += ("stubborn", "log_outside")
        names += tuple(f"further_{number}" for number in range(self._further_tools))
        return types.ListToolsResult(tools=[types.Tool(name=name, input_schema=schema) for name in names])

    async def _call(
        self, ctx: Context, params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult:
        self.metas.append(dict((ctx.params or {}).get("_meta") or {}))
        self.states.append(params.request_state)
        self.sessions.add(id(ctx.session._connection))  # pyright: ignore[reportPrivateUsage] - no public name
        return await getattr(self, f"_{params.name}")(ctx, params)

    async def _meta(self, ctx: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        return _text(json.dumps(self.metas[-1]))

    async def _report(self, ctx: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        for step in (1, 2, 3):
            await ctx.session.report_progress(step, 3, f"step {step}")
        log = types.LoggingMessageNotificationParams(level="info", logger="talk", data={"at": "work"})
        await ctx.session.send_notification(types.LoggingMessageNotification(params=log), ctx.request_id)
        return _text("reported")

    async def _ask(
        self, ctx: Context, params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult:
        question = types.ElicitRequestFormParams(message="Which colour?", requested_schema=SCHEMA)
        if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
            if params.input_responses is None:
                asked = types.ElicitRequest(params=question)
                return types.InputRequiredResult(input_requests={"colour": asked}, request_state=STATE)
            answer = params.input_responses["colour"]
        else:
            answer = await ctx.session.elicit_form("Which colour?", SCHEMA, ctx.request_id)
        return _text(json.dumps(answer.model_dump(by_alias=True, mode="json", exclude_none=True)))

    async def _ask_outside(self, ctx: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        """Asks without saying for which request."""
        try:
            answer = await ctx.session.elicit_form("Which colour?", SCHEMA)
        except MCPError as error:
            return _text(f"{error.error.code} {error.error.message}")
        return _text(answer.action)

    async def _stubborn(self, ctx: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        """Goes on when it is called off, and asks then."""
        self.began.set()
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                self.stubborn.append(await self._ask_outside(ctx, params))
        return _text("")

    async def _log_outside(self, ctx: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        """Logs without saying for which request: over HTTP that may arrive behind the answer."""
        log = types.LoggingMessageNotificationParams(level="info", logger="talk", data="a secret")
        await ctx.session.send_notification(types.LoggingMessageNotification(params=log))
        return _text("logged")

    async def _twice(
        self, ctx: Context, params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult:
        """Wants to be asked again once, and nothing else."""
        return _text("done") if params.request_state else types.InputRequiredResult(request_state=STATE)

    async def _endless(self, ctx: Context, params: types.CallToolRequestParams) -> types.InputRequiredResult:
        return types.InputRequiredResult(request_state=STATE)

    async def _wait(self, ctx: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        self.began.set()
        try:
            await anyio.sleep_forever()
        finally:
            self.cancelled.set()
        return _text("")

    async def _fail(self, ctx: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        raise MCPError(-32050, "no luck today", {"why": ["rain"]})

    async def _sample(self, ctx: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        try:
            message = types.SamplingMessage(role="user", content=types.TextContent(type="text", text="hi"))
            request = types.CreateMessageRequest(
                params=types.CreateMessageRequestParams(messages=[message], max_tokens=5)
            )
            metadata = ServerMessageMetadata(related_request_id=ctx.request_id)
            result = await ctx.session.send_request(request, types.CreateMessageResult, metadata=metadata)
        except MCPError as error:
            return _text(f"{error.error.code} {error.error.message}")
        return _text(result.model)

    # -- the rest -----------------------------------------------------------------------------------

    async def _list_resources(self, ctx: Context, params: object) -> types.ListResourcesResult:
        return types.ListResourcesResult(resources=self.resources)

    async def _list_templates(self, ctx: Context, params: object) -> types.ListResourceTemplatesResult:
        template = types.ResourceTemplate(uri_template="notes://{name}", name="notes")
        return types.ListResourceTemplatesResult(resource_templates=[template])

    async def _read(self, ctx: Context, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        if str(params.uri) != NOTES:
            raise MCPError(-32002, "no such note", {"uri": str(params.uri)})
        return types.ReadResourceResult(contents=[types.TextResourceContents(uri=NOTES, text="a note")])

    async def _subscribe(self, ctx: Context, params: types.SubscribeRequestParams) -> types.EmptyResult:
        self.subscribed.append(f"+{params.uri}")
        return types.EmptyResult()

    async def _unsubscribe(self, ctx: Context, params: types.UnsubscribeRequestParams) -> types.EmptyResult:
        self.subscribed.append(f"-{params.uri}")
        return types.EmptyResult()

    async def _list_prompts(self, ctx: Context, params: object) -> types.ListPromptsResult:
        return types.ListPromptsResult(prompts=self.prompts)

    async def _get_prompt(self, ctx: Context, params: types.GetPromptRequestParams) -> types.GetPromptResult:
        content = types.TextContent(type="text", text="hello")
        return types.GetPromptResult(messages=[types.PromptMessage(role="user", content=content)])

    async def _complete(self, ctx: Context, params: types.CompleteRequestParams) -> types.CompleteResult:
        return types.CompleteResult(completion=types.Completion(values=[params.argument.value + "!"]))

    async def change_prompts(self, *names: str) -> None:
        self.prompts = [types.Prompt(name=name) for name in names]
        await self._bus.publish(PromptsListChanged())
        for client in self._clients:
            await client.send_prompt_list_changed()

    async def touch(self, uri: str) -> None:
        """Say that a resource changed."""
        await self._bus.publish(ResourceUpdated(uri=uri))
        for client in self._clients:
            await client.send_resource_updated(uri)


@dataclass
class Recorder:
    """An application in front of another one that writes down what reaches it."""

    app: Any
    requests: list[tuple[dict[str, str], dict[str, Any]]] = field(
        default_factory=list[tuple[dict[str, str], dict[str, Any]]]
    )
    streams: int = 0  # that were opened for what the server sends by itself; this happens after the handshake

    async def __call__(self, scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        async def note_stream(message: Any) -> None:
            await send(message)
            if message["type"] == "http.response.start":
                self.streams += 1

        if scope["type"] != "http" or scope["method"] != "POST":
            await self.app(scope, receive, note_stream if scope.get("method") == "GET" else send)
            return
        message = await receive()
        body: bytes = message["body"]
        while message.get("more_body"):
            message = await receive()
            body += message["body"]
        headers = {name.decode(): value.decode("latin-1") for name, value in scope["headers"]}
        asked = json.loads(body)
        self.requests.append((headers, asked))
        given = False

        async def again() -> Any:
            nonlocal given
            if given:
                return await receive()
            given = True
            return {"type": "http.request", "body": body, "more_body": False}

        opens_stream = asked.get("method") == "subscriptions/listen"
        await self.app(scope, again, note_stream if opens_stream else send)

    def of(self, method: str) -> list[tuple[dict[str, str], dict[str, Any]]]:
        return [(headers, body) for headers, body in self.requests if body.get("method") == method]


@asynccontextmanager
async def serve_full_server(
    talkative: FullServer, *, json_response: bool = False
) -> AsyncGenerator[tuple[str, Recorder]]:
    """The server over HTTP, with everything that reaches it on record."""
    recorder = Recorder(talkative.server.streamable_http_app(json_response=json_response))
    async with served(recorder) as base:
        yield f"{base}/mcp", recorder


def _text(text: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(type="text", text=text)])


async def _main() -> None:
    server = FullServer().server
    async with stdio_server() as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())


if __name__ == "__main__":
    anyio.run(_main)

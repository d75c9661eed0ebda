"""An MCP server with everything the conformance suite asks a server for, in both eras at one address.

`python -m tests.conformance.fixture_server --port 0` prints its address and
serves until it is stopped; tests serve `application()` in their own loop.
"""

from __future__ import annotations

import argparse
import socket
import sys
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

import mcp_types as types
import uvicorn
from mcp import MCPError
from mcp.server.caching import CacheHint
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    PromptsListChanged,
    ResourceUpdated,
    ToolsListChanged,
)
from pydantic import BaseModel
from starlette.applications import Starlette

from tests.conformance.fixture_call import FixtureCall, InputRequired, Object
from tests.conformance.fixture_events import KeptEvents
from tests.conformance.fixture_materials import PROMPTS, RESOURCES, TEMPLATES, complete, read
from tests.conformance.fixture_questions import ASKING_TOOLS
from tests.conformance.fixture_tools import PLAIN_TOOLS, Run, simple_text, text, tool

Context = ServerRequestContext[Any, Any]
Params = TypeVar("Params", bound=BaseModel)
Handler = Callable[[Context, Params], Awaitable[Object]]

FRESH: Final = CacheHint(ttl_ms=0, scope="private")
WATCHED: Final = "test://watched-resource"


class FixtureServer(Server[Any]):
    """The suite's fixtures. Two of its tools change its own lists, so it keeps these."""

    def __init__(self) -> None:
        self.news = InMemorySubscriptionBus()
        self.tools: dict[str, tuple[Object, Run]] = {
            definition["name"]: (definition, run)
            for definition, run in (
                *PLAIN_TOOLS,
                *ASKING_TOOLS,
                tool("test_trigger_tool_change", "Adds a tool, or takes it away again", self.change_tools),
                tool(
                    "test_trigger_prompt_change", "Adds a prompt, or takes it away again", self.change_prompts
                ),
                tool("test_trigger_resource_update", "Says that a resource changed", self.update_resource),
            )
        }
        self.prompts = {definition["name"]: (definition, run) for definition, run in PROMPTS}
        super().__init__(
            "conformance-fixture",
            version="1.0.0",
            instructions="Fixtures for the MCP conformance suite.",
            cache_hints={
                "tools/list": FRESH,
                "prompts/list": FRESH,
                "resources/list": FRESH,
                "resources/templates/list": FRESH,
                "resources/read": FRESH,
            },
            on_subscriptions_listen=ListenHandler(self.news),
        )
        self._answer_requests()

    def create_initialization_options(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
    ) -> InitializationOptions:
        """Sessions learn of changed lists, too."""
        changes = NotificationOptions(prompts_changed=True, resources_changed=True, tools_changed=True)
        return super().create_initialization_options(changes, experimental_capabilities, extensions)

    def _answer_requests(self) -> None:
        listing = types.PaginatedRequestParams
        self._answer("tools/list", listing, self._list_tools)
        self._answer("tools/call", types.CallToolRequestParams, self._call_tool)
        self._answer("resources/list", listing, self._list_resources)
        self._answer("resources/templates/list", listing, self._list_templates)
        self._answer("resources/read", types.ReadResourceRequestParams, self._read)
        self._answer("resources/subscribe", types.SubscribeRequestParams, self._accept)
        self._answer("resources/unsubscribe", types.UnsubscribeRequestParams, self._accept)
        self._answer("prompts/list", listing, self._list_prompts)
        self._answer("prompts/get", types.GetPromptRequestParams, self._get_prompt)
        self._answer("completion/complete", types.CompleteRequestParams, self._complete)
        self._answer("logging/setLevel", types.SetLevelRequestParams, self._accept)

    def _answer(self, method: str, params: type[Params], handle: Handler[Params]) -> None:
        """Results say what they are in 2026-07-28, which older versions do not know."""

        async def handler(context: Context, asked: Params) -> Object:
            result = await handle(context, asked)
            return {"resultType": "complete", **result} if FixtureCall(context).modern else result

        self.add_request_handler(method, params, handler)

    async def _list_tools(self, context: Context, params: types.PaginatedRequestParams) -> Object:
        return {"tools": [definition for definition, _ in self.tools.values()]}

    async def _call_tool(self, context: Context, params: types.CallToolRequestParams) -> Object:
        return await self._run(self.tools, params.name, context)

    async def _list_prompts(self, context: Context, params: types.PaginatedRequestParams) -> Object:
        return {"prompts": [definition for definition, _ in self.prompts.values()]}

    async def _get_prompt(self, context: Context, params: types.GetPromptRequestParams) -> Object:
        return await self._run(self.prompts, params.name, context)

    async def _run(self, fixtures: dict[str, tuple[Object, Run]], name: str, context: Context) -> Object:
        if name not in fixtures:
            raise MCPError(types.INVALID_PARAMS, f"There is no {name}")
        try:
            return await fixtures[name][1](FixtureCall(context))
        except InputRequired as asked:
            return asked.result

    async def _list_resources(self, context: Context, params: types.PaginatedRequestParams) -> Object:
        return {"resources": RESOURCES}

    async def _list_templates(self, context: Context, params: types.PaginatedRequestParams) -> Object:
        return {"resourceTemplates": TEMPLATES}

    async def _read(self, context: Context, params: types.ReadResourceRequestParams) -> Object:
        return read(str(params.uri))

    async def _complete(self, context: Context, params: types.CompleteRequestParams) -> Object:
        return complete(params.argument.value)

    async def _accept(self, context: Context, params: Any) -> Object:
        return {}

    async def change_tools(self, call: FixtureCall) -> Object:
        if self.tools.pop("test_extra_tool", None) is None:
            self.tools["test_extra_tool"] = tool("test_extra_tool", "Comes and goes", simple_text)
        if not call.modern:
            await call.context.session.send_tool_list_changed()
        await self.news.publish(ToolsListChanged())
        return text("The list of tools changed.")

    async def change_prompts(self, call: FixtureCall) -> Object:
        if self.prompts.pop("test_extra_prompt", None) is None:
            self.prompts["test_extra_prompt"] = (
                {"name": "test_extra_prompt", "description": "Comes and goes"},
                PROMPTS[0][1],
            )
        if not call.modern:
            await call.context.session.send_prompt_list_changed()
        await self.news.publish(PromptsListChanged())
        return text("The list of prompts changed.")

    async def update_resource(self, call: FixtureCall) -> Object:
        if not call.modern:
            await call.context.session.send_resource_updated(WATCHED)
        await self.news.publish(ResourceUpdated(uri=WATCHED))
        return text("The watched resource changed.")


def application() -> Starlette:
    """The fixture as a web application, at /mcp; refuses foreign hosts and origins."""
    return FixtureServer().streamable_http_app(event_store=KeptEvents(), retry_interval=100)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="0: any free port")
    listener = socket.create_server(("127.0.0.1", parser.parse_args().port))
    sys.stdout.write(f"http://127.0.0.1:{listener.getsockname()[1]}/mcp\n")
    sys.stdout.flush()
    uvicorn.Server(uvicorn.Config(application(), log_level="warning")).run(sockets=[listener])


if __name__ == "__main__":
    main()

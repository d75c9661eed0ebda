"""Python functions as the tools of an MCP server in this process, which may come and go."""

from __future__ import annotations

import inspect
import json
import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, cast

import anyio.to_thread
import mcp_types as types
from mcp.server import Server as McpServer
from mcp.server.context import ServerRequestContext
from pydantic import BaseModel, ConfigDict, PydanticUserError, ValidationError, create_model
from pydantic_core import to_jsonable_python

from fingerpost.errors import ConfigError
from fingerpost.frozen import frozen
from fingerpost.records import Effect, JsonObject, ServerSpec

logger = logging.getLogger("fingerpost.servers")

_HINTS: Final[Mapping[Effect, Mapping[str, bool]]] = {
    Effect.READ: {"readOnlyHint": True},
    Effect.WRITE: {"readOnlyHint": False, "destructiveHint": False},
    Effect.DESTROY: {"readOnlyHint": False, "destructiveHint": True},
}
_EFFECT_HINTS: Final = "Give a function, `async def` or `def`, whose parameters have names and types."


@frozen
class FunctionTool:
    """A function, its arguments as a model, and its definition."""

    function: Callable[..., Any]
    arguments: type[BaseModel]
    definition: JsonObject

    async def run(self, arguments: Mapping[str, Any]) -> object:
        """Call it with what JSON said, as the types it is annotated with; a plain function in a thread."""
        read = self.arguments.model_validate(arguments)
        values = {name: getattr(read, name) for name in read.model_fields_set}
        if inspect.iscoroutinefunction(self.function):
            return await self.function(**values)
        made = await anyio.to_thread.run_sync(partial(self.function, **values), abandon_on_cancel=True)
        return await made if inspect.isawaitable(made) else made


def build_function_tool(
    function: Callable[..., Any],
    *,
    name: str | None = None,
    description: str | None = None,
    effect: Effect | str | None = None,
) -> FunctionTool:
    """A function as a tool. Name, description and parameters are its own unless given."""
    if not callable(function):
        message = f"{str(function)[:80]} is not a function: nothing could be called"
        raise ConfigError(message, hint=_EFFECT_HINTS)
    name = name or getattr(function, "__name__", "")
    if not name or name == "<lambda>":
        message = "the function has no name"
        raise ConfigError(message, hint='Give one: register(function, name="…").')
    arguments = _build_arguments_model(function, name)
    definition: dict[str, Any] = {
        "name": name,
        "description": description or inspect.getdoc(function) or "",
        "inputSchema": {key: value for key, value in arguments.model_json_schema().items() if key != "title"},
    }
    if effect is not None:
        definition["annotations"] = dict(_HINTS[Effect(effect)])
    return FunctionTool(function=function, arguments=arguments, definition=definition)


class FunctionServer:
    """The functions registered under one server name."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.tools: dict[str, FunctionTool] = {}
        self._mcp: McpServer[Any] = McpServer(
            name,
            version="1.0",
            get_tool_input_schema=self._get_output_schema,
            on_list_tools=self._list,
            on_call_tool=self._call,
        )

    def build_spec(self) -> ServerSpec:
        return ServerSpec(name=self.name, transport="in_process", in_process=self._mcp)

    def add(self, tool: FunctionTool) -> str:
        """Offer this one, or in the place of the one with the same name. Its key."""
        name = str(tool.definition["name"])
        self.tools[name] = tool
        return f"{self.name}/{name}"

    def remove(self, name: str) -> bool:
        """Whether there was one."""
        return self.tools.pop(name, None) is not None

    def _get_output_schema(self, name: str) -> Mapping[str, Any] | None:
        tool = self.tools.get(name)
        return None if tool is None else cast("Mapping[str, Any]", tool.definition["inputSchema"])

    async def _list(
        self, ctx: ServerRequestContext[Any], params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        listed = [types.Tool.model_validate(tool.definition) for tool in self.tools.values()]
        return types.ListToolsResult(tools=listed)

    async def _call(
        self, ctx: ServerRequestContext[Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        tool = self.tools.get(params.name)
        if tool is None:
            return _build_result(f"No function is registered as {params.name!r:.100}.", failed=True)
        try:
            given = to_jsonable_python(await tool.run(params.arguments or {}))
        except ValidationError as wrong:
            return _build_result(f"The arguments do not fit: {wrong.errors()[0]['msg']}", failed=True)
        except Exception as error:  # of the caller's own function: what it says is the result
            logger.exception("%s/%s failed", self.name, params.name)
            return _build_result(f"{params.name} failed: {error or type(error).__name__}", failed=True)
        text = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
        return _build_result(text, data=cast("dict[str, Any]", given) if isinstance(given, dict) else None)


def _build_result(
    text: str, *, data: dict[str, Any] | None = None, failed: bool = False
) -> types.CallToolResult:
    content: list[types.ContentBlock] = [types.TextContent(type="text", text=text)]
    return types.CallToolResult(content=content, structured_content=data, is_error=failed)


def _build_arguments_model(function: Callable[..., Any], name: str) -> type[BaseModel]:
    """The parameters as a model: those without a default are required."""
    fields: dict[str, Any] = {}
    try:
        parameters = inspect.signature(function, eval_str=True).parameters
    except (NameError, TypeError, ValueError) as error:
        message = f"the parameters of {name} cannot be read: {error}"
        raise ConfigError(message, hint=_EFFECT_HINTS) from error
    for parameter in parameters.values():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            message = f"{name} takes {parameter}, which no model can fill in"
            raise ConfigError(message, hint=_EFFECT_HINTS)
        kind = Any if parameter.annotation is parameter.empty else parameter.annotation
        fields[parameter.name] = (kind, ... if parameter.default is parameter.empty else parameter.default)
    try:
        made = create_model(name, __config__=ConfigDict(extra="forbid"), **fields)
        made.model_json_schema()
    except (PydanticUserError, TypeError, ValueError) as error:
        message = f"the parameters of {name} have no JSON schema: {str(error).splitlines()[0]}"
        raise ConfigError(message, hint=_EFFECT_HINTS) from error
    return made

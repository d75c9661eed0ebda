"""Tools of our own as an MCP server: in this process, or alone over any transport the MCP library has."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any, Final, cast

import mcp_types as types
from jsonschema import Draft202012Validator
from mcp.server import Server
from mcp.server.context import ServerRequestContext
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from fingerpost import __version__
from fingerpost.builtin.kit.caller import ToolCaller
from fingerpost.builtin.kit.reply import ResultLink, ToolQuestion, ToolRefused, ToolReply
from fingerpost.builtin.kit.tool import BuiltinTool
from fingerpost.errors import FingerpostError
from fingerpost.records import CallContext, CallFault, JsonObject, ParameterError, ServerSpec
from fingerpost.servers.caller import AWAITS, CALL_ID, FAULT
from fingerpost.settings import OwnRule, ToolOverride

log = logging.getLogger("fingerpost.builtin")

INPUT_REQUEST_KEY: Final = "question"  # the one question of a round
_TIMEOUT_S: Final = 30.0

GetContext = Callable[[str], CallContext | None]
IsGranted = Callable[[str, str, JsonObject], bool]  # by call id, tool and arguments


class BuiltinServer:
    """A server of our own.

    `open` is entered before the first call and left after the last: what it holds open (an index, processes)
    lives in between. `rules` come behind everything a person wrote.
    """

    def __init__(
        self,
        name: str,
        tools: Iterable[BuiltinTool],
        *,
        instructions: str,
        rules: Iterable[OwnRule] = (),
        open: Callable[[], AbstractAsyncContextManager[object]] = nullcontext,
        get_context: GetContext = lambda _: None,
        is_granted: IsGranted | None = None,
    ) -> None:
        self.name = name
        self.tools = {tool.name: tool for tool in tools}
        self.rules = tuple(rules)
        self.open = open
        self._context_of = get_context
        self._is_granted = is_granted
        self._listed = [types.Tool.model_validate(tool.definition) for tool in self.tools.values()]
        self._checks = {
            tool.name: Draft202012Validator(cast("dict[str, Any]", tool.definition["inputSchema"]))
            for tool in self.tools.values()
        }
        self.mcp: Server[Any] = Server(
            f"fingerpost-{name}",
            version=__version__,
            instructions=instructions,
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
        )

    def build_spec(self) -> ServerSpec:
        """This server as an entry for a router in the same process."""
        return ServerSpec(
            name=self.name,
            transport="in_process",
            in_process=self.mcp,
            precheck=self,
            connect_timeout=_TIMEOUT_S,
        )

    def check_arguments(self, tool: str, arguments: JsonObject) -> tuple[ParameterError, ...]:
        """What is wrong with the arguments of a call beyond their schema."""
        try:
            self.tools[tool].check(arguments)
        except ToolRefused as refused:
            words = f"{refused.parameter}: {refused.text}"
            return (ParameterError(fault=refused.fault, parameter=refused.parameter, message=words),)
        return ()

    async def needs_grant(self, tool: str, arguments: JsonObject) -> str:
        """Why only a person's grant for this very call lets it run."""
        return await self.tools[tool].needs_grant(arguments)

    async def check_feasible(self, tool: str, arguments: JsonObject) -> CallFault | None:
        """Why a call would fail now."""
        try:
            await self.tools[tool].feasible(arguments)
        except ToolRefused as refused:
            return refused.call_fault
        return None

    def build_overrides(self) -> tuple[ToolOverride, ...]:
        """What is known of its tools beyond their definitions."""
        return tuple(tool.build_override(self.name) for tool in self.tools.values())

    async def _list_tools(
        self, ctx: ServerRequestContext[Any], params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return types.ListToolsResult(tools=self._listed)

    async def _call_tool(
        self, ctx: ServerRequestContext[Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult:
        tool = self.tools.get(params.name)
        if tool is None:
            return _build_result(ToolReply(f"There is no tool {params.name!r:.100} here.", failed=True))
        arguments: JsonObject = params.arguments or {}
        if (problem := self._find_problem(tool.name, arguments)) is not None:
            return _build_result(ToolReply(problem, failed=True))
        try:
            tool.check(arguments)
            given = await tool.run(arguments, self._build_caller(ctx, params))
        except ToolRefused as refused:
            return _build_result(ToolReply(refused.text, data=refused.data, failed=True), refused.call_fault)
        except FingerpostError as error:
            return _build_result(ToolReply(f"{error}. {error.hint or ''}".strip(), failed=True))
        except Exception:
            log.exception("%s/%s failed", self.name, tool.name)
            words = f"{tool.name} failed in a way it should not. Its log has the details."
            return _build_result(ToolReply(words, failed=True))
        return _build_input_required(given) if isinstance(given, ToolQuestion) else _build_result(given)

    def _find_problem(self, name: str, arguments: JsonObject) -> str | None:
        """What is wrong with the arguments. Calls through a router were checked and mended before."""
        error = next(iter(self._checks[name].iter_errors(arguments)), None)  # pyright: ignore[reportUnknownMemberType] - untyped upstream
        if error is None:
            return None
        where = ".".join(str(part) for part in error.absolute_path)
        return f"{f'{where}: ' if where else ''}{error.message[:300]}"

    def _is_granted_call(self, call_id: str, params: types.CallToolRequestParams) -> bool:
        granted = self._is_granted
        return granted is not None and granted(call_id, params.name, params.arguments or {})

    def _build_caller(
        self, ctx: ServerRequestContext[Any], params: types.CallToolRequestParams
    ) -> ToolCaller:
        meta = cast("Mapping[str, object]", ctx.meta or {})
        call_id = meta.get(CALL_ID)
        known = isinstance(call_id, str)
        context = self._context_of(call_id) if known else None
        answer, declined = _read_answer(params)
        return ToolCaller(
            context=context,
            progress=ctx.session.report_progress,
            granted=known and self._is_granted_call(call_id, params),
            can_be_asked=_can_be_asked(ctx, context),
            answer=answer,
            declined=declined,
            state=params.request_state or "",
        )


def _can_be_asked(ctx: ServerRequestContext[Any], context: CallContext | None) -> bool:
    """A request on its way can always ask its person: it waits for them. A client says whether it can."""
    if ctx.protocol_version not in MODERN_PROTOCOL_VERSIONS:
        return False
    if context is not None and context.packet_id is not None:
        return True
    able = ctx.session.client_capabilities
    return able is not None and able.elicitation is not None


def _read_answer(params: types.CallToolRequestParams) -> tuple[JsonObject | None, bool]:
    given = (params.input_responses or {}).get(INPUT_REQUEST_KEY)
    if given is None:
        return None, False
    told = cast("Mapping[str, Any]", given.model_dump(by_alias=True))
    content = told.get("content")
    if told.get("action") != "accept" or not isinstance(content, Mapping):
        return None, True
    return cast("JsonObject", content), False


def _build_input_required(question: ToolQuestion) -> types.InputRequiredResult:
    params = {"message": question.text, "requestedSchema": question.schema, "mode": "form"}
    request = {"method": "elicitation/create", "params": params}
    return types.InputRequiredResult.model_validate(
        {"inputRequests": {INPUT_REQUEST_KEY: request}, "requestState": question.state}
    )


def _build_result(reply: ToolReply, fault: CallFault | None = None) -> types.CallToolResult:
    content: list[types.ContentBlock] = [types.TextContent(type="text", text=reply.text)]
    content += [_build_link(link) for link in reply.links]
    made = types.CallToolResult(content=content, structured_content=reply.data, is_error=reply.failed)
    if reply.awaits is not None:
        made.meta = {AWAITS: reply.awaits}
    if fault is not None:
        said = {"error_type": fault.error_type, "path": fault.path, "parameter": fault.parameter}
        told: dict[str, Any] = {name: value for name, value in said.items() if value}
        if fault.parameter:
            told["fault"] = fault.fault.value
        made.meta = {FAULT: told}  # also where it says no more than that the words are ours
    return made


def _build_link(link: ResultLink) -> types.ResourceLink:
    return types.ResourceLink(
        type="resource_link",
        uri=link.uri,
        name=link.name,
        mime_type=link.media_type,
        description=link.description or None,
        size=link.size,
    )

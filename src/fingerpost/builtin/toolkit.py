"""What every built-in server is made of: tools as records, their callers and replies, and the MCP server
around them.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext
from dataclasses import field
from typing import Any, Final, TypeAlias, cast

import mcp_types as types
from jsonschema import Draft202012Validator
from mcp.server import Server
from mcp.server.context import ServerRequestContext
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from fingerpost import __version__
from fingerpost.errors import FingerpostError
from fingerpost.frozen import frozen
from fingerpost.records import (
    CallContext,
    CallFault,
    Effect,
    Json,
    JsonObject,
    ParameterError,
    ParameterFault,
    ServerSpec,
)
from fingerpost.servers.requests import AWAITS, CALL_ID, FAULT
from fingerpost.settings import OwnRule, ToolOverride

ReportProgress = Callable[[float, float | None, str | None], Awaitable[None]]


async def _ignore_progress(done: float, total: float | None, message: str | None) -> None:
    """Nobody wants to know how far it has come."""


@frozen
class ToolCaller:
    """One call, seen from the tool."""

    # Who calls, in which conversation, for which packet. None where the call did not come through our
    # call path: somebody runs this server alone.
    context: CallContext | None = None
    progress: ReportProgress = _ignore_progress
    granted: bool = False  # a person granted this very call
    can_be_asked: bool = False  # a `Question` would reach a person
    # What the person said to the `Question` of the round before: an object that fits its schema; None where
    # this is the first round, or (`declined`) where they would not say.
    answer: JsonObject | None = None
    declined: bool = False
    state: str = ""  # of that question

    @property
    def user(self) -> str | None:
        """The person, where we know one."""
        return None if self.context is None else self.context.caller

    @property
    def conversation(self) -> str | None:
        return None if self.context is None else self.context.conversation


@frozen
class ResultLink:
    """Something kept elsewhere: a picture, a model, a sound. Referred to, not pasted."""

    uri: str
    name: str
    media_type: str
    description: str = ""
    size: int | None = None


@frozen(kw_only=False)
class ToolReply:
    """A result: words for a model and a person, and the same as data where a program may want it."""

    text: str
    data: JsonObject | None = field(default=None, kw_only=True)
    links: tuple[ResultLink, ...] = field(default=(), kw_only=True)
    failed: bool = field(default=False, kw_only=True)
    # The id of a call that waits for approval: the caller is then asked about that call.
    awaits: str | None = field(default=None, kw_only=True)


@frozen
class ToolQuestion:
    """What a person has to say before there is a result. The tool is then called once more, with the answer.

    `schema` is a flat JSON schema of an object, as elicitation wants it.
    """

    text: str
    schema: JsonObject
    state: str = ""  # comes back with the answer; whoever holds it can read it


class ToolRefused(Exception):
    """It cannot be done. The words go to the model and the person: what is wrong, and what to do."""

    def __init__(
        self,
        message: str,
        *,
        hint: str = "",
        data: dict[str, Json] | None = None,
        error_type: str = "",
        path: str = "",
        parameter: str = "",
        fault: ParameterFault = ParameterFault.BAD_VALUE,
    ) -> None:
        """`error_type` and `path`: what is wrong with which file; `parameter`: the argument to correct."""
        super().__init__(message)
        self.hint = hint
        self.data = data
        self.error_type = error_type
        self.path = path
        self.parameter = parameter
        self.fault = fault

    @property
    def text(self) -> str:
        return f"{self} {self.hint}".strip() if self.hint else str(self)

    @property
    def call_fault(self) -> CallFault:
        """The same as a record."""
        return CallFault(
            message=self.text,
            error_type=self.error_type,
            path=self.path,
            parameter=self.parameter,
            fault=self.fault,
        )


@contextmanager
def attribute_to(parameter: str) -> Generator[None]:
    """Name this argument as the one to correct in every refusal raised inside."""
    try:
        yield
    except ToolRefused as refused:
        refused.parameter = refused.parameter or parameter
        raise


ToolHandler: TypeAlias = Callable[[JsonObject, ToolCaller], Awaitable[ToolReply | ToolQuestion]]

_HINTS: Final[Mapping[Effect, Mapping[str, bool]]] = {
    Effect.READ: {"readOnlyHint": True},
    Effect.WRITE: {"readOnlyHint": False, "destructiveHint": False},
    Effect.DESTROY: {"readOnlyHint": False, "destructiveHint": True},
}


async def _need_no_grant(arguments: JsonObject) -> str:
    """No grant is needed."""
    return ""


async def _find_no_fault(arguments: JsonObject) -> None:
    """Nothing is known against the call."""


@frozen
class BuiltinTool:
    """One tool. `effect` is the worst it can do, whatever is switched off: so its annotations say."""

    name: str
    title: str
    description: str
    run: ToolHandler
    effect: Effect
    properties: Mapping[str, JsonObject] = field(default_factory=dict[str, JsonObject])
    required: tuple[str, ...] = ()
    output_schema: JsonObject | None = None
    # Both raise `ToolRefused`, before a person is asked. `check` (also just before it runs): what is wrong
    # with the arguments beyond their schema, looking at nothing else. `feasible`: why the call would fail
    # now, changing nothing.
    check: Callable[[JsonObject], None] = lambda _: None
    feasible: Callable[[JsonObject], Awaitable[None]] = _find_no_fault
    # Why only a person's grant for this very call lets it run, whatever the rules say; empty: it need not.
    needs_grant: Callable[[JsonObject], Awaitable[str]] = _need_no_grant
    open_world: bool = False  # reaches beyond this machine
    # What the router knows of it beyond the definition: the fields of `ToolOverride` but for `match`.
    # `effect` and `operations` there are what holds with the present switches.
    knowledge: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def definition(self) -> JsonObject:
        """As a server lists it."""
        schema: dict[str, Json] = {
            "type": "object",
            "properties": dict(self.properties),
            "additionalProperties": False,
        }
        if self.required:
            schema["required"] = list(self.required)
        told: dict[str, Json] = {
            "name": self.name,
            "title": self.title,
            "description": self.description,
            "inputSchema": schema,
            "annotations": {**_HINTS[self.effect], "title": self.title, "openWorldHint": self.open_world},
        }
        if self.output_schema is not None:
            told["outputSchema"] = self.output_schema
        return told

    def build_override(self, server: str) -> ToolOverride:
        """What is known of it, as if a person had written it; a person's own words come behind it and win."""
        known: dict[str, Any] = {"effect": self.effect, **self.knowledge}
        return ToolOverride.model_validate({"match": f"{server}/{self.name}", **known})


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


__all__ = [
    "BuiltinServer",
    "BuiltinTool",
    "ResultLink",
    "ToolCaller",
    "ToolQuestion",
    "ToolRefused",
    "ToolReply",
    "attribute_to",
]

"""The parts of every built-in server: its host, tools, their callers and replies, the MCP server."""

from __future__ import annotations

import codecs
import logging
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypedDict, Unpack, cast

import mcp_types as types
from jsonschema import Draft202012Validator
from mcp.server import Server
from mcp.server.context import ServerRequestContext
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from fingerpost import __version__
from fingerpost.data_files import read_data_table
from fingerpost.errors import FingerpostError
from fingerpost.frozen import frozen
from fingerpost.records import (
    Call,
    CallContext,
    CallFault,
    Effect,
    Json,
    JsonObject,
    ParameterError,
    ParameterFault,
    ServerSpec,
)
from fingerpost.servers.requests import CALL_ID_META_KEY, FAULT_META_KEY, PENDING_META_KEY
from fingerpost.settings import OwnRule, Settings, ToolOverride

if TYPE_CHECKING:
    from fingerpost.router import Router

ReportProgress = Callable[[float, float | None, str | None], Awaitable[None]]


async def _ignore_progress(done: float, total: float | None, message: str | None) -> None:
    """Ignore progress reports."""


@frozen
class ToolCaller:
    """The caller of one tool call."""

    # Caller, conversation and packet. None if the call did not come through the call pipeline, because
    # the server runs alone.
    context: CallContext | None = None
    progress: ReportProgress = _ignore_progress
    granted: bool = False  # a person granted exactly this call
    can_be_asked: bool = False  # a `ToolQuestion` would reach a person
    # The answer to the `ToolQuestion` of the previous round, valid under its schema. None in the first round,
    # or if the person declined to answer (`declined`).
    answer: JsonObject | None = None
    declined: bool = False
    state: str = ""  # state of that question

    @property
    def user(self) -> str | None:
        """The caller's name, if known."""
        return None if self.context is None else self.context.caller

    @property
    def conversation(self) -> str | None:
        return None if self.context is None else self.context.conversation


@frozen(kw_only=False)
class ToolReply:
    """A result: text for models and people, and optionally structured data for programs."""

    text: str
    data: JsonObject | None = field(default=None, kw_only=True)
    links: tuple[types.ResourceLink, ...] = field(default=(), kw_only=True)  # to stored assets
    failed: bool = field(default=False, kw_only=True)
    # The id of a pending call. The person is then asked about that call.
    awaits: str | None = field(default=None, kw_only=True)


@frozen
class ToolQuestion:
    """A question that a person has to answer first. The tool is then called again with the answer.

    `schema` is a flat JSON schema of an object, as elicitation requires.
    """

    text: str
    schema: JsonObject
    state: str = ""  # returned with the answer; not secret


class ToolRefused(Exception):
    """The call cannot be done. The model and the person see the message and the hint."""

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
        """`error_type` and `path` identify a problem with a file; `parameter` is the argument to correct."""
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
        """The refusal as a record."""
        return CallFault(
            message=self.text,
            error_type=self.error_type,
            path=self.path,
            parameter=self.parameter,
            fault=self.fault,
        )


@contextmanager
def attribute_to(parameter: str) -> Generator[None]:
    """Set this parameter as the one to correct in every `ToolRefused` raised inside."""
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
    """Return an empty reason: no grant is needed."""
    return ""


async def _accept_call(arguments: JsonObject) -> None:
    """Accept every call."""


@frozen
class BuiltinTool:
    """One tool. `effect` is its worst effect with all switches on, which its annotations state."""

    name: str
    title: str
    description: str
    run: ToolHandler
    effect: Effect
    properties: Mapping[str, JsonObject] = field(default_factory=dict[str, JsonObject])
    required: Sequence[str] = ()
    output_schema: JsonObject | None = None
    # Both raise `ToolRefused` before a person is asked. `check` validates the arguments beyond their schema
    # without looking at anything else; it also runs just before the call. `check_feasibility` tests whether
    # the call would fail now, without changing anything.
    check: Callable[[JsonObject], None] = lambda _: None
    check_feasibility: Callable[[JsonObject], Awaitable[None]] = _accept_call
    # Why exactly this call needs a person's grant, whatever the rules say; empty if it does not.
    get_grant_reason: Callable[[JsonObject], Awaitable[str]] = _need_no_grant
    open_world: bool = False  # accesses other machines
    # The fields of `ToolOverride` except `match`. `effect` and `operations` in it apply to the current
    # switches.
    knowledge: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def definition(self) -> JsonObject:
        """The MCP definition of the tool."""
        properties: JsonObject = dict(self.properties)
        schema: JsonObject = {"type": "object", "properties": properties, "additionalProperties": False}
        if self.required:
            schema = {**schema, "required": list(self.required)}
        definition: dict[str, Json] = {
            "name": self.name,
            "title": self.title,
            "description": self.description,
            "inputSchema": schema,
            "annotations": {**_HINTS[self.effect], "title": self.title, "openWorldHint": self.open_world},
        }
        if self.output_schema is not None:
            definition["outputSchema"] = self.output_schema
        return definition

    def build_override(self, server: str) -> ToolOverride:
        """Return the tool's known properties as an override. The operator's own overrides take precedence."""
        known: dict[str, Any] = {"effect": self.effect, **self.knowledge}
        return ToolOverride.model_validate({"match": f"{server}/{self.name}", **known})


class ToolParts(TypedDict, total=False):
    """Fields of a `BuiltinTool` that are code, or replace a field of its definition."""

    description: str
    check: Callable[[JsonObject], None]
    check_feasibility: Callable[[JsonObject], Awaitable[None]]
    get_grant_reason: Callable[[JsonObject], Awaitable[str]]


@frozen
class ToolDefinitions:
    """The definitions of a server's tools: what clients see, and what the router knows of them."""

    instructions: str
    tools: Mapping[str, Mapping[str, Any]]

    @classmethod
    def load(cls, package: str, file: str = "tools.toml") -> ToolDefinitions:
        return cls(**read_data_table(package, file))

    def build_tool(
        self,
        name: str,
        run: ToolHandler,
        effect: Effect,
        *,
        knowledge: Mapping[str, Any] | None = None,
        **parts: Unpack[ToolParts],
    ) -> BuiltinTool:
        """Build the tool of this name."""
        fields: dict[str, Any] = {**self.tools[name], **parts}
        fields["knowledge"] = {**self.tools[name]["knowledge"], **(knowledge or {})}
        return BuiltinTool(name=name, run=run, effect=effect, **fields)


log = logging.getLogger("fingerpost.builtin")

INPUT_REQUEST_KEY: Final = "question"  # key of the only question of a round
_TIMEOUT_S: Final = 30.0

GetContext = Callable[[str], CallContext | None]
IsGranted = Callable[[str, str, JsonObject], bool]  # call id, tool, arguments
NoteWrite = Callable[[Call, ServerSpec, CallContext], Awaitable[None]]


async def _ignore_write(call: Call, server: ServerSpec, context: CallContext) -> None:
    """Take no note of the calls of other servers."""


class BuiltinServer:
    """A built-in server.

    `open` is entered before the first call and left after the last, and holds resources such as an index or
    processes. `rules` come after all rules of the operator.
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
        is_granted: IsGranted = lambda _, __, ___: False,
        note_write: NoteWrite = _ignore_write,
    ) -> None:
        self.name = name
        self.tools = {tool.name: tool for tool in tools}
        self.rules = tuple(rules)
        self.open = open
        self._get_context = get_context
        self._is_granted = is_granted
        self._note_write = note_write
        self._listed = [types.Tool.model_validate(tool.definition) for tool in self.tools.values()]
        self._validators = {
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
        """Return the server's spec for a router in the same process."""
        return ServerSpec(
            name=self.name,
            transport="in_process",
            in_process=self.mcp,
            precheck=self,
            connect_timeout=_TIMEOUT_S,
        )

    def find_argument_errors(self, tool: str, arguments: JsonObject) -> tuple[ParameterError, ...]:
        """Return errors in the arguments that the schema does not cover."""
        try:
            self.tools[tool].check(arguments)
        except ToolRefused as refused:
            words = f"{refused.parameter}: {refused.text}"
            return (ParameterError(fault=refused.fault, parameter=refused.parameter, message=words),)
        return ()

    async def get_grant_reason(self, tool: str, arguments: JsonObject) -> str:
        """Return why exactly this call needs a person's grant, or an empty text."""
        return await self.tools[tool].get_grant_reason(arguments)

    async def find_fault(self, tool: str, arguments: JsonObject) -> CallFault | None:
        """Return why a call would fail now, or None."""
        try:
            await self.tools[tool].check_feasibility(arguments)
        except ToolRefused as refused:
            return refused.call_fault
        return None

    async def note_write(self, call: Call, server: ServerSpec, context: CallContext) -> None:
        """Take note of a call of another server that may change something and is about to be sent."""
        await self._note_write(call, server, context)

    def build_overrides(self) -> tuple[ToolOverride, ...]:
        """Return the known properties of its tools beyond their definitions."""
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
            words = f"{tool.name} failed unexpectedly. The log has the details."
            return _build_result(ToolReply(words, failed=True))
        return _build_input_required(given) if isinstance(given, ToolQuestion) else _build_result(given)

    def _find_problem(self, name: str, arguments: JsonObject) -> str | None:
        """Return what is wrong with the arguments, or None. A router has checked and repaired its calls."""
        # The validator of the call path leaves out patterns that it cannot run; here, every one counts.
        error = next(iter(self._validators[name].iter_errors(arguments)), None)  # pyright: ignore[reportUnknownMemberType] - untyped upstream
        if error is None:
            return None
        where = ".".join(str(part) for part in error.absolute_path)
        return f"{f'{where}: ' if where else ''}{error.message[:300]}"

    def _build_caller(
        self, ctx: ServerRequestContext[Any], params: types.CallToolRequestParams
    ) -> ToolCaller:
        meta = cast("Mapping[str, object]", ctx.meta or {})
        call_id = meta.get(CALL_ID_META_KEY)
        known = isinstance(call_id, str)
        context = self._get_context(call_id) if known else None
        answer, declined = _read_answer(params)
        return ToolCaller(
            context=context,
            progress=ctx.session.report_progress,
            granted=known and self._is_granted(call_id, params.name, params.arguments or {}),
            can_be_asked=_can_be_asked(ctx, context),
            answer=answer,
            declined=declined,
            state=params.request_state or "",
        )


def _can_be_asked(ctx: ServerRequestContext[Any], context: CallContext | None) -> bool:
    """Return whether a person can be asked: in a routed request, or if the client supports it."""
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
    response = cast("Mapping[str, Any]", given.model_dump(by_alias=True))
    content = response.get("content")
    if response.get("action") != "accept" or not isinstance(content, Mapping):
        return None, True
    return cast("JsonObject", content), False


def _build_input_required(question: ToolQuestion) -> types.InputRequiredResult:
    params = {"message": question.text, "requestedSchema": question.schema, "mode": "form"}
    request = {"method": "elicitation/create", "params": params}
    return types.InputRequiredResult.model_validate(
        {"inputRequests": {INPUT_REQUEST_KEY: request}, "requestState": question.state}
    )


def _build_result(reply: ToolReply, fault: CallFault | None = None) -> types.CallToolResult:
    content: list[types.ContentBlock] = [types.TextContent(type="text", text=reply.text), *reply.links]
    result = types.CallToolResult(content=content, structured_content=reply.data, is_error=reply.failed)
    if reply.awaits is not None:
        result.meta = {PENDING_META_KEY: reply.awaits}
    if fault is not None:
        fields = {"error_type": fault.error_type, "path": fault.path, "parameter": fault.parameter}
        details: dict[str, Any] = {name: value for name, value in fields.items() if value}
        if fault.parameter:
            details["fault"] = fault.fault.value
        # Without fields, it still marks the text as that of a built-in server.
        result.meta = {FAULT_META_KEY: details}
    return result


_BYTE_ORDER_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_SAMPLE_BYTES: Final = 8192
_CONTROL_CHARACTERS: Final = bytes({*range(0x20), 0x7F} - {*b"\t\n\r\f\b\x1b"})
_CONTROL_SHARE: Final = 0.1


def detect_encoding(data: bytes) -> tuple[bytes, str] | None:
    """Return the byte order mark and the encoding of a file's content, or None if it is binary.

    Without a mark the encoding is UTF-8, and text in another encoding still fails to decode.
    """
    for mark, encoding in _BYTE_ORDER_MARKS:
        if data.startswith(mark):
            return mark, encoding
    begin = data[:_SAMPLE_BYTES]
    controls = len(begin) - len(begin.translate(None, _CONTROL_CHARACTERS))
    return None if b"\0" in begin or controls > _CONTROL_SHARE * len(begin) else (b"", "utf-8")


@dataclass(slots=True, kw_only=True)
class BuiltinHost:
    """The settings, the working directory, and the router once it is open (None: the server runs alone)."""

    settings: Settings = field(default_factory=Settings)
    folder: Path = field(default_factory=Path.cwd)
    router: Router | None = None

    def get_context(self, call_id: str) -> CallContext | None:
        """Return the context of a running call."""
        return None if self.router is None else self.router.calls.get_context(call_id)

    def is_granted(self, call_id: str, name: str, arguments: JsonObject) -> bool:
        """Return whether a person granted exactly this call."""
        return self.router is not None and self.router.calls.is_granted(call_id, name, arguments)

    @property
    def required_router(self) -> Router:
        """The router. Raises `ToolRefused` if there is none, because the tool needs one."""
        if self.router is None:
            message = "This tool works only inside of Fingerpost, not when its server runs alone."
            raise ToolRefused(message, hint="Name it in builtin.enabled and call it through Fingerpost.")
        return self.router

    def resolve_path(self, given: str | None, default: str = ".") -> Path:
        """Return a folder of the settings: relative to the working directory, `~` for home."""
        return (self.folder / Path(given or default).expanduser()).absolute()

"""Requests to the router: narrow tools, answer a request, call a tool."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, Final, Literal

from pydantic import Field
from pydantic_core import to_json as write_json

from fingerpost.call.build import ToolNotFound, resolve_tool
from fingerpost.call.inflight import MAX_KEPT_BYTES, MAX_KEY_LENGTH, find_key_problem
from fingerpost.catalog import Snapshot
from fingerpost.events import Event
from fingerpost.frozen import copy_fields, frozen
from fingerpost.records import (
    CallContext,
    Effect,
    Effort,
    Json,
    Message,
    Narrowing,
    Outcome,
    Principal,
    Right,
    ToolCall,
    create_id,
)
from fingerpost.records.codec import to_json
from fingerpost.records.json import is_large_value
from fingerpost.router import Router
from fingerpost.router.options import RouteOptions
from fingerpost.router.route import AnswerPiece, Route, StreamItem
from fingerpost.surfaces.api.operation import (
    EVENT_STREAM_TYPE,
    ApiProblem,
    ApiRequest,
    OperationGroup,
    StreamingResponse,
    declare_operation,
    prefers_event_stream,
)
from fingerpost.surfaces.api.streams import EventView, StreamSlots
from fingerpost.surfaces.api.tools import get_title
from fingerpost.surfaces.api.visibility import filter_event, filter_narrowing
from fingerpost.surfaces.http.access import (
    VERSION_HEADER,
    AccessScope,
    build_conversation_id,
    get_caller_authorization,
    resolve_access_scope,
)
from fingerpost.surfaces.http.asgi import EventStream, Header, Receive, Send
from fingerpost.tasks import run_in_thread

MAX_QUESTIONS: Final = 300

_UNKNOWN_QUESTION_MESSAGE = (
    "This question is not known: it was answered already, is too old, or belongs to another caller. "
    "Send the whole request again."
)


class OpenQuestions:
    """The newest open questions by packet. Each can be answered once, by the caller that was asked."""

    def __init__(self) -> None:
        self._routes: OrderedDict[str, Route] = OrderedDict()

    def remember(self, route: Route) -> None:
        """Remember a route if it asks a question."""
        if route.question is None or route.question.pending_id is not None:
            return
        self._routes[route.packet_id] = route
        if len(self._routes) > MAX_QUESTIONS:
            self._routes.popitem(last=False)

    def take(self, caller: str, packet_id: str | None) -> Route | None:
        """Return the route that this request answers, or None. Raises `ApiProblem`."""
        if packet_id is None:
            return None
        route = self._routes.get(packet_id)
        if route is None or route.packet.header.caller != caller:
            raise ApiProblem(404, "There is no such question", _UNKNOWN_QUESTION_MESSAGE)
        return self._routes.pop(packet_id)


MAX_REQUEST_LENGTH: Final = 100_000
IDEMPOTENCY_HEADER: Final = "idempotency-key"
SERVER_WAIT_S: Final = 5.0
_NO_NUL_PATTERN: Final = r"^[^\x00]*$"

RequestText = Annotated[
    str, Field(min_length=1, max_length=MAX_REQUEST_LENGTH, description="The request, in plain words")
]
RequestName = Annotated[str, Field(min_length=1, max_length=200, pattern=_NO_NUL_PATTERN)]
ProfileName = Annotated[RequestName | None, Field(description="With this profile")]
VersionName = Annotated[
    RequestName | None,
    Field(description="Selects a profile if none is named. Can also be sent as X-API-Version"),
]
ConversationName = Annotated[RequestName | None, Field(description="Which conversation it belongs to")]
ChosenEffort = Annotated[
    Effort | None, Field(description="quick or thorough; by default as the caller prefers")
]
RequestMode = Literal["auto", "staged", "single", "simple", "react", "keyless"]


@frozen
class Turn:
    """One message of the conversation so far."""

    role: Literal["user", "assistant"]
    text: Annotated[str, Field(max_length=MAX_REQUEST_LENGTH)]


ChatHistory = Annotated[tuple[Turn, ...], Field(max_length=200, description="The conversation so far")]


@frozen
class NarrowBody:
    """A request for which suitable tools are searched. No tool is called."""

    request: RequestText
    profile: ProfileName = None
    api_version: VersionName = None
    server: Annotated[RequestName | None, Field(description="Only tools of this server")] = None
    max_tools: Annotated[int | None, Field(ge=1, le=100, description="Most that are offered")] = None
    effort: ChosenEffort = None
    about: Annotated[RequestName | None, Field(description="A tool to explain, at any rank")] = None
    history: ChatHistory = ()


@frozen
class AskBody:
    """A request to answer."""

    request: RequestText
    mode: Annotated[RequestMode | None, Field(description="How to answer; by default as in the settings")] = (
        None
    )
    profile: ProfileName = None
    api_version: VersionName = None
    conversation: ConversationName = None
    persona: Annotated[
        str | None, Field(max_length=10_000, description="Who the assistant is, first in every prompt")
    ] = None
    effort: ChosenEffort = None
    dry_run: Annotated[bool, Field(description="Only show what would be called")] = False
    history: Annotated[
        ChatHistory | None,
        Field(description="The conversation so far; by default what was said in `conversation` is recalled"),
    ] = None
    answers: Annotated[
        RequestName | None,
        Field(description="The packet whose question (outcome `asked`) this is the answer to"),
    ] = None


@frozen
class ApiCallBody:
    """A tool to call, with its arguments."""

    tool: Annotated[
        str, Field(min_length=1, max_length=512, description="Its key `server/tool`, or its name")
    ]
    arguments: Annotated[dict[str, Json], Field(description="By parameter")]
    profile: ProfileName = None
    api_version: VersionName = None
    conversation: ConversationName = None
    dry_run: Annotated[bool, Field(description="Only say what would happen")] = False
    fallback: Annotated[
        bool, Field(description="false: no fallback when this tool fails or finds nothing")
    ] = True
    idempotency_key: Annotated[
        str | None,
        Field(
            min_length=1,
            max_length=MAX_KEY_LENGTH,
            description="The same key and the same call run once; or the header Idempotency-Key",
        ),
    ] = None


@frozen
class CardLine:
    """Summary of a considered tool."""

    title: str
    description: str
    effect: Effect
    server: str


@frozen
class NarrowResponse(Narrowing):
    """The result of narrowing, and summaries of its candidates."""

    cards: dict[str, CardLine]


class RequestOperations(OperationGroup):
    """The operations that use tools."""

    tag = "asking"

    def __init__(self, router: Router, streams: StreamSlots) -> None:
        super().__init__(router)
        self._streams = streams
        self._questions = OpenQuestions()
        self._servers_awaited = False

    @declare_operation("POST", "/api/route", right=Right.USE, problems=(404,), cancels_on_disconnect=True)
    async def route(self, request: ApiRequest, body: NarrowBody) -> NarrowResponse:
        """Which tools fit a request, and why. Nothing is called."""
        request = await self._await_servers(request)
        access_scope = self._resolve_access_scope(request, body)
        if body.server is not None:
            await self._check_server(body.server, request.principal.name, access_scope)
        async with self._router.quotas.admit(request.principal, access_scope.profile):
            narrowing = await self._router.narrow(
                body.request,
                caller=request.principal.name,
                profile=access_scope.profile,
                scopes=access_scope.scopes,
                server=body.server,
                max_tools=body.max_tools,
                effort=body.effort,
                about=body.about,
                history=_build_messages(body.history),
            )
        shown = filter_narrowing(narrowing, request.principal)
        return _build_narrowed(shown, self._router.catalog.get_snapshot_for(access_scope.scopes))

    @declare_operation(
        "POST",
        "/api/ask",
        right=Right.USE,
        returns=dict[str, Json],
        other_media=(EVENT_STREAM_TYPE,),
        problems=(404, 502, 504),
        cancels_on_disconnect=True,
    )
    async def ask(self, request: ApiRequest, body: AskBody) -> dict[str, Any] | StreamingResponse:
        """Answer a request; as a stream of `event`, `text` and at last `route` where accepted."""
        request = await self._await_servers(request)
        route_options = self._build_route_options(request, body)
        admission = partial(self._router.quotas.admit, request.principal, route_options.profile, runs=True)
        if not prefers_event_stream(request.headers):
            async with admission():
                question_route = self._questions.take(request.principal.name, body.answers)
                if question_route is None:
                    route = await self._router.requests.route(body.request, route_options)
                else:
                    route = await self._router.requests.reply(question_route, body.request, route_options)
            return _render_route(self._remember_question(route), request.principal)
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(admission())  # before the stream begins, to refuse with a status
            question_route = self._questions.take(request.principal.name, body.answers)
            streaming = self._stream_answer(request, route_options, question_route)
            admitted = stack.pop_all()

        async def run(receive: Receive, send: Send, headers: tuple[Header, ...]) -> None:
            async with admitted:
                await streaming.run(receive, send, headers)

        return StreamingResponse(run=run)

    def _stream_answer(
        self, request: ApiRequest, route_options: RouteOptions, question_route: Route | None
    ) -> StreamingResponse:
        async def write(stream: EventStream) -> None:
            try:
                if question_route is not None:
                    await self._stream_reply(stream, question_route, request, route_options)
                    return
                async with aclosing(
                    self._router.requests.stream(request.body.request, route_options)
                ) as items:
                    async for item in items:
                        item = self._remember_question(item) if isinstance(item, Route) else item
                        await _send_item(stream, item, request.principal)
            except Exception as error:  # noqa: BLE001 - the answer has begun: it can only be told in it
                problem = ApiProblem.from_error(error)
                shown = {name: getattr(problem, name) for name in ("title", "status", "detail")}
                await stream.send_event(write_json({**shown, **problem.more}), event="problem")

        return self._streams.build_streaming(write, request)

    async def _stream_reply(
        self, stream: EventStream, question_route: Route, request: ApiRequest, route_options: RouteOptions
    ) -> None:
        """Answer a question. The reply does not stream, so its events are sent at the end."""
        route = self._remember_question(
            await self._router.requests.reply(question_route, request.body.request, route_options)
        )
        for item in (*route.events, AnswerPiece(text=route.answer), route):
            await _send_item(stream, item, request.principal)

    def _remember_question(self, route: Route) -> Route:
        """Remember the route if it asks a question, and return it."""
        self._questions.remember(route)
        return route

    @declare_operation("POST", "/api/call", right=Right.USE, problems=(400, 404), cancels_on_disconnect=True)
    async def call(self, request: ApiRequest, body: ApiCallBody) -> Outcome:
        """Call a tool through the whole path."""
        request = await self._await_servers(request)
        access_scope = self._resolve_access_scope(request, body)
        name = request.principal.name
        view = await self._router.look(caller=name, profile=access_scope.profile, scopes=access_scope.scopes)
        tool_call = ToolCall(name=body.tool, arguments=body.arguments)
        found = resolve_tool(tool_call, view.visible)
        if isinstance(found, ToolNotFound):
            unavailable = self._explain_unavailable(tool_call, found, request.principal, access_scope)
            if unavailable is None:
                raise _build_unknown_tool(body.tool, found)
            return unavailable
        idempotency_key = _get_idempotency_key(request, body)
        async with self._router.quotas.admit(request.principal, access_scope.profile, calls=True, runs=True):
            outcome = await self._router.call(
                found.card.key,
                found.arguments,
                caller=name,
                profile=access_scope.profile,
                scopes=access_scope.scopes,
                conversation=_build_conversation_id(request.principal, body.conversation),
                dry_run=body.dry_run,
                fallback=body.fallback,
                idempotency_key=idempotency_key,
                authorization=get_caller_authorization(request.headers, request.principal),
            )
        return await _drop_large_result(outcome)

    def _explain_unavailable(
        self, tool_call: ToolCall, missed: ToolNotFound, principal: Principal, access_scope: AccessScope
    ) -> Outcome | None:
        """Return the failed outcome of a permitted tool that is unavailable now, else None. Nothing runs."""
        context = CallContext(
            call_id=create_id("cal"),
            caller=principal.name,
            profile=access_scope.profile,
            scopes=access_scope.scopes,
        )
        if missed.ambiguous or self._router.calls.find_absence(tool_call, context) is None:
            return None
        return self._router.calls.record_unknown(tool_call, missed, context)

    async def _check_server(self, server: str, caller: str, access_scope: AccessScope) -> None:
        """Raise if the server does not exist, or if a limited caller cannot see it."""
        if access_scope.scopes:
            view = await self._router.look(
                caller=caller, profile=access_scope.profile, scopes=access_scope.scopes
            )
            if all(card.server != server for card in view.visible.cards):
                detail = f"There is no server {server[:60]!r} that you may use."
                raise ApiProblem(404, "There is no such server", detail)
        self._router.servers.get_status(server)

    async def _await_servers(self, request: ApiRequest) -> ApiRequest:
        """Wait for connecting servers. Return the request with the tools listed for the caller's own key."""
        if not self._servers_awaited:
            self._router.servers.start()
            await self._router.servers.wait_until_settled(timeout=SERVER_WAIT_S)
            self._servers_awaited = True
        own = get_caller_authorization(request.headers, request.principal)
        return replace(request, principal=await self._router.with_own_tools(request.principal, own))

    def _build_route_options(self, request: ApiRequest, wanted: AskBody) -> RouteOptions:
        principal, access_scope = request.principal, self._resolve_access_scope(request, wanted)
        return RouteOptions(
            mode=wanted.mode,
            effort=wanted.effort,
            caller=principal.name,
            profile=access_scope.profile,
            scopes=access_scope.scopes,
            conversation=_build_conversation_id(principal, wanted.conversation),
            persona=wanted.persona,
            dry_run=wanted.dry_run,
            authorization=get_caller_authorization(request.headers, principal),
            history=None if wanted.history is None else _build_messages(wanted.history),
        )

    def _resolve_access_scope(
        self, request: ApiRequest, wanted: NarrowBody | AskBody | ApiCallBody
    ) -> AccessScope:
        version = wanted.api_version or request.headers.get(VERSION_HEADER)
        return resolve_access_scope(
            request.principal, wanted.profile, self._router.profiles, api_version=version
        )


async def _drop_large_result(outcome: Outcome) -> Outcome:
    """Drop the raw result if it is too large to send. It can be read by its handle."""
    if (
        not is_large_value(outcome.result)
        or len(await run_in_thread(write_json, outcome.result)) <= MAX_KEPT_BYTES
    ):
        return outcome
    return replace(outcome, result=None, metadata={**outcome.metadata, "result_left_out": True})


def _build_conversation_id(principal: Principal, given: str | None) -> str | None:
    return None if given is None else build_conversation_id(principal, given)


def _get_idempotency_key(request: ApiRequest, wanted: ApiCallBody) -> str | None:
    """Return the key from the body or the header, which may be quoted (as in the IETF draft)."""
    header = request.headers.get(IDEMPOTENCY_HEADER)
    if header is None:
        return wanted.idempotency_key
    if len(header) >= 2 and header[0] == header[-1] == '"':
        header = header[1:-1]
    if wanted.idempotency_key not in (None, header):
        detail = "The header Idempotency-Key and the body's idempotency_key differ: send only one."
        raise ApiProblem(400, "Two idempotency keys", detail)
    if (problem := find_key_problem(header)) is not None:
        raise ApiProblem(400, "Invalid idempotency key", f"Of the header Idempotency-Key: {problem}.")
    return header


def _render_route(route: Route, principal: Principal) -> dict[str, Json]:
    """Render the route without details that the caller may not see."""
    if route.narrowing is not None:
        route = replace(route, narrowing=filter_narrowing(route.narrowing, principal))
    return route.as_json()


async def _send_item(stream: EventStream, item: StreamItem, principal: Principal) -> None:
    if isinstance(item, Event):
        await stream.send_event(to_json(EventView.from_event(filter_event(item, principal))), event="event")
    elif isinstance(item, AnswerPiece):
        await stream.send_event(write_json({"text": item.text}), event="text")
    else:
        await stream.send_event(write_json(_render_route(item, principal)), event="route")


def _build_messages(history: Sequence[Turn]) -> tuple[Message, ...]:
    return tuple(Message(role=turn.role, text=turn.text) for turn in history)


def _build_narrowed(narrowing: Narrowing, snapshot: Snapshot) -> NarrowResponse:
    cards = (snapshot.get(candidate.tool) for candidate in narrowing.shortlist.candidates)
    lines = {
        card.key: copy_fields(
            CardLine, card, title=get_title(card.definition, card.name), effect=card.effect.value
        )
        for card in cards
        if card is not None
    }
    return copy_fields(NarrowResponse, narrowing, cards=lines)


def _build_unknown_tool(name: str, found: ToolNotFound) -> ApiProblem:
    detail = f"There is no tool {name[:80]!r} that you may use"
    if found.near:
        detail += f"; {'it could be' if found.ambiguous else 'similar:'} {', '.join(found.near)}"
    return ApiProblem(404, "There is no such tool", f"{detail}.", near=list(found.near))

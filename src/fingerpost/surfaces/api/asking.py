"""Asking: which tools suit a request, a request answered, a tool called. All within the caller's bounds."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import fields, replace
from typing import Annotated, Any, Final, Literal

from pydantic import Field
from pydantic_core import to_json as write_json

from fingerpost.call.idempotency import LONGEST_KEY, MOST_KEPT_BYTES, problem_with_key
from fingerpost.call.names import NotFound, resolve
from fingerpost.catalog import Snapshot
from fingerpost.events import Event
from fingerpost.frozen import frozen
from fingerpost.records import (
    CallContext,
    Effect,
    Effort,
    ErrorKind,
    Json,
    JsonObject,
    Message,
    Narrowing,
    Outcome,
    Principal,
    Right,
    ToolCall,
    new_id,
)
from fingerpost.records.codec import to_json
from fingerpost.records.json import holds_much
from fingerpost.router import Router
from fingerpost.router.route import AnswerPiece, Route, StreamItem
from fingerpost.router.wanted import Asking
from fingerpost.surfaces.api.accepting import EVENTS, prefers_events
from fingerpost.surfaces.api.operation import ApiRequest, Operation, Problem, Streaming
from fingerpost.surfaces.api.problems import said_of
from fingerpost.surfaces.api.questions import Questions
from fingerpost.surfaces.api.sight import shown_event, shown_narrowing
from fingerpost.surfaces.api.streams import Streams
from fingerpost.surfaces.api.views import event_view
from fingerpost.surfaces.web.events import EventStream
from fingerpost.surfaces.web.gate import for_others
from fingerpost.surfaces.web.reach import VERSION_HEADER, Reach, conversation_of, reach_of
from fingerpost.tasks import aside

LONGEST_REQUEST: Final = 100_000
KEY_HEADER: Final = "idempotency-key"
FIRST_SERVERS_S: Final = 5.0
_NO_NUL: Final = r"^[^\x00]*$"

Request = Annotated[
    str, Field(min_length=1, max_length=LONGEST_REQUEST, description="What is wanted, in plain words")
]
Name = Annotated[str, Field(min_length=1, max_length=200, pattern=_NO_NUL)]
Mode = Literal["auto", "staged", "single", "simple", "react", "keyless"]


@frozen
class Turn:
    """One message of the conversation so far."""

    role: Literal["user", "assistant"]
    text: Annotated[str, Field(max_length=LONGEST_REQUEST)]


History = Annotated[tuple[Turn, ...], Field(max_length=200, description="The conversation so far")]


@frozen
class Narrow:
    """A request whose tools are looked for. Nothing is called."""

    request: Request
    profile: Annotated[Name | None, Field(description="As under this profile")] = None
    api_version: Annotated[
        Name | None, Field(description="Which profile is meant, where none is named; or X-API-Version")
    ] = None
    server: Annotated[Name | None, Field(description="Only tools of this server")] = None
    max_tools: Annotated[int | None, Field(ge=1, le=100, description="Most that are offered")] = None
    effort: Annotated[
        Effort | None, Field(description="quick or thorough; by default as the caller prefers")
    ] = None
    about: Annotated[Name | None, Field(description="A tool to explain, however far behind it is")] = None
    history: History = ()


@frozen
class Ask:
    """A request to be answered."""

    request: Request
    mode: Annotated[Mode | None, Field(description="How; by default as the settings say")] = None
    profile: Annotated[Name | None, Field(description="Under this profile")] = None
    api_version: Annotated[
        Name | None, Field(description="Which profile is meant, where none is named; or X-API-Version")
    ] = None
    conversation: Annotated[Name | None, Field(description="Which conversation it belongs to")] = None
    persona: Annotated[
        str | None, Field(max_length=10_000, description="Who the assistant is, first in every prompt")
    ] = None
    effort: Annotated[
        Effort | None, Field(description="quick or thorough; by default as the caller prefers")
    ] = None
    dry_run: Annotated[bool, Field(description="Show what would be called, call nothing")] = False
    history: Annotated[
        History | None,
        Field(description="The conversation so far; by default what was said in `conversation` is recalled"),
    ] = None
    answers: Annotated[
        Name | None, Field(description="The packet whose question (outcome `asked`) this is the answer to")
    ] = None


@frozen
class Call:
    """A tool to be called."""

    tool: Annotated[
        str, Field(min_length=1, max_length=512, description="Its key `server/tool`, or its name")
    ]
    arguments: Annotated[dict[str, Json], Field(description="By parameter")]
    profile: Annotated[Name | None, Field(description="Under this profile")] = None
    api_version: Annotated[
        Name | None, Field(description="Which profile is meant, where none is named; or X-API-Version")
    ] = None
    conversation: Annotated[Name | None, Field(description="Which conversation it belongs to")] = None
    dry_run: Annotated[bool, Field(description="Say what would happen, call nothing")] = False
    fallback: Annotated[
        bool, Field(description="false: no other tool answers when this one fails or finds nothing")
    ] = True
    idempotency_key: Annotated[
        str | None,
        Field(
            min_length=1,
            max_length=LONGEST_KEY,
            description="The same key and the same call run once; or the header Idempotency-Key",
        ),
    ] = None


@frozen
class CardLine:
    """A tool that was considered, in a few words."""

    title: str
    description: str
    effect: Effect
    server: str


@frozen
class Narrowed(Narrowing):
    """Everything narrowing concluded, and what its candidates are."""

    cards: dict[str, CardLine]


class Counter:
    """The operations that use tools."""

    def __init__(self, router: Router, streams: Streams) -> None:
        self._router = router
        self._streams = streams
        self._questions = Questions()
        self._met = False

    def operations(self) -> tuple[Operation, ...]:
        return (
            Operation(
                method="POST", path="/api/route", name="route", tag="asking", right=Right.USE,
                summary="Which tools suit a request, and why: nothing is called",
                body=Narrow, returns=Narrowed, problems=(404,), answer=self.route, stops=True,
            ),
            Operation(
                method="POST", path="/api/ask", name="ask", tag="asking", right=Right.USE,
                summary="Answer a request; as a stream of `event`, `text` and at last `route` where accepted",
                body=Ask, returns=dict[str, Json], also=(EVENTS,), problems=(404, 502, 504),
                answer=self.ask, stops=True,
            ),
            Operation(
                method="POST", path="/api/call", name="call", tag="asking", right=Right.USE,
                summary="Call a tool through the whole path",
                body=Call, returns=Outcome, problems=(400, 404), answer=self.call, stops=True,
            ),
        )  # fmt: skip

    async def route(self, request: ApiRequest) -> Narrowed:
        wanted: Narrow = request.body
        request = await self._await_servers(request)
        reach = self._reach(request, wanted)
        if wanted.server is not None:
            await self._check_server(wanted.server, request.principal.name, reach)
        narrowing = await self._router.narrow(
            wanted.request,
            caller=request.principal.name,
            profile=reach.profile,
            scopes=reach.scopes,
            server=wanted.server,
            max_tools=wanted.max_tools,
            effort=wanted.effort,
            about=wanted.about,
            history=_messages(wanted.history),
        )
        shown = shown_narrowing(narrowing, request.principal)
        return _narrowed(shown, self._router.catalog.seen_with(reach.scopes))

    async def ask(self, request: ApiRequest) -> dict[str, Any] | Streaming:
        wanted: Ask = request.body
        request = await self._await_servers(request)
        asking = self._asking(request, wanted)
        asked = self._questions.take(request.principal.name, wanted.answers)
        if not prefers_events(request.headers):
            if asked is None:
                route = await self._router.route(wanted.request, **asking)
            else:
                route = await self._router.reply(asked, wanted.request, **asking)
            return _shown_route(self._kept(route), request.principal)

        async def write(stream: EventStream) -> None:
            try:
                if asked is not None:
                    await self._write_reply(stream, asked, request, asking)
                    return
                async with aclosing(self._router.stream(wanted.request, **asking)) as items:
                    async for item in items:
                        item = self._kept(item) if isinstance(item, Route) else item
                        await _tell(stream, item, request.principal)
            except Exception as error:  # noqa: BLE001 - the answer has begun: it can only be told in it
                said = said_of(error)
                told = {"title": said.title, "status": said.status, "detail": said.detail, **said.more}
                await stream.data(write_json(told), event="problem")

        return self._streams.streaming(write, request)

    async def _write_reply(
        self, stream: EventStream, asked: Route, request: ApiRequest, asking: Asking
    ) -> None:
        """A question is answered in one go; what happened is told when it has."""
        route = self._kept(await self._router.reply(asked, request.body.request, **asking))
        for item in (*route.events, AnswerPiece(text=route.answer), route):
            await _tell(stream, item, request.principal)

    def _kept(self, route: Route) -> Route:
        """The route, remembered where it asks something."""
        self._questions.keep(route)
        return route

    async def call(self, request: ApiRequest) -> Outcome:
        wanted: Call = request.body
        request = await self._await_servers(request)
        reach = self._reach(request, wanted)
        name = request.principal.name
        view = await self._router.look(caller=name, profile=reach.profile, scopes=reach.scopes)
        wish = ToolCall(name=wanted.tool, arguments=wanted.arguments)
        found = resolve(wish, view.visible)
        if isinstance(found, NotFound):
            away = None if found.ambiguous else await self._away(wish, request.principal, reach)
            if away is None:
                raise _no_tool(wanted.tool, found)
            return away
        outcome = await self._router.call(
            found.card.key,
            found.arguments,
            caller=name,
            profile=reach.profile,
            scopes=reach.scopes,
            conversation=_conversation(request.principal, wanted.conversation),
            dry_run=wanted.dry_run,
            fallback=wanted.fallback,
            idempotency_key=_idempotency_key(request, wanted),
            authorization=for_others(request.headers),
        )
        return await _without_large_result(outcome)

    async def _away(self, wish: ToolCall, principal: Principal, reach: Reach) -> Outcome | None:
        """Why a tool that they could use is not to be had now; None where there is none. Nothing runs."""
        probe = CallContext(
            call_id=new_id("cal"),
            caller=principal.name,
            profile=reach.profile,
            scopes=reach.scopes,
            dry_run=True,  # what is hidden from them may have the same name, and does not exist for them
        )
        if self._router.calls.away(wish, probe) is None:
            return None
        outcome = await self._router.calls.call(wish, probe)
        return outcome if outcome.error is ErrorKind.UNAVAILABLE else None

    async def _check_server(self, server: str, caller: str, reach: Reach) -> None:
        """Raises where there is none. Whoever may not use everything does not hear which there are."""
        if reach.scopes:
            view = await self._router.look(caller=caller, profile=reach.profile, scopes=reach.scopes)
            if all(card.server != server for card in view.visible.cards):
                detail = f"There is no server {server[:60]!r} that you may use."
                raise Problem(404, "There is no such server", detail)
        self._router.servers.status(server)

    async def _await_servers(self, request: ApiRequest) -> ApiRequest:
        """Wait for servers that still connect; return the request with what they list to its caller's key."""
        if not self._met:
            self._router.servers.start()
            await self._router.servers.settled(timeout=FIRST_SERVERS_S)
            self._met = True
        own = for_others(request.headers)
        return replace(request, principal=await self._router.with_own_tools(request.principal, own))

    def _asking(self, request: ApiRequest, wanted: Ask) -> Asking:
        principal, reach = request.principal, self._reach(request, wanted)
        asking = Asking(
            mode=wanted.mode,
            effort=wanted.effort,
            caller=principal.name,
            profile=reach.profile,
            scopes=reach.scopes,
            conversation=_conversation(principal, wanted.conversation),
            persona=wanted.persona,
            dry_run=wanted.dry_run,
            authorization=for_others(request.headers),
        )
        if wanted.history is not None:
            asking["history"] = _messages(wanted.history)
        return asking

    def _reach(self, request: ApiRequest, wanted: Narrow | Ask | Call) -> Reach:
        version = wanted.api_version or request.headers.get(VERSION_HEADER)
        return reach_of(request.principal, wanted.profile, self._router.profiles, api_version=version)


async def _without_large_result(outcome: Outcome) -> Outcome:
    """Without the raw result where that is too large to be written at once: its handle leads to it."""
    if not holds_much(outcome.result) or len(await aside(write_json, outcome.result)) <= MOST_KEPT_BYTES:
        return outcome
    return replace(outcome, result=None, metadata={**outcome.metadata, "result_left_out": True})


def _conversation(principal: Principal, given: str | None) -> str | None:
    return None if given is None else conversation_of(principal, given)


def _idempotency_key(request: ApiRequest, wanted: Call) -> str | None:
    """From the body or the header, where it may stand in quotation marks (the IETF's draft wants them)."""
    header = request.headers.get(KEY_HEADER)
    if header is None:
        return wanted.idempotency_key
    if len(header) >= 2 and header[0] == header[-1] == '"':
        header = header[1:-1]
    if wanted.idempotency_key not in (None, header):
        detail = "The header Idempotency-Key and the body's idempotency_key differ: give one of them."
        raise Problem(400, "Two idempotency keys", detail)
    if (problem := problem_with_key(header)) is not None:
        raise Problem(400, "This is no idempotency key", f"Of the header Idempotency-Key: {problem}.")
    return header


def _shown_route(route: Route, principal: Principal) -> dict[str, Json]:
    """What became of the request, as its caller may hear it."""
    if route.narrowing is not None:
        route = replace(route, narrowing=shown_narrowing(route.narrowing, principal))
    return route.as_json()


async def _tell(stream: EventStream, item: StreamItem, principal: Principal) -> None:
    if isinstance(item, Event):
        await stream.data(to_json(event_view(shown_event(item, principal))), event="event")
    elif isinstance(item, AnswerPiece):
        await stream.data(write_json({"text": item.text}), event="text")
    else:
        await stream.data(write_json(_shown_route(item, principal)), event="route")


def _messages(history: Sequence[Turn]) -> tuple[Message, ...]:
    return tuple(Message(role=turn.role, text=turn.text) for turn in history)


def _narrowed(narrowing: Narrowing, snapshot: Snapshot) -> Narrowed:
    values = {field.name: getattr(narrowing, field.name) for field in fields(Narrowing)}
    cards = (snapshot.get(candidate.tool) for candidate in narrowing.shortlist.candidates)
    lines = {
        card.key: CardLine(
            title=title_of(card.definition, card.name),
            description=card.description,
            effect=card.effect.value,
            server=card.server,
        )
        for card in cards
        if card is not None
    }
    return Narrowed(**values, cards=lines)


def title_of(definition: JsonObject, name: str) -> str:
    """What a tool calls itself for people, else its name."""
    annotations = definition.get("annotations")
    inner = annotations.get("title") if isinstance(annotations, dict) else None
    title = definition.get("title") or inner
    return title if isinstance(title, str) and title.strip() else name


def _no_tool(name: str, found: NotFound) -> Problem:
    said = f"There is no tool {name[:80]!r} that you may use"
    if found.near:
        said += f"; {'it could be' if found.ambiguous else 'near are'} {', '.join(found.near)}"
    return Problem(404, "There is no such tool", f"{said}.", near=list(found.near))

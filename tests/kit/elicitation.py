"""A client's side for the tests of asking: its requests, and a person who answers what they are asked."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import anyio

from fingerpost import Router, Settings
from fingerpost.events import AccessRefused, AttemptStarted, Event, MemorySink
from fingerpost.records import (
    CallContext,
    Outcome,
    Pending,
    Principal,
    Right,
    ServerSpec,
    ToolCall,
    create_id,
)
from fingerpost.servers.requests import RequestContext
from fingerpost.surfaces.gateway.elicitation.calls import InputRequiredCalls
from fingerpost.surfaces.gateway.elicitation.client import CallRound
from fingerpost.surfaces.gateway.protocol import (
    MODERN_VERSION,
    NEWEST_HANDSHAKE_VERSION,
    ClientRequest,
    JsonRpcError,
)
from fingerpost.surfaces.http.access import Endpoint
from fingerpost.testing import ToolServer, tool_server
from tests.kit.stores import place_empty_store

DANA = Principal(name="dana", kind="key", rights=(Right.USE, Right.CONFIRM))
EVE = Principal(name="eve", kind="key", rights=(Right.USE, Right.CONFIRM))
MCP = Endpoint(path="/mcp", mode="all")
FORMS: dict[str, Any] = {"elicitation": {"form": {}}}
NOTE = {"path": "/tmp/a.txt"}

DELETE = {
    "name": "delete_note",
    "description": "Delete one note for ever.",
    "inputSchema": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
}
READ = {"name": "read_note", "description": "Read a note.", "annotations": {"readOnlyHint": True}}


def request(
    *,
    modern: bool = True,
    name: str = "notes__delete_note",
    arguments: Mapping[str, Any] = NOTE,
    capabilities: Mapping[str, Any] = FORMS,
    principal: Principal = DANA,
    endpoint: Endpoint = MCP,
    answers: Any = None,
    state: Any = None,
    meta: Mapping[str, Any] | None = None,
) -> ClientRequest:
    """A `tools/call`."""
    params: dict[str, Any] = {"name": name, "arguments": dict(arguments)}
    if answers is not None:
        params["inputResponses"] = answers
    if state is not None:
        params["requestState"] = state
    if meta is not None:
        params["_meta"] = dict(meta)
    return ClientRequest(
        id=create_id("req"),
        method="tools/call",
        params=params,
        version=MODERN_VERSION if modern else NEWEST_HANDSHAKE_VERSION,
        endpoint=endpoint,
        principal=principal,
        capabilities=dict(capabilities),
        client="inspector 1.0",
        session=None if modern else "session-1",
    )


Reply = Mapping[str, Any] | JsonRpcError | None  # None: no answer at all


@dataclass
class ElicitationClient:
    """The client's end of an exchange. `says` answers each question; everything seen is kept."""

    says: Callable[[str, Mapping[str, Any]], Reply] = lambda method, params: None
    questions: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list[Any])
    notifications: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list[Any])

    async def notify(self, method: str, params: Mapping[str, Any]) -> None:
        self.notifications.append((method, params))

    async def ask(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        self.questions.append((method, params))
        reply = self.says(method, params)
        if isinstance(reply, JsonRpcError):
            raise reply
        if reply is None:
            await anyio.sleep_forever()
            raise AssertionError
        return reply


def create_client(reply: Reply) -> ElicitationClient:
    """A person who answers everything with this."""
    return ElicitationClient(says=lambda method, params: reply)


def accept(decision: str = "approve", **content: Any) -> dict[str, Any]:
    return {"action": "accept", "content": {"decision": decision, **content}}


class ElicitationGateway:
    """A router with one server of notes, and the asking part in front of it."""

    def __init__(
        self, router: Router, asked: InputRequiredCalls, notes: ToolServer, sink: MemorySink
    ) -> None:
        self.router = router
        self.asked = asked
        self.notes = notes
        self.sink = sink

    async def call(self, asking: ClientRequest, person: ElicitationClient | None = None) -> Outcome:
        params: Any = asking.params
        state = params.get("requestState")
        passage = RequestContext(
            input_responses=params.get("inputResponses") if asking.modern else None,
            request_state=state if asking.modern and isinstance(state, str) else None,
        )
        card = self.router.tools.find(params["name"])
        tool_call = ToolCall(name=params["name"], arguments=params["arguments"])
        context = CallContext(
            call_id=create_id("cal"),
            caller=asking.principal.name,
            conversation=asking.session,
            asker=asking.principal_key,
        )
        server = "" if card is None else card.server
        exchange = person or ElicitationClient()
        return await self.asked.call(CallRound(asking, exchange, tool_call, context, passage, server))

    async def retry(self, first: ClientRequest, outcome: Outcome, answer: Any, **changes: Any) -> Outcome:
        """The client's next round: the same request with the answer and the state."""
        return await self.go_on(first, outcome, {"fingerpost-approval": answer}, **changes)

    async def go_on(
        self,
        first: ClientRequest,
        outcome: Outcome,
        answers: Any,
        *,
        person: ElicitationClient | None = None,
        **changes: Any,
    ) -> Outcome:
        assert outcome.result is not None
        params = {
            **first.params,
            "inputResponses": answers,
            "requestState": outcome.result["requestState"],
        }
        params |= changes.pop("params", {})
        return await self.call(replace(first, params=params, **changes), person)

    async def waiting(self) -> list[Pending]:
        return await self.router.calls.approvals.list_waiting()

    def events(self, kind: type[Event]) -> list[Any]:
        self.router.store.journal.emit_pending()  # events are emitted in batches
        return [event for event in self.sink.events if isinstance(event, kind)]

    @property
    def refusals(self) -> list[str]:
        return [event.reason for event in self.events(AccessRefused)]

    @property
    def attempts(self) -> int:
        return len(self.events(AttemptStarted))


@asynccontextmanager
async def open_elicitation_gateway(
    folder: Path, *specs: ServerSpec, approval_seconds: float = 30.0, **more: Any
) -> AsyncGenerator[ElicitationGateway]:
    notes = tool_server("notes", [DELETE, READ])
    sink = MemorySink()
    settings = Settings.model_validate(
        {
            "store": {"url": place_empty_store(folder, "s.db")},
            "gateway": {"approval_seconds": approval_seconds},
            **more,
        }
    )
    async with Router([notes.spec(), *specs], settings=settings, sinks=[sink]) as router:
        router.servers.advertise_client_capabilities()
        await router.connect()
        async with InputRequiredCalls(router) as asked:
            yield ElicitationGateway(router, asked, notes, sink)

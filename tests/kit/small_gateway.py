"""A small gateway on a real port: the wire alone, with methods that need no tools."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
import orjson

from fingerpost.events import MemorySink
from fingerpost.records import JsonObject, Principal
from fingerpost.settings import GatewaySettings, ProfileSettings
from fingerpost.surfaces.gateway.app import GatewayApp
from fingerpost.surfaces.gateway.protocol import ClientExchange, ClientRequest, EncodedResult, JsonRpcError
from fingerpost.surfaces.gateway.sessions import NotificationListeners
from fingerpost.surfaces.http.access import AccessDenial, Endpoint
from fingerpost.surfaces.http.server import get_address, listen_at
from tests.kit.gateways import run_app

ECHO: JsonObject = {
    "name": "echo",
    "inputSchema": {
        "type": "object",
        "properties": {"text": {"type": "string", "x-mcp-header": "Text"}},
    },
}


class OpenGate:
    """Lets everybody in; who they are is what they say. `Host: evil.example` stays outside."""

    async def authenticate(
        self, headers: Mapping[str, str], endpoint: Endpoint, *, remote: str = ""
    ) -> Principal | AccessDenial:
        del endpoint, remote
        if headers.get("host") == "evil.example":
            return AccessDenial(status=403, message="This host is not ours.", headers=(("x-why", "host"),))
        return Principal(name=headers.get("x-who", "local"))

    def allows_origin(self, headers: Mapping[str, str]) -> bool:
        return headers.get("origin") in ("https://good.example",)

    def allows_probe(self, headers: Mapping[str, str]) -> bool:
        return True

    def get_public_documents(self) -> Mapping[str, JsonObject]:
        return {"/.well-known/oauth-protected-resource": {"resource": "here"}}


@dataclass
class SmallMethods:
    """Tools whose only use is to show what the wire does with them."""

    requests: list[ClientRequest] = field(default_factory=list[ClientRequest])
    left_sessions: list[str] = field(default_factory=list[str])
    cancelled: anyio.Event = field(default_factory=anyio.Event)
    entered: anyio.Event = field(default_factory=anyio.Event)
    may_proceed: anyio.Event = field(default_factory=anyio.Event)

    async def answer(self, request: ClientRequest, exchange: ClientExchange) -> JsonObject | EncodedResult:
        self.requests.append(request)
        if request.method == "tools/list":
            return EncodedResult(
                orjson.dumps({"tools": [ECHO], "ttlMs": 1, "cacheScope": "public", **_complete(request)})
            )
        if request.method == "tools/call":
            return await self._call(request, exchange)
        raise JsonRpcError(-32601, f"No method {request.method}")

    async def _call(self, request: ClientRequest, exchange: ClientExchange) -> JsonObject:
        name = str(request.params.get("name"))
        arguments: Any = request.params.get("arguments") or {}
        match name:
            case "echo":
                text = arguments.get("text", "")
            case "tell":
                await exchange.notify("notifications/message", {"level": "info", "data": "one"})
                await exchange.notify("notifications/message", {"level": "info", "data": "two"})
                text = "told"
            case "ask":
                answer = await exchange.ask("elicitation/create", arguments)
                text = orjson.dumps(answer).decode()
            case "wait":
                self.entered.set()
                try:
                    await self.may_proceed.wait()
                except anyio.get_cancelled_exc_class():
                    self.cancelled.set()
                    raise
                text = "waited"
            case "fail":
                message = "a secret of the inside"
                raise RuntimeError(message)
            case "odd":
                text = "\ud800 and 1"
            case _:
                raise JsonRpcError(-32602, f"No tool {name}", {"tool": name})
        return {"content": [{"type": "text", "text": text}]}

    async def count_session(self, request: ClientRequest) -> None:
        del request

    async def wait_until_ready(self, endpoint: Endpoint, principal: Principal) -> None:
        del endpoint, principal

    def describe(self, endpoint: Endpoint, principal: Principal, version: str) -> JsonObject:
        del principal, version
        return {
            "capabilities": {"tools": {"listChanged": True}},
            "serverInfo": {"name": "small", "version": "1"},
            "instructions": endpoint.path,
        }

    def get_input_schema(self, endpoint: Endpoint, principal: Principal, name: str) -> JsonObject | None:
        del endpoint, principal
        schema = ECHO["inputSchema"]
        return schema if name == "echo" and isinstance(schema, dict) else None

    def restore_session(self, request: ClientRequest, record: JsonObject) -> None:
        """It serves no sessions of other processes."""

    def forget_session(self, session: str) -> None:
        self.left_sessions.append(session)


def _complete(request: ClientRequest) -> JsonObject:
    return {"resultType": "complete"} if request.modern else {}


@dataclass(frozen=True)
class Address:
    """Where something listens."""

    host: str
    port: int


@dataclass(frozen=True)
class SmallGateway(Address):
    """A gateway that runs."""

    methods: SmallMethods
    audience: NotificationListeners
    events: MemorySink
    app: GatewayApp

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}/mcp"


@asynccontextmanager
async def open_small_gateway(**settings: Any) -> AsyncGenerator[SmallGateway]:
    """The wire on a free port of this machine."""
    chosen = GatewaySettings(**settings)
    methods, audience, events = SmallMethods(), NotificationListeners(), MemorySink()
    listening = listen_at("127.0.0.1", 0)
    host, port = get_address(listening).rsplit(":", 1)
    app = GatewayApp(
        methods,
        OpenGate(),
        chosen,
        events,
        profiles={"support": ProfileSettings(mode="route")},
        audience=audience,
    )
    with listening:
        async with app, run_app(app, listening, arrival_seconds=chosen.request_seconds):
            yield SmallGateway(host, int(port), methods, audience, events, app)

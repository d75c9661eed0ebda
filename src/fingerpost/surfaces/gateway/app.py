"""The gateway as an ASGI application: paths, who may come in, and which era speaks."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Final, Self, cast

import anyio
from mcp_types import PROTOCOL_VERSION_META_KEY
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS

from fingerpost.events import EventSink
from fingerpost.records import JsonObject, Principal
from fingerpost.settings import GatewaySettings, ProfileSettings
from fingerpost.surfaces.gateway.exchange import Methods
from fingerpost.surfaces.gateway.wire import batches, handshake, modern
from fingerpost.surfaces.gateway.wire.answering import OUR_FAULT
from fingerpost.surfaces.gateway.wire.audience import Listeners
from fingerpost.surfaces.gateway.wire.codec import INTERNAL_ERROR, PARSE_ERROR, BadJson, decode, encode
from fingerpost.surfaces.gateway.wire.doors import Doors
from fingerpost.surfaces.gateway.wire.envelope import Message, NotAMessage, read_message
from fingerpost.surfaces.gateway.wire.http import HttpFault, Inbound, respond_fault
from fingerpost.surfaces.gateway.wire.premises import CLOSING, Premises
from fingerpost.surfaces.web.asgi import (
    JSON_TYPE,
    AsgiScope,
    ClientGone,
    Fault,
    Receive,
    Send,
    check_content_type,
    headers_of,
    read_body,
    respond,
)
from fingerpost.surfaces.web.gate import NOT_EMBEDDED, NOT_FOR_US, Endpoint, Gate
from fingerpost.surfaces.web.peers import peer_of
from fingerpost.tasks import kept_up

log = logging.getLogger("fingerpost.gateway")

_ALLOWED: Final = (b"allow", b"GET, POST, DELETE, OPTIONS")
_ANYBODY: Final = (b"access-control-allow-origin", b"*")
_LOOK_EVERY_S: Final = 15.0
_PROFILE: Final = "/mcp/p/"


class GatewayApp:
    """Open it with `async with`, then serve it, alone or behind a `Front`."""

    def __init__(
        self,
        methods: Methods,
        gate: Gate,
        settings: GatewaySettings,
        events: EventSink,
        *,
        profiles: Mapping[str, ProfileSettings] | None = None,
        audience: Listeners | None = None,
        health: Callable[[], JsonObject] | None = None,
    ) -> None:
        self._settings = settings
        self._health = health
        self._gate = gate
        self._documents = gate.documents
        self._endpoints = endpoints(settings)
        self._profiles: Mapping[str, ProfileSettings] = {} if profiles is None else profiles
        self._doors = Doors(gate)
        self._premises = Premises(
            methods, settings, events, Listeners() if audience is None else audience, self._doors
        )
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            tasks = await stack.enter_async_context(anyio.create_task_group())
            stack.callback(tasks.cancel_scope.cancel)
            stack.callback(self._premises.close)
            self._premises.use(tasks)
            tasks.start_soon(kept_up, self._end_idle_sessions)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._premises.close()
        cancelled = isinstance(error, anyio.get_cancelled_exc_class())
        await self._stack.__aexit__(*((kind, error, trace) if cancelled else (None, None, None)))
        self._premises.use(None)

    async def drain(self, seconds: float) -> None:
        """End streams in good order, and give what runs a little time before it is stopped."""
        self._premises.closing.set()
        self._premises.end_streams()
        with anyio.move_on_after(seconds):
            await self._premises.work.finished()
        self._premises.work.end(CLOSING)
        self._premises.close()  # sessions last: with them goes whatever still runs in them

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        path: str = scope["path"]
        endpoint = self._endpoints.get(path) or profile_endpoint(path, self._profiles)
        if endpoint is None:
            try:
                await self._elsewhere(path, scope, send)
            except Fault as fault:
                await respond_fault(send, fault)
            return
        inbound: Inbound | None = None
        try:
            headers, repeated = headers_of(scope["headers"])
            inbound = Inbound(
                method=scope["method"],
                headers=headers,
                endpoint=endpoint,
                receive=receive,
                send=send,
                remote=(scope.get("client") or ("",))[0],
                peer=peer_of(scope.get("client"), scope.get("server")),
                common=self._doors.headers_for(headers),
                repeated=repeated,
            )
            await self._answer(inbound)
        except Fault as fault:
            await respond_fault(send, fault, inbound.common if inbound else ())
        except ClientGone:
            pass
        except Exception:
            log.exception("A request at %s could not be answered", endpoint.path)
            await respond_fault(send, HttpFault(500, OUR_FAULT, code=INTERNAL_ERROR))

    async def _answer(self, inbound: Inbound) -> None:
        if inbound.method == "OPTIONS":
            preflight = self._doors.preflight(inbound.headers)
            await respond(inbound.send, preflight.status, b"", preflight.headers)
            return
        principal = await self._doors.admit(inbound)
        if inbound.method == "POST":
            await self._post(inbound, principal)
        elif not _handshake(inbound.headers.get("mcp-protocol-version")):
            await modern.not_posted(inbound)
        elif inbound.method == "GET":
            await handshake.get(self._premises, inbound, principal)
        elif inbound.method == "DELETE":
            await handshake.delete(self._premises, inbound, principal)
        else:
            raise HttpFault(405, "Use POST, GET or DELETE.", headers=(_ALLOWED,))

    async def _post(self, inbound: Inbound, principal: Principal) -> None:
        check_content_type(inbound.headers)
        body = await read_body(
            inbound.headers,
            inbound.receive,
            limit=self._settings.body_bytes,
            seconds=self._settings.request_seconds,
        )
        try:
            sent = decode(body)
            if isinstance(sent, list):
                await batches.post(self._premises, inbound, principal, cast("list[object]", sent))
                return
            message = read_message(sent)
        except BadJson as error:
            raise HttpFault(400, str(error), code=PARSE_ERROR) from error
        except NotAMessage as error:
            raise HttpFault(400, error.message, code=error.code, request_id=error.request_id) from error
        era = handshake if _speaks_handshake(inbound.headers, message) else modern
        await era.post(self._premises, inbound, principal, message)

    async def _elsewhere(self, path: str, scope: AsgiScope, send: Send) -> None:
        """Paths that are no endpoint: health and public documents."""
        if scope["method"] in {"GET", "HEAD"}:
            if path == "/healthz":
                if not self._gate.answers_probe(headers_of(scope["headers"])[0]):
                    raise HttpFault(403, NOT_FOR_US)
                state: JsonObject = {"status": "ok", **(self._health() if self._health else {})}
                await respond(send, 200, encode(state), (JSON_TYPE, *NOT_EMBEDDED))
                return
            if (document := self._documents().get(path)) is not None:
                await respond(send, 200, encode(document), (JSON_TYPE, _ANYBODY))
                return
        await respond_fault(send, HttpFault(404, "There is nothing at this address; MCP is at /mcp."))

    async def _end_idle_sessions(self) -> None:
        pause = min(_LOOK_EVERY_S, self._settings.session_seconds / 4)
        while True:
            await anyio.sleep(pause)
            self._premises.sessions.end_idle()


def profile_endpoint(path: str, profiles: Mapping[str, ProfileSettings]) -> Endpoint | None:
    """The endpoint of a profile, as they are now."""
    if not path.startswith(_PROFILE):
        return None
    name = path.removeprefix(_PROFILE).removesuffix("/")
    profile = profiles.get(name)
    return None if profile is None else Endpoint(path=_PROFILE + name, mode=profile.mode, profile=name)


def endpoints(settings: GatewaySettings) -> dict[str, Endpoint]:
    """Every path that always is one, also with a slash at its end."""
    known = [
        Endpoint(path="/mcp", mode=settings.mode),
        Endpoint(path="/mcp/route", mode="route"),
        Endpoint(path="/mcp/all", mode="all"),
    ]
    return {path: endpoint for endpoint in known for path in (endpoint.path, f"{endpoint.path}/")}


def _handshake(version: str | None) -> bool:
    return version is None or version in HANDSHAKE_PROTOCOL_VERSIONS


def _speaks_handshake(headers: Mapping[str, str], message: Message) -> bool:
    """By the header; a request without one that carries the newer envelope is of the newer era."""
    version = headers.get("mcp-protocol-version")
    if version is not None or "mcp-session-id" in headers or message.method == "initialize":
        return _handshake(version)
    meta = message.params.get("_meta")
    return not (isinstance(meta, dict) and PROTOCOL_VERSION_META_KEY in meta)

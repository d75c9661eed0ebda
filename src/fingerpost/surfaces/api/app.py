"""The API as an ASGI application: from a request to its operation, and back."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import anyio

from fingerpost.frozen import frozen
from fingerpost.insight.ledger import Ledger
from fingerpost.records import Principal
from fingerpost.router import Router
from fingerpost.settings import Loaded
from fingerpost.surfaces.api.accepting import accepts
from fingerpost.surfaces.api.doors import Doors, Knock, sends_json
from fingerpost.surfaces.api.operation import ApiRequest, Operation, Problem, Reply, Streaming
from fingerpost.surfaces.api.operations import all_operations
from fingerpost.surfaces.api.paths import Paths, Place, parts_of
from fingerpost.surfaces.api.problems import said_of, write_problem
from fingerpost.surfaces.api.reading import read_json, read_query
from fingerpost.surfaces.api.sessions import Sessions
from fingerpost.surfaces.api.shapes import given
from fingerpost.surfaces.api.streams import Streams
from fingerpost.surfaces.web.asgi import (
    AsgiMessage,
    AsgiScope,
    ClientGone,
    Fault,
    Header,
    Receive,
    Send,
    headers_of,
    read_body,
    respond,
)
from fingerpost.surfaces.web.gate import Gate
from fingerpost.surfaces.web.hearing import while_heard
from fingerpost.surfaces.web.peers import peer_of
from fingerpost.surfaces.web.rate import Rate

log = logging.getLogger("fingerpost.api")

_COMMON: Final[tuple[Header, ...]] = (
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
)
_CLOSING = "This Fingerpost is being stopped. Come back in a moment."


@frozen
class Bounds:
    """How much one request may bring, and how long that may take."""

    body_bytes: int
    request_seconds: float


@frozen(kw_only=False)
class _Inbound:
    """One request on its way."""

    scope: AsgiScope
    receive: Receive
    send: Send
    headers: Mapping[str, str]
    common: tuple[Header, ...]

    @property
    def knock(self) -> Knock:
        remote: str = (self.scope.get("client") or ("",))[0]
        peer = peer_of(self.scope.get("client"), self.scope.get("server"))
        return Knock(self.scope["method"], self.headers, remote, peer)


class ApiApp:
    """Serve it behind a `Front`. Use `open_api`."""

    def __init__(
        self, operations: Iterable[Operation], *, doors: Doors, rate: Rate, streams: Streams, bounds: Bounds
    ) -> None:
        self._paths = Paths(operations)
        self._doors = doors
        self._rate = rate
        self._streams = streams
        self._bounds = bounds
        self._closing = False
        self._busy = 0
        self._idle = anyio.Event()

    @property
    def streams(self) -> int:
        """How many streams are read at this moment."""
        return self._streams.count

    async def drain(self, seconds: float) -> None:
        """End streams in good order, and give what runs a little time before it is stopped."""
        self._closing = True
        self._streams.end()
        with anyio.move_on_after(seconds):
            while self._busy:
                self._idle = anyio.Event()
                await self._idle.wait()

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        self._busy += 1
        try:
            await self._serve(scope, receive, send)
        finally:
            self._busy -= 1
            if not self._busy:
                self._idle.set()

    async def _serve(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        common = _COMMON
        outlet = _Outlet(send, bodiless=scope["method"] == "HEAD")
        try:
            headers, _ = headers_of(scope["headers"])
            common = (*_COMMON, *self._doors.headers_for(headers))
            await self._answer(_Inbound(scope, receive, outlet, headers, common))
        except ClientGone:
            pass
        except Exception as error:  # noqa: BLE001 - whatever it is, the caller hears a sentence
            said = said_of(error)
            if outlet.begun:  # too late to tell the caller
                log.warning("An answer of the API broke off: %s", said.detail)
            else:
                await write_problem(outlet, said, common)

    async def _answer(self, inbound: _Inbound) -> None:
        if self._closing:
            raise Fault(503, _CLOSING, headers=((b"retry-after", b"2"),))
        place = self._paths.find(parts_of(inbound.scope))
        if place is None:
            raise Problem(
                404, "There is nothing at this address", "GET /api/openapi.json says what there is."
            )
        method: str = inbound.scope["method"]
        if method == "OPTIONS":
            status, headers = self._doors.preflight(inbound.headers)
            allow = (b"allow", place.allow.encode())
            await respond(inbound.send, status, b"", (allow, *headers))
            return
        operation = _operation(place, method)
        admitted = await self._doors.admit(inbound.knock, operation)
        self._check_rate(admitted.principal, inbound)
        accepts(inbound.headers, operation)
        request = ApiRequest(
            principal=admitted.principal,
            path=place.parameters(operation),
            query=read_query(operation.query, inbound.scope.get("query_string", b"")),
            body=await self._body(inbound, operation),
            headers=inbound.headers,
            session=admitted.held,
            remote=inbound.knock.remote,
            peer=inbound.knock.peer,
            still=lambda: self._doors.still_knows(inbound.knock, operation, admitted.principal),
        )
        answer = await _worked(operation, request, inbound.receive)
        await _write(inbound, operation, answer)

    def _check_rate(self, principal: Principal, inbound: _Inbound) -> None:
        wait = self._rate.take(principal.name or f"nobody at {inbound.knock.remote}")
        if wait > 0:
            seconds = int(wait) + 1
            raise Fault(
                429,
                f"You ask too often (api.per_minute). Wait {seconds} s.",
                headers=((b"retry-after", str(seconds).encode()),),
            )

    async def _body(self, inbound: _Inbound, operation: Operation) -> Any:
        if operation.body is None:
            return None
        bounds = self._bounds
        body = await read_body(
            inbound.headers, inbound.receive, limit=bounds.body_bytes, seconds=bounds.request_seconds
        )
        if body and not sends_json(inbound.headers):
            raise Problem(415, "This is not JSON", "Send the body as application/json.")
        return read_json(operation.body, body)


class _Outlet:
    """The way to the client: knows whether an answer has begun, and leaves out what HEAD does not want."""

    def __init__(self, send: Send, *, bodiless: bool) -> None:
        self._send = send
        self._bodiless = bodiless
        self.begun = False

    async def __call__(self, message: AsgiMessage) -> None:
        self.begun = True
        if self._bodiless and message["type"] == "http.response.body":
            message = {**message, "body": b""}
        await self._send(message)


def _operation(place: Place, method: str) -> Operation:
    sought = "GET" if method == "HEAD" and place.has_head else method
    operation = place.operations.get(sought)
    if operation is None:
        allow = (b"allow", place.allow.encode())
        raise Fault(405, f"Use {place.allow} here.", headers=(allow,))
    return operation


async def _worked(operation: Operation, request: ApiRequest, receive: Receive) -> object:
    """What the operation answers. Where its work is for this client alone, it ends when they leave."""
    if not operation.stops:
        return await operation.answer(request)
    return await while_heard(receive, lambda _: operation.answer(request))


async def _write(inbound: _Inbound, operation: Operation, answer: object) -> None:
    if isinstance(answer, Streaming):
        await answer.run(inbound.receive, inbound.send, inbound.common)
        return
    reply = answer if isinstance(answer, Reply) else Reply(body=answer, status=operation.status)
    common = (*reply.headers, *inbound.common)
    if reply.body is None and operation.returns is None:
        await respond(inbound.send, reply.status, b"", common)
        return
    media = reply.media or operation.media
    body = reply.body if isinstance(reply.body, bytes) else given(operation.returns).dump_json(reply.body)
    await respond(inbound.send, reply.status, body, ((b"content-type", media.encode()), *common))


@asynccontextmanager
async def open_api(
    router: Router,
    *,
    gate: Gate,
    address: str,
    ledger: Ledger,
    rate: Rate | None = None,
    loaded: Loaded | None = None,
) -> AsyncGenerator[ApiApp]:
    """The API of this router, at `/api`.

    `rate` may be shared with other surfaces; `loaded` is what the settings were read from.
    """
    settings = router.settings
    sessions = Sessions(router.store, hours=settings.console.session_hours)
    doors = Doors(gate, sessions, router.events)
    streams = Streams(settings.api.streams)
    async with anyio.create_task_group() as tasks:
        operations = all_operations(
            router,
            ledger=ledger,
            address=address,
            doors=doors,
            sessions=sessions,
            streams=streams,
            tasks=tasks,
            loaded=loaded,
        )
        yield ApiApp(
            operations,
            doors=doors,
            rate=rate or Rate(settings.api.per_minute),
            streams=streams,
            bounds=Bounds(
                body_bytes=settings.gateway.body_bytes, request_seconds=settings.gateway.request_seconds
            ),
        )
        tasks.cancel_scope.cancel()

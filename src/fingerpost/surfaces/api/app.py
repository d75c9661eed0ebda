"""The API as an ASGI application: from a request to its operation, and back."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import anyio

from fingerpost.frozen import frozen
from fingerpost.insight.ledger import JournalReader
from fingerpost.records import Principal
from fingerpost.router import Router
from fingerpost.settings import Loaded
from fingerpost.surfaces.api.accepting import check_accept
from fingerpost.surfaces.api.doors import AccessAttempt, ApiAuth, is_json_body
from fingerpost.surfaces.api.operation import (
    ApiOperation,
    ApiProblem,
    ApiRequest,
    ApiResponse,
    StreamingResponse,
)
from fingerpost.surfaces.api.operations import build_all_operations
from fingerpost.surfaces.api.paths import MatchedPath, OperationPaths, split_path
from fingerpost.surfaces.api.problems import build_problem, write_problem
from fingerpost.surfaces.api.reading import parse_json, parse_query
from fingerpost.surfaces.api.sessions import ConsoleSessions
from fingerpost.surfaces.api.shapes import build_output_adapter
from fingerpost.surfaces.api.streams import StreamSlots
from fingerpost.surfaces.web.asgi import (
    AsgiMessage,
    AsgiScope,
    ClientDisconnected,
    Header,
    HttpError,
    Receive,
    Send,
    parse_headers,
    read_body,
    respond,
)
from fingerpost.surfaces.web.gate import Authenticator
from fingerpost.surfaces.web.hearing import run_while_connected
from fingerpost.surfaces.web.peers import build_peer
from fingerpost.surfaces.web.rate import RateLimiter

log = logging.getLogger("fingerpost.api")

_COMMON_HEADERS: Final[tuple[Header, ...]] = (
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
)
_SHUTDOWN_MESSAGE = "This Fingerpost is being stopped. Come back in a moment."


@frozen
class RequestLimits:
    """How much one request may bring, and how long that may take."""

    body_bytes: int
    request_seconds: float


@frozen(kw_only=False)
class _ApiHttpRequest:
    """One request on its way."""

    scope: AsgiScope
    receive: Receive
    send: Send
    headers: Mapping[str, str]
    common: tuple[Header, ...]

    @property
    def attempt(self) -> AccessAttempt:
        remote: str = (self.scope.get("client") or ("",))[0]
        peer = build_peer(self.scope.get("client"), self.scope.get("server"))
        return AccessAttempt(self.scope["method"], self.headers, remote, peer)


class ApiApp:
    """Serve it behind a `Front`. Use `open_api`."""

    def __init__(
        self,
        operations: Iterable[ApiOperation],
        *,
        auth: ApiAuth,
        rate_limiter: RateLimiter,
        streams: StreamSlots,
        limits: RequestLimits,
    ) -> None:
        self._paths = OperationPaths(operations)
        self._auth = auth
        self._rate = rate_limiter
        self._streams = streams
        self._limits = limits
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
        self._streams.end_all()
        with anyio.move_on_after(seconds):
            while self._busy:
                self._idle = anyio.Event()
                await self._idle.wait()

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        self._busy += 1
        try:
            await self._handle_request(scope, receive, send)
        finally:
            self._busy -= 1
            if not self._busy:
                self._idle.set()

    async def _handle_request(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        common = _COMMON_HEADERS
        outlet = _ApiResponseSender(send, bodiless=scope["method"] == "HEAD")
        try:
            headers, _ = parse_headers(scope["headers"])
            common = (*_COMMON_HEADERS, *self._auth.build_cors_headers(headers))
            await self._run_operation(_ApiHttpRequest(scope, receive, outlet, headers, common))
        except ClientDisconnected:
            pass
        except Exception as error:  # noqa: BLE001 - whatever it is, the caller hears a sentence
            said = build_problem(error)
            if outlet.begun:  # too late to tell the caller
                log.warning("An answer of the API broke off: %s", said.detail)
            else:
                await write_problem(outlet, said, common)

    async def _run_operation(self, http_request: _ApiHttpRequest) -> None:
        if self._closing:
            raise HttpError(503, _SHUTDOWN_MESSAGE, headers=((b"retry-after", b"2"),))
        place = self._paths.find(split_path(http_request.scope))
        if place is None:
            raise ApiProblem(
                404, "There is nothing at this address", "GET /api/openapi.json says what there is."
            )
        method: str = http_request.scope["method"]
        if method == "OPTIONS":
            status, headers = self._auth.build_preflight(http_request.headers)
            allow = (b"allow", place.allowed_methods.encode())
            await respond(http_request.send, status, b"", (allow, *headers))
            return
        operation = _find_operation(place, method)
        admitted = await self._auth.authenticate(http_request.attempt, operation)
        self._check_rate(admitted.principal, http_request)
        check_accept(http_request.headers, operation)
        request = ApiRequest(
            principal=admitted.principal,
            path=place.get_parameters(operation),
            query=parse_query(operation.query, http_request.scope.get("query_string", b"")),
            body=await self._read_body(http_request, operation),
            headers=http_request.headers,
            session=admitted.session,
            remote=http_request.attempt.remote,
            peer=http_request.attempt.peer,
            is_still_valid=lambda: self._auth.is_still_authenticated(
                http_request.attempt, operation, admitted.principal
            ),
        )
        answer = await _run_answer(operation, request, http_request.receive)
        await _write_answer(http_request, operation, answer)

    def _check_rate(self, principal: Principal, http_request: _ApiHttpRequest) -> None:
        wait = self._rate.take_token(principal.name or f"nobody at {http_request.attempt.remote}")
        if wait > 0:
            seconds = int(wait) + 1
            raise HttpError(
                429,
                f"You ask too often (api.per_minute). Wait {seconds} s.",
                headers=((b"retry-after", str(seconds).encode()),),
            )

    async def _read_body(self, http_request: _ApiHttpRequest, operation: ApiOperation) -> Any:
        if operation.body is None:
            return None
        bounds = self._limits
        body = await read_body(
            http_request.headers,
            http_request.receive,
            limit=bounds.body_bytes,
            seconds=bounds.request_seconds,
        )
        if body and not is_json_body(http_request.headers):
            raise ApiProblem(415, "This is not JSON", "Send the body as application/json.")
        return parse_json(operation.body, body)


class _ApiResponseSender:
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


def _find_operation(matched: MatchedPath, method: str) -> ApiOperation:
    sought = "GET" if method == "HEAD" and matched.has_head else method
    operation = matched.operations.get(sought)
    if operation is None:
        allow = (b"allow", matched.allowed_methods.encode())
        raise HttpError(405, f"Use {matched.allowed_methods} here.", headers=(allow,))
    return operation


async def _run_answer(operation: ApiOperation, request: ApiRequest, receive: Receive) -> object:
    """What the operation answers. Where its work is for this client alone, it ends when they leave."""
    if not operation.stops:
        return await operation.answer(request)
    return await run_while_connected(receive, lambda _: operation.answer(request))


async def _write_answer(http_request: _ApiHttpRequest, operation: ApiOperation, answer: object) -> None:
    if isinstance(answer, StreamingResponse):
        await answer.run(http_request.receive, http_request.send, http_request.common)
        return
    reply = answer if isinstance(answer, ApiResponse) else ApiResponse(body=answer, status=operation.status)
    common = (*reply.headers, *http_request.common)
    if reply.body is None and operation.returns is None:
        await respond(http_request.send, reply.status, b"", common)
        return
    media = reply.media or operation.media
    body = (
        reply.body
        if isinstance(reply.body, bytes)
        else build_output_adapter(operation.returns).dump_json(reply.body)
    )
    await respond(http_request.send, reply.status, body, ((b"content-type", media.encode()), *common))


@asynccontextmanager
async def open_api(
    router: Router,
    *,
    authenticator: Authenticator,
    address: str,
    ledger: JournalReader,
    rate_limiter: RateLimiter | None = None,
    loaded: Loaded | None = None,
) -> AsyncGenerator[ApiApp]:
    """The API of this router, at `/api`.

    `rate` may be shared with other surfaces; `loaded` is what the settings were read from.
    """
    settings = router.settings
    sessions = ConsoleSessions(router.store, hours=settings.console.session_hours)
    doors = ApiAuth(authenticator, sessions, router.events)
    streams = StreamSlots(settings.api.streams)
    async with anyio.create_task_group() as tasks:
        operations = build_all_operations(
            router,
            ledger=ledger,
            address=address,
            auth=doors,
            sessions=sessions,
            streams=streams,
            tasks=tasks,
            loaded=loaded,
        )
        yield ApiApp(
            operations,
            auth=doors,
            rate_limiter=rate_limiter or RateLimiter(settings.api.per_minute),
            streams=streams,
            limits=RequestLimits(
                body_bytes=settings.gateway.body_bytes, request_seconds=settings.gateway.request_seconds
            ),
        )
        tasks.cancel_scope.cancel()

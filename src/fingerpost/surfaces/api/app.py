"""The API as an ASGI application: paths, parsing of queries and bodies, and all operations."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import fields
from typing import Any, Final, get_origin, get_type_hints
from urllib.parse import parse_qsl, quote, unquote, unquote_to_bytes

import anyio
from anyio.abc import TaskGroup
from pydantic import ValidationError
from pydantic_core import from_json
from starlette.routing import compile_path

from fingerpost.analytics.journal_reader import JournalReader
from fingerpost.frozen import frozen
from fingerpost.records import JsonObject, Principal, Right
from fingerpost.records.json import find_json_problem
from fingerpost.router import Router
from fingerpost.settings import GatewaySettings, Loaded
from fingerpost.settings.model import OidcSettings
from fingerpost.surfaces.api.administration import AdministrationOperations, SettingsOperations
from fingerpost.surfaces.api.approvals import ApprovalOperations, ApprovalResumer
from fingerpost.surfaces.api.audit import AuditOperations
from fingerpost.surfaces.api.auth import AccessAttempt, AccountOperations, ApiAuth, is_json_body
from fingerpost.surfaces.api.learning import FeedbackOperations, StatisticsOperations
from fingerpost.surfaces.api.openapi import ApiDescription
from fingerpost.surfaces.api.operation import (
    ApiOperation,
    ApiProblem,
    ApiRequest,
    ApiResponse,
    StreamingResponse,
    build_input_adapter,
    build_output_adapter,
    check_accept,
    write_problem,
)
from fingerpost.surfaces.api.packets import PacketOperations, PendingCounter
from fingerpost.surfaces.api.requests import RequestOperations
from fingerpost.surfaces.api.servers import PinOperations, ServerOperations
from fingerpost.surfaces.api.sessions import ConsoleSessions
from fingerpost.surfaces.api.sign_ins import SignInOperations
from fingerpost.surfaces.api.streams import StreamSlots
from fingerpost.surfaces.api.tools import AssetOperations, ToolOperations
from fingerpost.surfaces.api.visibility import check_unscoped
from fingerpost.surfaces.http.access import Authenticator, RateLimiter
from fingerpost.surfaces.http.asgi import (
    AsgiScope,
    ClientDisconnected,
    Header,
    HttpError,
    Receive,
    ResponseSender,
    Send,
    parse_headers,
    read_body,
    respond,
    run_while_connected,
)
from fingerpost.surfaces.http.credentials import SignOn
from fingerpost.surfaces.http.local_callers import Peer
from fingerpost.tasks import run_restarting

MAX_PART_LENGTH: Final = 2000  # characters of one path segment


@frozen(kw_only=False)
class MatchedPath:
    """The operations of one path by method, and the parameter values in it."""

    operations: Mapping[str, ApiOperation]
    values: Mapping[str, str]

    @property
    def allowed_methods(self) -> str:
        """The value of the `Allow` header."""
        return ", ".join(sorted({*self.operations, "OPTIONS", *(("HEAD",) if self.has_head else ())}))

    @property
    def has_head(self) -> bool:
        """Whether HEAD is supported. It is not for streams."""
        reading = self.operations.get("GET")
        return reading is not None and reading.media == "application/json"


class OperationPaths:
    """All operations by path template. Literal paths come before those with parameters."""

    def __init__(self, operations: Iterable[ApiOperation]) -> None:
        templates: dict[str, dict[str, ApiOperation]] = {}
        for operation in sorted(operations, key=lambda one: one.path.count("{")):
            templates.setdefault(operation.path, {})[operation.method] = operation
        self._patterns = [(compile_path(path)[0], methods) for path, methods in templates.items()]

    def find(self, scope: AsgiScope) -> MatchedPath | None:
        """Return the operations of a request's path, or None. Raises `HttpError` if it is not valid text.

        Segments are matched with their slashes encoded, so that a parameter may contain one.
        """
        raw: bytes = scope.get("raw_path") or quote(scope["path"]).encode()
        try:
            parts = [unquote_to_bytes(part).decode() for part in raw.partition(b"?")[0].split(b"/")]
        except UnicodeDecodeError:
            raise HttpError(400, "The path is not valid UTF-8.") from None
        if any("\0" in part or len(part) > MAX_PART_LENGTH for part in parts):
            raise HttpError(404, "Not found.")
        path = "/".join(quote(part, safe="") for part in parts)
        for pattern, operations in self._patterns:
            if (found := pattern.match(path)) is not None:
                return MatchedPath(
                    operations, {name: unquote(value) for name, value in found.groupdict().items()}
                )
        return None


MAX_PARAMETERS: Final = 100
MAX_ERRORS: Final = 20
_MAX_VALUE_LENGTH: Final = 200
_ERROR_TEXTS: Final = {"unexpected_keyword_argument": "There is no such field."}


def parse_query(shape: type[Any] | None, raw: bytes) -> Any:
    """Return an instance of `shape`, or None if the operation has no query. Raises `ApiProblem`."""
    try:
        pairs = parse_qsl(
            raw.decode("ascii"), keep_blank_values=True, max_num_fields=MAX_PARAMETERS, errors="strict"
        )
    except ValueError:
        detail = "the query cannot be parsed: too many parameters, or not valid UTF-8"
        raise _build_query_problem(detail) from None
    known = () if shape is None else tuple(field.name for field in fields(shape))
    unknown = sorted({name for name, _ in pairs} - set(known))
    if unknown:
        names = ", ".join(known) or "none"
        raise _build_query_problem(
            f"{unknown[0][:_MAX_VALUE_LENGTH]!r} is not a parameter here; the parameters are: {names}"
        )
    if any("\0" in value for _, value in pairs):
        raise _build_query_problem("it contains a NUL character")
    if shape is None:
        return None
    try:
        return build_input_adapter(shape).validate_python(_collect_values(shape, pairs))
    except ValidationError as error:
        raise _build_query_problem("some parameters are not valid", _format_errors(error)) from None


def _collect_values(shape: type[Any], pairs: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """Return the values by name. A list field may occur more than once."""
    hints = get_type_hints(shape)
    values: dict[str, Any] = {}
    for name, value in pairs:
        if get_origin(hints[name]) in (tuple, list):
            values.setdefault(name, []).append(value)
        elif name in values:
            raise _build_query_problem(f"{name} was sent more than once")
        else:
            values[name] = value
    return values


def _build_query_problem(detail: str, errors: tuple[JsonObject, ...] = ()) -> ApiProblem:
    more: dict[str, Any] = {"errors": errors} if errors else {}
    return ApiProblem(400, "Invalid query", _format_detail(detail, errors), **more)


def parse_json(shape: type[Any], body: bytes) -> Any:
    """Return an instance of `shape`. A missing body is an empty object. Raises `ApiProblem`."""
    body = body if body.strip() else b"{}"
    try:
        value: object = from_json(body, allow_inf_nan=False)
    except ValueError:
        raise ApiProblem(400, "Invalid body", "The body is not valid JSON in UTF-8.") from None
    if (reason := find_json_problem(value)) is not None:
        raise ApiProblem(400, "Invalid body", f"The JSON {reason}.")
    try:
        return build_input_adapter(shape).validate_json(body, strict=True)
    except ValidationError as error:
        errors = _format_errors(error)
        detail = _format_detail("some fields are not valid", errors)
        raise ApiProblem(422, "Invalid body", detail, errors=errors) from None


def _format_errors(error: ValidationError) -> tuple[JsonObject, ...]:
    found = error.errors(include_url=False, include_context=False, include_input=False)
    return tuple(
        {
            "where": ".".join(map(str, one["loc"]))[:_MAX_VALUE_LENGTH],
            "problem": _ERROR_TEXTS.get(one["type"], one["msg"]),
        }
        for one in found[:MAX_ERRORS]
    )


def _format_detail(detail: str, errors: tuple[JsonObject, ...]) -> str:
    text = f"{detail[:1].upper()}{detail[1:]}"
    if errors:
        text += f": {errors[0]['where'] or 'all of it'}: {errors[0]['problem']}"
    return text if text.endswith(".") else f"{text}."


def build_all_operations(
    router: Router,
    *,
    ledger: JournalReader,
    address: str,
    auth: ApiAuth,
    sessions: ConsoleSessions,
    sign_on: SignOn | None,
    streams: StreamSlots,
    tasks: TaskGroup,
    loaded: Loaded | None = None,
) -> tuple[ApiOperation, ...]:
    """Return all operations. The last one serves their description."""
    waiting = PendingCounter(router.calls.approvals, router.events)
    resuming = ApprovalResumer(router, tasks)
    tasks.start_soon(run_restarting, resuming.end_expired)
    groups = (
        AccountOperations(router, address=address, auth=auth, sessions=sessions, sign_on=sign_on),
        PacketOperations(ledger, router.store.journal, waiting, streams),
        SignInOperations(router, tasks, address=address),
        AdministrationOperations(router),
        RequestOperations(router, streams),
        ApprovalOperations(router, resuming),
        ToolOperations(router),
        ServerOperations(router),
        PinOperations(router),
        StatisticsOperations(router, ledger),
        FeedbackOperations(router),
        SettingsOperations(router, loaded),
        AuditOperations(router),
        AssetOperations(router),
    )
    operations = tuple(operation for group in groups for operation in group.build_operations())
    return (*operations, *ApiDescription(operations, address=address).build_operations())


log = logging.getLogger("fingerpost.api")

_COMMON_HEADERS: Final[tuple[Header, ...]] = (
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
)
_SHUTDOWN_MESSAGE = "Fingerpost is shutting down. Try again in a moment."


@frozen(kw_only=False)
class _ApiHttpRequest:
    """One HTTP request while it is processed."""

    scope: AsgiScope
    receive: Receive
    send: Send
    headers: Mapping[str, str]
    common: tuple[Header, ...]

    @property
    def attempt(self) -> AccessAttempt:
        remote: str = (self.scope.get("client") or ("",))[0]
        peer = Peer.from_addresses(self.scope.get("client"), self.scope.get("server"))
        return AccessAttempt(self.scope["method"], self.headers, remote, peer)


class ApiApp:
    """The API application. Use `open_api` and serve it behind a `PathRouter`."""

    def __init__(
        self,
        operations: Iterable[ApiOperation],
        *,
        auth: ApiAuth,
        rate_limiter: RateLimiter,
        streams: StreamSlots,
        limits: GatewaySettings,
    ) -> None:
        """`limits` are the size limit and the timeout of a request body."""
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
        """The number of open streams."""
        return self._streams.count

    async def drain(self, seconds: float) -> None:
        """End streams gracefully and give running requests a short time before they are stopped."""
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
        sender = ResponseSender(send, bodiless=scope["method"] == "HEAD")
        try:
            headers, _ = parse_headers(scope["headers"])
            common = (*_COMMON_HEADERS, *self._auth.build_cors_headers(headers))
            await self._run_operation(_ApiHttpRequest(scope, receive, sender, headers, common))
        except ClientDisconnected:
            pass
        except Exception as error:  # noqa: BLE001 - whatever it is, the caller hears a sentence
            problem = ApiProblem.from_error(error)
            if sender.started:  # too late for an error response
                log.warning("An API response was interrupted: %s", problem.detail)
            else:
                await write_problem(sender, problem, common)

    async def _run_operation(self, http_request: _ApiHttpRequest) -> None:
        if self._closing:
            raise HttpError(503, _SHUTDOWN_MESSAGE, headers=((b"retry-after", b"2"),))
        matched = self._paths.find(http_request.scope)
        if matched is None:
            raise ApiProblem(404, "Not found", "GET /api/openapi.json lists the endpoints.")
        method: str = http_request.scope["method"]
        if method == "OPTIONS":
            status, headers = self._auth.build_preflight(http_request.headers)
            allow = (b"allow", matched.allowed_methods.encode())
            await respond(http_request.send, status, b"", (allow, *headers))
            return
        operation = _find_operation(matched, method)
        admitted = await self._auth.authenticate(http_request.attempt, operation)
        self._check_rate(admitted.principal, http_request)
        check_accept(http_request.headers, operation)
        request = ApiRequest(
            principal=admitted.principal,
            path=matched.values,
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
        if operation.covers_all or operation.right is Right.ADMINISTER:
            check_unscoped(admitted.principal)
        if operation.cancels_on_disconnect:
            answer = await run_while_connected(http_request.receive, lambda _: operation.answer(request))
        else:
            answer = await operation.answer(request)
        await _write_answer(http_request, operation, answer)

    def _check_rate(self, principal: Principal, http_request: _ApiHttpRequest) -> None:
        wait = self._rate.take_token(principal.name or f"anonymous at {http_request.attempt.remote}")
        if wait > 0:
            seconds = int(wait) + 1
            raise HttpError(
                429,
                f"Too many requests (api.per_minute). Wait {seconds} s.",
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


def _find_operation(matched: MatchedPath, method: str) -> ApiOperation:
    sought = "GET" if method == "HEAD" and matched.has_head else method
    operation = matched.operations.get(sought)
    if operation is None:
        allow = (b"allow", matched.allowed_methods.encode())
        raise HttpError(405, f"Use {matched.allowed_methods} here.", headers=(allow,))
    return operation


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


async def _open_sign_on(router: Router, oidc: OidcSettings, address: str) -> SignOn:
    # Imports the signature library, which an installation without single sign-on does not need.
    from fingerpost.surfaces.http.tokens import SingleSignOn

    gateway = router.settings.gateway
    return SingleSignOn(
        oidc,
        await router.store.secret.load(),
        address=gateway.public_url or address,
        token_issuer=None if gateway.sign_in is None else gateway.sign_in.issuer,
    )


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
    """Open the API of this router at `/api`.

    `rate_limiter` may be shared with other surfaces; `loaded` is where the settings were read from.
    """
    settings = router.settings
    oidc = settings.console.oidc
    sign_on = None if oidc is None else await _open_sign_on(router, oidc, address)
    sessions = ConsoleSessions(
        router.store,
        hours=settings.console.session_hours,
        person_hours=None if oidc is None else oidc.session_hours,
        build_person=(lambda _: None) if sign_on is None else sign_on.build_principal,
    )
    auth = ApiAuth(authenticator, sessions, router.events, apply_user=router.users.apply)
    streams = StreamSlots(settings.api.streams)
    async with anyio.create_task_group() as tasks:
        operations = build_all_operations(
            router,
            ledger=ledger,
            address=address,
            auth=auth,
            sessions=sessions,
            sign_on=sign_on,
            streams=streams,
            tasks=tasks,
            loaded=loaded,
        )
        yield ApiApp(
            operations,
            auth=auth,
            rate_limiter=rate_limiter or RateLimiter(settings.api.per_minute),
            streams=streams,
            limits=settings.gateway,
        )
        tasks.cancel_scope.cancel()

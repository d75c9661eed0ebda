"""Protocol 2025-11-25 and older: sessions, their event streams, and batches (2025-03-26)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import anyio
from mcp_types.jsonrpc import INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST

from fingerpost.events import ClientConnected
from fingerpost.records import Principal
from fingerpost.surfaces.gateway.modern import build_unknown_method_error, get_accepted_types
from fingerpost.surfaces.gateway.protocol import (
    BATCH_REFUSED,
    PING_FRAME,
    REQUEST_CANCELLED,
    ClientExchange,
    ClientRequest,
    InvalidJsonRpcMessage,
    JsonRpcError,
    JsonRpcMessage,
    encode_error,
    encode_event,
    encode_result,
    format_client_name,
    read_message,
)
from fingerpost.surfaces.gateway.responses import (
    PING_INTERVAL_S,
    DisconnectWatcher,
    JsonRpcResponse,
    PostResponse,
    answer_request,
    build_error_response,
    build_initialize_result,
    negotiate_version,
)
from fingerpost.surfaces.gateway.sessions import ActiveRequest, McpSession, McpSessions
from fingerpost.surfaces.gateway.state import (
    SHUTDOWN_MESSAGE,
    GatewayState,
    McpHttpError,
    McpHttpRequest,
    parse_accept,
)
from fingerpost.surfaces.http.access import get_caller_authorization
from fingerpost.surfaces.http.asgi import EVENT_STREAM_HEADERS, respond, wait_for_disconnect

MODERN_ONLY_METHODS: Final = frozenset({"server/discover", "subscriptions/listen"})
MAX_CONCURRENT_REQUESTS: Final = 1000  # per session


async def handle_legacy_post(
    state: GatewayState, http_request: McpHttpRequest, principal: Principal, message: JsonRpcMessage
) -> None:
    """Answer one POST of the handshake era."""
    if message.kind == "request" and message.method == "initialize":
        return await _open_session(state, http_request, principal, message)
    session = await find_session(state, http_request, principal)
    headers = (session.header, *http_request.common)
    if message.kind != "request":
        if message.kind == "response":
            session.accept_response(message.raw)
        else:
            handle_notification(session, message)
        return await respond(http_request.send, 202, b"", headers)
    takes = get_accepted_types(http_request)
    reply = PostResponse(http_request, accepts=takes, headers=headers, questions=session.questions)
    try:
        request = build_session_request(session, principal, message, http_request.headers)
    except JsonRpcError as refusal:
        return await reply.finish(200, build_error_response(message.id, refusal).body)
    if message.method == "ping":
        return await reply.finish(200, encode_result(request.id, {}))
    result: JsonRpcResponse | None = None
    with state.create_active_request() as running, DisconnectWatcher(state, http_request, reply, running):
        session.in_flight[request.id] = running
        try:
            result = await answer_request(state.methods, request, reply)
        finally:
            session.in_flight.pop(request.id, None)
            state.sessions.touch(session)
    result = result or build_stopped_response(request, running)
    # Not 429 for a quota: the MCP library's client of this era ends its connection then.
    return await reply.finish(200, result.body, result.headers)


async def find_session(state: GatewayState, http_request: McpHttpRequest, principal: Principal) -> McpSession:
    """Return the session the request names. Raises `McpHttpError`."""
    session_id = http_request.headers.get("mcp-session-id")
    if session_id is None:
        raise McpHttpError(400, "The header Mcp-Session-Id is missing: send initialize first.")
    session = await state.find_session(session_id, principal, http_request.endpoint)
    if session is None:
        raise McpHttpError(404, "This session does not exist (any more): send initialize again.")
    return session


def build_initialize_request(
    inbound_headers: Mapping[str, str], principal: Principal, message: JsonRpcMessage, template: ClientRequest
) -> ClientRequest:
    """Build the `initialize` request after checking its params. Raises `JsonRpcError`."""
    params = message.params
    capabilities = params.get("capabilities", {})
    if not isinstance(params.get("protocolVersion"), str) or not isinstance(capabilities, dict):
        raise JsonRpcError(INVALID_PARAMS, "initialize needs protocolVersion, capabilities and clientInfo.")
    return replace(
        template,
        version=negotiate_version(params.get("protocolVersion")),
        principal=principal,
        capabilities=capabilities,
        client=format_client_name(params.get("clientInfo")),
        session=McpSessions.create_id(),
        authorization=get_caller_authorization(inbound_headers, principal),
    )


def emit_client_connected(state: GatewayState, request: ClientRequest) -> None:
    state.events.emit(
        ClientConnected(
            client=request.client,
            protocol=request.version,
            endpoint=request.endpoint.path,
            principal=request.principal.name,
        )
    )


async def _open_session(
    state: GatewayState, http_request: McpHttpRequest, principal: Principal, message: JsonRpcMessage
) -> None:
    takes = get_accepted_types(http_request)
    assert message.id is not None
    template = ClientRequest(
        id=message.id,
        method=message.method,
        params=message.params,
        version="",
        endpoint=http_request.endpoint,
        principal=principal,
    )
    try:
        opening = build_initialize_request(http_request.headers, principal, message, template)
        await state.methods.count_session(opening)
    except JsonRpcError as refusal:
        reply = PostResponse(http_request, accepts=takes, headers=http_request.common)
        response = build_error_response(message.id, refusal)
        return await reply.finish(200, response.body, response.headers)
    body = encode_result(message.id, await build_initialize_result(state.methods, opening))
    # Kept as long as the session: drop the params, which may be large, and the token.
    session = await state.open_session(replace(opening, params={}, authorization=None))
    emit_client_connected(state, opening)
    reply = PostResponse(http_request, accepts=takes, headers=(session.header, *http_request.common))
    await reply.finish(200, body)
    return None


def handle_notification(session: McpSession, message: JsonRpcMessage) -> None:
    """Handle a notification of the client. Most need no action."""
    if message.method == "notifications/cancelled":
        request_id = message.params.get("requestId")
        if isinstance(request_id, str | int):
            session.cancel_request(request_id)


def build_session_request(
    session: McpSession, principal: Principal, message: JsonRpcMessage, headers: Mapping[str, str]
) -> ClientRequest:
    """Build a request of a session. Raises `JsonRpcError` if it is invalid."""
    assert message.id is not None
    opening = session.request
    if message.id in session.in_flight:
        raise JsonRpcError(INVALID_REQUEST, "A request with this id is still running.")
    if len(session.in_flight) >= MAX_CONCURRENT_REQUESTS:
        raise JsonRpcError(INTERNAL_ERROR, f"{MAX_CONCURRENT_REQUESTS} requests are running already.")
    if message.method in MODERN_ONLY_METHODS:
        raise build_unknown_method_error(message.method)
    return ClientRequest(
        id=message.id,
        method=message.method,
        params=message.params,
        version=opening.version,
        endpoint=opening.endpoint,
        principal=principal,
        capabilities=opening.capabilities,
        client=opening.client,
        session=session.id,
        authorization=get_caller_authorization(headers, principal),
        headers=headers,
    )


def build_stopped_response(request: ClientRequest, active: ActiveRequest) -> JsonRpcResponse:
    """Build the response to a request that was cancelled."""
    code = REQUEST_CANCELLED if active.is_cancelled_by_client else INTERNAL_ERROR
    return JsonRpcResponse(encode_error(request.id, code, active.reason or SHUTDOWN_MESSAGE), code)


async def open_event_stream(state: GatewayState, http_request: McpHttpRequest, principal: Principal) -> None:
    """Serve the notification stream of a session. A new stream replaces the old one, which may be dead."""
    if not parse_accept(http_request.headers)[1]:
        raise McpHttpError(406, "This is a stream: accept text/event-stream.")
    session = await find_session(state, http_request, principal)
    last = http_request.headers.get("last-event-id")
    if last is not None:
        session.backlog.resume_after(last)
    mark = session.stream = object()
    session.backlog.wake()
    headers = [*EVENT_STREAM_HEADERS, session.header, *http_request.common]
    try:
        await http_request.send({"type": "http.response.start", "status": 200, "headers": headers})
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(
                _send_notifications, state, http_request, principal, session, mark, tasks.cancel_scope
            )
            await wait_for_disconnect(http_request.receive)
            tasks.cancel_scope.cancel()
    finally:
        if session.stream is mark:
            session.stream = None
        state.sessions.touch(session)
    await http_request.send({"type": "http.response.body", "body": b""})


async def _send_notifications(
    state: GatewayState,
    http_request: McpHttpRequest,
    principal: Principal,
    session: McpSession,
    mark: object,
    stream_scope: anyio.CancelScope,
) -> None:
    frame = PING_FRAME  # shows the client at once that the stream is open
    while session.stream is mark:
        await http_request.send({"type": "http.response.body", "body": frame, "more_body": True})
        with anyio.move_on_after(PING_INTERVAL_S):
            await session.backlog.wait()
        if not await state.is_still_admitted(http_request, principal) or session.stream is not mark:
            break
        due = session.backlog.take_unsent()
        if session.backlog.closed and not due:
            break
        frame = b"".join(encode_event(message, event_id) for event_id, message in due) or PING_FRAME
    stream_scope.cancel()


async def delete_session(state: GatewayState, http_request: McpHttpRequest, principal: Principal) -> None:
    """End the session at the client's request."""
    session = await find_session(state, http_request, principal)
    await state.end_session(session, "ended by the client")
    await respond(http_request.send, 200, b"", http_request.common)


BATCH_VERSION: Final = "2025-03-26"
MAX_BATCH_MESSAGES: Final = 100


async def handle_batch_post(
    state: GatewayState, http_request: McpHttpRequest, principal: Principal, entries: Sequence[object]
) -> None:
    """Answer a batch that came over HTTP."""
    has_session = "mcp-session-id" in http_request.headers
    named = await find_session(state, http_request, principal) if has_session else None
    session = check_batch_session(named, entries)
    headers = (session.header, *http_request.common)
    reply = PostResponse(
        http_request, accepts=get_accepted_types(http_request), headers=headers, questions=session.questions
    )
    batch = MessageBatch(state, principal, session, reply, http_request.headers)
    try:
        with state.create_active_request() as running, DisconnectWatcher(state, http_request, reply, running):
            await batch.handle_entries(entries)
    finally:
        state.sessions.touch(session)
    if not batch.answers:
        return await respond(http_request.send, 202, b"", headers)
    await reply.finish(200, batch.build_body())
    return None


def check_batch_session(session: McpSession | None, entries: Sequence[object]) -> McpSession:
    """Return the session if it may send this batch. Raises `InvalidJsonRpcMessage`."""
    if session is None or session.request.version != BATCH_VERSION:
        raise InvalidJsonRpcMessage(BATCH_REFUSED)
    if not 0 < len(entries) <= MAX_BATCH_MESSAGES:
        raise InvalidJsonRpcMessage(f"A batch has one to {MAX_BATCH_MESSAGES} messages.")
    return session


class MessageBatch:
    """One batch of a session, and the exchange with its client."""

    def __init__(
        self,
        state: GatewayState,
        principal: Principal,
        session: McpSession,
        exchange: ClientExchange,
        headers: Mapping[str, str],
    ) -> None:
        self._state = state
        self._principal = principal
        self._session = session
        self._exchange = exchange
        self._headers = headers
        self.answers: dict[int, bytes] = {}  # by the index of the request

    async def handle_entries(self, entries: Sequence[object]) -> None:
        """Answer all requests of the batch concurrently. Answers that exist are kept on cancellation."""
        async with anyio.create_task_group() as tasks:
            for index, entry in enumerate(entries):
                tasks.start_soon(self._handle_entry, index, entry)

    def build_body(self) -> bytes:
        """Return all answers in the order of their requests."""
        return b"[" + b",".join(self.answers[index] for index in sorted(self.answers)) + b"]"

    async def _handle_entry(self, index: int, entry: object) -> None:
        body = await self._answer_entry(entry)
        if body is not None:
            self.answers[index] = body

    async def _answer_entry(self, entry: object) -> bytes | None:
        """Return the answer to one message, or None if it needs none."""
        try:
            message = read_message(entry)
        except InvalidJsonRpcMessage as error:
            return encode_error(error.request_id, error.code, error.message)
        if message.kind == "response":
            self._session.accept_response(message.raw)
            return None
        if message.kind == "notification":
            handle_notification(self._session, message)
            return None
        try:
            return (await self._answer_request(message)).body
        except JsonRpcError as refusal:
            return build_error_response(message.id, refusal).body

    async def _answer_request(self, message: JsonRpcMessage) -> JsonRpcResponse:
        assert message.id is not None
        if message.method == "initialize":  # not permitted in a batch
            raise build_unknown_method_error(message.method)
        request = build_session_request(self._session, self._principal, message, self._headers)
        if message.method == "ping":
            return JsonRpcResponse(encode_result(request.id, {}))
        result: JsonRpcResponse | None = None
        with self._state.create_active_request() as running:
            self._session.in_flight[request.id] = running
            try:
                result = await answer_request(self._state.methods, request, self._exchange)
            finally:
                self._session.in_flight.pop(request.id, None)
        return result or build_stopped_response(request, running)

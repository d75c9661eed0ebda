"""2025-11-25 and before: a session is opened first, and everything belongs to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import anyio

from fingerpost.events import ClientConnected
from fingerpost.records import Principal
from fingerpost.surfaces.gateway.exchange import ClientRequest, JsonRpcError
from fingerpost.surfaces.gateway.wire.answering import JsonRpcResponse, answer_request, build_error_response
from fingerpost.surfaces.gateway.wire.codec import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    PING_FRAME,
    REQUEST_CANCELLED,
    encode_error,
    encode_event,
    encode_result,
)
from fingerpost.surfaces.gateway.wire.describing import build_initialize_result, negotiate_version
from fingerpost.surfaces.gateway.wire.envelope import JsonRpcMessage, format_client_name
from fingerpost.surfaces.gateway.wire.http import McpHttpError, McpHttpRequest, parse_accept
from fingerpost.surfaces.gateway.wire.modern import build_unknown_method_error
from fingerpost.surfaces.gateway.wire.premises import SHUTDOWN_MESSAGE, GatewayState
from fingerpost.surfaces.gateway.wire.reply import PING_INTERVAL_S, DisconnectWatcher, PostResponse
from fingerpost.surfaces.gateway.wire.running import ActiveRequest
from fingerpost.surfaces.gateway.wire.sessions import McpSession, McpSessions
from fingerpost.surfaces.web.asgi import EVENT_STREAM_HEADERS, respond
from fingerpost.surfaces.web.gate import get_forwarded_authorization
from fingerpost.surfaces.web.hearing import wait_for_disconnect

NEW_ERA_MESSAGE: Final = frozenset({"server/discover", "subscriptions/listen"})
MAX_CONCURRENT_REQUESTS: Final = 1000  # requests of one session


async def post_legacy(
    state: GatewayState, http_request: McpHttpRequest, principal: Principal, message: JsonRpcMessage
) -> None:
    """Answer one POST of the handshake era."""
    if message.kind == "request" and message.method == "initialize":
        return await _open_session(state, http_request, principal, message)
    session = find_session(state, http_request, principal)
    if message.kind == "request":
        return await _answer_session_request(state, http_request, principal, session, message)
    if message.kind == "response":
        session.questions.accept_response(message.raw)
    else:
        handle_notification(session, message)
    await respond(http_request.send, 202, b"", (session.header, *http_request.common))
    return None


def find_session(state: GatewayState, http_request: McpHttpRequest, principal: Principal) -> McpSession:
    """The session the request names. Raises `McpHttpError`."""
    session_id = http_request.headers.get("mcp-session-id")
    if session_id is None:
        raise McpHttpError(400, "The header Mcp-Session-Id is missing: send initialize first.")
    session = state.sessions.find(session_id, principal, http_request.endpoint)
    if session is None:
        raise McpHttpError(404, "There is no such session (any more): send initialize again.")
    return session


def build_initialize_request(
    inbound_headers: Mapping[str, str], principal: Principal, message: JsonRpcMessage, template: ClientRequest
) -> ClientRequest | JsonRpcError:
    """The `initialize` request as a record, its params checked."""
    params = message.params
    capabilities = params.get("capabilities", {})
    if not isinstance(params.get("protocolVersion"), str) or not isinstance(capabilities, dict):
        return JsonRpcError(INVALID_PARAMS, "initialize needs protocolVersion, capabilities and clientInfo.")
    return replace(
        template,
        version=negotiate_version(params.get("protocolVersion")),
        principal=principal,
        capabilities=capabilities,
        client=format_client_name(params.get("clientInfo")),
        session=McpSessions.create_id(),
        authorization=get_forwarded_authorization(inbound_headers),
    )


def emit_client_joined(state: GatewayState, request: ClientRequest) -> None:
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
    opening = build_initialize_request(http_request.headers, principal, message, template)
    if isinstance(opening, JsonRpcError):
        result = build_error_response(message.id, opening)
        return await PostResponse(http_request, accepts=takes, headers=http_request.common).finish(
            200, result.body
        )
    body = encode_result(message.id, await build_initialize_result(state.methods, opening))
    # What is kept for as long as the session lives must be small, and without its token.
    kept = replace(opening, params={}, authorization=None)
    session = None if state.closing.is_set() else state.sessions.open(kept)
    if session is None:
        raise McpHttpError(503, "Too many sessions are open; try again later.", code=INTERNAL_ERROR)
    emit_client_joined(state, opening)
    reply = PostResponse(http_request, accepts=takes, headers=(session.header, *http_request.common))
    await reply.finish(200, body)
    return None


def handle_notification(session: McpSession, message: JsonRpcMessage) -> None:
    """A notification of the client. Most say nothing we act on."""
    if message.method == "notifications/cancelled":
        request_id = message.params.get("requestId")
        if isinstance(request_id, str | int) and (running := session.in_flight.get(request_id)):
            running.cancel_for_client()


def get_accepted_types(http_request: McpHttpRequest) -> tuple[bool, bool]:
    """What the client takes. Raises `McpHttpError` when that is nothing we have."""
    takes = parse_accept(http_request.headers)
    if not any(takes):
        raise McpHttpError(406, "Accept application/json, text/event-stream, or both.")
    return takes


def build_session_request(
    session: McpSession, principal: Principal, message: JsonRpcMessage, headers: Mapping[str, str]
) -> ClientRequest | JsonRpcResponse:
    """One request of a session, or why it is none."""
    assert message.id is not None
    opening = session.request
    if message.id in session.in_flight:
        return build_error_response(
            message.id, JsonRpcError(INVALID_REQUEST, "A request with this id is still running.")
        )
    if len(session.in_flight) >= MAX_CONCURRENT_REQUESTS:
        return build_error_response(
            message.id,
            JsonRpcError(INTERNAL_ERROR, f"{MAX_CONCURRENT_REQUESTS} requests are running already."),
        )
    if message.method in NEW_ERA_MESSAGE:
        return build_error_response(message.id, build_unknown_method_error(message.method))
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
        authorization=get_forwarded_authorization(headers),
        headers=headers,
    )


def build_stopped_response(request: ClientRequest, active: ActiveRequest) -> JsonRpcResponse:
    """What a request is answered with that did not come to its end."""
    code = REQUEST_CANCELLED if active.is_cancelled_by_client else INTERNAL_ERROR
    return JsonRpcResponse(encode_error(request.id, code, active.reason or SHUTDOWN_MESSAGE), code)


async def _answer_session_request(
    state: GatewayState,
    http_request: McpHttpRequest,
    principal: Principal,
    session: McpSession,
    message: JsonRpcMessage,
) -> None:
    takes = get_accepted_types(http_request)
    headers = (session.header, *http_request.common)
    reply = PostResponse(http_request, accepts=takes, headers=headers, questions=session.questions)
    request = build_session_request(session, principal, message, http_request.headers)
    if isinstance(request, JsonRpcResponse):
        return await reply.finish(200, request.body)
    if message.method == "ping":
        return await reply.finish(200, encode_result(request.id, {}))
    result: JsonRpcResponse | None = None
    with state.start_request() as running:
        session.in_flight[request.id] = running
        watch = DisconnectWatcher(state, http_request, reply, running)
        try:
            result = await answer_request(state.methods, request, reply)
        finally:
            watch.stop()
            session.in_flight.pop(request.id, None)
            state.sessions.touch(session)
    result = result or build_stopped_response(request, running)
    await reply.finish(200, result.body)
    return None


async def open_event_stream(state: GatewayState, http_request: McpHttpRequest, principal: Principal) -> None:
    """The stream of news of a session. The newest one counts: an older may be dead without our knowing."""
    if not parse_accept(http_request.headers)[1]:
        raise McpHttpError(406, "This is a stream: accept text/event-stream.")
    session = find_session(state, http_request, principal)
    last = http_request.headers.get("last-event-id")
    if last is not None and last.isascii() and last.isdigit() and len(last) < 20:
        session.backlog.resume_after(int(last))
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
    ended: anyio.CancelScope,
) -> None:
    frame = PING_FRAME  # something at once: the client sees that the stream is open
    while session.stream is mark:
        await http_request.send({"type": "http.response.body", "body": frame, "more_body": True})
        with anyio.move_on_after(PING_INTERVAL_S):
            await session.backlog.wait()
        if not await state.is_still_admitted(http_request, principal) or session.stream is not mark:
            break
        due = session.backlog.take_unsent()
        if session.backlog.closed and not due:
            break
        frame = b"".join(encode_event(message, str(number)) for number, message in due) or PING_FRAME
    ended.cancel()


async def delete_session(state: GatewayState, http_request: McpHttpRequest, principal: Principal) -> None:
    """The client ends its session."""
    session = find_session(state, http_request, principal)
    state.sessions.end_session(session, "ended by the client")
    await respond(http_request.send, 200, b"", http_request.common)

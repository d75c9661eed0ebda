"""2025-11-25 and before: a session is opened first, and everything belongs to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import anyio

from fingerpost.events import ClientConnected
from fingerpost.records import Principal
from fingerpost.surfaces.gateway.exchange import ClientRequest, Refusal
from fingerpost.surfaces.gateway.wire.answering import Answer, answer, refused
from fingerpost.surfaces.gateway.wire.codec import (
    CANCELLED,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    PING,
    error_message,
    event,
    result_message,
)
from fingerpost.surfaces.gateway.wire.describing import initialize_result, negotiated
from fingerpost.surfaces.gateway.wire.envelope import Message, name_of_client
from fingerpost.surfaces.gateway.wire.http import HttpFault, Inbound, accepted
from fingerpost.surfaces.gateway.wire.modern import no_such_method
from fingerpost.surfaces.gateway.wire.premises import CLOSING, Premises
from fingerpost.surfaces.gateway.wire.reply import PING_EVERY_S, Reply, Watch
from fingerpost.surfaces.gateway.wire.running import Running
from fingerpost.surfaces.gateway.wire.sessions import Session, Sessions
from fingerpost.surfaces.web.asgi import EVENT_HEADERS, respond
from fingerpost.surfaces.web.gate import for_others
from fingerpost.surfaces.web.hearing import client_left

NEW_ERA: Final = frozenset({"server/discover", "subscriptions/listen"})
MAX_AT_ONCE: Final = 1000  # requests of one session


async def post(premises: Premises, inbound: Inbound, principal: Principal, message: Message) -> None:
    """Answer one POST of the handshake era."""
    if message.kind == "request" and message.method == "initialize":
        return await _open(premises, inbound, principal, message)
    session = session_of(premises, inbound, principal)
    if message.kind == "request":
        return await _request(premises, inbound, principal, session, message)
    if message.kind == "response":
        session.questions.answer(message.raw)
    else:
        hear(session, message)
    await respond(inbound.send, 202, b"", (session.header, *inbound.common))
    return None


def session_of(premises: Premises, inbound: Inbound, principal: Principal) -> Session:
    """The session the request names. Raises `HttpFault`."""
    session_id = inbound.headers.get("mcp-session-id")
    if session_id is None:
        raise HttpFault(400, "The header Mcp-Session-Id is missing: send initialize first.")
    session = premises.sessions.find(session_id, principal, inbound.endpoint)
    if session is None:
        raise HttpFault(404, "There is no such session (any more): send initialize again.")
    return session


def opening_request(
    inbound_headers: Mapping[str, str], principal: Principal, message: Message, template: ClientRequest
) -> ClientRequest | Refusal:
    """The `initialize` request as a record, its params checked."""
    params = message.params
    capabilities = params.get("capabilities", {})
    if not isinstance(params.get("protocolVersion"), str) or not isinstance(capabilities, dict):
        return Refusal(INVALID_PARAMS, "initialize needs protocolVersion, capabilities and clientInfo.")
    return replace(
        template,
        version=negotiated(params.get("protocolVersion")),
        principal=principal,
        capabilities=capabilities,
        client=name_of_client(params.get("clientInfo")),
        session=Sessions.new_id(),
        authorization=for_others(inbound_headers),
    )


def announce(premises: Premises, opening: ClientRequest) -> None:
    premises.events.emit(
        ClientConnected(
            client=opening.client,
            protocol=opening.version,
            endpoint=opening.endpoint.path,
            principal=opening.principal.name,
        )
    )


async def _open(premises: Premises, inbound: Inbound, principal: Principal, message: Message) -> None:
    takes = takes_of(inbound)
    assert message.id is not None
    template = ClientRequest(
        id=message.id,
        method=message.method,
        params=message.params,
        version="",
        endpoint=inbound.endpoint,
        principal=principal,
    )
    opening = opening_request(inbound.headers, principal, message, template)
    if isinstance(opening, Refusal):
        result = refused(message.id, opening)
        return await Reply(inbound, takes=takes, headers=inbound.common).finish(200, result.body)
    body = result_message(message.id, await initialize_result(premises.methods, opening))
    # What is kept for as long as the session lives must be small, and without its token.
    kept = replace(opening, params={}, authorization=None)
    session = None if premises.closing.is_set() else premises.sessions.open(kept)
    if session is None:
        raise HttpFault(503, "Too many sessions are open; try again later.", code=INTERNAL_ERROR)
    announce(premises, opening)
    reply = Reply(inbound, takes=takes, headers=(session.header, *inbound.common))
    await reply.finish(200, body)
    return None


def hear(session: Session, message: Message) -> None:
    """A notification of the client. Most say nothing we act on."""
    if message.method == "notifications/cancelled":
        request_id = message.params.get("requestId")
        if isinstance(request_id, str | int) and (running := session.in_flight.get(request_id)):
            running.withdraw()


def takes_of(inbound: Inbound) -> tuple[bool, bool]:
    """What the client takes. Raises `HttpFault` when that is nothing we have."""
    takes = accepted(inbound.headers)
    if not any(takes):
        raise HttpFault(406, "Accept application/json, text/event-stream, or both.")
    return takes


def request_in(
    session: Session, principal: Principal, message: Message, headers: Mapping[str, str]
) -> ClientRequest | Answer:
    """One request of a session, or why it is none."""
    assert message.id is not None
    opening = session.request
    if message.id in session.in_flight:
        return refused(message.id, Refusal(INVALID_REQUEST, "A request with this id is still running."))
    if len(session.in_flight) >= MAX_AT_ONCE:
        return refused(message.id, Refusal(INTERNAL_ERROR, f"{MAX_AT_ONCE} requests are running already."))
    if message.method in NEW_ERA:
        return refused(message.id, no_such_method(message.method))
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
        authorization=for_others(headers),
        headers=headers,
    )


def stopped(request: ClientRequest, running: Running) -> Answer:
    """What a request is answered with that did not come to its end."""
    code = CANCELLED if running.withdrawn else INTERNAL_ERROR
    return Answer(error_message(request.id, code, running.reason or CLOSING), code)


async def _request(
    premises: Premises, inbound: Inbound, principal: Principal, session: Session, message: Message
) -> None:
    takes = takes_of(inbound)
    headers = (session.header, *inbound.common)
    reply = Reply(inbound, takes=takes, headers=headers, questions=session.questions)
    request = request_in(session, principal, message, inbound.headers)
    if isinstance(request, Answer):
        return await reply.finish(200, request.body)
    if message.method == "ping":
        return await reply.finish(200, result_message(request.id, {}))
    result: Answer | None = None
    with premises.running() as running:
        session.in_flight[request.id] = running
        watch = Watch(premises, inbound, reply, running)
        try:
            result = await answer(premises.methods, request, reply)
        finally:
            watch.stop()
            session.in_flight.pop(request.id, None)
            premises.sessions.touch(session)
    result = result or stopped(request, running)
    await reply.finish(200, result.body)
    return None


async def get(premises: Premises, inbound: Inbound, principal: Principal) -> None:
    """The stream of news of a session. The newest one counts: an older may be dead without our knowing."""
    if not accepted(inbound.headers)[1]:
        raise HttpFault(406, "This is a stream: accept text/event-stream.")
    session = session_of(premises, inbound, principal)
    last = inbound.headers.get("last-event-id")
    if last is not None and last.isascii() and last.isdigit() and len(last) < 20:
        session.backlog.resume_after(int(last))
    mark = session.stream = object()
    session.backlog.wake()
    headers = [*EVENT_HEADERS, session.header, *inbound.common]
    try:
        await inbound.send({"type": "http.response.start", "status": 200, "headers": headers})
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_send_news, premises, inbound, principal, session, mark, tasks.cancel_scope)
            await client_left(inbound.receive)
            tasks.cancel_scope.cancel()
    finally:
        if session.stream is mark:
            session.stream = None
        premises.sessions.touch(session)
    await inbound.send({"type": "http.response.body", "body": b""})


async def _send_news(
    premises: Premises,
    inbound: Inbound,
    principal: Principal,
    session: Session,
    mark: object,
    ended: anyio.CancelScope,
) -> None:
    frame = PING  # something at once: the client sees that the stream is open
    while session.stream is mark:
        await inbound.send({"type": "http.response.body", "body": frame, "more_body": True})
        with anyio.move_on_after(PING_EVERY_S):
            await session.backlog.wait()
        if not await premises.still_admit(inbound, principal) or session.stream is not mark:
            break
        due = session.backlog.due()
        if session.backlog.closed and not due:
            break
        frame = b"".join(event(message, str(number)) for number, message in due) or PING
    ended.cancel()


async def delete(premises: Premises, inbound: Inbound, principal: Principal) -> None:
    """The client ends its session."""
    session = session_of(premises, inbound, principal)
    premises.sessions.end(session, "ended by the client")
    await respond(inbound.send, 200, b"", inbound.common)

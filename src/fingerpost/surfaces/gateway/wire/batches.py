"""Several messages in one POST: protocol 2025-03-26 has that, none before and none since."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import anyio

from fingerpost.records import Principal
from fingerpost.surfaces.gateway.wire.answering import Answer, answer, refused
from fingerpost.surfaces.gateway.wire.codec import error_message, result_message
from fingerpost.surfaces.gateway.wire.envelope import BATCH, Message, NotAMessage, read_message
from fingerpost.surfaces.gateway.wire.handshake import hear, request_in, session_of, stopped, takes_of
from fingerpost.surfaces.gateway.wire.http import HttpFault, Inbound
from fingerpost.surfaces.gateway.wire.modern import no_such_method
from fingerpost.surfaces.gateway.wire.premises import Premises
from fingerpost.surfaces.gateway.wire.reply import Reply, Watch
from fingerpost.surfaces.gateway.wire.sessions import Session
from fingerpost.surfaces.web.asgi import respond

VERSION: Final = "2025-03-26"
MOST: Final = 100


async def post(premises: Premises, inbound: Inbound, principal: Principal, entries: Sequence[object]) -> None:
    """Answer a batch of a session that may send one: all answers together, in the order of the requests."""
    session = session_of(premises, inbound, principal) if "mcp-session-id" in inbound.headers else None
    if session is None or session.request.version != VERSION:
        raise HttpFault(400, BATCH)
    if not 0 < len(entries) <= MOST:
        raise HttpFault(400, f"A batch has one to {MOST} messages.")
    headers = (session.header, *inbound.common)
    reply = Reply(inbound, takes=takes_of(inbound), headers=headers, questions=session.questions)
    answers: dict[int, bytes] = {}

    async def take(index: int, entry: object) -> None:
        body = await _taken(premises, inbound, principal, session, entry, reply)
        if body is not None:
            answers[index] = body

    with premises.running() as running:
        watch = Watch(premises, inbound, reply, running)
        try:
            async with anyio.create_task_group() as tasks:
                for index, entry in enumerate(entries):
                    tasks.start_soon(take, index, entry)
        finally:
            watch.stop()
            premises.sessions.touch(session)
    if not answers:
        return await respond(inbound.send, 202, b"", headers)
    await reply.finish(200, b"[" + b",".join(answers[index] for index in sorted(answers)) + b"]")
    return None


async def _taken(
    premises: Premises,
    inbound: Inbound,
    principal: Principal,
    session: Session,
    entry: object,
    reply: Reply,
) -> bytes | None:
    """The answer to one message of the batch; None where it wants none."""
    try:
        message = read_message(entry)
    except NotAMessage as error:
        return error_message(error.request_id, error.code, error.message)
    if message.kind == "response":
        session.questions.answer(message.raw)
        return None
    if message.kind == "notification":
        hear(session, message)
        return None
    return (await _answered(premises, inbound, principal, session, message, reply)).body


async def _answered(
    premises: Premises,
    inbound: Inbound,
    principal: Principal,
    session: Session,
    message: Message,
    reply: Reply,
) -> Answer:
    assert message.id is not None
    if message.method == "initialize":  # the one message that must stand alone
        return refused(message.id, no_such_method(message.method))
    request = request_in(session, principal, message, inbound.headers)
    if isinstance(request, Answer):
        return request
    if message.method == "ping":
        return Answer(result_message(request.id, {}))
    result: Answer | None = None
    with premises.running() as running:
        session.in_flight[request.id] = running
        try:
            result = await answer(premises.methods, request, reply)
        finally:
            session.in_flight.pop(request.id, None)
    return result or stopped(request, running)

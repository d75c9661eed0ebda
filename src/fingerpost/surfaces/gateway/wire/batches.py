"""Several messages in one: protocol 2025-03-26 has that, none before and none since."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import anyio

from fingerpost.records import Principal
from fingerpost.surfaces.gateway.exchange import Exchange
from fingerpost.surfaces.gateway.wire.answering import Answer, answer, refused
from fingerpost.surfaces.gateway.wire.codec import error_message, result_message
from fingerpost.surfaces.gateway.wire.envelope import BATCH, Message, NotAMessage, read_message
from fingerpost.surfaces.gateway.wire.handshake import hear, request_in, session_of, stopped, takes_of
from fingerpost.surfaces.gateway.wire.http import Inbound
from fingerpost.surfaces.gateway.wire.modern import no_such_method
from fingerpost.surfaces.gateway.wire.premises import Premises
from fingerpost.surfaces.gateway.wire.reply import Reply, Watch
from fingerpost.surfaces.gateway.wire.sessions import Session
from fingerpost.surfaces.web.asgi import respond

VERSION: Final = "2025-03-26"
MOST: Final = 100


async def post(premises: Premises, inbound: Inbound, principal: Principal, entries: Sequence[object]) -> None:
    """Answer a batch that came over HTTP."""
    named = session_of(premises, inbound, principal) if "mcp-session-id" in inbound.headers else None
    session = session_for(named, entries)
    headers = (session.header, *inbound.common)
    reply = Reply(inbound, takes=takes_of(inbound), headers=headers, questions=session.questions)
    batch = Batch(premises, principal, session, reply, inbound.headers)
    with premises.running() as running:
        watch = Watch(premises, inbound, reply, running)
        try:
            await batch.take(entries)
        finally:
            watch.stop()
            premises.sessions.touch(session)
    if not batch.answers:
        return await respond(inbound.send, 202, b"", headers)
    await reply.finish(200, batch.body())
    return None


def session_for(session: Session | None, entries: Sequence[object]) -> Session:
    """The session, if it may send such a batch. Raises `NotAMessage`."""
    if session is None or session.request.version != VERSION:
        raise NotAMessage(BATCH)
    if not 0 < len(entries) <= MOST:
        problem = f"A batch has one to {MOST} messages."
        raise NotAMessage(problem)
    return session


class Batch:
    """One batch of a session, and the way back to its client."""

    def __init__(
        self,
        premises: Premises,
        principal: Principal,
        session: Session,
        exchange: Exchange,
        headers: Mapping[str, str],
    ) -> None:
        self._premises = premises
        self._principal = principal
        self._session = session
        self._exchange = exchange
        self._headers = headers
        self.answers: dict[int, bytes] = {}  # by the place of their request

    async def take(self, entries: Sequence[object]) -> None:
        """Answer every message that wants it, side by side. Whoever is cancelled has those there are."""
        async with anyio.create_task_group() as tasks:
            for index, entry in enumerate(entries):
                tasks.start_soon(self._take, index, entry)

    def body(self) -> bytes:
        """All answers together, in the order of the requests."""
        return b"[" + b",".join(self.answers[index] for index in sorted(self.answers)) + b"]"

    async def _take(self, index: int, entry: object) -> None:
        body = await self._taken(entry)
        if body is not None:
            self.answers[index] = body

    async def _taken(self, entry: object) -> bytes | None:
        """The answer to one message; None where it wants none."""
        try:
            message = read_message(entry)
        except NotAMessage as error:
            return error_message(error.request_id, error.code, error.message)
        if message.kind == "response":
            self._session.questions.answer(message.raw)
            return None
        if message.kind == "notification":
            hear(self._session, message)
            return None
        return (await self._answered(message)).body

    async def _answered(self, message: Message) -> Answer:
        assert message.id is not None
        if message.method == "initialize":  # the one message that must stand alone
            return refused(message.id, no_such_method(message.method))
        request = request_in(self._session, self._principal, message, self._headers)
        if isinstance(request, Answer):
            return request
        if message.method == "ping":
            return Answer(result_message(request.id, {}))
        result: Answer | None = None
        with self._premises.running() as running:
            self._session.in_flight[request.id] = running
            try:
                result = await answer(self._premises.methods, request, self._exchange)
            finally:
                self._session.in_flight.pop(request.id, None)
        return result or stopped(request, running)

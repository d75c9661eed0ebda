"""Several messages in one: protocol 2025-03-26 has that, none before and none since."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import anyio

from fingerpost.records import Principal
from fingerpost.surfaces.gateway.exchange import ClientExchange
from fingerpost.surfaces.gateway.wire.answering import JsonRpcResponse, answer_request, build_error_response
from fingerpost.surfaces.gateway.wire.codec import encode_error, encode_result
from fingerpost.surfaces.gateway.wire.envelope import (
    BATCH_REFUSED,
    InvalidJsonRpcMessage,
    JsonRpcMessage,
    read_message,
)
from fingerpost.surfaces.gateway.wire.handshake import (
    build_session_request,
    build_stopped_response,
    find_session,
    get_accepted_types,
    handle_notification,
)
from fingerpost.surfaces.gateway.wire.http import McpHttpRequest
from fingerpost.surfaces.gateway.wire.modern import build_unknown_method_error
from fingerpost.surfaces.gateway.wire.premises import GatewayState
from fingerpost.surfaces.gateway.wire.reply import DisconnectWatcher, PostResponse
from fingerpost.surfaces.gateway.wire.sessions import McpSession
from fingerpost.surfaces.web.asgi import respond

BATCH_VERSION: Final = "2025-03-26"
MAX_BATCH_MESSAGES: Final = 100


async def post_batch(
    state: GatewayState, http_request: McpHttpRequest, principal: Principal, entries: Sequence[object]
) -> None:
    """Answer a batch that came over HTTP."""
    named = find_session(state, http_request, principal) if "mcp-session-id" in http_request.headers else None
    session = check_batch_session(named, entries)
    headers = (session.header, *http_request.common)
    reply = PostResponse(
        http_request, accepts=get_accepted_types(http_request), headers=headers, questions=session.questions
    )
    batch = MessageBatch(state, principal, session, reply, http_request.headers)
    with state.start_request() as running:
        watch = DisconnectWatcher(state, http_request, reply, running)
        try:
            await batch.handle_entries(entries)
        finally:
            watch.stop()
            state.sessions.touch(session)
    if not batch.answers:
        return await respond(http_request.send, 202, b"", headers)
    await reply.finish(200, batch.build_body())
    return None


def check_batch_session(session: McpSession | None, entries: Sequence[object]) -> McpSession:
    """The session, if it may send such a batch. Raises `InvalidJsonRpcMessage`."""
    if session is None or session.request.version != BATCH_VERSION:
        raise InvalidJsonRpcMessage(BATCH_REFUSED)
    if not 0 < len(entries) <= MAX_BATCH_MESSAGES:
        problem = f"A batch has one to {MAX_BATCH_MESSAGES} messages."
        raise InvalidJsonRpcMessage(problem)
    return session


class MessageBatch:
    """One batch of a session, and the way back to its client."""

    def __init__(
        self,
        state: GatewayState,
        principal: Principal,
        session: McpSession,
        exchange: ClientExchange,
        headers: Mapping[str, str],
    ) -> None:
        self._premises = state
        self._principal = principal
        self._session = session
        self._exchange = exchange
        self._headers = headers
        self.answers: dict[int, bytes] = {}  # by the place of their request

    async def handle_entries(self, entries: Sequence[object]) -> None:
        """Answer every message that wants it, side by side. Whoever is cancelled has those there are."""
        async with anyio.create_task_group() as tasks:
            for index, entry in enumerate(entries):
                tasks.start_soon(self._handle_entry, index, entry)

    def build_body(self) -> bytes:
        """All answers together, in the order of the requests."""
        return b"[" + b",".join(self.answers[index] for index in sorted(self.answers)) + b"]"

    async def _handle_entry(self, index: int, entry: object) -> None:
        body = await self._answer_entry(entry)
        if body is not None:
            self.answers[index] = body

    async def _answer_entry(self, entry: object) -> bytes | None:
        """The answer to one message; None where it wants none."""
        try:
            message = read_message(entry)
        except InvalidJsonRpcMessage as error:
            return encode_error(error.request_id, error.code, error.message)
        if message.kind == "response":
            self._session.questions.accept_response(message.raw)
            return None
        if message.kind == "notification":
            handle_notification(self._session, message)
            return None
        return (await self._answer_request(message)).body

    async def _answer_request(self, message: JsonRpcMessage) -> JsonRpcResponse:
        assert message.id is not None
        if message.method == "initialize":  # the one message that must stand alone
            return build_error_response(message.id, build_unknown_method_error(message.method))
        request = build_session_request(self._session, self._principal, message, self._headers)
        if isinstance(request, JsonRpcResponse):
            return request
        if message.method == "ping":
            return JsonRpcResponse(encode_result(request.id, {}))
        result: JsonRpcResponse | None = None
        with self._premises.start_request() as running:
            self._session.in_flight[request.id] = running
            try:
                result = await answer_request(self._premises.methods, request, self._exchange)
            finally:
                self._session.in_flight.pop(request.id, None)
        return result or build_stopped_response(request, running)

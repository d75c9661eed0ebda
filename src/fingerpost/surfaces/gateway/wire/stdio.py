"""The gateway for one client that started us as its program: both eras, a message a line."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import Final, cast

import anyio
import anyio.to_thread
from mcp_types import PROTOCOL_VERSION_META_KEY

from fingerpost.events import EventSink
from fingerpost.records import JsonObject, Principal, Right
from fingerpost.settings import GatewaySettings
from fingerpost.surfaces.gateway.exchange import ClientRequest, Methods, Refusal
from fingerpost.surfaces.gateway.wire.answering import OUR_FAULT, Answer, answer, refused
from fingerpost.surfaces.gateway.wire.audience import Listeners
from fingerpost.surfaces.gateway.wire.batches import Batch, session_for
from fingerpost.surfaces.gateway.wire.codec import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    PARSE_ERROR,
    BadJson,
    decode,
    error_message,
    notification_message,
    result_message,
)
from fingerpost.surfaces.gateway.wire.describing import discover_result, initialize_result
from fingerpost.surfaces.gateway.wire.envelope import Message, NotAMessage, read_message
from fingerpost.surfaces.gateway.wire.handshake import announce, hear, opening_request, request_in, stopped
from fingerpost.surfaces.gateway.wire.lines import TooLong, Writer, own_streams, read_lines
from fingerpost.surfaces.gateway.wire.listening import Listening, listen
from fingerpost.surfaces.gateway.wire.modern import checked
from fingerpost.surfaces.gateway.wire.premises import Premises
from fingerpost.surfaces.gateway.wire.questions import Questions, cannot_be_asked
from fingerpost.surfaces.gateway.wire.running import Running
from fingerpost.surfaces.gateway.wire.sessions import Session
from fingerpost.surfaces.web.gate import Endpoint
from fingerpost.surfaces.web.interpreter import tuned_for_serving
from fingerpost.surfaces.web.peers import is_started_by_tool
from fingerpost.tasks import contained

log = logging.getLogger("fingerpost.gateway")

GRACE_S: Final = 3.0  # for what runs when the client closes its side

_DEFAULT: Final = Endpoint(path="/mcp", mode="auto")


async def serve_stdio(
    methods: Methods,
    settings: GatewaySettings,
    events: EventSink,
    *,
    audience: Listeners | None = None,
    endpoint: Endpoint | None = None,
    principal: Principal | None = None,
    descriptors: tuple[int, int] | None = None,
    started: Callable[[], None] | None = None,
    signals: bool = True,
) -> None:
    """Serve until the client closes its side, or a signal. `descriptors` are ours to read and to write."""
    with ExitStack() as stack:
        stack.enter_context(tuned_for_serving())
        reading, writing = descriptors or stack.enter_context(own_streams())
        premises = Premises(methods, settings, events, Listeners() if audience is None else audience)
        endpoint = endpoint or replace(_DEFAULT, mode=settings.mode)
        writer = Writer(writing)
        async with anyio.create_task_group() as tasks:
            premises.use(tasks)
            conversation = Conversation(premises, endpoint, principal or await _person_at_home(), writer)
            tasks.start_soon(_write, writer, tasks.cancel_scope)
            if signals and threading.current_thread() is threading.main_thread():
                tasks.start_soon(_stop_at_signal, tasks.cancel_scope)
            if started is not None:
                started()
            async for line in read_lines(reading, limit=settings.body_bytes):
                await conversation.take(line)
            await conversation.end()
            writer.close()
        premises.close()


async def _person_at_home() -> Principal:
    """A client that starts us is its user's own program: what it answers is what its user says.

    Not so where a tool started us, which could ask and answer by itself.
    """
    confirms = () if await anyio.to_thread.run_sync(is_started_by_tool) else (Right.CONFIRM,)
    return Principal(name="local", rights=(Right.USE, *confirms))


async def _write(writer: Writer, everything: anyio.CancelScope) -> None:
    """When the last line is written, or nobody reads any more, all is over."""
    with suppress(OSError):
        await writer.run()
    everything.cancel()


async def _stop_at_signal(everything: anyio.CancelScope) -> None:
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as received:
        async for _ in received:
            everything.cancel()


class _Line:
    """The way back on stdio. Satisfies `Exchange`."""

    def __init__(self, writer: Writer, questions: Questions | None) -> None:
        self._writer = writer
        self._questions = questions

    async def notify(self, method: str, params: JsonObject) -> None:
        await self._writer.write(notification_message(method, params))

    async def ask(self, method: str, params: JsonObject) -> JsonObject:
        if self._questions is None:
            raise cannot_be_asked(method)
        return await self._questions.put(self._writer.write, method, params)


class Conversation:
    """What goes on with the one client: a session once it sent `initialize`, and requests of either era."""

    def __init__(self, premises: Premises, endpoint: Endpoint, principal: Principal, writer: Writer) -> None:
        self._premises = premises
        self._endpoint = endpoint
        self._principal = principal
        self._writer = writer
        self._session: Session | None = None
        self._standing: dict[str | int, Running] = {}  # requests of the newer era

    async def take(self, line: bytes | TooLong) -> None:
        """One line of the client. A fault of ours in it ends neither the others nor the conversation."""
        try:
            await self._take(line)
        except Exception:
            log.exception("A message could not be taken")
            await self._writer.write(error_message(None, INTERNAL_ERROR, OUR_FAULT))

    async def _take(self, line: bytes | TooLong) -> None:
        if isinstance(line, TooLong):
            limit = self._premises.settings.body_bytes
            problem = f"A request has at most {limit} bytes (gateway.body_bytes)."
            return await self._writer.write(error_message(None, INVALID_REQUEST, problem))
        try:
            sent = decode(line)
            if isinstance(sent, list):
                return self._start_batch(cast("list[object]", sent))
            message = read_message(sent)
        except BadJson as error:
            return await self._writer.write(error_message(None, PARSE_ERROR, str(error)))
        except NotAMessage as error:
            return await self._writer.write(error_message(error.request_id, error.code, error.message))
        if message.kind == "request":
            return await self._request(message)
        return self._other(message)

    async def end(self) -> None:
        """The client closed its side: what it asked is still answered, within a little time."""
        self._premises.end_streams()
        with anyio.move_on_after(GRACE_S):
            await self._premises.work.finished()
        self._premises.close()
        self._premises.work.end("The client left.")

    def _other(self, message: Message) -> None:
        if message.kind == "response":
            if self._session is not None:
                self._session.questions.answer(message.raw)
            return
        if self._session is not None:
            hear(self._session, message)
        if message.method == "notifications/cancelled":
            request_id = message.params.get("requestId")
            if isinstance(request_id, str | int) and (running := self._standing.get(request_id)):
                running.withdraw()

    async def _request(self, message: Message) -> None:
        assert message.id is not None
        if message.method == "initialize":
            return await self._open(message)
        meta = message.params.get("_meta")
        if isinstance(meta, dict) and PROTOCOL_VERSION_META_KEY in meta:
            return await self._stand_alone(message)
        if message.method == "ping":
            return await self._writer.write(result_message(message.id, {}))
        if self._session is None:
            problem = "Send initialize first, or the protocol version in _meta of every request."
            return await self._writer.write(error_message(message.id, INVALID_REQUEST, problem))
        request = request_in(self._session, self._principal, message, {})
        if isinstance(request, Answer):
            return await self._writer.write(request.body)
        self._start(request, self._session.in_flight, self._session.questions)
        return None

    async def _open(self, message: Message) -> None:
        assert message.id is not None
        if self._session is not None:
            problem = "This session is open already."
            return await self._writer.write(error_message(message.id, INVALID_REQUEST, problem))
        template = ClientRequest(
            id=message.id,
            method=message.method,
            params={},
            version="",
            endpoint=self._endpoint,
            principal=self._principal,
        )
        opening = opening_request({}, self._principal, message, template)
        if isinstance(opening, Refusal):
            return await self._writer.write(refused(message.id, opening).body)
        self._session = self._premises.sessions.open(opening)
        result = await initialize_result(self._premises.methods, opening)
        await self._writer.write(result_message(message.id, result))
        if self._session is not None:
            announce(self._premises, opening)
            self._premises.tasks.start_soon(contained, self._send_news, self._session)
        return None

    async def _send_news(self, session: Session) -> None:
        while not session.backlog.closed:
            await session.backlog.wait()
            for _, news in session.backlog.due():
                await self._writer.write(news)

    async def _stand_alone(self, message: Message) -> None:
        assert message.id is not None
        request = checked(self._premises, self._endpoint, self._principal, message, None)
        if not isinstance(request, Answer) and request.id in self._standing:
            problem = Refusal(INVALID_REQUEST, "A request with this id is still running.")
            request = refused(request.id, problem)
        if isinstance(request, Answer):
            return await self._writer.write(request.body)
        if request.method == "server/discover":
            result = await discover_result(self._premises.methods, request)
            return await self._writer.write(result_message(request.id, result))
        self._start(request, self._standing, None)
        return None

    def _start(
        self, request: ClientRequest, in_flight: dict[str | int, Running], questions: Questions | None
    ) -> None:
        """Each request is answered on its own: the next line does not wait for it."""
        running = self._premises.running()
        in_flight[request.id] = running
        self._premises.work.add(running)  # from now on, also before its task had its turn
        self._premises.tasks.start_soon(contained, self._run, request, in_flight, running, questions)

    async def _run(
        self,
        request: ClientRequest,
        in_flight: dict[str | int, Running],
        running: Running,
        questions: Questions | None,
    ) -> None:
        line = _Line(self._writer, questions)
        result: Answer | None = None
        try:
            with running:
                if request.method == "subscriptions/listen":
                    result = await self._listen(request, line)
                else:
                    result = await answer(self._premises.methods, request, line)
        except Exception:
            log.exception("%s could not be answered", request.method)
            result = Answer(error_message(request.id, INTERNAL_ERROR, OUR_FAULT), INTERNAL_ERROR)
        finally:
            in_flight.pop(request.id, None)
        if result is None and not running.withdrawn:
            result = stopped(request, running)
        if result is not None:  # a request its client withdrew gets no answer
            await self._writer.write(result.body)

    def _start_batch(self, entries: Sequence[object]) -> None:
        """Raises `NotAMessage` where the session may send none."""
        session = session_for(self._session, entries)
        running = self._premises.running()
        self._premises.work.add(running)  # as above
        self._premises.tasks.start_soon(contained, self._run_batch, session, entries, running)

    async def _run_batch(self, session: Session, entries: Sequence[object], running: Running) -> None:
        line = _Line(self._writer, session.questions)
        batch = Batch(self._premises, self._principal, session, line, {})
        with running:
            await batch.take(entries)
        if batch.answers:
            await self._writer.write(batch.body())

    async def _listen(self, request: ClientRequest, line: _Line) -> Answer:
        listening = await Listening.begin(self._premises, request)
        if isinstance(listening, Answer):
            return listening
        await listen(self._premises, listening, line)
        return Answer(listening.last_message())

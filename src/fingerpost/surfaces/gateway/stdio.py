"""The gateway for one client over stdio: both protocol eras, one message per line."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import replace
from queue import SimpleQueue
from threading import Thread
from typing import Any, Final, TypeVar, TypeVarTuple, cast

import anyio
import anyio.to_thread
from mcp_types import PROTOCOL_VERSION_META_KEY
from mcp_types.jsonrpc import INTERNAL_ERROR, INVALID_REQUEST, PARSE_ERROR

from fingerpost.events import EventSink
from fingerpost.records import JsonObject, Principal, Right
from fingerpost.settings import GatewaySettings
from fingerpost.surfaces.gateway.legacy import (
    MessageBatch,
    build_initialize_request,
    build_session_request,
    build_stopped_response,
    check_batch_session,
    emit_client_connected,
    handle_notification,
)
from fingerpost.surfaces.gateway.modern import SubscriptionStream, build_modern_request, run_stream
from fingerpost.surfaces.gateway.protocol import (
    ClientRequest,
    InvalidJsonBody,
    InvalidJsonRpcMessage,
    JsonRpcError,
    JsonRpcMessage,
    McpMethods,
    decode_json,
    encode_error,
    encode_notification,
    encode_result,
    read_message,
)
from fingerpost.surfaces.gateway.responses import (
    INTERNAL_ERROR_MESSAGE,
    JsonRpcResponse,
    answer_request,
    build_discover_result,
    build_error_response,
    build_initialize_result,
)
from fingerpost.surfaces.gateway.sessions import (
    ActiveRequest,
    ClientQuestions,
    McpSession,
    NotificationListeners,
    build_cannot_ask_error,
)
from fingerpost.surfaces.gateway.state import GatewayState
from fingerpost.surfaces.http.access import Endpoint
from fingerpost.surfaces.http.local_callers import is_started_by_tool
from fingerpost.surfaces.http.processes import tune_for_serving
from fingerpost.tasks import run_contained

Result = TypeVar("Result")
WorkArguments = TypeVarTuple("WorkArguments")


class BlockingThread:
    """A daemon thread that runs one blocking call after another.

    The interpreter waits for pool threads at exit. A pool thread that reads from an idle client would keep
    the process alive; this thread does not.
    """

    def __init__(self, name: str) -> None:
        self._queue: SimpleQueue[tuple[asyncio.Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._thread = Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    async def call(self, work: Callable[[*WorkArguments], Result], *arguments: *WorkArguments) -> Result:
        """Return the result of `work`. Cancellation is immediate; the call may continue in its thread."""
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._queue.put((future, lambda: work(*arguments)))
        return await future

    def close(self) -> None:
        """Accept no more calls. A blocked call is abandoned."""
        self._queue.put(None)

    def _run(self) -> None:
        while (item := self._queue.get()) is not None:
            future, work = item
            settle = _run_work(work)
            try:
                future.get_loop().call_soon_threadsafe(_settle_future, future, settle)
            except RuntimeError:
                return  # the event loop is closed


def _run_work(work: Callable[[], Any]) -> Callable[[asyncio.Future[Any]], None]:
    try:
        result = work()
    except Exception as raised:  # noqa: BLE001 - raised again where it was called from
        error = raised
        return lambda future: future.set_exception(error)
    return lambda future: future.set_result(result)


def _settle_future(future: asyncio.Future[Any], apply: Callable[[asyncio.Future[Any]], None]) -> None:
    if not future.done():
        apply(future)


CHUNK: Final = 64 * 1024
MAX_QUEUED_BYTES: Final = 8 * 1024 * 1024  # bytes queued before writers have to wait


class OversizedLine:
    """Marks a line that was too long. Its bytes were dropped."""


async def read_lines(descriptor: int, *, limit: int) -> AsyncGenerator[bytes | OversizedLine]:
    """Yield every line without its end, until the other side closes."""
    rest = bytearray()
    skipping = False
    with closing(BlockingThread("fingerpost-reading")) as thread:
        while chunk := await thread.call(os.read, descriptor, CHUNK):
            *whole, tail = chunk.split(b"\n")
            for part in whole:
                line = bytes(rest) + part
                rest.clear()
                if skipping or len(line) > limit:
                    skipping = False
                    yield OversizedLine()
                elif line.strip():
                    yield line
            rest += tail
            if len(rest) > limit:
                rest.clear()
                skipping = True
    if skipping:
        yield OversizedLine()
    elif rest.strip():
        yield bytes(rest)


class LineWriter:
    """Writes lines in order. Lines that arrive during a write are written together."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._waiting: list[bytes] = []
        self._size = 0
        self._filled = anyio.Event()
        self._emptied = anyio.Event()
        self._closed = False

    async def write(self, message: bytes) -> None:
        """Queue a line. Waits while too many bytes are queued."""
        while self._size > MAX_QUEUED_BYTES and not self._closed:
            await self._emptied.wait()
        self._waiting.append(message.replace(b"\n", b" ") if b"\n" in message else message)
        self._size += len(message) + 1
        self._filled.set()

    async def run(self) -> None:
        """Write until `close`. Raises `OSError` when the client is gone."""
        with closing(BlockingThread("fingerpost-writing")) as thread:
            await self._write_queued(thread)

    async def _write_queued(self, thread: BlockingThread) -> None:
        while self._waiting or not self._closed:
            await self._filled.wait()
            self._filled = anyio.Event()
            lines, self._waiting, self._size = self._waiting, [], 0
            self._emptied.set()
            self._emptied = anyio.Event()
            if lines:
                data = b"\n".join([*lines, b""])
                await thread.call(self._write_all, data)

    def close(self) -> None:
        """Write the queued lines, then end `run`."""
        self._closed = True
        self._filled.set()

    def _write_all(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self._descriptor, view) :]


@contextmanager
def reserve_standard_streams() -> Generator[tuple[int, int]]:
    """Reserve standard input and output for the protocol.

    Meanwhile descriptor 0 is empty and descriptor 1 is standard error, so that accidental output of this
    process or its children does not corrupt messages.
    """
    reading, writing = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    try:
        os.dup2(nothing, 0)
        os.dup2(2, 1)
        yield reading, writing
    finally:
        os.dup2(reading, 0)
        os.dup2(writing, 1)
        os.close(nothing)
        # The two descriptors stay open: a thread may still block in a read, and a closed descriptor
        # could be reused for another file.


log = logging.getLogger("fingerpost.gateway")

SHUTDOWN_GRACE_S: Final = 3.0  # for running requests when the client closes its side

_DEFAULT_ENDPOINT: Final = Endpoint(path="/mcp", mode="auto")


async def serve_stdio(
    methods: McpMethods,
    settings: GatewaySettings,
    events: EventSink,
    *,
    audience: NotificationListeners | None = None,
    endpoint: Endpoint | None = None,
    descriptors: tuple[int, int] | None = None,
) -> None:
    """Serve until the client closes its side. `descriptors` are the ones to read and write."""
    with ExitStack() as stack:
        stack.enter_context(tune_for_serving())
        reading, writing = descriptors or stack.enter_context(reserve_standard_streams())
        state = GatewayState(
            methods, settings, events, NotificationListeners() if audience is None else audience
        )
        stack.callback(state.close)
        endpoint = endpoint or replace(_DEFAULT_ENDPOINT, mode=settings.mode)
        writer = LineWriter(writing)
        async with anyio.create_task_group() as tasks:
            state.set_tasks(tasks)
            connection = StdioConnection(state, endpoint, await _build_local_principal(), writer)
            tasks.start_soon(_write_lines, writer, tasks.cancel_scope)
            async for line in read_lines(reading, limit=settings.body_bytes):
                await connection.handle_line(line)
            await connection.finish()
            writer.close()


async def _build_local_principal() -> Principal:
    """Build the principal of the client that started this process. It may answer for its user.

    It may not if a tool started this process, because the tool could ask and answer by itself.
    """
    confirms = () if await anyio.to_thread.run_sync(is_started_by_tool) else (Right.CONFIRM,)
    return Principal(name="local", rights=(Right.USE, *confirms))


async def _write_lines(writer: LineWriter, scope: anyio.CancelScope) -> None:
    """Run the writer, then cancel everything: all lines are written or the client is gone."""
    with suppress(OSError):
        await writer.run()
    scope.cancel()


class _StdioExchange:
    """The exchange with a client over stdio. Implements `ClientExchange`."""

    def __init__(self, writer: LineWriter, questions: ClientQuestions | None) -> None:
        self._writer = writer
        self._questions = questions

    async def notify(self, method: str, params: JsonObject) -> None:
        await self._writer.write(encode_notification(method, params))

    async def ask(self, method: str, params: JsonObject) -> JsonObject:
        if self._questions is None:
            raise build_cannot_ask_error(method)
        return await self._questions.ask_client(self._writer.write, method, params)


class StdioConnection:
    """The connection with the one client: a session after `initialize`, and requests of both eras."""

    def __init__(
        self, state: GatewayState, endpoint: Endpoint, principal: Principal, writer: LineWriter
    ) -> None:
        self._state = state
        self._endpoint = endpoint
        self._principal = principal
        self._writer = writer
        self._session: McpSession | None = None
        self._modern_requests: dict[str | int, ActiveRequest] = {}  # requests of the modern era

    async def handle_line(self, line: bytes | OversizedLine) -> None:
        """Handle one line of the client. An internal error does not end other requests or the connection."""
        try:
            await self._handle_message(line)
        except Exception:
            log.exception("A message could not be handled")
            await self._writer.write(encode_error(None, INTERNAL_ERROR, INTERNAL_ERROR_MESSAGE))

    async def _handle_message(self, line: bytes | OversizedLine) -> None:
        if isinstance(line, OversizedLine):
            limit = self._state.settings.body_bytes
            problem = f"A request has at most {limit} bytes (gateway.body_bytes)."
            return await self._writer.write(encode_error(None, INVALID_REQUEST, problem))
        try:
            sent = decode_json(line)
            if isinstance(sent, list):
                return self._start_batch(cast("list[object]", sent))
            message = read_message(sent)
        except InvalidJsonBody as error:
            return await self._writer.write(encode_error(None, PARSE_ERROR, str(error)))
        except InvalidJsonRpcMessage as error:
            return await self._writer.write(encode_error(error.request_id, error.code, error.message))
        if message.kind != "request":
            return self._handle_other(message)
        try:
            return await self._handle_request(message)
        except JsonRpcError as refusal:
            return await self._writer.write(build_error_response(message.id, refusal).body)

    async def finish(self) -> None:
        """Wait a short time for running requests after the client closed its side."""
        self._state.end_streams()
        with anyio.move_on_after(SHUTDOWN_GRACE_S):
            await self._state.active_requests.wait_until_done()
        self._state.close()
        self._state.active_requests.cancel_all("The client disconnected.")

    def _handle_other(self, message: JsonRpcMessage) -> None:
        if message.kind == "response":
            if self._session is not None:
                self._session.questions.accept_response(message.raw)
            return
        if self._session is not None:
            handle_notification(self._session, message)
        if message.method == "notifications/cancelled":
            request_id = message.params.get("requestId")
            if isinstance(request_id, str | int) and (running := self._modern_requests.get(request_id)):
                running.cancel_for_client()

    async def _handle_request(self, message: JsonRpcMessage) -> None:
        assert message.id is not None
        if message.method == "initialize":
            return await self._open_session(message)
        meta = message.params.get("_meta")
        if isinstance(meta, dict) and PROTOCOL_VERSION_META_KEY in meta:
            return await self._handle_modern_request(message)
        if message.method == "ping":
            return await self._writer.write(encode_result(message.id, {}))
        if self._session is None:
            problem = "Send initialize first, or the protocol version in _meta of every request."
            raise JsonRpcError(INVALID_REQUEST, problem)
        request = build_session_request(self._session, self._principal, message, {})
        self._start_request(request, self._session.in_flight, self._session.questions)
        return None

    async def _open_session(self, message: JsonRpcMessage) -> None:
        assert message.id is not None
        if self._session is not None:
            raise JsonRpcError(INVALID_REQUEST, "This session is open already.")
        template = ClientRequest(
            id=message.id,
            method=message.method,
            params={},
            version="",
            endpoint=self._endpoint,
            principal=self._principal,
        )
        opening = build_initialize_request({}, self._principal, message, template)
        self._session = self._state.sessions.open(opening)
        result = await build_initialize_result(self._state.methods, opening)
        await self._writer.write(encode_result(message.id, result))
        if self._session is not None:
            emit_client_connected(self._state, opening)
            self._state.task_group.start_soon(run_contained, self._send_notifications, self._session)

    async def _send_notifications(self, session: McpSession) -> None:
        while not session.backlog.closed:
            await session.backlog.wait()
            for _, message in session.backlog.take_unsent():
                await self._writer.write(message)

    async def _handle_modern_request(self, message: JsonRpcMessage) -> None:
        request = build_modern_request(self._state, self._endpoint, self._principal, message, None)
        if request.id in self._modern_requests:
            raise JsonRpcError(INVALID_REQUEST, "A request with this id is still running.")
        if request.method == "server/discover":
            result = await build_discover_result(self._state.methods, request)
            return await self._writer.write(encode_result(request.id, result))
        self._start_request(request, self._modern_requests, None)
        return None

    def _start_request(
        self,
        request: ClientRequest,
        in_flight: dict[str | int, ActiveRequest],
        questions: ClientQuestions | None,
    ) -> None:
        """Answer a request in its own task, so that the next line does not wait."""
        running = self._state.create_active_request()
        in_flight[request.id] = running
        self._state.active_requests.add(running)  # counts at once, even before its task starts
        self._state.task_group.start_soon(
            run_contained, self._run_request, request, in_flight, running, questions
        )

    async def _run_request(
        self,
        request: ClientRequest,
        in_flight: dict[str | int, ActiveRequest],
        active: ActiveRequest,
        questions: ClientQuestions | None,
    ) -> None:
        exchange = _StdioExchange(self._writer, questions)
        result: JsonRpcResponse | None = None
        try:
            with active:
                if request.method == "subscriptions/listen":
                    result = await self._run_subscription(request, exchange)
                else:
                    result = await answer_request(self._state.methods, request, exchange)
        except JsonRpcError as refusal:
            result = build_error_response(request.id, refusal)
        except Exception:
            log.exception("%s could not be answered", request.method)
            result = JsonRpcResponse(
                encode_error(request.id, INTERNAL_ERROR, INTERNAL_ERROR_MESSAGE), INTERNAL_ERROR
            )
        finally:
            in_flight.pop(request.id, None)
        if result is None and not active.is_cancelled_by_client:
            result = build_stopped_response(request, active)
        if result is not None:  # a cancelled request gets no response
            await self._writer.write(result.body)

    def _start_batch(self, entries: Sequence[object]) -> None:
        """Answer a batch in its own task. Raises `InvalidJsonRpcMessage` if batches are not allowed."""
        session = check_batch_session(self._session, entries)
        running = self._state.create_active_request()
        self._state.active_requests.add(running)  # counts at once, even before its task starts
        self._state.task_group.start_soon(run_contained, self._run_batch, session, entries, running)

    async def _run_batch(self, session: McpSession, entries: Sequence[object], active: ActiveRequest) -> None:
        exchange = _StdioExchange(self._writer, session.questions)
        batch = MessageBatch(self._state, self._principal, session, exchange, {})
        with active:
            await batch.handle_entries(entries)
        if batch.answers:
            await self._writer.write(batch.build_body())

    async def _run_subscription(self, request: ClientRequest, exchange: _StdioExchange) -> JsonRpcResponse:
        listening = await SubscriptionStream.open_stream(self._state, request)
        await run_stream(self._state, listening, exchange)
        return JsonRpcResponse(listening.build_result_message())

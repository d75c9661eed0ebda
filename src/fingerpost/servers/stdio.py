"""A server as a child process, with one JSON message per line on its standard streams."""

from __future__ import annotations

import contextlib
import logging
import secrets
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
from anyio.abc import ByteReceiveStream, Process
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.dispatcher import as_request_id, coerce_request_id
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage
from mcp_types import (
    CONNECTION_CLOSED,
    JSONRPCError,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
    RequestId,
)

from fingerpost.errors import FingerpostError, ServerReplyInvalid
from fingerpost.records import ServerSpec
from fingerpost.servers.connection_state import STRAY_OUTPUT_HINT, ConnectionFailure, ConnectionState
from fingerpost.servers.errors import build_too_large, clean_text
from fingerpost.servers.failures import from_reply, to_reply
from fingerpost.servers.in_flight import InFlightRequest, OpenServerRequests
from fingerpost.servers.process import (
    close_pipes,
    describe_exit,
    spawn,
    terminate,
    wait_for_exit,
    watchdog_client,
)
from fingerpost.servers.watchdog import kill_marked
from fingerpost.servers.wire import InvalidMessage, encode, find_answered_request, read_envelope, to_message
from fingerpost.settings.model import LimitSettings
from fingerpost.sse import LineEdges, LineLimitExceeded, LineSplitter

logger = logging.getLogger("fingerpost.servers")

EXIT_POLL_SECONDS = 0.5  # an exited parent whose children keep the pipes open is detected after this
CLOSED_INPUT_SECONDS = 2.0  # then a child that reads no more, and has not ended, is started again
STDERR_DRAIN_SECONDS = 0.2  # to read the rest of stderr of an exited child
MAX_SKIPPED_FACTOR = 16  # multiple of the reply limit; a child that sends more is stopped
LINES_PER_TURN = 100  # lines handled before other tasks run
WRITE_QUEUE_SIZE = 256  # messages; a child that does not read must not block callers that give up

StdioStreams = tuple[
    MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage | bytes]
]


@asynccontextmanager
async def open_stdio_transport(
    spec: ServerSpec, limits: LimitSettings, state: ConnectionState, *, on_open: Callable[[ChildServer], None]
) -> AsyncGenerator[StdioStreams]:
    """Start the program. At the end, stop it and all its descendants."""
    mark = secrets.token_hex(16)
    await anyio.to_thread.run_sync(watchdog_client.add_mark, mark)
    try:
        process = await spawn(spec, mark)
    except BaseException:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(watchdog_client.remove_mark, mark)
        raise
    child = ChildServer(spec, process, limits, state)
    on_open(child)
    try:
        await anyio.to_thread.run_sync(watchdog_client.add_group, process.pid)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(child.read_stdout)
            tasks.start_soon(child.read_stderr)
            tasks.start_soon(child.write_stdin)
            tasks.start_soon(child.watch_exit)
            try:
                yield child.incoming, child.outgoing
            finally:
                with anyio.CancelScope(shield=True):
                    await child.stop()
                tasks.cancel_scope.cancel()
    finally:
        with anyio.CancelScope(shield=True):
            await child.stop()
            await anyio.to_thread.run_sync(kill_marked, mark)  # processes that became daemons
            await anyio.to_thread.run_sync(watchdog_client.remove_group, process.pid)
            await anyio.to_thread.run_sync(watchdog_client.remove_mark, mark)


class _ReplyWaiter:
    """A direct request that waits for its reply."""

    __slots__ = ("done", "outcome")

    def __init__(self) -> None:
        self.done = anyio.Event()
        self.outcome: dict[str, Any] | Exception | None = None

    def set_outcome(self, outcome: dict[str, Any] | Exception) -> None:
        if self.outcome is None:  # only the first outcome counts; later ones are consequences
            self.outcome = outcome
            self.done.set()


class ChildServer:
    """One running child and the tasks that read and write its streams."""

    def __init__(
        self, spec: ServerSpec, process: Process, limits: LimitSettings, state: ConnectionState
    ) -> None:
        self._spec = spec
        self._process = process
        self._limits = limits
        self._state = state
        self._waiting: dict[RequestId, None] = {}
        self._waiters: dict[RequestId, _ReplyWaiter] = {}
        self._open_requests = OpenServerRequests(spec.name)
        self._stopped = False
        self._stderr_closed = anyio.Event()
        self._to_session, self.incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        self.outgoing, self._from_session = anyio.create_memory_object_stream[SessionMessage | bytes](
            WRITE_QUEUE_SIZE
        )

    async def read_stdout(self) -> None:
        assert self._process.stdout is not None
        limit = self._limits.response_bytes
        splitter = LineSplitter(limit, max_skipped=MAX_SKIPPED_FACTOR * limit)
        failed = False  # whether the request of the skipped reply was already failed
        try:
            async for chunk in _iterate_chunks(self._process.stdout):
                for number, line in enumerate(splitter.split(chunk), 1):
                    if not isinstance(line, LineEdges):
                        await self._dispatch_line(line)
                    elif not failed:
                        await self._fail_oversized(line)
                    failed = False
                    if number % LINES_PER_TURN == 0:
                        await anyio.lowlevel.checkpoint()
                if splitter.overlong is not None and not failed:
                    failed = await self._fail_oversized(splitter.overlong)
            if splitter.remainder.strip():
                await self._dispatch_line(splitter.remainder)
            await self._close(await self._build_exit_failure())
        except LineLimitExceeded:
            error = build_too_large(self._spec.name, self._limits.response_bytes)
            await self._fail_all(error)
            await self._close(ConnectionFailure(reason=str(error), hint=error.hint))
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            return  # the session is closed; `stop` does the rest

    async def read_stderr(self) -> None:
        assert self._process.stderr is not None
        async for chunk in _iterate_chunks(self._process.stderr):
            self._state.note_stderr(chunk)
        self._stderr_closed.set()

    async def write_stdin(self) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(anyio.ClosedResourceError):
            async for item in self._from_session:
                try:
                    await self._process.stdin.send(item if isinstance(item, bytes) else self._encode(item))
                except (anyio.BrokenResourceError, OSError):
                    await anyio.sleep(CLOSED_INPUT_SECONDS)  # reading stdout finds why a child has ended
                    await self._close(ConnectionFailure(reason="it closed its standard input"))
                    return
                except Exception:
                    logger.exception("%s could not be sent a message", self._spec.name)
                if not isinstance(item, bytes) and isinstance(item.message, JSONRPCResponse | JSONRPCError):
                    self._open_requests.close(item.message.id)

    async def watch_exit(self) -> None:
        """Detect the child's exit, even if a grandchild keeps the pipes open."""
        while self._process.returncode is None:  # noqa: ASYNC110 - there is no event for it
            await anyio.sleep(EXIT_POLL_SECONDS)
        await anyio.sleep(EXIT_POLL_SECONDS)  # its last output may still be in the pipe
        await self._close(await self._build_exit_failure())

    async def _dispatch_line(self, line: bytes) -> None:
        if not line.strip():
            return
        try:
            message = await read_envelope(line)
            if self._deliver_to_waiter(message):
                return
            parsed = to_message(message)
        except InvalidMessage as why:
            await self._handle_unreadable(line, str(why))
            return
        if isinstance(parsed, JSONRPCRequest) and not self._open_requests.admit(parsed.id):
            return
        if isinstance(parsed, JSONRPCNotification) and parsed.method == "notifications/cancelled":
            self._open_requests.close((parsed.params or {}).get("requestId"))
        await self._to_session.send(SessionMessage(parsed))

    async def _fail_oversized(self, edges: bytes) -> bool:
        """Fail the request whose reply is too large. Return whether it was found."""
        request = find_answered_request(edges, self._waiting)
        if request is None:
            return False
        await self._fail(request, build_too_large(self._spec.name, self._limits.response_bytes))
        return True

    def _deliver_to_waiter(self, message: dict[str, Any]) -> bool:
        """Deliver the reply of a direct request. Return whether the message was one."""
        if "method" in message:
            return False
        given = message.get("id")
        if isinstance(given, float) and given.is_integer():
            given = message["id"] = int(given)  # 5.0 equals 5 in JSON
        request = as_request_id(given)
        if request is None:
            return False
        request = coerce_request_id(request)
        self._waiting.pop(request, None)
        if (waiter := self._waiters.get(request)) is None:
            return False
        waiter.set_outcome(message)
        return True

    async def _handle_unreadable(self, line: bytes, why: str) -> None:
        request = find_answered_request(line, self._waiting)
        if request is None:
            self._state.note_stray_line(clean_text(line[:200].decode("utf-8", "replace")))
            return
        message = f"the reply of {self._spec.name} {clean_text(why)}"
        await self._fail(request, ServerReplyInvalid(message, server=self._spec.name))

    async def _fail(self, request: RequestId, error: FingerpostError) -> None:
        self._waiting.pop(request, None)
        if (waiter := self._waiters.get(request)) is not None:
            waiter.set_outcome(error)
            return
        reply = JSONRPCError(jsonrpc="2.0", id=request, error=to_reply(error))
        await self._to_session.send(SessionMessage(reply))

    async def _fail_all(self, error: FingerpostError) -> None:
        for request in tuple(self._waiting):
            await self._fail(request, error)

    async def ask(self, request: RequestId, line: bytes) -> dict[str, Any]:
        """Send one encoded request and wait for its reply. Raises `FingerpostError`."""
        waiter = self._waiters[request] = _ReplyWaiter()
        self._waiting[request] = None
        try:
            await self.outgoing.send(line)
            await waiter.done.wait()
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            waiter.outcome = MCPError(CONNECTION_CLOSED, "Connection closed")
        finally:
            self._waiters.pop(request, None)
            self._waiting.pop(request, None)
        assert waiter.outcome is not None
        if isinstance(waiter.outcome, Exception):
            raise waiter.outcome
        return waiter.outcome

    def send(self, line: bytes) -> None:
        """Send a message without a reply. It is dropped if the queue is full."""
        with contextlib.suppress(anyio.WouldBlock, anyio.BrokenResourceError, anyio.ClosedResourceError):
            self.outgoing.send_nowait(line)

    def _encode(self, item: SessionMessage) -> bytes:
        self._note_outgoing(item)
        return item.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"

    def _note_outgoing(self, item: SessionMessage) -> None:
        message = item.message
        if isinstance(message, JSONRPCRequest):
            self._waiting[message.id] = None
        elif isinstance(message, JSONRPCNotification) and message.method == "notifications/cancelled":
            self._waiting.pop((message.params or {}).get("requestId", ""), None)

    async def _build_exit_failure(self) -> ConnectionFailure:
        """Return why the child's output ended, once that is known."""
        if await wait_for_exit(self._process, EXIT_POLL_SECONDS):
            with anyio.move_on_after(STDERR_DRAIN_SECONDS):
                await self._stderr_closed.wait()
        ended = describe_exit(self._process)
        lines = self._state.stderr.read_text(2000).strip().splitlines()
        if lines or not self._state.stray_lines:
            last_line = f"; last line of stderr: {clean_text(lines[-1])}" if lines else ""
            return ConnectionFailure(reason=ended + last_line, hint="its stderr says more")
        return ConnectionFailure(reason=ended + self._state.describe_stray_lines(), hint=STRAY_OUTPUT_HINT)

    async def _close(self, failure: ConnectionFailure) -> None:
        if not self._stopped:
            self._state.end(failure)
        for waiter in self._waiters.values():
            waiter.set_outcome(MCPError(CONNECTION_CLOSED, "Connection closed"))
        await self._to_session.aclose()

    async def stop(self) -> None:
        """Stop the child and all its descendants, with time limits."""
        if self._stopped:
            return
        self._stopped = True
        self.outgoing.close()
        self.incoming.close()
        await terminate(self._process)
        for stream in (self._to_session, self.incoming, self.outgoing, self._from_session):
            await stream.aclose()
        await close_pipes(self._process)


async def _iterate_chunks(stream: ByteReceiveStream) -> AsyncGenerator[bytes]:
    """Yield data from a pipe until it ends or breaks."""
    with contextlib.suppress(
        anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError, ConnectionError, OSError
    ):
        while True:
            yield await stream.receive(262_144)


class DirectStdio:
    """Direct requests to one child after the handshake."""

    def __init__(self, server: str, child: ChildServer, state: ConnectionState) -> None:
        self._server = server
        self._child = child
        self._state = state

    async def send_request(
        self,
        method: str,
        params: Mapping[str, Any],
        in_flight: InFlightRequest,
        *,
        headers: Mapping[str, str],
    ) -> dict[str, Any]:
        """Return the raw result. Raises `FingerpostError`, or `MCPError` when the child is gone."""
        request = {"jsonrpc": "2.0", "id": in_flight.request, "method": method, "params": params}
        try:
            reply = await self._child.ask(in_flight.request, encode(request) + b"\n")
        except anyio.get_cancelled_exc_class():
            reason = {"requestId": in_flight.request, "reason": "the caller stopped waiting"}
            notice = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": reason}
            self._child.send(encode(notice) + b"\n")
            raise
        await in_flight.flush()
        if "result" in reply:
            return reply["result"]
        error = reply["error"]
        mcp = MCPError(error["code"], error["message"], error.get("data"))
        raise from_reply(self._server, mcp, failure=self._state.failure)

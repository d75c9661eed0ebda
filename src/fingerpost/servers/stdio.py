"""A server as a child process, spoken to over its standard streams, one JSON message per line.

Written here instead of using the MCP library's: a child may send more than
memory holds, write junk between messages, flood its stderr, ignore being asked
to stop, or leave children of its own behind. Each of these has a bound here.

A child inherits only the variables in `process.INHERITED` and those configured for it:
our own environment holds other servers' secrets.
"""

from __future__ import annotations

import contextlib
import logging
import secrets
from collections.abc import AsyncGenerator, Callable
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
from fingerpost.servers.failures import as_reply, readable, too_large
from fingerpost.servers.guard import guard
from fingerpost.servers.lifeline import STRAYS_HINT, Lifeline, Setback
from fingerpost.servers.process import end, exits_within, how_it_ended, let_go, spawn
from fingerpost.servers.ring import LineEdges, LineSplitter, LineTooLong
from fingerpost.servers.talk import OwedAnswers
from fingerpost.servers.watchdog import end_marked
from fingerpost.servers.wire import Unreadable, answered_by, as_message, read_envelope
from fingerpost.settings.model import LimitSettings

logger = logging.getLogger("fingerpost.servers")

EXIT_WATCH = 0.5  # a dead parent whose children keep the pipes open is seen after this
LAST_WORDS = 0.2  # for what a dead child still has in its stderr pipe
MOST_PASSED_OVER = 16  # times the limit for one reply; a child that goes on beyond is stopped
TURN = 100  # lines that are read before others have a turn
WRITE_QUEUE = 256  # messages; a child that does not read must not hold up whoever gives up on it

Streams = tuple[
    MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage | bytes]
]


@asynccontextmanager
async def stdio_transport(
    spec: ServerSpec, limits: LimitSettings, lifeline: Lifeline, *, opened: Callable[[Child], None]
) -> AsyncGenerator[Streams]:
    """Start the program; stop it and everything it started at the end."""
    mark = secrets.token_hex(16)
    await anyio.to_thread.run_sync(guard.expect, mark)
    try:
        process = await spawn(spec, mark)
    except BaseException:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(guard.forget, mark)
        raise
    child = Child(spec, process, limits, lifeline)
    opened(child)
    try:
        await anyio.to_thread.run_sync(guard.add, process.pid)
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
            await anyio.to_thread.run_sync(end_marked, mark)  # what made itself a daemon
            await anyio.to_thread.run_sync(guard.remove, process.pid)
            await anyio.to_thread.run_sync(guard.forget, mark)


class _Waiter:
    """Somebody who asked the child without the library in between."""

    __slots__ = ("done", "outcome")

    def __init__(self) -> None:
        self.done = anyio.Event()
        self.outcome: dict[str, Any] | Exception | None = None

    def settle(self, outcome: dict[str, Any] | Exception) -> None:
        if self.outcome is None:  # the first word counts; later ones are mistakes or consequences
            self.outcome = outcome
            self.done.set()


class Child:
    """One running child and the tasks that move its bytes."""

    def __init__(self, spec: ServerSpec, process: Process, limits: LimitSettings, lifeline: Lifeline) -> None:
        self._spec = spec
        self._process = process
        self._limits = limits
        self._lifeline = lifeline
        self._waiting: dict[RequestId, None] = {}
        self._asked: dict[RequestId, _Waiter] = {}
        self._owed = OwedAnswers(spec.name)
        self._stopped = False
        self._said_all = anyio.Event()
        self._to_session, self.incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        self.outgoing, self._from_session = anyio.create_memory_object_stream[SessionMessage | bytes](
            WRITE_QUEUE
        )

    # -- the child's streams ------------------------------------------------------------------------

    async def read_stdout(self) -> None:
        assert self._process.stdout is not None
        limit = self._limits.response_bytes
        splitter = LineSplitter(limit, passed_over=MOST_PASSED_OVER * limit)
        told = False  # whether the caller knows whose reply is being passed over
        try:
            async for chunk in _chunks(self._process.stdout):
                for number, line in enumerate(splitter.feed(chunk), 1):
                    if not isinstance(line, LineEdges):
                        await self._deliver(line)
                    elif not told:
                        await self._refuse(line)
                    told = False
                    if number % TURN == 0:
                        await anyio.lowlevel.checkpoint()
                if splitter.overlong is not None and not told:
                    told = await self._refuse(splitter.overlong)
            if splitter.rest.strip():
                await self._deliver(splitter.rest)
            await self._close(await self._obituary())
        except LineTooLong:
            error = too_large(self._spec.name, self._limits.response_bytes)
            await self._fail_all(error)
            await self._close(Setback(reason=str(error), hint=error.hint))
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            return  # the session is gone; `stop` does the rest

    async def read_stderr(self) -> None:
        assert self._process.stderr is not None
        async for chunk in _chunks(self._process.stderr):
            self._lifeline.stderr.write(chunk)
        self._said_all.set()

    async def write_stdin(self) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(anyio.ClosedResourceError):
            async for item in self._from_session:
                try:
                    await self._process.stdin.send(item if isinstance(item, bytes) else self._encoded(item))
                except (anyio.BrokenResourceError, OSError):
                    return  # its end of the pipe is closed; reading its stdout tells the rest
                except Exception:
                    logger.exception("%s could not be told something", self._spec.name)
                if not isinstance(item, bytes) and isinstance(item.message, JSONRPCResponse | JSONRPCError):
                    self._owed.settle(item.message.id)

    async def watch_exit(self) -> None:
        """A child may die while one of its own children keeps the pipes open: no end of file comes then."""
        while self._process.returncode is None:  # noqa: ASYNC110 - the operating system sets no event of ours
            await anyio.sleep(EXIT_WATCH)
        await anyio.sleep(EXIT_WATCH)  # what it wrote last may still be in the pipe
        await self._close(await self._obituary())

    # -- messages -----------------------------------------------------------------------------------

    async def _deliver(self, line: bytes) -> None:
        if not line.strip():
            return
        try:
            message = await read_envelope(line)
            if self._settled(message):
                return
            parsed = as_message(message)
        except Unreadable as why:
            await self._deliver_unreadable(line, str(why))
            return
        if isinstance(parsed, JSONRPCRequest) and not self._owed.admits(parsed.id):
            return
        if isinstance(parsed, JSONRPCNotification) and parsed.method == "notifications/cancelled":
            self._owed.settle((parsed.params or {}).get("requestId"))
        await self._to_session.send(SessionMessage(parsed))

    async def _refuse(self, edges: bytes) -> bool:
        """Fail the request that a reply too large is for. Whether it was found: its id may come last."""
        request = answered_by(edges, self._waiting)
        if request is None:
            return False
        await self._fail(request, too_large(self._spec.name, self._limits.response_bytes))
        return True

    def _settled(self, message: dict[str, Any]) -> bool:
        """Whether this is a reply somebody waits for without the library in between; they have it now."""
        if "method" in message:
            return False
        given = message.get("id")
        if isinstance(given, float) and given.is_integer():
            given = message["id"] = int(given)  # 5.0 is 5 in JSON
        request = as_request_id(given)
        if request is None:
            return False
        request = coerce_request_id(request)
        self._waiting.pop(request, None)
        if (waiter := self._asked.get(request)) is None:
            return False
        waiter.settle(message)
        return True

    async def _deliver_unreadable(self, line: bytes, why: str) -> None:
        request = answered_by(line, self._waiting)
        if request is None:
            self._lifeline.note_stray(readable(line[:200].decode("utf-8", "replace")))
            return
        message = f"the reply of {self._spec.name} {readable(why)}"
        await self._fail(request, ServerReplyInvalid(message, server=self._spec.name))

    async def _fail(self, request: RequestId, error: FingerpostError) -> None:
        self._waiting.pop(request, None)
        if (waiter := self._asked.get(request)) is not None:
            waiter.settle(error)
            return
        reply = JSONRPCError(jsonrpc="2.0", id=request, error=as_reply(error))
        await self._to_session.send(SessionMessage(reply))

    async def _fail_all(self, error: FingerpostError) -> None:
        for request in tuple(self._waiting):
            await self._fail(request, error)

    async def ask(self, request: RequestId, line: bytes) -> dict[str, Any]:
        """Send one request that is ready to be written, and wait for its reply. Raises our errors."""
        waiter = self._asked[request] = _Waiter()
        self._waiting[request] = None
        try:
            await self.outgoing.send(line)
            await waiter.done.wait()
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            waiter.outcome = MCPError(CONNECTION_CLOSED, "Connection closed")
        finally:
            self._asked.pop(request, None)
            self._waiting.pop(request, None)
        assert waiter.outcome is not None
        if isinstance(waiter.outcome, Exception):
            raise waiter.outcome
        return waiter.outcome

    def say(self, line: bytes) -> None:
        """Send something that needs no answer, if there is room for it."""
        with contextlib.suppress(anyio.WouldBlock, anyio.BrokenResourceError, anyio.ClosedResourceError):
            self.outgoing.send_nowait(line)

    def _encoded(self, item: SessionMessage) -> bytes:
        self._note_outgoing(item)
        return item.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"

    def _note_outgoing(self, item: SessionMessage) -> None:
        message = item.message
        if isinstance(message, JSONRPCRequest):
            self._waiting[message.id] = None
        elif isinstance(message, JSONRPCNotification) and message.method == "notifications/cancelled":
            self._waiting.pop((message.params or {}).get("requestId", ""), None)

    # -- the end ------------------------------------------------------------------------------------

    async def _obituary(self) -> Setback:
        """Why the child's output ended, once that is known."""
        if await exits_within(self._process, EXIT_WATCH):
            with anyio.move_on_after(LAST_WORDS):
                await self._said_all.wait()
        ended = how_it_ended(self._process)
        lines = self._lifeline.stderr.text(2000).strip().splitlines()
        if lines or not self._lifeline.strays:
            said = f"; it last said: {readable(lines[-1])}" if lines else ""
            return Setback(reason=ended + said, hint="its stderr says more")
        return Setback(reason=ended + self._lifeline.strays_told(), hint=STRAYS_HINT)

    async def _close(self, setback: Setback) -> None:
        if not self._stopped:
            self._lifeline.end(setback)
        for waiter in self._asked.values():
            waiter.settle(MCPError(CONNECTION_CLOSED, "Connection closed"))
        await self._to_session.aclose()

    async def stop(self) -> None:
        """Ask politely, then firmly, then kill, the child and everything it started. All within bounds."""
        if self._stopped:
            return
        self._stopped = True
        self.outgoing.close()
        self.incoming.close()
        await end(self._process)
        for stream in (self._to_session, self.incoming, self.outgoing, self._from_session):
            await stream.aclose()
        await let_go(self._process)


async def _chunks(stream: ByteReceiveStream) -> AsyncGenerator[bytes]:
    """What comes out of a pipe until it ends, by whatever way it ends."""
    with contextlib.suppress(
        anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError, ConnectionError, OSError
    ):
        while True:
            yield await stream.receive(262_144)

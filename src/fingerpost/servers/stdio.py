"""A server as a child process, spoken to over its standard streams, one JSON message per line.

Written here instead of using the MCP library's: a child may send more than
memory holds, write junk between messages, flood its stderr, ignore being asked
to stop, or leave children of its own behind. Each of these has a bound here.

A child inherits only the variables in `INHERITED` and those configured for it:
our own environment holds other servers' secrets.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
import anyio.to_thread
from anyio.abc import ByteReceiveStream, Process
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.dispatcher import coerce_request_id
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCError, JSONRPCNotification, JSONRPCRequest, JSONRPCResponse, RequestId

from fingerpost.errors import FingerpostError, ServerReplyInvalid, ServerUnavailable
from fingerpost.records import ServerSpec
from fingerpost.servers.failures import as_reply, readable, too_large
from fingerpost.servers.guard import guard
from fingerpost.servers.lifeline import Lifeline, Setback
from fingerpost.servers.ring import LineSplitter, LineTooLong
from fingerpost.servers.wire import Unreadable, answered_by, parse_message
from fingerpost.settings.model import LimitSettings

INHERITED = ("HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER")

EOF_GRACE = 1.0  # after closing stdin, which is how a client says goodbye
TERM_GRACE = 1.0  # after SIGTERM to the whole group
KILL_GRACE = 2.0  # after SIGKILL; only the kernel can need longer
EXIT_POLL = 0.02
EXIT_WATCH = 0.5  # a dead parent whose children keep the pipes open is seen after this
LAST_WORDS = 0.2  # for what a dead child still has in its stderr pipe
WRITE_QUEUE = 256  # messages; a child that does not read must not hold up whoever gives up on it
JUNK_KEPT = 5

Streams = tuple[MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]]


@asynccontextmanager
async def stdio_transport(
    spec: ServerSpec, limits: LimitSettings, lifeline: Lifeline
) -> AsyncGenerator[Streams]:
    """Start the program; stop it and everything it started at the end."""
    process = await _spawn(spec)
    child = _Child(spec, process, limits, lifeline)
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
            await anyio.to_thread.run_sync(guard.remove, process.pid)


async def _spawn(spec: ServerSpec) -> Process:
    if not spec.command:
        message = f"{spec.name} has no command to start"
        raise ServerUnavailable(message, server=spec.name, hint="give it a command, or a url")
    # Starting takes milliseconds; giving up in the middle would leave a child nobody knows of.
    process: Process | None = None
    with anyio.CancelScope(shield=True):
        process = await anyio.open_process(
            [spec.command, *spec.args],
            env=_environment() | dict(spec.env),
            cwd=spec.cwd,
            start_new_session=True,
        )
    assert process is not None
    return process


def _environment() -> dict[str, str]:
    inherited = {name: os.environ.get(name, "") for name in INHERITED}
    # A value that begins so is a shell function: running a shell would execute it.
    return {name: value for name, value in inherited.items() if value and not value.startswith("()")}


class _Child:
    """One running child and the tasks that move its bytes."""

    def __init__(self, spec: ServerSpec, process: Process, limits: LimitSettings, lifeline: Lifeline) -> None:
        self._spec = spec
        self._process = process
        self._limits = limits
        self._lifeline = lifeline
        self._waiting: dict[RequestId, None] = {}
        self._junk: deque[str] = deque(maxlen=JUNK_KEPT)
        self._junk_count = 0
        self._stopped = False
        self._said_all = anyio.Event()
        self._to_session, self.incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        self.outgoing, self._from_session = anyio.create_memory_object_stream[SessionMessage](WRITE_QUEUE)

    # -- the child's streams ------------------------------------------------------------------------

    async def read_stdout(self) -> None:
        assert self._process.stdout is not None
        splitter = LineSplitter(self._limits.response_bytes)
        try:
            async for chunk in _chunks(self._process.stdout):
                for line in splitter.feed(chunk):
                    await self._deliver(line)
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
                self._note_outgoing(item)
                data = item.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
                try:
                    await self._process.stdin.send(data)
                except (anyio.BrokenResourceError, OSError):
                    return  # its end of the pipe is closed; reading its stdout tells the rest

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
            message = parse_message(line)
        except Unreadable as why:
            await self._deliver_unreadable(line, str(why))
            return
        if isinstance(message, JSONRPCResponse | JSONRPCError) and message.id is not None:
            self._waiting.pop(coerce_request_id(message.id), None)
        await self._to_session.send(SessionMessage(message))

    async def _deliver_unreadable(self, line: bytes, why: str) -> None:
        request = answered_by(line, self._waiting)
        if request is None:
            self._junk_count += 1
            self._junk.append(readable(line[:200].decode("utf-8", "replace")))
            return
        message = f"the reply of {self._spec.name} {readable(why)}"
        await self._fail(request, ServerReplyInvalid(message, server=self._spec.name))

    async def _fail(self, request: RequestId, error: FingerpostError) -> None:
        self._waiting.pop(request, None)
        reply = JSONRPCError(jsonrpc="2.0", id=request, error=as_reply(error))
        await self._to_session.send(SessionMessage(reply))

    async def _fail_all(self, error: FingerpostError) -> None:
        for request in tuple(self._waiting):
            await self._fail(request, error)

    def _note_outgoing(self, item: SessionMessage) -> None:
        message = item.message
        if isinstance(message, JSONRPCRequest):
            self._waiting[message.id] = None
        elif isinstance(message, JSONRPCNotification) and message.method == "notifications/cancelled":
            self._waiting.pop((message.params or {}).get("requestId", ""), None)

    # -- the end ------------------------------------------------------------------------------------

    async def _obituary(self) -> Setback:
        """Why the child's output ended, once that is known."""
        if await self._exits_within(EXIT_WATCH):
            with anyio.move_on_after(LAST_WORDS):
                await self._said_all.wait()
        status = self._process.returncode
        if status is None:
            reason = "it closed its output"
        elif status < 0:
            reason = f"its process was ended by {_signal_name(-status)}"
        else:
            reason = f"its process exited with status {status}"
        return Setback(reason=reason + self._last_words(), hint="its stderr says more")

    def _last_words(self) -> str:
        lines = self._lifeline.stderr.text(2000).strip().splitlines()
        if lines:
            return f"; it last said: {readable(lines[-1])}"
        if self._junk:
            return f"; it wrote {self._junk_count} lines that are not MCP, such as: {self._junk[-1]}"
        return ""

    async def _close(self, setback: Setback) -> None:
        if not self._stopped:
            self._lifeline.end(setback)
        await self._to_session.aclose()

    async def stop(self) -> None:
        """Ask politely, then firmly, then kill, the child and everything it started. All within bounds."""
        if self._stopped:
            return
        self._stopped = True
        process = self._process
        assert process.stdin is not None
        self.outgoing.close()
        self.incoming.close()
        with contextlib.suppress(OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
            await process.stdin.aclose()
        if not await self._exits_within(EOF_GRACE):
            self._signal(signal.SIGTERM)
            await self._exits_within(TERM_GRACE)
        # Also when the child itself is gone: its children are in the same group.
        self._signal(signal.SIGKILL)
        await self._exits_within(KILL_GRACE)
        await self._release()

    async def _exits_within(self, seconds: float) -> bool:
        # `Process.wait` also waits for the end of the pipes, which a grandchild can hold open for ever.
        deadline = anyio.current_time() + seconds
        while self._process.returncode is None:
            if anyio.current_time() >= deadline:
                return False
            await anyio.sleep(EXIT_POLL)
        return True

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)

    async def _release(self) -> None:
        for stream in (self._to_session, self.incoming, self.outgoing, self._from_session):
            await stream.aclose()
        for pipe in (self._process.stdout, self._process.stderr):
            if pipe is not None:
                with contextlib.suppress(OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
                    await pipe.aclose()
        # asyncio keeps the transport open, and warns about it later, while a stray process holds a pipe end.
        transport: object = getattr(getattr(self._process, "_process", None), "_transport", None)
        close = getattr(transport, "close", None)
        if callable(close):
            with contextlib.suppress(PermissionError, ProcessLookupError):
                close()


async def _chunks(stream: ByteReceiveStream) -> AsyncGenerator[bytes]:
    """What comes out of a pipe until it ends, by whatever way it ends."""
    with contextlib.suppress(
        anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError, ConnectionError, OSError
    ):
        while True:
            yield await stream.receive(262_144)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"

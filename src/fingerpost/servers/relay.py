"""Servers of a running gateway for commands of the same person, over a Unix socket.

A command that would connect to a server asks the gateways of its store first. One that has the same entry
passes the command's requests on to its own connection. Both sides are here.

The first line on the socket names the secret, the version and the server. It is answered at once, and again
when the server is connected. Then both sides speak MCP of `RELAY_PROTOCOL`, one message a line, as a program
does over stdio. The command decides about each call and records it; the gateway only passes messages on.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import os
import secrets
import socket
import struct
import sys
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from importlib.metadata import version
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, cast

import anyio
import anyio.lowlevel
import anyio.to_thread
from anyio.abc import SocketAttribute, SocketListener, SocketStream, TaskGroup
from mcp.shared.message import SessionMessage
from mcp_types import INTERNAL_ERROR, INVALID_REQUEST, JSONRPCError

from fingerpost.errors import (
    FingerpostError,
    LimitReached,
    ResponseTooLarge,
    ServerReplyInvalid,
    ServerUnavailable,
    ToolFailed,
    ToolTimeout,
)
from fingerpost.frozen import frozen
from fingerpost.records import Json, JsonObject, Listing, ServerSpec, ServerState
from fingerpost.redaction import register_secret
from fingerpost.servers.connection_state import ConnectionFailure, ConnectionState
from fingerpost.servers.errors import (
    ConnectionBroken,
    RateLimited,
    RequestInterrupted,
    RequestNotExecuted,
    RequestNotSent,
    ServerBusy,
    SessionForgotten,
    SessionRejected,
    SignInRequired,
    build_too_large,
)
from fingerpost.servers.failures import to_reply
from fingerpost.servers.in_flight import PROGRESS_METHOD
from fingerpost.servers.library import STATUS_REQUEST, GatewaySearch, check_socket_folder, find_gateways
from fingerpost.servers.requests import RequestClock, RequestContext
from fingerpost.servers.resources import SUBSCRIBE_METHOD, UNSUBSCRIBE_METHOD
from fingerpost.servers.spec import fingerprint_entry
from fingerpost.servers.wire import InvalidMessage, encode, read_envelope, to_message
from fingerpost.sse import LineLimitExceeded, LineSplitter
from fingerpost.tasks import create_cancel_scope, run_contained

if TYPE_CHECKING:
    from fingerpost.servers.pool import ServerPool

logger = logging.getLogger("fingerpost.servers")

PROGRAM_VERSION: Final = version("fingerpost")
RELAY_PROTOCOL: Final = "2025-11-25"  # questions are requests of their own, so both eras of servers fit
MAX_PATH_BYTES: Final = 100  # of a socket; systems allow 104 or 108
MAX_HELLO_BYTES: Final = 65_536
MAX_MESSAGE_BYTES: Final = 64 * 1024 * 1024  # of a command
MAX_COMMANDS: Final = 256  # connections at once; a command has one for each server it uses
MAX_QUEUED_NOTICES: Final = 1000
HELLO_SECONDS: Final = 5.0
WRITE_SECONDS: Final = 30.0  # a command that does not read for so long is disconnected
REQUEST_SECONDS: Final = 3600.0  # the command has its own deadline, and cancels
STALE_SECONDS: Final = 60.0  # a socket may be bound, but not listened at yet
DRAIN_SECONDS: Final = 2.0
RETRY_SECONDS: Final = 0.2
CONNECT_MARGIN_SECONDS: Final = 5.0  # so that a server that does not connect can report why
LIST_CHANGED_METHOD: Final = "notifications/tools/list_changed"
CANCELLED_METHOD: Final = "notifications/cancelled"
# Errors that mean the same to the command. Servers cannot choose them: they are named outside of the reply.
_ERROR_KINDS: Final[Mapping[str, type[FingerpostError]]] = {
    kind.__name__: kind
    for kind in (
        ServerUnavailable,
        SignInRequired,
        SessionForgotten,
        SessionRejected,
        RequestInterrupted,
        RequestNotExecuted,
        RequestNotSent,
        ConnectionBroken,
        ServerBusy,
        RateLimited,
        ServerReplyInvalid,
        ToolTimeout,
        LimitReached,
        ResponseTooLarge,
    )
}
_KIND_KEY: Final = "fingerpost"


def can_be_lent(spec: ServerSpec) -> bool:
    """Return whether the connection to this server is the same for everyone."""
    return (
        spec.enabled and spec.transport != "in_process" and not spec.isolate and not spec.identifies_callers
    )


def fingerprint_configuration(spec: ServerSpec, secret: str) -> str:
    """Return a keyed hash of everything that decides what the server is and does, with values of variables
    and headers. The working directory counts if the entry names something in it.
    """
    folder = os.getcwd() if spec.cwd is None and _names_relative_path(spec) else None  # noqa: PTH109 - as text
    parts = (
        fingerprint_entry(spec),
        sorted(spec.env.items()),
        sorted(spec.headers.items()),
        repr(spec.oauth),
        "" if spec.oauth is None else spec.oauth.client_secret,
        folder,
    )
    message = json.dumps(parts).encode(errors="surrogatepass")
    return hmac.new(secret.encode(), message, hashlib.sha256).hexdigest()


def _names_relative_path(spec: ServerSpec) -> bool:
    words = [word for text in (spec.command or "", *spec.args) for word in (text, text.partition("=")[2])]
    return any(word and not os.path.isabs(word) and _exists(word) for word in words)  # noqa: PTH117


def _exists(path: str) -> bool:
    try:
        return os.path.lexists(path)
    except ValueError:  # it cannot be a path
        return False


class _LineStream:
    """Messages on a socket, one a line.

    Bytes are read and written at the socket itself: a read of anyio's stream that is cancelled while its
    socket becomes readable leaves an `InvalidStateError` in the event loop.
    """

    def __init__(self, stream: SocketStream, limit: int) -> None:
        self._stream = stream
        self._socket = stream.extra(SocketAttribute.raw_socket)  # noqa: S610 - not of Django
        self._splitter = LineSplitter(limit)
        self._lines: deque[bytes] = deque()
        self._lock = anyio.Lock()

    async def read(self) -> bytes | None:
        """Return the next line, or None at the end. Raises `LineLimitExceeded`."""
        while not self._lines:
            await anyio.lowlevel.checkpoint()
            try:
                chunk = self._socket.recv(262_144)
            except BlockingIOError:
                with suppress(anyio.ClosedResourceError):
                    await anyio.wait_readable(self._socket)
                continue
            except OSError:
                return None
            if not chunk:
                return None
            self._lines.extend(self._splitter.split(chunk))
        return self._lines.popleft()

    async def read_object(self) -> dict[str, Any] | None:
        """Return the next line as an object, or None if there is none."""
        line = await self.read()
        try:
            value = None if line is None else json.loads(line)
        except (ValueError, RecursionError):
            return None
        return cast("dict[str, Any]", value) if isinstance(value, dict) else None

    async def write(self, message: Mapping[str, Any] | bytes) -> None:
        """Write a message, whole even if cancelled. A reader that does not read ends the connection."""
        data = message if isinstance(message, bytes) else encode(message)
        try:
            async with self._lock:
                with anyio.fail_after(WRITE_SECONDS, shield=True):
                    await self._send(data + b"\n")
        except (anyio.ClosedResourceError, OSError):  # also `TimeoutError`
            await self.aclose()

    async def _send(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            await anyio.lowlevel.checkpoint()
            try:
                rest = rest[self._socket.send(rest) :]
            except BlockingIOError:
                await anyio.wait_writable(self._socket)

    async def aclose(self) -> None:
        if self._socket.fileno() >= 0:
            anyio.notify_closing(self._socket)
        with suppress(OSError, anyio.BrokenResourceError):
            await anyio.aclose_forcefully(self._stream)


# The command


@frozen
class BorrowedConnection:
    """An open socket to a gateway that has connected the wanted server."""

    lines: _LineStream
    protocol: str | None  # between the gateway and the server


async def borrow_connection(
    spec: ServerSpec, search: GatewaySearch, *, max_bytes: int
) -> BorrowedConnection | None:
    """Return a connection to this server through a gateway, or None. The caller closes it."""
    if not can_be_lent(spec):
        return None
    if not search.wait_seconds:
        return await _find_connection(spec, search, max_bytes)
    if spec.transport != "stdio":
        return None
    with anyio.move_on_after(search.wait_seconds):
        while True:
            if (found := await _find_connection(spec, search, max_bytes)) is not None:
                return found
            await anyio.sleep(RETRY_SECONDS)
    return None


async def _find_connection(
    spec: ServerSpec, search: GatewaySearch, max_bytes: int
) -> BorrowedConnection | None:
    refusals: list[tuple[str, str]] = []
    for path, secret in await anyio.to_thread.run_sync(find_gateways, search.sockets):
        found = await _ask_gateway(path, secret, spec, max_bytes)
        if isinstance(found, BorrowedConnection):
            return found
        if found is not None:
            refusals.append(found)
    for kind, message in refusals[:1]:
        if kind not in search.reported:
            search.reported.add(kind)
            search.report(message)
    return None


async def _ask_gateway(
    path: Path, secret: str, spec: ServerSpec, max_bytes: int
) -> BorrowedConnection | tuple[str, str] | None:
    """Return the connection, the kind of refusal and its message, or None if there is nothing to say."""
    register_secret(secret)
    configuration = await anyio.to_thread.run_sync(fingerprint_configuration, spec, secret)
    hello = {
        "secret": secret,
        "version": PROGRAM_VERSION,
        "server": spec.name,
        "configuration": configuration,
    }
    lines: _LineStream | None = None
    accepted = False
    try:
        with anyio.move_on_after(HELLO_SECONDS):
            lines = _LineStream(await anyio.connect_unix(path), max_bytes)
            await lines.write(hello)
            answer = await lines.read_object()
            accepted = answer is not None and answer.get("ok") is True
            if answer is not None and not accepted:
                return _explain_refusal(answer, spec)
        if lines is None or not accepted:
            return None
        answer = await lines.read_object()  # when the server is connected
        if answer is None or answer.get("ok") is not True:
            return None
        protocol = answer.get("protocol")
        connection = BorrowedConnection(lines=lines, protocol=protocol if isinstance(protocol, str) else None)
        lines = None
        return connection
    except (OSError, LineLimitExceeded):  # no process listens, or it is not a gateway
        return None
    finally:
        if lines is not None:
            await lines.aclose()


def _explain_refusal(answer: Mapping[str, Any], spec: ServerSpec) -> tuple[str, str] | None:
    why = answer.get("why")
    if why == "version":
        theirs = str(answer.get("version"))[:40]
        message = f"the running gateway is Fingerpost {theirs}, and this is {PROGRAM_VERSION}: it is not used"
    elif why == "configuration":
        message = f"the running gateway has another entry for {spec.name}: its connection is not used"
    elif why == "secret":
        message = "the running gateway refused the secret of this command: it is not used"
    else:
        return None
    return cast("str", why), message


@asynccontextmanager
async def open_borrowed_transport(
    spec: ServerSpec, borrowed: BorrowedConnection, state: ConnectionState, *, max_bytes: int
) -> AsyncGenerator[tuple[Any, Any]]:
    """Connect the MCP library's session with the gateway."""
    to_session, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    outgoing, from_session = anyio.create_memory_object_stream[SessionMessage](0)

    async def read() -> None:
        failure = ConnectionFailure(reason="the gateway whose connection was used has closed it")
        async with to_session:
            try:
                while (line := await borrowed.lines.read()) is not None:
                    await to_session.send(await _parse_reply(spec, line))
            except LineLimitExceeded:
                error = build_too_large(spec.name, max_bytes)
                failure = ConnectionFailure(reason=str(error), hint=error.hint)
            except InvalidMessage as why:
                failure = ConnectionFailure(reason=f"the gateway whose connection was used sent what {why}")
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                return  # the session is closed
            state.end(failure)

    async def write() -> None:
        async with from_session:
            async for item in from_session:
                await borrowed.lines.write(
                    item.message.model_dump_json(by_alias=True, exclude_unset=True).encode()
                )

    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            tasks.start_soon(write)
            try:
                yield incoming, outgoing
            finally:
                tasks.cancel_scope.cancel()
                await borrowed.lines.aclose()  # ends a write, which is not cancelled
    finally:
        for stream in (to_session, incoming, outgoing, from_session):
            stream.close()


async def _parse_reply(spec: ServerSpec, line: bytes) -> SessionMessage:
    """Parse a message of the gateway. An error of the gateway becomes the same error here."""
    envelope = await read_envelope(line)
    given = envelope.pop(_KIND_KEY, None)
    message = to_message(envelope)
    if isinstance(message, JSONRPCError) and isinstance(given, dict):
        error = _build_error(spec.name, message.error.message, cast("dict[str, Any]", given))
        message = JSONRPCError(jsonrpc="2.0", id=message.id, error=to_reply(error))
    return SessionMessage(message)


def _build_error(server: str, message: str, given: Mapping[str, Any]) -> FingerpostError:
    kind = _ERROR_KINDS.get(str(given.get("kind")), ServerUnavailable)
    hint = given.get("hint") if isinstance(given.get("hint"), str) else None
    if issubclass(kind, LimitReached):
        return kind(message, hint=hint)
    error = cast("Callable[..., FingerpostError]", kind)(message, server=server, hint=hint)
    if isinstance(error, ServerBusy) and isinstance(given.get("retry_after"), int | float):
        error.retry_after = given["retry_after"]
    return error


# The gateway


@asynccontextmanager
async def lend_connections(
    servers: ServerPool,
    sockets: Path,
    *,
    is_refused: Callable[[int], bool] = lambda _: False,
    facts: Mapping[str, str] = MappingProxyType({}),
) -> AsyncGenerator[None]:
    """Let commands of this user use the connections of this pool while the context is open, except processes
    for which `is_refused` is true. `facts` about the gateway are told with its status.

    Where there are no Unix sockets, or the path is too long, commands connect to servers themselves.
    """
    path = sockets.with_name(f"{sockets.name}-{secrets.token_hex(3)}.sock")
    if os.name != "posix" or len(os.fsencode(path)) > MAX_PATH_BYTES:
        yield
        return
    secret = secrets.token_urlsafe(32)
    register_secret(secret)
    try:
        bound = await anyio.to_thread.run_sync(_open_socket, path, secret)
        listener = await SocketListener.from_socket(bound)
    except OSError as error:
        logger.debug("no socket for commands: %s", error)
        await anyio.to_thread.run_sync(_remove_files, path)
        yield
        return
    limiter = anyio.CapacityLimiter(MAX_COMMANDS)

    async def serve(stream: SocketStream) -> None:
        async with stream, limiter:
            if not await anyio.to_thread.run_sync(_is_refused_peer, stream, is_refused):
                await run_contained(_serve_command, servers, stream, secret, facts)

    try:
        async with listener, anyio.create_task_group() as tasks:
            tasks.start_soon(listener.serve, serve)
            try:
                yield
            finally:
                tasks.cancel_scope.cancel()
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(_remove_files, path)


def _is_refused_peer(stream: SocketStream, is_refused: Callable[[int], bool]) -> bool:
    """Return whether the process at the other end is refused. Only Linux tells which one it is."""
    if sys.platform != "linux":
        return False
    kind = struct.Struct("3i")
    connected = stream.extra(SocketAttribute.raw_socket)  # noqa: S610 - not of Django
    process, user, _ = kind.unpack(connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, kind.size))
    return user != os.getuid() or is_refused(process)


def _open_socket(path: Path, secret: str) -> socket.socket:
    """Return a socket that listens at `path`, in a folder of this user alone, with its secret beside it. What
    ended gateways left in the folder is removed.
    """
    folder = path.parent
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if folder.lstat().st_uid == os.getuid() and not folder.is_symlink():
        folder.chmod(0o700)
    check_socket_folder(folder)
    for old in folder.glob("*.sock"):
        if _is_stale(old):
            _remove_files(old)
    descriptor = os.open(path.with_suffix(".key"), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(secret)
    made = socket.socket(socket.AF_UNIX)
    try:
        made.settimeout(0)
        made.bind(str(path))
        path.chmod(0o600)
        made.listen()
    except OSError:
        made.close()
        raise
    return made


def _is_stale(path: Path) -> bool:
    try:
        if time.time() - path.lstat().st_mtime < STALE_SECONDS:
            return False
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(1.0)
            probe.connect(str(path))
    except ConnectionRefusedError:
        return True
    except OSError:
        return False
    return False


def _remove_files(path: Path) -> None:
    for file in (path, path.with_suffix(".key")):
        with suppress(OSError):
            file.unlink()


async def _serve_command(
    servers: ServerPool, stream: SocketStream, secret: str, facts: Mapping[str, str]
) -> None:
    """Check the first line of a command, connect the server it wants, and pass its requests on."""
    hello_lines = _LineStream(stream, MAX_HELLO_BYTES)
    hello: dict[str, Any] | None = None
    with suppress(LineLimitExceeded), anyio.move_on_after(HELLO_SECONDS):
        hello = await hello_lines.read_object()
    if hello is None:
        return
    lines = _LineStream(stream, MAX_MESSAGE_BYTES)
    if hello.get("ask") == STATUS_REQUEST and _has_secret(hello, secret):
        await lines.write({"ok": True, **_build_status(servers, facts)})
        return
    refusal = await anyio.to_thread.run_sync(_check_hello, servers, hello, secret)
    if refusal is not None:
        await lines.write({"ok": False, **refusal})
        return
    await lines.write({"ok": True})
    name = cast("str", hello["server"])
    try:
        await servers.ensure(name, timeout=servers.get_spec(name).connect_timeout)
    except FingerpostError:
        await lines.write({"ok": False, "why": "unavailable"})
        return
    await lines.write({"ok": True, "protocol": servers.get_status(name).protocol})
    await _CommandConnection(servers, name, lines).run()


def _has_secret(hello: Mapping[str, Any], secret: str) -> bool:
    return hmac.compare_digest(str(hello.get("secret")).encode(errors="replace"), secret.encode())


def _build_status(servers: ServerPool, facts: Mapping[str, str]) -> dict[str, Any]:
    """Return what `fingerpost status` shows of this gateway."""
    shown = [
        {"name": one.name, "state": one.state.value, "tools": one.tools, "reason": one.reason}
        for one in servers.statuses
    ]
    return {"version": PROGRAM_VERSION, "pid": os.getpid(), "servers": shown, **facts}


def _check_hello(servers: ServerPool, hello: Mapping[str, Any], secret: str) -> dict[str, Any] | None:
    """Return why the command may not use the server, or None."""
    if not _has_secret(hello, secret):
        return {"why": "secret"}
    if hello.get("version") != PROGRAM_VERSION:
        return {"why": "version", "version": PROGRAM_VERSION}
    try:
        spec = servers.get_spec(str(hello.get("server")))
    except FingerpostError:
        return {"why": "server"}
    if not can_be_lent(spec):
        return {"why": "server"}
    if hello.get("configuration") != fingerprint_configuration(spec, secret):
        return {"why": "configuration"}
    return None


class _CommandConnection:
    """One command that uses one server of this gateway."""

    def __init__(self, servers: ServerPool, server: str, lines: _LineStream) -> None:
        self.server = server
        self.key = f"command:{secrets.token_hex(8)}"
        self.capabilities: JsonObject = {}
        self.lines = lines
        self._servers = servers
        self._log_level: str | None = None
        self._running: dict[str | int, anyio.CancelScope] = {}
        self._questions: dict[str | int, _Question] = {}
        self._question_count = 0
        self._watched: set[str] = set()  # URIs of resources
        self._listing = servers.get_listing(server)  # as last announced
        self._read_listing: Listing | None = None  # when the command last listed the tools
        self._is_down = anyio.Event()
        self._is_removed = False
        self._notices, self._queued = anyio.create_memory_object_stream[tuple[str, JsonObject]](
            MAX_QUEUED_NOTICES
        )

    async def run(self) -> None:
        """Answer the command until it closes the socket."""
        stop_changes = self._servers.subscribe_to_changes(self._on_change)
        stop_notices = self._servers.subscribe_to_notifications(self._on_notification)
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._send_notices)
                tasks.start_soon(self._close_when_down)
                try:
                    with suppress(LineLimitExceeded, InvalidMessage):
                        while (line := await self.lines.read()) is not None:
                            self._handle(await read_envelope(line), tasks)
                finally:
                    tasks.cancel_scope.cancel()
                    await self.lines.aclose()  # ends a write, which is not cancelled
        finally:
            stop_changes()
            stop_notices()
            await self._end_subscriptions()
            self._notices.close()
            self._queued.close()

    def _on_change(self, name: str) -> None:
        if name != self.server:
            return
        try:
            state, listing = self._servers.get_status(name).state, self._servers.get_listing(name)
        except FingerpostError:  # it was removed, or is about to be replaced
            self._is_removed = True
            self._is_down.set()
            return
        if state in (ServerState.DOWN, ServerState.DISABLED):
            self._is_down.set()
        if listing is not self._listing:
            self._listing = listing
            self._queue(LIST_CHANGED_METHOD, {})

    def _on_notification(self, name: str, method: str, params: JsonObject, caller: str | None) -> None:
        if name == self.server and caller in (None, self.key):
            self._queue(method, params)

    def _queue(self, method: str, params: JsonObject) -> None:
        with suppress(anyio.WouldBlock, anyio.ClosedResourceError, anyio.BrokenResourceError):
            self._notices.send_nowait((method, params))

    async def _send_notices(self) -> None:
        async for method, params in self._queued:
            await self.notify(method, params)

    async def notify(self, method: str, params: JsonObject) -> None:
        await self.lines.write({"jsonrpc": "2.0", "method": method, "params": params})

    async def _close_when_down(self) -> None:
        """End the connection when the server is gone, after the errors of running requests were written."""
        await self._is_down.wait()
        # Calls on a server that was removed or replaced finish; others end with the server.
        with anyio.move_on_after(REQUEST_SECONDS if self._is_removed else DRAIN_SECONDS):
            while self._running:  # noqa: ASYNC110 - short, and rare
                await anyio.sleep(0.05)
        await self.lines.aclose()

    def _handle(self, message: dict[str, Any], tasks: TaskGroup) -> None:
        method, number = message.get("method"), message.get("id")
        params: dict[str, Any] = message.get("params") or {}
        if method is None:
            if (question := self._questions.get(cast("Any", number))) is not None:
                question.reply = message
                question.answered.set()
        elif number is not None:
            scope = self._running[number] = anyio.CancelScope()
            tasks.start_soon(self._answer, number, method, params, scope)
        elif (
            method == CANCELLED_METHOD
            and (scope := self._running.get(params.get("requestId", ""))) is not None
        ):
            scope.cancel()

    async def _answer(
        self, number: str | int, method: str, params: dict[str, Any], scope: anyio.CancelScope
    ) -> None:
        try:
            if reply := await self._build_reply(method, params, scope):
                await self.lines.write({"jsonrpc": "2.0", "id": number, **reply})
        finally:  # only now: when nothing runs, the connection may be closed
            if self._running.get(number) is scope:
                del self._running[number]

    async def _build_reply(
        self, method: str, params: dict[str, Any], scope: anyio.CancelScope
    ) -> dict[str, Any]:
        """Perform a request. Return the result or the error, or nothing if the command gave it up."""
        try:
            with scope:
                return {"result": await self._perform(method, params)}
        except FingerpostError as error:
            return _encode_error(error)
        except Exception:
            logger.exception("%s on %s failed", method[:80], self.server)
            return {"error": {"code": INTERNAL_ERROR, "message": "the gateway failed to pass this on"}}
        return {}

    async def _perform(self, method: str, params: dict[str, Any]) -> JsonObject:
        if method == "initialize":
            return self._initialize(params)
        if method == "ping":
            return {}
        if method == "logging/setLevel":
            self._log_level = str(params.get("level"))
            return {}
        if method in (SUBSCRIBE_METHOD, UNSUBSCRIBE_METHOD):
            return await self._change_subscription(method, str(params.get("uri")))
        self._check_not_down()
        meta: dict[str, Any] = dict(params.pop("_meta", None) or {})
        caller = _CommandCaller(self, meta.pop("progressToken", None))
        context = RequestContext(caller=caller, meta=meta, log_level=self._log_level)
        if method == "tools/call":
            return await self._call(params, context)
        listing = method.endswith("/list")
        result = await self._servers.ask(
            self.server, method, params, timeout=REQUEST_SECONDS, context=None if listing else context
        )
        if method == "tools/list":
            self._read_listing = self._servers.get_listing(self.server)
        return result

    async def _change_subscription(self, method: str, uri: str) -> JsonObject:
        """Watch a resource, or stop that. The pool counts who watches what."""
        if (method == SUBSCRIBE_METHOD) is (uri in self._watched):
            return {}
        result = await self._servers.ask(self.server, method, {"uri": uri}, timeout=REQUEST_SECONDS)
        self._watched ^= {uri}
        return result

    async def _end_subscriptions(self) -> None:
        with anyio.move_on_after(DRAIN_SECONDS, shield=True), suppress(FingerpostError):
            for uri in self._watched:
                params = {"uri": uri}
                await self._servers.ask(self.server, UNSUBSCRIBE_METHOD, params, timeout=DRAIN_SECONDS)

    def _initialize(self, params: dict[str, Any]) -> JsonObject:
        self.capabilities = params.get("capabilities") or {}
        resources, listing = self._servers.get_resources(self.server), self._servers.get_listing(self.server)
        made: dict[str, Json] = {
            "protocolVersion": RELAY_PROTOCOL,
            "capabilities": {} if resources is None else resources.capabilities,
            # The command shows name and version together, too.
            "serverInfo": {"name": self._servers.get_status(self.server).product or "", "version": ""},
        }
        if listing is not None and listing.instructions is not None:
            made["instructions"] = listing.instructions
        return made

    async def _call(self, params: dict[str, Any], context: RequestContext) -> JsonObject:
        """Call a tool, unless its definition has changed since the command listed it."""
        tool, arguments = str(params.get("name")), cast("JsonObject", params.get("arguments") or {})
        with self._servers.hold(self.server):
            try:
                seconds = self._servers.get_spec(self.server).connect_timeout + CONNECT_MARGIN_SECONDS
                await self._servers.ensure(self.server, timeout=seconds)
            except SessionRejected:
                raise
            except ServerUnavailable as error:  # the command has sent it, and would not know
                raise RequestNotSent(str(error), server=self.server, hint=error.hint) from error
            self._check_not_down()  # a server of this name may have another entry now
            now = self._servers.get_listing(self.server)
            before = now if self._read_listing is None else self._read_listing
            if before is not now and _find_definition(before, tool) != _find_definition(now, tool):
                message = f"the definition of {tool} changed when its server restarted; it was not called"
                raise ToolFailed(message, server=self.server, code=INVALID_REQUEST)
            with RequestClock(create_cancel_scope()) as clock:
                return await self._servers.call(self.server, tool, arguments, clock=clock, context=context)
            raise clock.build_error(f"{tool} on {self.server}", server=self.server)

    def _check_not_down(self) -> None:
        """Raise if the server is gone. One of the same name is another, with an entry that is not checked."""
        if self._is_down.is_set():
            message = f"the gateway does not run {self.server} any more as it did; this was not sent"
            raise RequestNotSent(message, server=self.server, hint="repeat it")

    async def ask(self, method: str, params: JsonObject) -> JsonObject:
        """Send a question of the server to the command and return the answer."""
        self._question_count += 1
        number = f"question-{self._question_count}"
        question = self._questions[number] = _Question()
        try:
            await self.lines.write({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
            await question.answered.wait()
        except anyio.get_cancelled_exc_class():
            self._queue(CANCELLED_METHOD, {"requestId": number})
            raise
        finally:
            del self._questions[number]
        if isinstance(result := question.reply.get("result"), dict):
            return cast("JsonObject", result)
        error: dict[str, Any] = question.reply.get("error") or {}
        raise ToolFailed(
            str(error.get("message")),
            server=self.server,
            code=error.get("code", INTERNAL_ERROR),
            data=error.get("data"),
        )


class _Question:
    """A question of the server that the command has not answered yet."""

    def __init__(self) -> None:
        self.answered = anyio.Event()
        self.reply: dict[str, Any] = {}


class _CommandCaller:
    """Implements `CallerChannel` for one request of a command."""

    accepts_input_required = False
    authorization: str | None = None

    def __init__(self, connection: _CommandConnection, token: Json) -> None:
        self._connection = connection
        self._token = token

    @property
    def key(self) -> str:
        return self._connection.key

    @property
    def capabilities(self) -> JsonObject:
        return self._connection.capabilities

    async def ask(self, method: str, params: JsonObject) -> JsonObject:
        return await self._connection.ask(method, params)

    async def tell(self, method: str, params: JsonObject) -> None:
        if method == PROGRESS_METHOD:
            if self._token is None:
                return
            params = {**params, "progressToken": self._token}
        await self._connection.notify(method, params)


def _find_definition(listing: Listing | None, tool: str) -> JsonObject | None:
    definitions = () if listing is None else listing.definitions
    return next((definition for definition in definitions if definition.get("name") == tool), None)


def _encode_error(error: FingerpostError) -> dict[str, Any]:
    """Return the reply for an error. Only what the server itself answered is written as its error."""
    result = getattr(error, "result", None)
    if isinstance(result, dict):
        return {"result": result}  # the failed result of a tool, with advice
    if isinstance(error, ToolFailed):
        made: dict[str, Any] = {"code": error.code, "message": str(error)}
        return {"error": made if error.data is None else {**made, "data": error.data}}
    kind = next((base.__name__ for base in type(error).__mro__ if base.__name__ in _ERROR_KINDS), None)
    given = {"kind": kind, "hint": error.hint, "retry_after": getattr(error, "retry_after", None)}
    return {"error": {"code": INTERNAL_ERROR, "message": str(error)}, _KIND_KEY: given}

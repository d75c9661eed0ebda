"""A listening socket, limits of its HTTP/1.1 connections, the ASGI apps behind it, their shutdown."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import sys
import threading
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

import anyio
import anyio.to_thread
import httptools
import uvicorn
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from fingerpost.errors import ConfigError
from fingerpost.surfaces.http.asgi import AsgiScope, Header, Receive, Send, respond
from fingerpost.surfaces.http.processes import tune_for_serving

if TYPE_CHECKING:
    from uvicorn._types import ASGI3Application, ASGISendEvent, HTTPResponseStartEvent


class HeldHeadCycle(RequestResponseCycle):
    """uvicorn's cycle, but a head with a Content-Length is held back until the body: an app that fails before
    can still answer with an error. Clients of HTTP/1.0 get no chunks.
    """

    _start: HTTPResponseStartEvent | None = None
    _until_closed = False  # the body ends when the connection is closed

    async def send(self, message: ASGISendEvent) -> None:
        if message["type"] == "http.response.start" and not self.response_started:
            self._start = message
            if any(name == b"content-length" for name, _ in message.get("headers", ())):
                return
            if self.scope["http_version"] == "1.0":
                self._until_closed = True
                self.chunked_encoding = False
        if (start := self._start) is not None:
            self._start = None
            await super().send(start)
            if message is start:
                return
        if self._until_closed and message["type"] == "http.response.body":
            self.expected_content_length = len(message.get("body", b""))
        await super().send(message)


_FRAMING_HEADERS: Final = frozenset({b"content-length", b"transfer-encoding"})


def build_parser_without_upgrade(
    protocol: HttpToolsProtocol, version: str, headers: Iterable[Header]
) -> tuple[httptools.HttpRequestParser, bytes]:
    """Return a parser for the rest of the connection, and a head that frames the current body."""
    parser = httptools.HttpRequestParser(_HeadlessEvents(protocol))
    parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn does
    framing = [b"%s: %s\r\n" % header for header in headers if header[0] in _FRAMING_HEADERS]
    return parser, b"".join([b"POST / HTTP/", version.encode(), b"\r\n", *framing, b"\r\n"])


class _HeadlessEvents:
    """Forwards parser events to a connection, except those of the first head."""

    def __init__(self, protocol: HttpToolsProtocol) -> None:
        self._protocol = protocol
        self._in_first_head = True
        self.on_body = protocol.on_body
        self.on_message_complete = protocol.on_message_complete

    def on_message_begin(self) -> None:
        if not self._in_first_head:
            self._protocol.on_message_begin()

    def on_url(self, url: bytes) -> None:
        if not self._in_first_head:
            self._protocol.on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._in_first_head:
            self._protocol.on_header(name, value)

    def on_headers_complete(self) -> None:
        if self._in_first_head:
            self._in_first_head = False
        else:
            self._protocol.on_headers_complete()


MAX_HEAD_BYTES: Final = 64 * 1024
MAX_READ_AHEAD: Final = 8  # pipelined requests before reading pauses


class GuardedProtocol(HttpToolsProtocol):
    """Closes connections that send no request, or do not complete one in time. A request that arrives in one
    piece needs no timer.
    """

    arrival_seconds: float = 30.0
    _arriving = True  # a request is expected or incomplete
    _in_head = True
    _head_size = 0
    _timer: asyncio.TimerHandle | None = None
    _answering: RequestResponseCycle | None = None  # the cycle whose app was started last
    _ignores_data = False  # ignore further data; running requests are still answered

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self._start_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        # uvicorn notifies only the newest request, which may wait for an older response.
        if (running := self._answering) is not None and not running.response_complete:
            running.disconnected = True
            running.message_event.set()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._parse(data)
        if not self._arriving or self.transport.is_closing():
            return
        if self._in_head:
            self._head_size += len(data)
            if self._head_size > MAX_HEAD_BYTES:
                self._close_with_status(431)
                return
        if self._timer is None:
            self._start_timer()

    def on_message_begin(self) -> None:
        self._arriving = self._in_head = True
        self._head_size = 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        self._in_head = False
        if 0 < len(self.pipeline) <= MAX_READ_AHEAD:
            self.flow.resume_reading()  # else a disconnect would not be noticed

    def on_message_complete(self) -> None:
        if self.parser.should_upgrade():
            return  # the body follows
        self._arriving = False
        self._stop_timer()
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        if self._is_another_answered():
            self._stop_reading()
        elif self._in_head or not self.cycle.response_started:
            super().send_400_response(msg)
        else:
            self.transport.close()

    def _parse(self, data: bytes) -> None:
        """Parse as uvicorn does, but ignore protocol upgrades, which are not supported."""
        if self._ignores_data:
            return
        self._unset_keepalive_if_required()
        while data:
            rest = b""
            try:
                self.parser.feed_data(data)
            except httptools.HttpParserUpgrade as upgrade:
                version = self.parser.get_http_version()
                self.parser, head = build_parser_without_upgrade(self, version, self.headers)
                rest = head + data[upgrade.args[0] :]
            except httptools.HttpParserError:
                self.send_400_response("Invalid HTTP request received.")
            data = rest

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        cycle.__class__ = HeldHeadCycle  # uvicorn has no way to choose the class
        self._answering = cycle
        super()._start_asgi_task(cycle, app)

    def _start_timer(self) -> None:
        self._timer = self.loop.call_later(self.arrival_seconds, self._close_with_status, 408)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _close_with_status(self, status: int) -> None:
        self._stop_timer()
        if self.transport.is_closing():
            return
        if self._is_another_answered():
            if status == 408:
                self._start_timer()  # reading may be paused on our side
            else:
                self._stop_reading()
            return
        if self._in_head or not self.cycle.response_started:
            self.transport.write(STATUS_LINE[status] + b"connection: close\r\ncontent-length: 0\r\n\r\n")
        self.transport.close()

    def _is_another_answered(self) -> bool:
        """Return whether a write now would become part of the response to an earlier request."""
        running = self._answering
        if running is None or running.response_complete:
            return False
        return self._in_head or running is not self.cycle

    def _stop_reading(self) -> None:
        """Close the connection after the complete requests are answered."""
        self._ignores_data = self._arriving = True
        self.cycle.keep_alive = False


def build_protocol(arrival_seconds: float) -> type[GuardedProtocol]:
    """Return a protocol class with this timeout for incoming requests."""
    return type("PatientProtocol", (GuardedProtocol,), {"arrival_seconds": arrival_seconds})


KEEP_ALIVE_S: Final = 120  # longer than an agent usually pauses between two calls
LISTEN_BACKLOG: Final = 2048
SHUTDOWN_S: Final = 5
SHUTDOWN_POLL_S: Final = 0.005
DRAIN_S: Final = 3.0  # for running requests at shutdown


class ServedApp(Protocol):
    """An ASGI app with a graceful shutdown."""

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None: ...

    async def drain(self, seconds: float) -> None:
        """End streams gracefully and give running requests a short time before they are stopped."""
        ...


async def serve_app(
    app: ServedApp,
    listening: socket.socket,
    *,
    arrival_seconds: float = 30.0,
    on_started: Callable[[], None] | None = None,
    signals: bool = True,
) -> None:
    """Serve an opened app at a socket until a signal or cancellation."""
    config = uvicorn.Config(
        app,
        http=build_protocol(arrival_seconds),
        ws="none",
        loop="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        log_level="error",  # invalid requests of clients must not fill the log
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        backlog=LISTEN_BACKLOG,
    )
    server = _UvicornServer(config, app, on_started)
    with tune_for_serving():
        await _run_server(server, listening, signals=signals)


async def _run_server(server: _UvicornServer, listening: socket.socket, *, signals: bool) -> None:
    async with anyio.create_task_group() as tasks:
        if signals and threading.current_thread() is threading.main_thread():
            tasks.start_soon(_stop_at_signal, server)
        try:
            await server.serve(sockets=[listening])
        except anyio.get_cancelled_exc_class():
            with anyio.move_on_after(SHUTDOWN_S, shield=True):
                await server.shutdown(sockets=[listening], timeout=0.0)
            raise
        finally:
            tasks.cancel_scope.cancel()


class _UvicornServer(uvicorn.Server):
    """A uvicorn server without its own signal handlers, which drains the app before it closes connections."""

    def __init__(self, config: uvicorn.Config, app: ServedApp, on_started: Callable[[], None] | None) -> None:
        super().__init__(config)
        self._app = app
        self._on_started = on_started

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        if self._on_started is not None:
            self._on_started()

    async def shutdown(
        self, sockets: list[socket.socket] | None = None, *, timeout: float | None = None
    ) -> None:
        """Unlike uvicorn's, it does not wait a tenth of a second where there is nothing to wait for."""
        for server in self.servers:
            server.close()
        await self._app.drain(DRAIN_S if timeout is None else timeout)
        for listening in sockets or ():
            listening.close()
        for connection in tuple(self.server_state.connections):
            connection.shutdown()
        with anyio.move_on_after(SHUTDOWN_S):
            while (  # noqa: ASYNC110 - uvicorn offers no event for it
                self.server_state.connections or self.server_state.tasks
            ) and not self.force_exit:
                await anyio.sleep(SHUTDOWN_POLL_S)
        for task in self.server_state.tasks:
            task.cancel()


async def _stop_at_signal(server: uvicorn.Server) -> None:
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as received:
        async for _ in received:
            if server.should_exit:
                server.force_exit = True  # second signal: stop at once
            server.should_exit = True


def listen_at(host: str, port: int, *, shared: bool = False) -> socket.socket:
    """Return a listening socket. Others of this user may listen there, too, if all are `shared`. Raises
    `ConfigError` with a hint if the address is in use or not available.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server(
            (host, port), family=family, backlog=LISTEN_BACKLOG, reuse_port=shared
        )
        # Streams consist of small writes that must not be delayed. Connections inherit this option.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listening
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigError(
            f"Cannot listen at {host}:{port}: {reason}. Give another --port (0 takes any free one) or --host."
        ) from error


def listen_for_workers(host: str, port: int, count: int) -> list[socket.socket]:
    """Return a listening socket of the same address for each worker. The kernel distributes connections among
    them where it can (Linux); elsewhere they share one socket. Raises `ConfigError` as `listen_at` does.
    """
    if sys.platform != "linux":
        return [listen_at(host, port)] * count
    with listen_at(host, port) as probe:  # fails if other workers share the port already
        bound = probe.getsockname()[1]
    return [listen_at(host, bound, shared=True) for _ in range(count)]


def get_address(listening: socket.socket) -> str:
    """Return `host:port` as written in a URL."""
    host, port = listening.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class PathRouter:
    """Routes each request to an app by the first segment of its path (`v1`, `api`), else to `default`."""

    def __init__(self, apps: Mapping[str, ServedApp], *, default: ServedApp) -> None:
        self._apps = dict(apps)
        self._default = default

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            first = scope["path"].split("/", 2)[1:2]
            part = self._apps.get(first[0], self._default) if first else self._default
            await part(scope, receive, send)

    async def drain(self, seconds: float) -> None:
        """Drain all apps concurrently; each has the whole time."""
        async with anyio.create_task_group() as tasks:
            for part in {id(part): part for part in (*self._apps.values(), self._default)}.values():
                tasks.start_soon(part.drain, seconds)


log = logging.getLogger("fingerpost.web")

AppLoader: TypeAlias = Callable[[], AbstractAsyncContextManager[ServedApp]]

_UNAVAILABLE = b'{"error": "This part could not be opened; the log says why."}'


class LazyApp:
    """An app that is loaded by its first request. `keep_open` runs in a separate task, which opens and closes
    it.

    `load` imports the surface, so it runs in a thread. It returns the context manager that opens the app.
    """

    def __init__(self, load: AppLoader) -> None:
        self._load = load
        self._wanted = anyio.Event()
        self._settled = anyio.Event()
        self._app: ServedApp | None = None

    async def keep_open(self) -> None:
        """Wait for the first request, then keep the app open until cancelled. After a failure, retry."""
        while True:
            await self._wanted.wait()
            try:
                opening = await anyio.to_thread.run_sync(self._load)
                async with opening as app:
                    self._app = app
                    self._settled.set()
                    await anyio.sleep_forever()
            except Exception:
                log.exception("An app could not be opened, or failed")
            finally:
                self._app = None
                self._settled.set()
            self._wanted, self._settled = anyio.Event(), anyio.Event()

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        if self._app is None:
            self._wanted.set()
            await self._settled.wait()
        if self._app is None:
            await respond(send, 503, _UNAVAILABLE)
        else:
            await self._app(scope, receive, send)

    async def drain(self, seconds: float) -> None:
        if self._app is not None:
            await self._app.drain(seconds)

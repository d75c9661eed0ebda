"""A listening socket, the ASGI apps behind it by path, and their graceful shutdown."""

from __future__ import annotations

import logging
import signal
import socket
import sys
import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Final, Protocol, TypeAlias

import anyio
import anyio.to_thread
import uvicorn

from fingerpost.errors import ConfigError
from fingerpost.surfaces.http.asgi import AsgiScope, Receive, Send, respond
from fingerpost.surfaces.http.connection import build_protocol
from fingerpost.surfaces.http.processes import tune_for_serving

KEEP_ALIVE_S: Final = 120  # longer than an agent usually pauses between two calls
LISTEN_BACKLOG: Final = 2048
SHUTDOWN_S: Final = 5
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
        timeout_graceful_shutdown=SHUTDOWN_S,
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
        for server in self.servers:
            server.close()
        await self._app.drain(DRAIN_S if timeout is None else timeout)
        await super().shutdown(sockets=sockets)


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

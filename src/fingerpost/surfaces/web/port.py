"""A port, the app behind it, and how both come to their end."""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Final, Protocol

import anyio
import uvicorn

from fingerpost.errors import ConfigError
from fingerpost.surfaces.web.asgi import AsgiScope, Receive, Send
from fingerpost.surfaces.web.connections import build_protocol
from fingerpost.surfaces.web.interpreter import tune_for_serving

KEEP_ALIVE_S: Final = 120  # longer than an agent thinks between two calls
LISTEN_BACKLOG: Final = 2048
SHUTDOWN_S: Final = 5
DRAIN_S: Final = 3.0  # for requests that run when we are told to stop


class ServedApp(Protocol):
    """An app that can be told to come to its end."""

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None: ...

    async def drain(self, seconds: float) -> None:
        """End streams in good order, and give what runs a little time before it is stopped."""
        ...


async def serve_app(
    app: ServedApp,
    listening: socket.socket,
    *,
    arrival_seconds: float = 30.0,
    started: Callable[[], None] | None = None,
    signals: bool = True,
) -> None:
    """Serve an opened app at a socket, until a signal or until cancelled."""
    config = uvicorn.Config(
        app,
        http=build_protocol(arrival_seconds),
        ws="none",
        loop="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        log_level="error",  # what strangers send is no news: each line could be repeated for ever
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=SHUTDOWN_S,
        backlog=LISTEN_BACKLOG,
    )
    server = _UvicornServer(config, app, started)
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
    """Leaves signals to us, and lets the app say goodbye before connections are closed."""

    def __init__(self, config: uvicorn.Config, app: ServedApp, started: Callable[[], None] | None) -> None:
        super().__init__(config)
        self._app = app
        self._tell_started = started

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        if self._tell_started is not None:
            self._tell_started()

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
                server.force_exit = True  # asked twice: no more waiting
            server.should_exit = True


def listen_at(host: str, port: int) -> socket.socket:
    """A listening socket. Raises `ConfigError` with what to do when the address is taken or not ours."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=family, backlog=LISTEN_BACKLOG)
        # Streams are many small writes: each goes out at once. Connections take this from their socket.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listening
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigError(
            f"Cannot listen at {host}:{port}: {reason}. Give another --port (0 takes any free one) or --host."
        ) from error


def get_address(listening: socket.socket) -> str:
    """`host:port` as others write it in a URL."""
    host, port = listening.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

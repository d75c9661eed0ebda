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
from fingerpost.surfaces.web.connections import guarded
from fingerpost.surfaces.web.interpreter import tuned_for_serving

KEEP_ALIVE_S: Final = 120  # longer than an agent thinks between two calls
BACKLOG: Final = 2048
STOP_S: Final = 5
PATIENCE_S: Final = 3.0  # for requests that run when we are told to stop


class Served(Protocol):
    """An app that can be told to come to its end."""

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None: ...

    async def drain(self, seconds: float) -> None:
        """End streams in good order, and give what runs a little time before it is stopped."""
        ...


async def serve_app(
    app: Served,
    listening: socket.socket,
    *,
    arrival_seconds: float = 30.0,
    started: Callable[[], None] | None = None,
    signals: bool = True,
) -> None:
    """Serve an opened app at a socket, until a signal or until cancelled."""
    config = uvicorn.Config(
        app,
        http=guarded(arrival_seconds),
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
        timeout_graceful_shutdown=STOP_S,
        backlog=BACKLOG,
    )
    server = _Server(config, app, started)
    with tuned_for_serving():
        await _serve(server, listening, signals=signals)


async def _serve(server: _Server, listening: socket.socket, *, signals: bool) -> None:
    async with anyio.create_task_group() as tasks:
        if signals and threading.current_thread() is threading.main_thread():
            tasks.start_soon(_stop_at_signal, server)
        try:
            await server.serve(sockets=[listening])
        except anyio.get_cancelled_exc_class():
            with anyio.move_on_after(STOP_S, shield=True):
                await server.shutdown(sockets=[listening], patience=0.0)
            raise
        finally:
            tasks.cancel_scope.cancel()


class _Server(uvicorn.Server):
    """Leaves signals to us, and lets the app say goodbye before connections are closed."""

    def __init__(self, config: uvicorn.Config, app: Served, started: Callable[[], None] | None) -> None:
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
        self, sockets: list[socket.socket] | None = None, *, patience: float | None = None
    ) -> None:
        for server in self.servers:
            server.close()
        await self._app.drain(PATIENCE_S if patience is None else patience)
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
        listening = socket.create_server((host, port), family=family, backlog=BACKLOG)
        # Streams are many small writes: each goes out at once. Connections take this from their socket.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listening
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigError(
            f"Cannot listen at {host}:{port}: {reason}. Give another --port (0 takes any free one) or --host."
        ) from error


def address_of(listening: socket.socket) -> str:
    """`host:port` as others write it in a URL."""
    host, port = listening.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

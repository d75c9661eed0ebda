"""Serving an ASGI application on a free loopback port, inside the test's own event loop."""

from __future__ import annotations

import socket
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

import anyio
import uvicorn

if TYPE_CHECKING:
    from starlette.applications import Starlette


LIFESPAN_TIMEOUT_S = 2.0


class _QuietServer(uvicorn.Server):
    """Leaves the process's signals alone: they belong to the test runner."""

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Waits for nobody's requests, but lets the application end.

        Its task would otherwise be left to the garbage collector, which complains in some later test.
        """
        await super().shutdown(sockets)
        if self.force_exit:
            with anyio.move_on_after(LIFESPAN_TIMEOUT_S, shield=True):
                await self.lifespan.shutdown()


@asynccontextmanager
async def served(app: Starlette | Any, *, port: int = 0) -> AsyncGenerator[str]:
    """The base address (`http://127.0.0.1:PORT`) at which `app` answers until the block ends."""
    # With the protocol named, the event loop knows that it may send small packets at once. Otherwise each
    # answer waits 40 ms for the other side's acknowledgement.
    listener = socket.socket(proto=socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    config = uvicorn.Config(app, log_level="critical", timeout_graceful_shutdown=0, lifespan="on")
    server = _QuietServer(config)

    async def serve() -> None:
        await server.serve(sockets=[listener])

    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(serve)
            with anyio.fail_after(10):
                while not server.started:  # noqa: ASYNC110 - uvicorn offers no event for it
                    await anyio.sleep(0.01)
            try:
                yield f"http://127.0.0.1:{listener.getsockname()[1]}"
            finally:
                server.should_exit = True
                server.force_exit = True
    finally:
        listener.close()

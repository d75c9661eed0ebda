"""Runs a built-in server alone: over stdio, or as an ASGI app."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final

import anyio
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.types import ASGIApp

from fingerpost.builtin.toolkit import BuiltinServer

MAX_BODY_BYTES: Final = 4 * 1024 * 1024
MAX_SESSIONS: Final = 200  # of the older protocol; the newer one has no sessions
SESSION_IDLE_SECONDS: Final = 30 * 60.0


async def serve_stdio(server: BuiltinServer) -> None:
    """Serve on standard input and output until the client closes them or the process is terminated."""
    ended = anyio.Event()
    terminated = False

    async def run_server() -> None:
        async with stdio_server() as (read, write):
            await server.mcp.run(read, write, server.mcp.create_initialization_options())
        ended.set()

    async def wait_for_signal() -> None:
        nonlocal terminated
        with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as received:
            async for _ in received:
                terminated = True
                ended.set()

    async with anyio.create_task_group() as tasks:
        async with server.open():
            tasks.start_soon(run_server)
            tasks.start_soon(wait_for_signal)
            await ended.wait()
        if terminated:
            # All resources of the server are closed. A thread still waits for input that may never come,
            # and it cannot be interrupted.
            os._exit(0)
        tasks.cancel_scope.cancel()


@asynccontextmanager
async def open_http(server: BuiltinServer) -> AsyncGenerator[ASGIApp]:
    """Yield the server as a streamable HTTP app. The caller is responsible for authentication."""
    manager = StreamableHTTPSessionManager(
        server.mcp,
        max_request_body_size=MAX_BODY_BYTES,
        max_sessions=MAX_SESSIONS,
        session_idle_timeout=SESSION_IDLE_SECONDS,
    )
    async with server.open(), manager.run():
        yield manager.handle_request

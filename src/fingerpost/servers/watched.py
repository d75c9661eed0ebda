"""A transport of the MCP library's, whose end is noticed.

The library ends a session silently when its incoming stream ends. This passes
everything through and tells the lifeline.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Self

import anyio
from mcp.shared.message import SessionMessage

from fingerpost.servers.lifeline import ConnectionFailure, ConnectionState


class WatchedTransport:
    """A transport of the library's whose end is noticed."""

    def __init__(self, transport: AbstractAsyncContextManager[Any], lifeline: ConnectionState) -> None:
        self._transport = transport
        self._lifeline = lifeline

    async def __aenter__(self) -> tuple[Any, Any]:
        incoming, outgoing = await self._transport.__aenter__()
        return _WatchedStream(incoming, self._lifeline), outgoing

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._transport.__aexit__(kind, error, trace)


class _WatchedStream:
    def __init__(self, stream: Any, lifeline: ConnectionState) -> None:
        self._stream = stream
        self._lifeline = lifeline

    async def receive(self) -> SessionMessage | Exception:
        return await self._stream.receive()

    async def aclose(self) -> None:
        await self._stream.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self._stream.__anext__()
        except (StopAsyncIteration, anyio.ClosedResourceError, anyio.EndOfStream):
            self._lifeline.end(ConnectionFailure(reason="its event stream ended"))
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        await self.aclose()
        return None

"""A TCP proxy with a plan for each connection: pass it on, cut it, or answer itself."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

import anyio
from anyio.abc import ByteReceiveStream, ByteSendStream, SocketAttribute, SocketStream, TaskGroup

OVERLOADED = (
    b"HTTP/1.1 429 Too Many Requests\r\ncontent-type: application/json\r\nretry-after: 0.05\r\n"
    b"content-length: 21\r\nconnection: close\r\n\r\n"
    b'{"error":"slow down"}'
)


@dataclass(slots=True, kw_only=True)
class Proxy:
    """Plans, one for each connection, the last for ever.

    A number cuts it after so many bytes of the answer, bytes are the answer, None lets it through.
    """

    plans: list[int | bytes | None]
    seen: int = 0
    address: str = ""


@asynccontextmanager
async def run_proxy(target: str, *plans: int | bytes | None) -> AsyncGenerator[Proxy]:
    """A proxy in front of `target` (`http://127.0.0.1:PORT`) while the block runs."""
    proxy = Proxy(plans=list(plans))
    parts = urlsplit(target)
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    port = listener.extra(SocketAttribute.local_port)
    proxy.address = f"http://127.0.0.1:{port}"

    async def forward(client: SocketStream) -> None:
        plan = proxy.plans.pop(0) if len(proxy.plans) > 1 else proxy.plans[0]
        proxy.seen += 1
        async with client:
            if isinstance(plan, bytes):
                await client.receive()
                await client.send(plan)
                return
            server = await anyio.connect_tcp(parts.hostname or "", parts.port or 0)
            async with server, anyio.create_task_group() as pumps:
                pumps.start_soon(_pump, client, server, None, pumps)
                pumps.start_soon(_pump, server, client, plan, pumps)

    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, forward)
        yield proxy
        tasks.cancel_scope.cancel()


async def _pump(source: ByteReceiveStream, sink: ByteSendStream, limit: int | None, pumps: TaskGroup) -> None:
    """Pass bytes on until one side is gone or the limit is reached; then the connection ends."""
    left = limit
    try:
        async for piece in source:
            await sink.send(piece if left is None else piece[:left])
            left = None if left is None else left - len(piece)
            if left is not None and left <= 0:
                break
    except (anyio.BrokenResourceError, anyio.ClosedResourceError):
        pass
    pumps.cancel_scope.cancel()

"""A server on a bare socket, whose answers to calls are bytes a test writes."""

from __future__ import annotations

import json
import ssl
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import anyio
from anyio.abc import ByteStream, Listener, SocketAttribute, TaskGroup
from anyio.streams.buffered import BufferedByteReceiveStream
from anyio.streams.tls import TLSListener

CLOSE = b"\0close"  # at the end of an answer: the connection is closed behind it
GREETING: Mapping[str, Any] = {
    "initialize": {
        "protocolVersion": "2025-11-25",
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "raw", "version": "1"},
    },
    "tools/list": {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]},
}


class RawServer:
    """Greets as any server does; a call is answered with what `answer` makes of its reply in JSON."""

    def __init__(self, answer: Callable[[bytes], list[bytes]]) -> None:
        self._answer = answer
        self.calls: list[str] = []  # the head of each
        self.connections = 0  # on which calls came
        self.opened = 0  # connections at all
        self._life = anyio.CancelScope()
        self._over = anyio.Event()

    async def stop(self) -> None:
        """Take no more connections; those that are open stay so."""
        self._life.cancel()
        await self._over.wait()

    async def listen(
        self, listener: Listener[Any], connections: TaskGroup, *, tls: ssl.SSLContext | None
    ) -> None:
        with self._life:
            if tls is not None:
                listener = TLSListener(listener, tls, standard_compatible=False)
            async with listener:
                await listener.serve(self.handle, connections)
        self._over.set()

    async def handle(self, stream: ByteStream) -> None:
        self.opened += 1
        lines = BufferedByteReceiveStream(stream)
        seen = False
        async with stream:
            while True:
                try:
                    head = (await lines.receive_until(b"\r\n\r\n", 65536)).decode()
                except (anyio.IncompleteRead, anyio.BrokenResourceError, anyio.ClosedResourceError):
                    return
                sizes = [int(line.split(":")[1]) for line in head.split("\r\n") if "ength:" in line]
                body = await lines.receive_exactly(sizes[0]) if sizes and sizes[0] else b"{}"
                message: dict[str, Any] = json.loads(body)
                for piece in self._pieces(head, message):
                    if piece == CLOSE:
                        return
                    await stream.send(piece)
                    await anyio.sleep(0.001)  # so that pieces arrive as pieces
                if message.get("method") == "tools/call" and not seen:
                    seen = True
                    self.connections += 1

    def _pieces(self, head: str, message: Mapping[str, Any]) -> list[bytes]:
        method, number = str(message.get("method", "")), message.get("id")
        if method == "tools/call":
            self.calls.append(head)
            result = {"content": [{"type": "text", "text": "done"}]}
            return self._answer(json.dumps({"jsonrpc": "2.0", "id": number, "result": result}).encode())
        if method in GREETING:
            body = json.dumps({"jsonrpc": "2.0", "id": number, "result": GREETING[method]}).encode()
            return [with_length(body)]
        return [b"HTTP/1.1 %b\r\nContent-Length: 0\r\n\r\n" % (b"202 OK" if method else b"405 No")]


def with_length(body: bytes, extra: bytes = b"") -> bytes:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n%b\r\n"
    return head % (len(body), extra) + body


@asynccontextmanager
async def raw_server(
    answer: Callable[[bytes], list[bytes]], *, tls: ssl.SSLContext | None = None
) -> AsyncGenerator[tuple[RawServer, str]]:
    server = RawServer(answer)
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    port = listener.extra(SocketAttribute.local_port)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(partial(server.listen, listener, tasks, tls=tls))
        yield server, f"http{'' if tls is None else 's'}://127.0.0.1:{port}/mcp"
        tasks.cancel_scope.cancel()

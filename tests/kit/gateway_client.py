"""A client that knows only bytes: what a test says is what goes over the wire."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import anyio
import orjson
from anyio.abc import SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream

from tests.kit.small_gateway import Address

MODERN = "2026-07-28"
OLD = "2025-11-25"
BOTH = "application/json, text/event-stream"


@dataclass(frozen=True)
class HttpAnswer:
    """One HTTP answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return orjson.loads(self.body)

    @property
    def code(self) -> int:
        return self.json["error"]["code"]

    @property
    def events(self) -> list[Any]:
        return [orjson.loads(frame) for frame in data_of(self.body)]


def data_of(body: bytes) -> list[bytes]:
    return [line[6:] for line in body.split(b"\n") if line.startswith(b"data: ")]


def modern(method: str, params: Mapping[str, Any] | None = None, *, version: str = MODERN) -> dict[str, Any]:
    """A request of 2026-07-28."""
    envelope: dict[str, Any] = {
        "io.modelcontextprotocol/protocolVersion": version,
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "bytes", "version": "1"},
    }
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**(params or {}), "_meta": envelope}}


def modern_headers(method: str, name: str | None = None) -> dict[str, str]:
    headers = {"mcp-protocol-version": MODERN, "mcp-method": method}
    return headers if name is None else {**headers, "mcp-name": name}


def tool_call(name: str, **arguments: Any) -> tuple[dict[str, Any], dict[str, str]]:
    """A modern tools/call and its headers."""
    return modern("tools/call", {"name": name, "arguments": arguments}), modern_headers("tools/call", name)


class RawConnection:
    """One connection."""

    def __init__(self, bound_address: Address, stream: SocketStream) -> None:
        self._place = bound_address
        self.stream = stream
        self._read = BufferedByteReceiveStream(stream)

    async def send(
        self,
        body: object = None,
        headers: Mapping[str, str] | None = None,
        *,
        method: str = "POST",
        path: str = "/mcp",
    ) -> None:
        data = b"" if body is None else body if isinstance(body, bytes) else orjson.dumps(body)
        given = {
            "host": f"{self._place.host}:{self._place.port}",
            "accept": BOTH,
            "content-type": "application/json",
            "content-length": str(len(data)),
            **(headers or {}),
        }
        head = "".join(f"{name}: {value}\r\n" for name, value in given.items())
        await self.stream.send(f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode("latin-1") + data)

    async def head(self) -> tuple[int, dict[str, str]]:
        raw = await self._read.receive_until(b"\r\n\r\n", 65536)
        first, *rest = raw.decode("latin-1").split("\r\n")
        pairs = (line.split(": ", 1) for line in rest)
        return int(first.split()[1]), {name.lower(): value for name, value in pairs}

    async def chunk(self) -> bytes:
        """The next chunk of a streamed body; empty at its end."""
        size = int(await self._read.receive_until(b"\r\n", 64), 16)
        data = await self._read.receive_exactly(size) if size else b""
        await self._read.receive_exactly(2)
        return data

    async def event(self) -> Any:
        """The next message of a stream, past the comments."""
        while True:
            if data := data_of(await self.chunk()):
                return orjson.loads(data[0])

    async def got(self) -> HttpAnswer:
        status, headers = await self.head()
        if "content-length" in headers:
            body = await self._read.receive_exactly(int(headers["content-length"]))
        else:
            body = b""
            while data := await self.chunk():
                body += data
        return HttpAnswer(status, headers, body)

    async def ask(
        self, body: object = None, headers: Mapping[str, str] | None = None, **more: str
    ) -> HttpAnswer:
        await self.send(body, headers, **more)
        return await self.got()


@asynccontextmanager
async def open_raw_connection(bound_address: Address) -> AsyncGenerator[RawConnection]:
    async with await anyio.connect_tcp(bound_address.host, bound_address.port) as stream:
        yield RawConnection(bound_address, stream)


async def ask(
    bound_address: Address, body: object = None, headers: Mapping[str, str] | None = None, **more: str
) -> HttpAnswer:
    """One request on a connection of its own."""
    async with open_raw_connection(bound_address) as line:
        return await line.ask(body, headers, **more)


INITIALIZE: dict[str, Any] = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {
        "protocolVersion": OLD,
        "capabilities": {"elicitation": {}},
        "clientInfo": {"name": "bytes", "version": "1"},
    },
}


async def open_session(bound_address: Address, headers: Mapping[str, str] | None = None) -> dict[str, str]:
    """Shake hands; the headers of the session."""
    got = await ask(bound_address, INITIALIZE, headers)
    session = {
        "mcp-session-id": got.headers["mcp-session-id"],
        "mcp-protocol-version": OLD,
        **(headers or {}),
    }
    ready = await ask(bound_address, {"jsonrpc": "2.0", "method": "notifications/initialized"}, session)
    assert ready.status == 202
    return session


async def eventually(true: Callable[[], object]) -> None:
    """Until it is so; the test's own time is the limit."""
    with anyio.fail_after(30):
        while not true():  # noqa: ASYNC110 - what is waited for tells nobody
            await anyio.sleep(0.02)


def old(method: str, params: Mapping[str, Any] | None = None, request_id: str | int = 1) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": request_id, "method": method, "params": dict(params or {})}

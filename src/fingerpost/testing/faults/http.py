"""A faulty HTTP MCP server on plain sockets, so that a reply can be broken at any point.

    async with http_fault("half_closed") as server:
        spec = Server.http("bad", server.url)

Apart from the fault it is a valid server of the handshake era with one tool, `echo`.
It keeps sessions and answers with JSON.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
from anyio.abc import SocketAttribute, SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream

from fingerpost.testing.faults.definitions import GOOD_TOOL, FaultRegistry

MAX_HEAD_BYTES = 64 * 1024
MAX_BODY_BYTES = 16 * 1024 * 1024
MEGABYTE = 1024 * 1024


@dataclass
class FaultExchange:
    """One request, with methods to answer it."""

    server: FaultyHttp
    method: str  # HTTP method
    headers: dict[str, str]
    message: dict[str, Any]
    stream: SocketStream

    @property
    def id_bytes(self) -> bytes:
        return json.dumps(self.message["id"]).encode()

    async def send_head(self, status: int, *, length: int | None = None, **headers: str) -> None:
        lines = [f"HTTP/1.1 {status} Status", "Connection: close"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        if length is not None:
            lines.append(f"Content-Length: {length}")
        await self.write("\r\n".join(lines).encode() + b"\r\n\r\n")

    async def write(self, data: bytes) -> None:
        await self.stream.send(data)

    async def respond(
        self, status: int, body: bytes = b"", *, kind: str = "application/json", **headers: str
    ) -> None:
        await self.send_head(status, length=len(body), Content_Type=kind, **headers)
        await self.write(body)

    async def send_event(self, data: bytes) -> None:
        """Start an event stream with one event."""
        await self.send_head(200, Content_Type="text/event-stream")
        await self.write(b"event: message\r\ndata: " + data + b"\r\n\r\n")

    def build_result(self, value: bytes) -> bytes:
        return b'{"jsonrpc":"2.0","id":%s,"result":%s}' % (self.id_bytes, value)

    def build_echo(self) -> bytes:
        text = json.dumps(self.message["params"].get("arguments", {}))
        return json.dumps({"content": [{"type": "text", "text": text}]}).encode()


FaultAct = Callable[[FaultExchange], Awaitable[None]]


@dataclass
class FaultyHttp:
    """The running server: its URL and the requests it received."""

    act: FaultAct
    fault: str
    url: str = ""
    sessions: int = 0
    lost: bool = False
    seen: list[str] = field(default_factory=list[str])

    async def accept(self, stream: SocketStream) -> None:
        gone = (anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream, anyio.IncompleteRead)
        async with stream:
            with contextlib.suppress(*gone):
                await self._answer(await self._read(stream))

    async def _read(self, stream: SocketStream) -> FaultExchange:
        reader = BufferedByteReceiveStream(stream)
        head = (await reader.receive_until(b"\r\n\r\n", MAX_HEAD_BYTES)).decode("latin-1")
        first, *lines = head.strip().split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        length = int(headers.get("content-length", 0))
        body = await reader.receive_exactly(min(length, MAX_BODY_BYTES)) if length else b""
        message: dict[str, Any] = json.loads(body) if body else {}
        self.seen.append(message.get("method", first.split()[0]))
        return FaultExchange(self, first.split()[0], headers, message, stream)

    async def _answer(self, exchange: FaultExchange) -> None:
        method = exchange.message.get("method")
        if exchange.method != "POST":
            await exchange.respond(405)
        elif self.fault in FAULTS_EVERYWHERE or method == (
            "tools/list" if self.fault in FAULTS_ON_LIST else "tools/call"
        ):
            await self.act(exchange)
        else:
            await answer_normally(exchange)


async def answer_normally(exchange: FaultExchange) -> None:
    """Answer like a server without a fault."""
    message, server = exchange.message, exchange.server
    if "id" not in message:
        await exchange.respond(202)
        return
    match message.get("method"):
        case "initialize":
            server.sessions += 1
            value: dict[str, Any] = {
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "faulty", "version": "1"},
            }
            body = exchange.build_result(json.dumps(value).encode())
            await exchange.respond(200, body, Mcp_Session_Id=f"session-{server.sessions}")
        case "tools/list":
            await exchange.respond(200, exchange.build_result(json.dumps({"tools": [GOOD_TOOL]}).encode()))
        case "tools/call":
            await exchange.respond(200, exchange.build_result(exchange.build_echo()))
        case "ping":
            await exchange.respond(200, exchange.build_result(b"{}"))
        case _:
            error = b'{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"Method not found"}}'
            await exchange.respond(400, error % exchange.id_bytes)


FAULTS: FaultRegistry[FaultAct] = FaultRegistry()
FAULTS_EVERYWHERE = {
    "html_login",
    "unauthorized",
    "forbidden",
    "redirect",
    "lost_session",
    "sloppy_session",
    "away",
    "deaf_to_notices",
}
FAULTS_ON_LIST = {"list_hangs", "list_fails"}
fault = FAULTS.register

fault("none", 0, "behaves")(answer_normally)


def _register_response(
    name: str, row: int, summary: str, status: int, body: bytes = b"", kind: str = "application/json"
) -> None:
    """Register a fault that answers with this response."""
    fault(name, row, summary)(lambda exchange: exchange.respond(status, body, kind=kind))


_LOGIN_PAGE = b"<html><form action=/login></form></html>"
_register_response("accepted", 11, "answers a call with 202 and nothing", 202)
_register_response("server_error", 12, "answers a call with status 500", 500, b"oops", "text/plain")
_register_response(
    "html_login", 15, "answers everything with a login page", 200, _LOGIN_PAGE, "text/html; charset=utf-8"
)
_register_response("unauthorized", 15, "answers everything with status 401", 401, b"{}")
_register_response("forbidden", 15, "answers everything with status 403", 403, b"{}")
_register_response("wrong_type", 15, "answers a call with plain text", 200, b"hello", "text/plain")
_register_response("away", 42, "answers everything with status 503", 503)


def _register_result(
    name: str,
    row: int,
    summary: str,
    result: bytes | None = None,
    *,
    event: bool = False,
    cut: bool = False,
    change_id: Callable[[int], int | str] = lambda given: given,
) -> None:
    """Register a fault that answers with this result (default: an echo), as JSON or in an event.

    With `cut` the last bracket is missing.
    """

    async def send(exchange: FaultExchange) -> None:
        exchange.message["id"] = change_id(exchange.message["id"])
        body = exchange.build_result(exchange.build_echo() if result is None else result)
        body = body[:-1] if cut else body
        await (exchange.send_event(body) if event else exchange.respond(200, body))

    fault(name, row, summary)(send)


_DEEP = b'{"a":' * 10_000 + b"1" + b"}" * 10_000
_register_result("bad_json", 8, "answers with JSON that breaks off", b'{"content":[', cut=True)
_register_result(
    "bad_event", 8, "answers with an event whose JSON breaks off", b'{"content":[', event=True, cut=True
)
_register_result("not_utf8", 9, "answers with JSON that is not UTF-8", b'{"a":"\xff"}')
_register_result("not_utf8_event", 9, "answers with an event that is not UTF-8", b'{"a":"\xff"}', event=True)
_register_result("wrong_id", 10, "answers with another id", change_id=lambda given: given + 1)
_register_result("text_id", 10, "answers with its id turned into text", change_id=str)
_register_result(
    "wrong_id_event", 10, "answers with another id in an event", event=True, change_id=lambda given: given + 1
)
_register_result("nan", 13, "answers with NaN and Infinity", b'{"a":NaN,"b":Infinity}')
_register_result("deep_result", 14, "answers with ten thousand levels", _DEEP)


@fault("reset", 1, "closes the connection instead of answering a call")
async def reset(exchange: FaultExchange) -> None:
    await exchange.stream.aclose()


@fault("hang", 2, "never answers a call")
async def hang(exchange: FaultExchange) -> None:
    await anyio.sleep_forever()


@fault("half_closed", 3, "cuts its event stream in the middle of an event")
async def close_half(exchange: FaultExchange) -> None:
    await exchange.send_head(200, Content_Type="text/event-stream")
    await exchange.write(b'event: message\r\ndata: {"jsonrpc":"2.0","id":' + exchange.id_bytes)


@fault("half_json", 3, "promises more bytes than it sends")
async def send_half_json(exchange: FaultExchange) -> None:
    body = exchange.build_result(exchange.build_echo())
    await exchange.send_head(200, length=len(body) + 100, Content_Type="application/json")
    await exchange.write(body)


@fault("drip", 4, "sends a comment every 50 ms, for ever")
async def send_slowly(exchange: FaultExchange) -> None:
    await exchange.send_head(200, Content_Type="text/event-stream")
    while True:
        await exchange.write(b": still here\r\n\r\n")
        await anyio.sleep(0.05)


@fault("huge", 6, "answers with 50 MB of JSON")
async def send_huge(exchange: FaultExchange) -> None:
    body = exchange.build_result(b'{"a":"' + b"x" * 50 * MEGABYTE + b'"}')
    await exchange.respond(200, body)


@fault("huge_event", 6, "answers with an event of 50 MB")
async def send_huge_event(exchange: FaultExchange) -> None:
    await exchange.send_event(exchange.build_result(b'{"a":"' + b"x" * 50 * MEGABYTE + b'"}'))


@fault("endless", 7, "answers with JSON that never ends")
async def send_endless(exchange: FaultExchange) -> None:
    await exchange.send_head(200, Content_Type="application/json")
    while True:
        await exchange.write(b" " * 65536)


@fault("endless_event", 7, "answers with an event that never ends")
async def send_endless_event(exchange: FaultExchange) -> None:
    await exchange.send_head(200, Content_Type="text/event-stream")
    await exchange.write(b"data: ")
    while True:
        await exchange.write(b"x" * 65536)


@fault("both", 11, "answers with a result and an error")
async def send_result_and_error(exchange: FaultExchange) -> None:
    await exchange.respond(
        200, b'{"jsonrpc":"2.0","id":%s,"result":{},"error":{"code":1,"message":"no"}}' % exchange.id_bytes
    )


@fault("neither", 11, "answers with neither a result nor an error")
async def send_neither(exchange: FaultExchange) -> None:
    await exchange.respond(200, b'{"jsonrpc":"2.0","id":%s}' % exchange.id_bytes)


@fault("lost_session", 12, "forgets the first session with the first call")
async def lose_session(exchange: FaultExchange) -> None:
    await _forget_session(exchange, lambda: exchange.respond(404))


@fault("sloppy_session", 12, "forgets the first session, and says so with status 400")
async def lose_session_sloppily(exchange: FaultExchange) -> None:
    error = b'{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"No valid session ID provided"}}'
    await _forget_session(exchange, lambda: exchange.respond(400, error))


async def _forget_session(exchange: FaultExchange, refuse: Callable[[], Awaitable[None]]) -> None:
    server = exchange.server
    if exchange.message.get("method") == "tools/call":
        server.lost = True
    if server.lost and exchange.headers.get("mcp-session-id") == "session-1":
        await refuse()
    else:
        await answer_normally(exchange)


@fault("redirect", 50, "redirects everything to another address")
async def send_redirect(exchange: FaultExchange) -> None:
    await exchange.respond(307, Location="http://127.0.0.1:9/elsewhere")


@fault("deaf_to_notices", 2, "never answers a call with slow=true, nor its cancellation")
async def ignore_notifications(exchange: FaultExchange) -> None:
    slow = exchange.message.get("params", {}).get("arguments", {}).get("slow", False)
    if slow or exchange.message.get("method") == "notifications/cancelled":
        await anyio.sleep_forever()
    await answer_normally(exchange)


@fault("list_hangs", 2, "never answers tools/list")
async def hang_on_list(exchange: FaultExchange) -> None:
    await anyio.sleep_forever()


@fault("list_fails", 12, "answers tools/list with an error")
async def fail_on_list(exchange: FaultExchange) -> None:
    error = b'{"jsonrpc":"2.0","id":%s,"error":{"code":-32603,"message":"the index is being rebuilt"}}'
    await exchange.respond(200, error % exchange.id_bytes)


@asynccontextmanager
async def http_fault(name: str) -> AsyncGenerator[FaultyHttp]:
    """Run a server with this fault on a free loopback port until the block ends."""
    server = FaultyHttp(FAULTS[name].act, name)
    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener:
        server.url = f"http://127.0.0.1:{listener.listeners[0].extra(SocketAttribute.local_port)}/mcp"
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(listener.serve, server.accept)
            try:
                yield server
            finally:
                tasks.cancel_scope.cancel()

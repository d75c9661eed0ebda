"""A load client: JSON-RPC in both protocol eras, over the connection by hand."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any, Literal
from urllib.parse import urlsplit

import orjson

from benchmarks.gateway.connection import Answer, Connection, connect

Era = Literal["2025-11-25", "2026-07-28"]
HANDSHAKE: Era = "2025-11-25"
MODERN: Era = "2026-07-28"
_META = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
_IDS = itertools.count(1)  # many workers share one session, in which an id must not come twice


class CallFailed(Exception):
    """The server answered, with an error. `code` is its own, where it has one."""

    def __init__(self, message: str, code: int | None = None) -> None:
        super().__init__(message)
        self.code = code


class GatewayClient:
    """One worker: its own connection, in a session of its own or in another worker's."""

    def __init__(self, url: str, era: Era = HANDSHAKE, headers: Mapping[str, str] | None = None) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "127.0.0.1", parts.port or 80
        self._era: Era = era
        self._session = ""
        self._connection: Connection | None = None
        self._head = (
            f"POST {parts.path or '/'} HTTP/1.1\r\nHost: {self._host}:{self._port}\r\n"
            "Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"
            + "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
        )

    async def open(self, sharing: GatewayClient | None = None) -> GatewayClient:
        """Begin a session (2025-11-25), or join another worker's."""
        if sharing is not None:
            self._session = sharing._session
        elif self._era == HANDSHAKE:
            hello = {
                "protocolVersion": HANDSHAKE,
                "capabilities": {},
                "clientInfo": {"name": "bench", "version": "1"},
            }
            answer = await self._post(_message("initialize", hello, next(_IDS)), "")
            _read(answer)
            if (session := answer.headers.get(b"mcp-session-id")) is not None:
                self._session = f"Mcp-Session-Id: {session.decode()}\r\n"
            await self._post(_message("notifications/initialized", {}, None), self._extra("", ""))
        return self

    async def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    async def request(self, method: str, params: dict[str, Any], name: str = "") -> dict[str, Any]:
        if self._era == MODERN:
            params = {**params, "_meta": _META}
        answer = await self._post(_message(method, params, next(_IDS)), self._extra(method, name))
        return _read(answer)

    async def call(self, tool: str, arguments: dict[str, Any]) -> str:
        result = await self.request("tools/call", {"name": tool, "arguments": arguments}, tool)
        if result.get("isError"):
            raise CallFailed(str(result)[:300])
        return str(result["content"][0]["text"])

    async def first_page(self) -> list[str]:
        result = await self.request("tools/list", {})
        return [tool["name"] for tool in result["tools"]]

    async def list_tools(self) -> list[str]:
        names: list[str] = []
        cursor: dict[str, Any] = {}
        while True:
            result = await self.request("tools/list", cursor)
            names += [tool["name"] for tool in result["tools"]]
            if not (following := result.get("nextCursor")):
                return names
            cursor = {"cursor": following}

    def _extra(self, method: str, name: str) -> str:
        if self._era == HANDSHAKE:
            return f"Mcp-Protocol-Version: {HANDSHAKE}\r\n{self._session}"
        named = f"Mcp-Name: {name}\r\n" if name else ""
        return f"Mcp-Protocol-Version: {MODERN}\r\nMcp-Method: {method}\r\n{named}"

    async def _post(self, body: bytes, extra: str) -> Answer:
        if self._connection is None or self._connection.closed:
            self._connection = await connect(self._host, self._port)
        head = f"{self._head}{extra}Content-Length: {len(body)}\r\n\r\n"
        return await self._connection.ask(head.encode() + body)


def _message(method: str, params: dict[str, Any], number: int | None) -> bytes:
    message: dict[str, Any] = {"jsonrpc": "2.0", "method": method, "params": params}
    if number is not None:
        message["id"] = number
    return orjson.dumps(message)


def _read(answer: Answer) -> dict[str, Any]:
    """The result in a JSON body or in an event stream, or `CallFailed`."""
    message = _payload(answer)
    if message is None:
        raise CallFailed(f"HTTP {answer.status}: {answer.body[:300]!r}")
    if (error := message.get("error")) is not None:
        raise CallFailed(str(error)[:300], error.get("code"))
    return message["result"]


def _payload(answer: Answer) -> dict[str, Any] | None:
    if not answer.headers.get(b"content-type", b"").startswith(b"text/event-stream"):
        return orjson.loads(answer.body) if answer.body.startswith(b"{") else None
    for line in answer.body.splitlines():
        if line.startswith(b"data:") and (data := line[5:].strip()):
            message = orjson.loads(data)
            if "result" in message or "error" in message:
                return message
    return None

"""A server at an address that says exactly what a test wants it to say."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import anyio.lowlevel

Act = Callable[["PlainRequest"], Awaitable[None]]


class PlainRequest:
    """One HTTP request, and the way to answer it."""

    def __init__(self, scope: Any, receive: Any, send: Any, message: dict[str, Any]) -> None:
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.headers = {name.decode(): value.decode("latin-1") for name, value in scope["headers"]}
        self.message = message
        self._receive = receive
        self._send = send

    async def begin(self, status: int = 200, kind: str = "application/json", **headers: str) -> None:
        pairs = [(b"content-type", kind.encode())]
        pairs += [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
        await self._send({"type": "http.response.start", "status": status, "headers": pairs})

    async def write(self, data: bytes, *, more: bool = True) -> None:
        await self._send({"type": "http.response.body", "body": data, "more_body": more})

    async def answer(self, message: Mapping[str, Any] | None, status: int = 200, **headers: str) -> None:
        await self.begin(status, **headers)
        await self.write(b"" if message is None else json.dumps(message).encode(), more=False)

    async def result(self, value: object, **headers: str) -> None:
        await self.answer({"jsonrpc": "2.0", "id": self.message.get("id"), "result": value}, 200, **headers)

    async def event(self, message: Mapping[str, Any] | None, **fields: object) -> None:
        lines = [f"{name}: {value}" for name, value in fields.items()]
        lines.append("data: " + ("" if message is None else json.dumps(message)))
        await self.write(("\n".join(lines) + "\n\n").encode())

    async def wait_for_disconnect(self) -> None:
        """Return when the client closed the connection."""
        while (await self._receive())["type"] != "http.disconnect":
            await anyio.lowlevel.checkpoint()


class PlainHttp:
    """Answers each method with a fixed result, or as `acts` say."""

    def __init__(self, results: Mapping[str, object], acts: Mapping[str, Act] | None = None) -> None:
        self._results = results
        self._acts = acts or {}
        self.asked: list[str] = []
        self.messages: list[dict[str, Any]] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await _lifespan(receive, send)
            return
        body = b""
        more = True
        while more:
            part = await receive()
            body += part.get("body", b"")
            more = part.get("more_body", False)
        message: dict[str, Any] = json.loads(body) if body else {}
        asked = PlainRequest(scope, receive, send, message)
        name = message.get("method") or (asked.method if not message else "answer")
        self.asked.append(name)
        self.messages.append(message)
        if name in self._acts:
            await self._acts[name](asked)
        elif name in self._results:
            await asked.result(self._results[name], mcp_session_id="s1")
        elif "id" not in message or "method" not in message:
            await asked.answer(None, 202 if asked.method == "POST" else 405)
        else:
            error = {"code": -32601, "message": "Method not found"}
            await asked.answer({"jsonrpc": "2.0", "id": message["id"], "error": error})


async def _lifespan(receive: Any, send: Any) -> None:
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return

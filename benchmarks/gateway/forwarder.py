"""The limit: a gateway that does nothing but pass on. One route, bare ASGI in front, aiohttp behind.

It reads the JSON of the request and of the answer, as anything must that routes by a tool's name.
"""

from __future__ import annotations

import argparse
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import orjson
import uvicorn

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
PASSED = (b"content-type", b"accept", b"mcp-session-id", b"mcp-protocol-version", b"mcp-method", b"mcp-name")


class Forwarder:
    """An ASGI application."""

    def __init__(self, upstream: str) -> None:
        self._upstream = upstream
        self._client: aiohttp.ClientSession | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        assert self._client is not None
        body = b""
        more = True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        request = orjson.loads(body)
        headers = {name.decode(): value.decode() for name, value in scope["headers"] if name in PASSED}
        async with self._client.post(self._upstream, data=orjson.dumps(request), headers=headers) as reply:
            answer = await reply.read()
            answer_headers = [
                (b"content-type", reply.headers.get("content-type", "application/json").encode())
            ]
            if (session := reply.headers.get("mcp-session-id")) is not None:
                answer_headers.append((b"mcp-session-id", session.encode()))
            status = reply.status
        if answer.startswith(b"{"):
            answer = orjson.dumps(orjson.loads(answer))
        answer_headers.append((b"content-length", str(len(answer)).encode()))
        await send({"type": "http.response.start", "status": status, "headers": answer_headers})
        await send({"type": "http.response.body", "body": answer})

    async def _live(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                self._client = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))
            elif self._client is not None:
                await self._client.close()
            await send({"type": message["type"] + ".complete"})
            if message["type"] == "lifespan.shutdown":
                return


def main() -> None:
    reader = argparse.ArgumentParser(description=__doc__)
    reader.add_argument("upstream")
    reader.add_argument("--port", type=int, required=True)
    asked = reader.parse_args()
    uvicorn.run(
        Forwarder(asked.upstream), host="127.0.0.1", port=asked.port, log_level="warning", access_log=False
    )


if __name__ == "__main__":
    main()

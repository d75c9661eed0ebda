"""Records everything that reaches a server: every header and every byte."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send


@dataclass(frozen=True)
class ProbedRequest:
    """One HTTP request, as it came in."""

    target: str  # path and query
    headers: dict[str, str]
    body: bytes

    @property
    def message(self) -> dict[str, Any]:
        """The JSON-RPC message; nothing for a request without a body."""
        return json.loads(self.body) if self.body else {}

    @property
    def everything(self) -> str:
        return "\n".join([self.target, *self.headers, *self.headers.values(), self.body.decode()])


class Probe:
    """Stands in front of a server and writes down who comes with what."""

    def __init__(self, application: ASGIApp) -> None:
        self._application = application
        self.arrivals: list[ProbedRequest] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._application(scope, receive, send)
            return
        messages = await _body(receive) if scope["method"] == "POST" else []
        self.arrivals.append(
            ProbedRequest(
                target=f"{scope['path']}?{scope['query_string'].decode()}",
                headers={name.decode(): value.decode() for name, value in scope["headers"]},
                body=b"".join(message.get("body", b"") for message in messages),
            )
        )

        async def again() -> Message:
            return messages.pop(0) if messages else await receive()

        await self._application(scope, again, send)

    def list_requests(self, method: str) -> list[ProbedRequest]:
        """The requests for one method of the protocol."""
        return [arrival for arrival in self.arrivals if arrival.message.get("method") == method]


async def _body(receive: Receive) -> list[Message]:
    messages = [await receive()]
    while messages[-1].get("more_body"):
        messages.append(await receive())
    return messages

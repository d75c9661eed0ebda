"""A whole gateway at a port, in front of servers that attack it, and clients of both eras that know bytes."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2

from fingerpost import Router
from fingerpost.records import Era, ServerSpec
from tests.kit.gateways import serve_gateway
from tests.kit.plain_http import Act, PlainHttp, PlainRequest
from tests.kit.routers import open_router

OLD: Era = "2025-11-25"
MODERN: Era = "2026-07-28"
PATIENCE_S = 60.0
ABLE: dict[str, Any] = {"elicitation": {"form": {}}, "sampling": {}, "roots": {}}
TOOL: dict[str, Any] = {
    "name": "look",
    "description": "Look something up.",
    "inputSchema": {"type": "object", "properties": {"n": {"type": "integer"}}},
    "annotations": {"readOnlyHint": True},
}


def result(number: object, text: str = "done") -> dict[str, Any]:
    content = {"content": [{"type": "text", "text": text}]}
    return {"jsonrpc": "2.0", "id": number, "result": content}


def frame(message: object) -> bytes:
    return b"data: " + json.dumps(message).encode() + b"\n\n"


def hostile(act: Act, *, era: Era = OLD) -> PlainHttp:
    """A server of one tool, `look`, whose calls are answered by `act`."""
    greeting: dict[str, Any] = {"capabilities": {"tools": {}}, "serverInfo": {"name": "evil", "version": "1"}}
    if era == OLD:
        first: dict[str, object] = {"initialize": {"protocolVersion": OLD, **greeting}}
    else:
        first = {"server/discover": {"supportedVersions": [MODERN], **greeting, "resultType": "complete"}}
    return PlainHttp({**first, "tools/list": {"tools": [TOOL]}}, {"tools/call": act})


def answer_with_stream(messages: Callable[[Any], Iterable[bytes]]) -> Act:
    """Answers a call with a stream of these, written at once, and its result behind them."""

    async def act(asked: PlainRequest) -> None:
        await asked.begin(kind="text/event-stream")
        number = asked.message["id"]
        await asked.write(b"".join(messages(number)))
        await asked.write(frame(result(number)), more=False)

    return act


@dataclass
class AttackedGateway:
    """A gateway that is served, and a client for it."""

    router: Router
    client: httpx2.AsyncClient = field(repr=False)
    session: dict[str, str] = field(default_factory=dict[str, str])
    questions: int = 0  # that were put to the client of the older era

    async def call_modern(self, tool: str, *, capabilities: Mapping[str, Any] = ABLE) -> dict[str, Any]:
        """One `tools/call` of 2026-07-28, by a client that declines whatever it is asked."""
        meta = {
            "io.modelcontextprotocol/protocolVersion": MODERN,
            "io.modelcontextprotocol/clientCapabilities": capabilities,
            "io.modelcontextprotocol/clientInfo": {"name": "bytes", "version": "1"},
        }
        params: dict[str, Any] = {"name": tool, "arguments": {}, "_meta": meta}
        headers = {"mcp-protocol-version": MODERN, "mcp-method": "tools/call", "mcp-name": tool}
        while True:
            answer = (await self._post({"id": 1, "method": "tools/call", "params": params}, headers))[-1]
            round_ = answer.get("result", {})
            if round_.get("resultType") != "input_required":
                return answer
            params["inputResponses"] = {key: {"action": "decline"} for key in round_["inputRequests"]}
            params["requestState"] = round_["requestState"]

    async def call_old(self, tool: str) -> dict[str, Any]:
        """The same in a session, by a client that answers whatever it is asked."""
        if not self.session:
            client = {"name": "bytes", "version": "1"}
            opening = {"protocolVersion": OLD, "capabilities": ABLE, "clientInfo": client}
            greeting = _rpc({"id": 0, "method": "initialize", "params": opening})
            got = await self.client.post("/mcp/all", json=greeting, headers=_ACCEPT)
            self.session = {"mcp-session-id": got.headers["mcp-session-id"], "mcp-protocol-version": OLD}
        params: dict[str, Any] = {"name": tool, "arguments": {}}
        return (await self._post({"id": 1, "method": "tools/call", "params": params}, self.session))[-1]

    async def call_api(self, tool: str) -> dict[str, Any]:
        """The same over `/api/call`; the outcome."""
        got = await self.client.post("/api/call", json={"tool": tool, "arguments": {}})
        assert got.status_code == 200, got.text
        return got.json()

    async def _post(self, message: Mapping[str, Any], headers: Mapping[str, str]) -> list[dict[str, Any]]:
        messages: list[dict[str, Any]] = []
        async with self.client.stream(
            "POST", "/mcp/all", json=_rpc(message), headers={**_ACCEPT, **headers}
        ) as got:
            if not got.headers["content-type"].startswith("text/event-stream"):
                return [json.loads(await got.aread())]
            async for line in got.aiter_lines():
                if line.startswith("data: "):
                    messages.append(json.loads(line[6:]))
                    await self._answer(messages[-1], headers)
        return messages

    async def _answer(self, message: Mapping[str, Any], headers: Mapping[str, str]) -> None:
        if "method" in message and "id" in message:
            self.questions += 1
            answer = {"id": message["id"], "result": {"action": "decline"}}
            await self.client.post("/mcp/all", json=_rpc(answer), headers={**_ACCEPT, **headers})


_ACCEPT = {"accept": "application/json, text/event-stream"}


def _rpc(message: Mapping[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", **message}


@asynccontextmanager
async def open_attacked_gateway(
    folder: Path, *servers: ServerSpec, **more: Any
) -> AsyncGenerator[AttackedGateway]:
    """Everything `fingerpost serve` serves. Raises where it ends before the block does."""
    async with (
        open_router(folder, servers, **more) as router,
        serve_gateway(router) as address,
        httpx2.AsyncClient(base_url=address, timeout=PATIENCE_S) as client,
    ):
        yield AttackedGateway(router, client)

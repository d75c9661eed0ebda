"""A caller beyond its quota is refused on every surface, and hears when to try again."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError

from fingerpost import Router
from fingerpost.llm import ModelReply, ModelRequest
from fingerpost.records import Era
from fingerpost.testing import ScriptedModel, calls, tool_server
from fingerpost.testing.models import HANG
from tests.kit.gateway_client import BOTH, tool_call
from tests.kit.gateway_methods import reading_tool
from tests.kit.gateways import build_gateway_settings, serve_gateway, wait_until_connected
from tests.kit.store_samples import eventually
from tests.requirements import proves

PATIENCE_S = 60
ENDLESS = "Count all the stars."
PRICE = "What is the price of a pen in the shop?"
QUOTAS = [
    {"match": "local", "calls_per_minute": 1},
    {"match": "caller", "calls_per_minute": 1},
    {"match": "busy", "running": 1},
    {"match": "opener", "requests_per_minute": 3},
    {"of": "profile", "match": "desk", "requests_per_minute": 1},
    {"of": "key", "match": "talk*", "tokens_per_day": 1},
]
CALL = {"tool": "shop/price", "arguments": {"thing": "pen"}}
CHAT = {"model": "fingerpost", "messages": [{"role": "user", "content": "Hello!"}]}


@dataclass
class ServedQuotas:
    """All surfaces of a gateway with quotas."""

    router: Router
    model: ScriptedModel
    client: httpx2.AsyncClient

    async def key(self, name: str) -> dict[str, str]:
        return {"x-api-key": (await self.router.store.keys.add(name))[1]}

    async def post(self, path: str, body: Any, headers: dict[str, str]) -> httpx2.Response:
        return await self.client.post(path, json=body, headers=headers)


def answer(request: ModelRequest) -> ModelReply | str:
    """Call the tool if asked for a price, and then say what it answered."""
    texts = [message.text for message in request.messages]
    if any(ENDLESS in text for text in texts):
        return HANG
    if request.messages[-1].role == "tool":
        return f"The tool said: {texts[-1]}"
    return calls(("shop/price", {"thing": "pen"})) if PRICE in texts[-1] else "Good evening."


@pytest.fixture
async def served_quotas(tmp_path: Path) -> AsyncGenerator[ServedQuotas]:
    shop = tool_server("shop", [reading_tool("price", "The price of a thing in the shop", thing="string")])
    settings = build_gateway_settings(
        tmp_path, quotas=QUOTAS, profiles={"desk": {}}, flags={"need_gate": False}
    )
    model = ScriptedModel(answer)
    async with Router([shop.spec()], settings=settings, model=model) as router:
        await wait_until_connected(router)
        async with (
            serve_gateway(router) as address,
            httpx2.AsyncClient(base_url=address, timeout=PATIENCE_S) as client,
        ):
            yield ServedQuotas(router, model, client)


async def until_refused(send: Callable[[], Awaitable[httpx2.Response]]) -> httpx2.Response:
    """The first refusal. The clock's minute may change meanwhile, and use is counted a moment later."""
    with anyio.fail_after(PATIENCE_S):
        while True:
            response = await send()
            if response.status_code != 200:
                return response
            await anyio.sleep(0.02)


@proves("M30")
@pytest.mark.parametrize("era", ["2025-11-25", "2026-07-28"])
async def test_mcp_clients_get_the_protocols_error(served_quotas: ServedQuotas, era: Era) -> None:
    address = str(served_quotas.client.base_url).rstrip("/")
    mode: Any = "legacy" if era == "2025-11-25" else "auto"
    async with Client(f"{address}/mcp/all", mode=mode) as client:
        with anyio.fail_after(PATIENCE_S), pytest.raises(MCPError) as refused:
            while True:
                await client.call_tool("shop__price", {"thing": "pen"})
        assert refused.value.error.code == -32029
        assert "1 calls per minute for user local" in refused.value.error.message
        assert 1 <= refused.value.error.data["retryAfter"] <= 60
        assert (await client.list_tools()).tools  # only calls are limited


@proves("M30")
async def test_opening_sessions_counts_as_requests(served_quotas: ServedQuotas) -> None:
    opener = {**await served_quotas.key("opener"), "accept": BOTH}
    params: dict[str, Any] = {"protocolVersion": "2025-11-25", "capabilities": {}}
    body: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
    with anyio.fail_after(PATIENCE_S):
        while "error" not in (answer := await served_quotas.post("/mcp/all", body, opener)).text:
            assert "mcp-session-id" in answer.headers
    assert "mcp-session-id" not in answer.headers
    assert 1 <= int(answer.headers["retry-after"]) <= 60
    assert '"code":-32029' in answer.text
    assert "3 requests per minute for user opener" in answer.text


@proves("M30")
async def test_other_clients_get_429_and_when_to_try_again(served_quotas: ServedQuotas) -> None:
    served = served_quotas
    caller, talker = await served.key("caller"), await served.key("talker")
    body, headers = tool_call("shop__price", thing="pen")
    modern = {**headers, **caller, "accept": BOTH}
    refusals = {
        "mcp": await until_refused(lambda: served.post("/mcp/all", body, modern)),
        "api": await until_refused(lambda: served.post("/api/call", CALL, caller)),
        "v1": await until_refused(lambda: served.post("/v1/chat/completions", CHAT, talker)),
        "profile": await until_refused(
            lambda: served.post("/api/route", {"request": "price", "profile": "desk"}, talker)
        ),
    }
    assert {name: one.status_code for name, one in refusals.items()} == dict.fromkeys(refusals, 429)
    waits = {name: int(one.headers["retry-after"]) for name, one in refusals.items()}
    assert all(1 <= waits[name] <= 60 for name in ("mcp", "api", "profile"))
    assert 1 <= waits["v1"] <= 86_400
    assert refusals["mcp"].json()["error"]["data"]["limit"] == "calls_per_minute"
    assert refusals["api"].json()["limit"] == "calls_per_minute"
    assert refusals["v1"].json()["error"]["type"] == "rate_limit_error"
    assert "profile desk" in refusals["profile"].json()["detail"]
    streamed = await served.post("/v1/chat/completions", {**CHAT, "stream": True}, talker)
    assert streamed.status_code == 429
    assert (await served.post("/api/call", CALL, talker)).status_code == 200  # calls no model


@proves("M30")
@pytest.mark.parametrize("accept", ["application/json", "text/event-stream"])
async def test_requests_at_once(served_quotas: ServedQuotas, accept: str) -> None:
    served = served_quotas
    busy = {**await served.key("busy"), "accept": accept}
    ask = {"request": ENDLESS, "mode": "simple"}
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(served.post, "/api/ask", ask, busy)
        await eventually(lambda: bool(served.model.asked), seconds=PATIENCE_S)
        refused = await served.post("/api/ask", {"request": "Hello", "mode": "simple"}, busy)
        assert refused.status_code == 429, refused.text
        assert refused.json()["limit"] == "running"
        tasks.cancel_scope.cancel()
    with anyio.fail_after(PATIENCE_S):  # until the gateway has noticed that the client is gone
        while True:
            if (await served.post("/api/ask", {"request": "Hello"}, busy)).status_code == 200:
                break
            await anyio.sleep(0.02)


@proves("M30")
async def test_calls_within_a_request_count_and_the_model_hears_of_the_limit(
    served_quotas: ServedQuotas,
) -> None:
    caller = await served_quotas.key("caller")
    with anyio.fail_after(PATIENCE_S):
        while True:
            asked = await served_quotas.post("/api/ask", {"request": PRICE, "mode": "simple"}, caller)
            assert asked.status_code == 200, asked.text
            if "limit of 1 calls per minute" in asked.json()["answer"]:
                break

"""Real clients at the wire: the SDK's, in both eras; and how the gateway stops."""

from __future__ import annotations

import signal
import tracemalloc
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client
from mcp_types import ElicitRequestParams, ElicitResult

from fingerpost.errors import ConfigError
from fingerpost.events import MemorySink
from fingerpost.router import Router
from fingerpost.settings import GatewaySettings, Settings, StoreSettings
from fingerpost.surfaces.gateway.app import GatewayApp
from fingerpost.surfaces.gateway.sessions import NotificationListeners
from fingerpost.surfaces.http.server import get_address, listen_at, serve_app
from tests.kit.gateway_client import ask, modern, modern_headers, open_raw_connection, open_session, tool_call
from tests.kit.gateways import serve_gateway
from tests.kit.small_gateway import Address, OpenGate, SmallGateway, SmallMethods, open_small_gateway
from tests.requirements import proves


@proves("G1")
@pytest.mark.parametrize(("mode", "version"), [("legacy", "2025-11-25"), ("auto", "2026-07-28")])
async def test_the_sdk_client_in_both_eras(mode: str, version: str):
    received: list[Any] = []

    async def log(params: Any) -> None:
        received.append(params.data)

    async with open_small_gateway() as gateway:
        async with Client(gateway.url, mode=mode, logging_callback=log) as client:
            assert client.protocol_version == version
            tools = await client.list_tools()
            assert [tool.name for tool in tools.tools] == ["echo"]
            result = await client.call_tool("echo", {"text": "hello"})
            assert "text='hello'" in str(result.content[0])
            await client.call_tool("tell", {})
        assert received == ["one", "two"]


@proves("G8")
async def test_the_sdk_client_is_asked():
    async def answer(context: Any, params: ElicitRequestParams) -> ElicitResult:
        del context
        return ElicitResult(action="accept", content={"said": params.message})

    async with (
        open_small_gateway() as gateway,
        Client(gateway.url, mode="legacy", elicitation_callback=answer) as client,
    ):
        wanted: dict[str, Any] = {"message": "sure?", "requestedSchema": {"type": "object", "properties": {}}}
        result = await client.call_tool("ask", wanted)
        assert "sure?" in str(result.content[0])


@proves("G13")
async def test_a_signal_ends_it_in_good_order():
    methods = SmallMethods()
    app = GatewayApp(methods, OpenGate(), GatewaySettings(), MemorySink())
    listening = listen_at("127.0.0.1", 0)
    host, port = get_address(listening).rsplit(":", 1)
    up, stopped = anyio.Event(), anyio.Event()

    async def run() -> None:
        async with app:
            await serve_app(app, listening, on_started=up.set)
        stopped.set()

    with listening:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            await up.wait()
            await anyio.sleep(0.01)
            gateway = SmallGateway(host, int(port), methods, NotificationListeners(), MemorySink(), app)
            session = await open_session(gateway)
            async with (
                open_raw_connection(gateway) as news,
                open_raw_connection(gateway) as listen,
                open_raw_connection(gateway) as call,
            ):
                await news.send(None, session, method="GET")
                await news.head()
                listen_method = "subscriptions/listen"
                await listen.send(modern(listen_method, {"notifications": {}}), modern_headers(listen_method))
                await listen.head()
                await call.send(*tool_call("wait"))
                await methods.entered.wait()
                signal.raise_signal(signal.SIGTERM)
                assert (await listen.event())["method"].endswith("acknowledged")
                assert (await listen.event())["result"]["resultType"] == "complete"
                methods.may_proceed.set()
                assert (await call.got()).json["result"]["content"][0]["text"] == "waited"
                with anyio.fail_after(30):
                    await stopped.wait()


async def test_an_address_that_is_taken_is_explained():
    with listen_at("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=r"Cannot listen at 127.0.0.1:.*--port"):
            listen_at("127.0.0.1", port)


async def test_ports_are_written_as_in_addresses():
    with listen_at("::1", 0) as listening:
        assert get_address(listening).startswith("[::1]:")


@pytest.mark.slow
async def test_a_session_costs_little():
    async with open_small_gateway() as gateway:
        await open_session(gateway)
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(50):
            await open_session(gateway)
        grown = (tracemalloc.get_traced_memory()[0] - before) / 50
        tracemalloc.stop()
        assert (await ask(gateway, None, method="GET", path="/healthz")).status == 200
        assert grown < 20_000


@proves("G1")
async def test_the_whole_gateway_answers_before_any_server_is_there(tmp_path: Path):
    settings = Settings(store=StoreSettings(url=f"sqlite:///{tmp_path / 'store.db'}"))
    async with (
        Router([], settings=settings) as router,
        serve_gateway(router, authenticator=OpenGate()) as started_at,
    ):
        host, port = started_at.removeprefix("http://").rsplit(":", 1)
        bound_address = Address(host, int(port))
        health = await ask(bound_address, None, method="GET", path="/healthz")
        assert health.json == {"status": "ok", "servers": {"up": 0, "of": 0}, "tools": 0}
        async with Client(f"{started_at}/mcp/all") as client:
            assert [tool.name for tool in (await client.list_tools()).tools] == ["find_tools", "read_result"]

"""Servers over the API: how they are doing, switched off for everybody and on again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client

from fingerpost.records import ErrorKind, ServerState
from fingerpost.testing import tool_server
from tests.kit.api_resources import by_key, open_api_and_router, open_api_of, reading_tool, until
from tests.kit.gateway_methods import LibraryServer
from tests.kit.routers import open_router
from tests.requirements import proves


@proves("I7")
async def test_servers_are_listed_with_state_version_and_latency(tmp_path: Path):
    off = replace(tool_server("spare", [reading_tool("x")]).spec(), enabled=False)
    async with open_api_and_router(tmp_path, tool_server("files", [reading_tool("look")]).spec(), off) as api:
        listed = by_key(await api.ok("/api/servers"))
        assert list(listed) == ["files", "spare"]
        files = listed["files"]
        assert (files["state"], files["on"], files["tools"]) == ("ready", True, 1)
        assert files["version"] == "files 1.0" and files["transport"] == "in_process"
        assert files["breaker"] == {"state": "closed", "reason": "", "failures": 0, "retry_in": None}
        assert files["latency"] is None  # not requested yet
        one = await api.ok("/api/servers/files")
        assert one["latency"] > 0
        assert (listed["spare"]["state"], listed["spare"]["on"]) == ("disabled", False)
        problem = await api.problem(409, "/api/servers/spare/switch", {"on": True})
        assert "settings" in problem["title"]
        await api.problem(409, "/api/servers/spare/reconnect", post=True)
        assert (await api.problem(404, "/api/servers/nobody"))["servers"] == ["files", "spare"]


@pytest.mark.slow
@proves("I7")
async def test_a_server_that_is_off_is_disconnected_and_gone_everywhere_until_it_is_on(tmp_path: Path):
    library = LibraryServer("books", resources=["book://one"], prompts=["greet"])
    other = tool_server("files", [reading_tool("look_at")])
    switch = "/api/servers/books/switch"
    async with open_api_and_router(tmp_path, library.spec(), other.spec()) as api:
        router = api.router
        await router.servers.wait_until_resources_read(timeout=10)
        assert await _list_visible(api.address) == (["books__look_up", "files__look_at"], 1, 1)
        line = await api.ok(switch, {"on": False, "reason": "it is being moved"})
        assert (line["state"], line["on"], line["reason"]) == (
            "disabled",
            False,
            "switched off by local: it is being moved",
        )
        assert line["switched_off"]["by"] == "local"
        assert await _list_visible(api.address) == (["files__look_at"], 0, 0)
        outcome = await router.call("books/look_up", {})
        assert outcome.error is ErrorKind.UNAVAILABLE
        assert outcome.content == (
            "books/look_up is not available: its server books is switched off by local: it is being moved"
        )
        await router.connect()  # connects all that may be
        assert router.servers.get_status("books").state is ServerState.DISABLED
        tool = by_key(await api.ok("/api/tools?server=books"))["books/look_up"]
        assert tool["state"] == "off" and "its server books" in tool["reason"]
        problem = await api.problem(409, "/api/servers/books/reconnect", post=True)
        assert "switched off" in problem["title"]

    async with open_router(tmp_path, [library.spec(), other.spec()]) as router:
        assert router.servers.get_status("books").state is ServerState.DISABLED
        async with open_api_of(router) as api:
            line = await api.ok(switch, {"on": True})
            assert line["on"] and line["switched_off"] is None
            await until(lambda: router.servers.get_status("books").state is ServerState.READY)
            await router.servers.wait_until_resources_read(timeout=10)
            assert await _list_visible(api.address) == (["books__look_up", "files__look_at"], 1, 1)
            problem = await api.ok("/api/audit?kind=server_switched")
            assert [(entry["data"]["server"], entry["data"]["on"]) for entry in problem["items"]] == [
                ("books", True),
                ("books", False),
            ]


async def _list_visible(address: str) -> tuple[list[str], int, int]:
    """Tools, and how many resources and prompts, as an MCP client sees them."""
    async with Client(f"{address}/mcp/all", mode="auto") as client:
        tools = await client.list_tools()
        resources = await client.list_resources()
        prompts = await client.list_prompts()
        names = [tool.name for tool in tools.tools if "__" in tool.name]  # not our own
        return names, len(resources.resources), len(prompts.prompts)


@proves("I7")
async def test_a_server_connects_anew_and_is_asked_again_by_hand(tmp_path: Path):
    stuck = True

    async def call(*_: Any) -> str:
        if stuck:
            await anyio.sleep_forever()
        return "well again"

    server = tool_server("files", [reading_tool("look")], call=call)
    async with open_api_and_router(
        tmp_path,
        server.spec(),
        call={"breaker_failures": 1, "retries": 0},
        tools=[{"match": "files/*", "timeout_ms": 100}],
    ) as api:
        before = (await api.ok("/api/servers/files"))["since"]
        await api.ok("/api/servers/files/reconnect", post=True)
        await until(lambda: api.router.servers.get_status("files").state is ServerState.READY)
        assert (await api.ok("/api/servers/files"))["since"] > before

        assert (await api.router.call("files/look", {})).error is ErrorKind.TIMEOUT
        ill = await api.ok("/api/servers/files")
        assert ill["breaker"]["state"] == "open" and ill["breaker"]["reason"]
        stuck = False
        assert (await api.router.call("files/look", {})).error is ErrorKind.UNAVAILABLE
        well = await api.ok("/api/servers/files/breaker/reset", post=True)
        assert well["breaker"]["state"] == "closed"
        assert (await api.router.call("files/look", {})).content.endswith("well again")

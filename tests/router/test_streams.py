"""Streams that end before their end, and what a router says of its models."""

from __future__ import annotations

import logging
from contextlib import aclosing
from pathlib import Path

import anyio
import pytest

from fingerpost import Router
from fingerpost.errors import ConfigError
from fingerpost.llm import ModelReply, ModelRequest
from fingerpost.router import ModelNames
from fingerpost.testing import ScriptedModel, tool_server
from tests.kit.routers import build_settings
from tests.requirements import proves


@proves("O6")
async def test_a_reader_who_leaves_ends_the_request_without_an_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    reached, gone = anyio.Event(), anyio.Event()

    async def slow(request: ModelRequest) -> ModelReply:
        reached.set()
        try:
            await anyio.sleep_forever()
        finally:
            gone.set()
        raise AssertionError

    async with Router(settings=build_settings(tmp_path), model=ScriptedModel(slow)) as router:

        async def read() -> None:
            async with aclosing(router.stream("Hello!", mode="simple")) as items:
                async for _ in items:
                    pass

        with caplog.at_level(logging.WARNING, logger="fingerpost"), anyio.fail_after(30):
            async with anyio.create_task_group() as reading:
                reading.start_soon(read)
                await reached.wait()
                reading.cancel_scope.cancel()
            await gone.wait()
            await router.store.journal.flush()
    assert not caplog.records


async def test_a_stream_that_cannot_begin_says_why_and_leaves_nothing_open(tmp_path: Path) -> None:
    async with Router(settings=build_settings(tmp_path)) as router:
        with pytest.raises(ConfigError, match="needs a language model"):
            async for _ in router.stream("Hello!", mode="simple"):
                pass


def test_a_router_knows_who_answers(tmp_path: Path) -> None:
    configured = build_settings(
        tmp_path, models={"prime": {"model": "big", "base_url": "http://127.0.0.1:9/v1"}}
    )
    lite = ScriptedModel([], name="small")
    assert Router(settings=build_settings(tmp_path)).models == ModelNames()
    assert Router(settings=configured).models == ModelNames(lite="big", prime="big")
    assert Router(settings=configured, lite=lite).models == ModelNames(lite="small", prime="big")


async def test_the_first_request_waits_for_servers_that_are_being_connected(tmp_path: Path) -> None:
    tools = [{"name": "search_notes", "description": "Search my notes.", "inputSchema": {"type": "object"}}]
    server = tool_server("notes", tools)
    async with Router(
        [server.spec()], settings=build_settings(tmp_path), model=ScriptedModel(["Hi."])
    ) as router:
        router.servers.start("notes")  # as a surface does that has begun to serve
        route = await router.route("Search my notes for the budget", mode="simple")
    assert "notes/search_notes" in route.packet.context.available_tools

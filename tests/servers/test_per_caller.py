"""Connections of single callers: few, replaced when lost, gone when unused."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.abc import TaskGroup

from fingerpost.errors import ServerUnavailable
from fingerpost.records import JsonObject
from fingerpost.servers import Server
from fingerpost.servers.library import ConnectDeps, ConnectLibrary
from fingerpost.servers.per_caller import CallerConnections
from fingerpost.settings.model import LimitSettings
from fingerpost.testing import stdio_fault
from tests.kit.full_server import FullServer, serve_full_server
from tests.kit.server_pools import PATIENCE, eventually, text_of
from tests.kit.sleepy_server import SleepyServer


def _ignore_notification(method: str, params: object, caller: str | None) -> None:
    raise AssertionError(method)


@asynccontextmanager
async def open_caller_connections(
    url: str, **settings: Any
) -> AsyncGenerator[tuple[CallerConnections, TaskGroup]]:
    spec = replace(Server.http("talk", url, era="2025-11-25"), isolate=True, connect_timeout=PATIENCE)
    library = ConnectLibrary()
    around = ConnectDeps(limits=LimitSettings(), library=library, tokens=None)
    own = CallerConnections(spec, around, _ignore_notification, **settings)
    try:
        async with anyio.create_task_group() as tasks:
            yield own, tasks
            own.close()
    finally:
        with anyio.CancelScope(shield=True):
            await library.aclose()


async def test_the_longest_idle_one_makes_room_and_busy_ones_stay():
    async with (
        serve_full_server(FullServer()) as (url, record),
        open_caller_connections(url, max_callers=2) as (own, tasks),
    ):
        for key in ("a", "b", "a"):
            async with own.use(key, tasks, None) as connection:
                await connection.ask("tools/call", {"name": "meta", "arguments": {}})
        assert len(own) == 2
        async with own.use("a", tasks, None) as first:
            async with own.use("c", tasks, None):  # b goes: a is in use
                assert len(own) == 2
                with pytest.raises(ServerUnavailable, match="already serves 2 callers"):
                    async with own.use("d", tasks, None):
                        pass
            async with own.use("a", tasks, None) as again:
                assert again is first
        assert len(record.of("initialize")) == 3


async def test_an_unused_connection_is_closed_and_a_lost_one_replaced():
    async with (
        serve_full_server(FullServer()) as (url, record),
        open_caller_connections(url, idle_seconds=0.1) as (own, tasks),
    ):
        async with own.use("a", tasks, None) as connection:
            await anyio.sleep(0.3)  # long, and in use
            assert len(own) == 1
        await eventually(lambda: len(own) == 0)
        assert connection.state.failure is None
        async with own.use("a", tasks, None) as connection:
            await connection.ask("tools/call", {"name": "meta", "arguments": {}})
        assert len(record.of("initialize")) == 2


@pytest.mark.process
async def test_a_program_that_never_answers_fails_its_caller_and_is_ended():
    spec = replace(stdio_fault("silent", name="mute"), connect_timeout=0.3)
    around = ConnectDeps(limits=LimitSettings(), library=ConnectLibrary(), tokens=None)
    own = CallerConnections(spec, around, _ignore_notification)
    async with anyio.create_task_group() as tasks:
        with pytest.raises(ServerUnavailable, match=r"did not connect within 0\.3 s"):
            async with own.use("a", tasks, None):
                pass
    assert len(own) == 0


@pytest.mark.process
async def test_a_call_that_comes_while_an_unused_connection_is_closed_gets_another(tmp_path: Path):
    sleepy = SleepyServer(tmp_path)
    sleepy.set_fault("linger")
    around = ConnectDeps(limits=LimitSettings(), library=ConnectLibrary(), tokens=None)
    own = CallerConnections(sleepy.spec, around, _ignore_notification, idle_seconds=0.1)
    call: JsonObject = {"name": "look", "arguments": {}}
    async with anyio.create_task_group() as tasks:
        async with own.use("a", tasks, None) as connection:
            await connection.ask("tools/call", call)
        await eventually(lambda: sleepy.ends == 1)  # its input is closed, and the program runs on
        sleepy.set_fault("")
        async with own.use("a", tasks, None) as another:
            assert text_of(await another.ask("tools/call", call)) == "found"
        own.close()
    assert (sleepy.starts, sleepy.calls) == (2, 2)

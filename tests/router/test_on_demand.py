"""Servers on demand: known servers are started by the first call, and stopped when they are idle."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any

import anyio
import anyio.to_thread
import pytest

from fingerpost import Router
from fingerpost.errors import ServerUnavailable
from fingerpost.records import (
    Call,
    CallContext,
    CallFault,
    ErrorKind,
    JsonObject,
    ParameterError,
    Precheck,
    ServerSpec,
    ServerState,
)
from fingerpost.tasks import run_in_thread
from fingerpost.testing import tool_server
from tests.kit.routers import build_settings
from tests.kit.server_pools import PATIENCE, eventually
from tests.kit.sleepy_server import SleepyServer
from tests.requirements import proves

pytestmark = pytest.mark.process


@pytest.fixture
def sleepy(tmp_path: Path) -> SleepyServer:
    return SleepyServer(tmp_path)


@asynccontextmanager
async def open_router(tmp_path: Path, *specs: ServerSpec, **lifecycle: Any) -> AsyncGenerator[Router]:
    async with Router(specs, settings=build_settings(tmp_path, lifecycle=lifecycle)) as router:
        yield router


async def learn(tmp_path: Path, *servers: SleepyServer) -> None:
    """Connect the servers once, so that they are known."""
    async with open_router(tmp_path, *(server.spec for server in servers)) as router:
        await router.connect()
        assert all(status.state is ServerState.READY for status in router.servers.statuses)


def get_state(router: Router, name: str = "sleepy") -> ServerState:
    return router.servers.get_status(name).state


@proves("S1")
async def test_a_known_server_is_listed_and_narrowed_without_being_started(
    tmp_path: Path, sleepy: SleepyServer
) -> None:
    other = SleepyServer(tmp_path, "other")
    await learn(tmp_path, sleepy, other)
    async with open_router(tmp_path, sleepy.spec, other.spec) as router:
        await router.connect()
        assert [card.key for card in router.tools.cards] == ["other/look", "sleepy/look"]
        await router.narrow("look up a word in the list")
        assert get_state(router) is ServerState.ASLEEP
        outcome = await router.call("sleepy/look", {"word": "hat"})
        assert outcome.success
        assert get_state(router) is ServerState.READY
        assert get_state(router, "other") is ServerState.ASLEEP
    assert (sleepy.starts, other.starts) == (2, 1)


@proves("S2")
async def test_a_tool_that_changed_while_its_server_slept_is_not_called(
    tmp_path: Path, sleepy: SleepyServer
) -> None:
    await learn(tmp_path, sleepy)
    sleepy.offer("look", city={"type": "string"})
    async with open_router(tmp_path, sleepy.spec) as router:
        outcome = await router.call("sleepy/look", {"word": "hat"})
        assert not outcome.success
        assert "definition changed" in outcome.detail
        assert "inputSchema.properties.city" in outcome.detail
        again = await router.call("sleepy/look", {"word": "hat"})
        assert "definition changed" in again.detail
    assert (sleepy.starts, sleepy.calls) == (2, 0)


@proves("S2")
async def test_a_tool_that_is_gone_when_its_server_wakes_is_not_called(
    tmp_path: Path, sleepy: SleepyServer
) -> None:
    await learn(tmp_path, sleepy)
    sleepy.offer("find")
    async with open_router(tmp_path, sleepy.spec) as router:
        outcome = await router.call("sleepy/look", {"word": "hat"})
        assert "was removed" in outcome.detail
    assert sleepy.calls == 0


@proves("S2")
async def test_a_tool_of_a_server_that_cannot_list_its_tools_is_not_called_and_not_said_to_be_gone(
    tmp_path: Path, sleepy: SleepyServer
) -> None:
    await learn(tmp_path, sleepy)
    (sleepy.folder / "tools.json").write_text('"none"', "utf-8")
    async with open_router(tmp_path, sleepy.spec) as router:
        for _ in range(2):
            outcome = await router.call("sleepy/look", {"word": "hat"})
            assert outcome.error is ErrorKind.UNAVAILABLE
            assert "the tools could not be listed" in outcome.detail
            assert "removed" not in outcome.detail
    assert sleepy.calls == 0


class WriteListener(Precheck):
    """A server in this process that is told of writes, and what happens then."""

    def __init__(self, happens: Callable[[], Awaitable[object]]) -> None:
        self._happens = happens

    def find_argument_errors(self, tool: str, arguments: JsonObject) -> tuple[ParameterError, ...]:
        return ()

    async def get_grant_reason(self, tool: str, arguments: JsonObject) -> str:
        return ""

    async def find_fault(self, tool: str, arguments: JsonObject) -> CallFault | None:
        return None

    async def note_write(self, call: Call, server: ServerSpec, context: CallContext) -> None:
        await self._happens()


@proves("S2")
async def test_a_tool_that_changes_while_its_call_is_recorded_is_not_called(
    tmp_path: Path, sleepy: SleepyServer
) -> None:
    sleepy.offer("look", writes=True)

    async def restart() -> None:
        change = partial(sleepy.offer, "look", writes=True, city={"type": "string"})
        await anyio.to_thread.run_sync(change)
        await router.servers.reconnect("sleepy")

    told = replace(tool_server("told", ["read"]).spec(), precheck=WriteListener(restart))
    settings = build_settings(tmp_path, policy=[{"verdict": "allow"}])
    async with Router([sleepy.spec, told], settings=settings) as router:
        await router.connect()
        outcome = await router.call("sleepy/look", {"word": "hat"})
        assert outcome.error is ErrorKind.UNAVAILABLE  # and not unknown
        assert "definition changed" in outcome.detail
    assert (sleepy.starts, sleepy.calls) == (2, 0)


@proves("S1")
async def test_a_call_waits_for_the_server_that_replaces_the_one_it_waited_for(
    tmp_path: Path, sleepy: SleepyServer
) -> None:
    sleepy.set_fault("slow")
    async with open_router(tmp_path, sleepy.spec) as router, anyio.create_task_group() as tasks:

        async def call() -> None:
            outcome = await router.call("sleepy/look", {"word": "hat"})
            assert outcome.success, outcome.detail

        tasks.start_soon(call)
        await eventually(lambda: sleepy.starts == 1)
        await router.replace_server(replace(sleepy.spec, env={"NEW": "1"}))
    assert (sleepy.starts, sleepy.calls) == (2, 1)


@proves("S1")
@pytest.mark.parametrize("fault", ["refuse", "die"])
async def test_a_server_that_does_not_wake_fails_the_call_with_its_reason(
    tmp_path: Path, sleepy: SleepyServer, fault: str
) -> None:
    await learn(tmp_path, sleepy)
    sleepy.set_fault(fault)
    async with open_router(tmp_path, sleepy.spec) as router:
        outcome = await router.call("sleepy/look", {"word": "hat"})
        assert outcome.error is ErrorKind.UNAVAILABLE
        assert {"refuse": "it does not start today", "die": "it dies while it wakes"}[fault] in outcome.detail
    assert sleepy.calls == 0


@proves("S1")
async def test_fifty_calls_at_once_start_the_server_once_and_each_runs_once(
    tmp_path: Path, sleepy: SleepyServer
) -> None:
    await learn(tmp_path, sleepy)
    sleepy.set_fault("slow")
    answers: list[bool] = []
    async with open_router(tmp_path, sleepy.spec) as router:

        async def call(number: int) -> None:
            answers.append((await router.call("sleepy/look", {"word": f"hat {number}"})).success)

        async with anyio.create_task_group() as tasks:
            for number in range(50):
                tasks.start_soon(call, number)
    assert answers == [True] * 50
    assert (sleepy.starts, sleepy.calls) == (2, 50)


@proves("S3")
async def test_an_idle_server_is_stopped_and_woken_by_the_next_call(
    tmp_path: Path, sleepy: SleepyServer
) -> None:
    async with open_router(tmp_path, sleepy.spec, idle_seconds=0.2) as router:
        await router.connect()
        await eventually(lambda: get_state(router) is ServerState.ASLEEP)
        assert [card.key for card in router.tools.cards] == ["sleepy/look"]
        assert (await router.call("sleepy/look", {"word": "hat"})).success
        assert (sleepy.starts, sleepy.calls) == (2, 1)


@proves("S1")
async def test_a_known_server_that_a_person_switched_off_is_off_after_a_restart(
    tmp_path: Path, sleepy: SleepyServer
) -> None:
    await learn(tmp_path, sleepy)
    async with open_router(tmp_path, sleepy.spec) as router:
        await router.disabled_tools.set_server_enabled("sleepy", enabled=False, by="me", reason="broken")
    async with open_router(tmp_path, sleepy.spec) as router:
        status = router.servers.get_status("sleepy")
        assert (status.state, status.reason) == (ServerState.DISABLED, "switched off by me: broken")
        with pytest.raises(ServerUnavailable, match="switched off by me"):
            await router.servers.ensure("sleepy", timeout=PATIENCE)
        assert "switched off by me" in (await router.call("sleepy/look", {"word": "hat"})).content
        assert sleepy.starts == 1
        await router.disabled_tools.set_server_enabled("sleepy", enabled=True, by="me")
        assert (await router.call("sleepy/look", {"word": "hat"})).success


@proves("S3")
async def test_no_call_is_lost_or_run_twice_while_servers_are_stopped(
    tmp_path: Path, sleepy: SleepyServer
) -> None:
    async with open_router(tmp_path, sleepy.spec, idle_seconds=0.01) as router:
        await router.connect()
        for number in range(14):
            await anyio.sleep(0.004 * (number % 7))  # before, while and after the server is stopped
            outcome = await router.call("sleepy/look", {"word": f"hat {number}"})
            assert outcome.success, outcome.detail
    assert sleepy.calls == 14
    assert sleepy.starts > 2


@proves("S3")
async def test_a_server_is_not_stopped_during_a_call(tmp_path: Path, sleepy: SleepyServer) -> None:
    sleepy.offer("look", seconds={"type": "number"})
    async with open_router(tmp_path, sleepy.spec, idle_seconds=0.1) as router:
        assert (await router.call("sleepy/look", {"word": "hat", "seconds": 0.5})).success
    assert (sleepy.starts, sleepy.calls) == (1, 1)


@proves("S3")
async def test_a_server_is_not_stopped_while_a_person_has_it_listed_again(
    tmp_path: Path, sleepy: SleepyServer
) -> None:
    sleepy.set_fault("slow")
    async with open_router(tmp_path, sleepy.spec, idle_seconds=0.1) as router:
        await router.servers.refresh("sleepy")  # which takes longer
        await eventually(lambda: get_state(router) is ServerState.ASLEEP)


@proves("S3")
async def test_a_watch_that_ends_while_its_server_is_down_does_not_keep_it_running(
    tmp_path: Path, sleepy: SleepyServer
) -> None:
    sleepy.offer("look", seconds={"type": "number"})
    watched: JsonObject = {"uri": "words://hat"}
    async with open_router(tmp_path, sleepy.spec, idle_seconds=0.05) as router:
        await router.servers.ask("sleepy", "resources/subscribe", watched, timeout=PATIENCE)
        sleepy.set_fault("refuse")
        await router.call("sleepy/look", {"seconds": -1})  # it ends, and does not start again
        with pytest.raises(ServerUnavailable):
            await router.servers.ask("sleepy", "resources/unsubscribe", watched, timeout=PATIENCE)
        sleepy.set_fault("")
        await router.servers.reconnect("sleepy")
        await eventually(lambda: get_state(router) is ServerState.ASLEEP)


@proves("S3")
@pytest.mark.parametrize(
    "changes", [{"keep_running": True}, {"isolate": True}, {"lifecycle": "always"}, {"idle_seconds": 0.0}]
)
async def test_a_server_that_must_not_be_stopped_runs_on(
    tmp_path: Path, sleepy: SleepyServer, changes: dict[str, Any]
) -> None:
    async with open_router(tmp_path, replace(sleepy.spec, **changes), idle_seconds=0.05) as router:
        await router.connect()
        await anyio.sleep(0.3)
        assert get_state(router) is ServerState.READY


@proves("S3")
async def test_a_server_whose_tools_open_something_runs_on(tmp_path: Path, sleepy: SleepyServer) -> None:
    sleepy.offer("open_session", "look")
    async with open_router(tmp_path, sleepy.spec, idle_seconds=0.05) as router:
        await router.connect()
        await anyio.sleep(0.3)
        assert get_state(router) is ServerState.READY


@proves("S1", "S4")
@pytest.mark.parametrize(
    ("lifecycle", "changes"),
    [
        ({"relist_days": 0}, {}),
        ({"default": "at_start"}, {}),
        ({}, {"lifecycle": "always"}),
        ({}, {"env": {"NEW": "1"}}),
    ],
)
async def test_what_is_old_changed_or_wanted_at_the_start_is_connected_at_the_start(
    tmp_path: Path, sleepy: SleepyServer, lifecycle: dict[str, Any], changes: dict[str, Any]
) -> None:
    await learn(tmp_path, sleepy)
    sleepy.offer("look", "find")
    spec = replace(sleepy.spec, new_tools="allow", **changes)
    async with open_router(tmp_path, spec, **lifecycle) as router:
        await router.connect()
        await eventually(lambda: len(router.tools.cards) == 2)
    assert sleepy.starts == 2


@proves("S1")
async def test_two_entries_of_one_name_are_known_apart(tmp_path: Path, sleepy: SleepyServer) -> None:
    (tmp_path / "elsewhere").mkdir()
    other = SleepyServer(tmp_path / "elsewhere")
    other.offer("find")
    await learn(tmp_path, sleepy)
    async with open_router(tmp_path, replace(other.spec, new_tools="allow")) as router:
        await router.connect()
        assert [card.key for card in router.tools.cards] == ["sleepy/find"]
    async with open_router(tmp_path, sleepy.spec) as router:
        assert [card.key for card in router.tools.cards] == ["sleepy/look"]
    assert (sleepy.starts, other.starts) == (1, 1)


@proves("S1")
async def test_what_a_server_lists_is_not_kept_for_the_entry_that_it_replaced(
    tmp_path: Path, sleepy: SleepyServer
) -> None:
    await learn(tmp_path, sleepy)
    works, may_end = Event(), Event()

    def work() -> None:
        works.set()
        may_end.wait(PATIENCE)

    async with open_router(tmp_path, sleepy.spec) as router, anyio.create_task_group() as tasks:
        tasks.start_soon(run_in_thread, work)  # the hash of the new entry waits for it
        await eventually(works.is_set)
        sleepy.offer("find")
        tasks.start_soon(router.replace_server, replace(sleepy.spec, env={"NEW": "1"}))
        await eventually(lambda: get_state(router) is ServerState.IDLE)
        await router.servers.ensure("sleepy", timeout=PATIENCE)
        may_end.set()
    async with open_router(tmp_path, sleepy.spec) as router:
        assert [card.key for card in router.tools.cards] == ["sleepy/look"]
    async with open_router(tmp_path, replace(sleepy.spec, env={"NEW": "1"}, new_tools="allow")) as router:
        assert [card.key for card in router.tools.cards] == ["sleepy/find"]


@proves("S1")
async def test_one_relative_entry_in_two_folders_leads_to_two_servers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one", "other"):
        folder = tmp_path / name
        folder.mkdir()
        server = SleepyServer(folder)
        server.offer(name)
        spec = replace(server.spec, args=(*server.spec.args[:-1], "./sleepy"), new_tools="allow")
        monkeypatch.chdir(folder)
        async with open_router(tmp_path, spec) as router:
            await router.connect()
            assert [card.key for card in router.tools.cards] == [f"sleepy/{name}"]
        assert server.starts == 1


@proves("S1")
async def test_all_servers_of_a_short_run_are_known_afterwards(tmp_path: Path) -> None:
    servers = [SleepyServer(tmp_path, f"server{number}") for number in range(12)]
    await learn(tmp_path, *servers)
    async with open_router(tmp_path, *(server.spec for server in servers)) as router:
        await router.connect()
        assert {status.state for status in router.servers.statuses} == {ServerState.ASLEEP}

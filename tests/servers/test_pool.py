"""The pool: lazy, parallel, concurrent, changeable at run time."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from fingerpost.errors import ConfigError, ServerUnavailable, ToolFailed, ToolTimeout, UnknownServer
from fingerpost.events import MemorySink, ServerStateChanged
from fingerpost.records import ServerSpec, ServerState
from fingerpost.servers import Server, ServerPool
from fingerpost.settings.model import LimitSettings
from fingerpost.testing import stdio_fault, tool_server
from tests.kit.programs import program
from tests.kit.server_pools import (
    PATIENCE,
    arguments_of,
    eventually,
    names,
    open_pool,
    states,
    text_of,
)
from tests.requirements import proves


@proves("H8")
async def test_entering_the_pool_connects_nothing():
    echo = tool_server("echo")
    sink = MemorySink()
    async with open_pool(echo.spec(), sink=sink, start=False) as servers:
        await anyio.sleep(0.05)
        assert servers.get_status("echo").state is ServerState.IDLE
        assert servers.get_listing("echo") is None
    assert sink.events == ()


@pytest.mark.process
@proves("H8", "F2", "F42")
async def test_dead_and_hanging_servers_delay_no_other_server():
    good = [tool_server(f"good-{number}").spec() for number in range(15)]
    dead = [stdio_fault("silent", name=f"hanging-{number}", connect_timeout=600) for number in range(3)]
    dead += [Server.stdio("absent", ["/no/such/program"]), Server.http("closed", "http://127.0.0.1:9/mcp")]
    mixed = [spec for pair in zip(good[:5], dead, strict=True) for spec in pair] + good[5:]
    async with open_pool(*mixed, start=False) as servers:
        servers.start()
        await eventually(
            lambda: all(servers.get_status(spec.name).state is ServerState.READY for spec in good)
        )
        hanging = [servers.get_status(f"hanging-{number}").state for number in range(3)]
        assert hanging == [ServerState.CONNECTING] * 3
        assert arguments_of(await servers.call("good-0", "echo", {"a": 1}, timeout=PATIENCE)) == {"a": 1}


@pytest.mark.process
@proves("F42")
async def test_with_all_servers_down_the_pool_starts_and_says_why():
    async with open_pool(
        Server.stdio("absent", ["/no/such/program"]),
        Server.http("closed", "http://127.0.0.1:9/mcp"),
        stdio_fault("crash_loop", "/dev/null", name="crashing"),
        stdio_fault("silent", connect_timeout=0.3),
    ) as servers:
        reasons = {status.name: (status.state, status.reason) for status in servers.statuses}
        assert {state for state, _ in reasons.values()} <= {ServerState.DOWN, ServerState.CONNECTING}
        with pytest.raises(ServerUnavailable, match="/no/such/program was not found") as caught:
            await servers.call("absent", "echo", {}, timeout=PATIENCE)
        assert caught.value.hint is not None


async def test_statuses_come_in_configured_order_and_name_the_product():
    specs = [tool_server(name).spec() for name in ("zebra", "ant", "mole")]
    async with open_pool(*specs) as servers:
        assert [status.name for status in servers.statuses] == ["zebra", "ant", "mole"]
        status = servers.get_status("ant")
        assert status.product == "ant 1.0"
        assert status.protocol == "2026-07-28"
        assert status.connect_ms is not None
        assert status.tools == 1


async def test_an_unknown_server_is_answered_with_near_names():
    async with open_pool(tool_server("github").spec(), tool_server("files").spec(), start=False) as servers:
        with pytest.raises(UnknownServer, match="gihtub") as caught:
            servers.get_status("gihtub")
        assert caught.value.hint == "Did you mean github?"
        with pytest.raises(UnknownServer):
            await servers.call("nothing", "x", {}, timeout=1)


async def test_two_servers_of_one_name_are_refused():
    with pytest.raises(ConfigError, match="two servers named 'a'"):
        ServerPool(
            [tool_server("a").spec(), tool_server("a").spec()], events=MemorySink(), limits=LimitSettings()
        )


async def test_a_disabled_server_is_never_started():
    spec = ServerSpec(name="off", transport="stdio", command="/no/such/program", enabled=False)
    async with open_pool(spec) as servers:
        assert servers.get_status("off").state is ServerState.DISABLED
        with pytest.raises(ServerUnavailable, match="off is disabled"):
            await servers.ensure("off", timeout=PATIENCE)


@proves("H8")
async def test_a_call_connects_only_the_server_it_needs():
    async with open_pool(tool_server("one").spec(), tool_server("two").spec(), start=False) as servers:
        assert arguments_of(await servers.call("one", "echo", {"x": "y"}, timeout=PATIENCE)) == {"x": "y"}
        assert servers.get_status("one").state is ServerState.READY
        assert servers.get_status("two").state is ServerState.IDLE


@proves("H12")
@pytest.mark.parametrize("era", ["2025-11-25", "2026-07-28"])
async def test_a_hundred_calls_share_one_connection_and_none_gets_anothers_result(era: Any):
    begun = anyio.Semaphore(0)
    everybody = anyio.Event()

    async def call(_: str, arguments: dict[str, Any]) -> str:
        begun.release()
        if begun.value == 100:
            everybody.set()  # only when all calls are under way does the first one return
        await everybody.wait()
        return str(arguments["number"])

    async with open_pool(tool_server("busy", call=call).spec(era=era)) as servers:
        answers: dict[int, str] = {}

        async def ask(number: int) -> None:
            answers[number] = text_of(
                await servers.call("busy", "echo", {"number": number}, timeout=PATIENCE)
            )

        async with anyio.create_task_group() as tasks:
            for number in range(100):
                tasks.start_soon(ask, number)
        assert answers == {number: str(number) for number in range(100)}


@pytest.mark.process
@proves("H12")
async def test_a_hundred_calls_run_at_once_over_one_pipe():
    async with open_pool(stdio_fault("none", name="pipe")) as servers:
        answers: dict[int, Any] = {}

        async def ask(number: int) -> None:
            answers[number] = arguments_of(
                await servers.call("pipe", "echo", {"number": number}, timeout=PATIENCE)
            )

        async with anyio.create_task_group() as tasks:
            for number in range(100):
                tasks.start_soon(ask, number)
        assert answers == {number: {"number": number} for number in range(100)}


@proves("F2")
@pytest.mark.parametrize("era", ["2025-11-25", "2026-07-28"])
async def test_a_hanging_call_ends_at_its_deadline_and_the_server_is_told(era: Any):
    cancelled = anyio.Event()

    async def call(_: str, arguments: dict[str, Any]) -> str:
        try:
            await anyio.sleep(3600)
        except anyio.get_cancelled_exc_class():
            cancelled.set()
            raise
        return ""

    async with open_pool(tool_server("slow", call=call).spec(era=era)) as servers:
        with pytest.raises(ToolTimeout, match=r"did not answer within 0\.2 s"):
            await servers.call("slow", "echo", {}, timeout=0.2)
        with anyio.fail_after(PATIENCE):
            await cancelled.wait()


async def test_a_cancelled_caller_cancels_upstream():
    began, cancelled = anyio.Event(), anyio.Event()

    async def call(_: str, arguments: dict[str, Any]) -> str:
        began.set()
        try:
            await anyio.sleep(3600)
        finally:
            cancelled.set()
        return ""

    async with open_pool(tool_server("slow", call=call).spec()) as servers:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: servers.call("slow", "echo", {}, timeout=600))
            await began.wait()
            tasks.cancel_scope.cancel()
        with anyio.fail_after(PATIENCE):
            await cancelled.wait()


async def test_a_failing_tool_keeps_the_servers_code():
    async def call(_: str, arguments: dict[str, Any]) -> str:
        message = "the disk is on fire"
        raise RuntimeError(message)

    async with open_pool(tool_server("bad", call=call).spec(era="2025-11-25")) as servers:
        with pytest.raises(ToolFailed) as caught:
            await servers.call("bad", "echo", {}, timeout=PATIENCE)
        assert isinstance(caught.value.code, int)
        assert caught.value.server == "bad"


async def test_servers_come_and_go_at_run_time():
    sink = MemorySink()
    async with open_pool(tool_server("first").spec(), sink=sink) as servers:
        changes: list[str] = []
        stop = servers.subscribe_to_changes(changes.append)
        await servers.add(tool_server("second").spec())
        await servers.ensure("second", timeout=PATIENCE)
        assert [status.name for status in servers.statuses] == ["first", "second"]
        await servers.remove("first")
        assert [status.name for status in servers.statuses] == ["second"]
        assert {"first", "second"} <= set(changes)
        with pytest.raises(UnknownServer):
            servers.get_status("first")
        stop()
        seen = len(changes)
        await servers.remove("second")
        assert len(changes) == seen
        await servers.add(tool_server("first").spec())
        await servers.ensure("first", timeout=PATIENCE)


async def test_a_failing_watcher_does_not_affect_others():
    def watcher(name: str) -> None:
        message = "a bug in the watcher"
        raise RuntimeError(message)

    async with open_pool(tool_server("a").spec(), start=False) as servers:
        servers.subscribe_to_changes(watcher)
        await servers.ensure("a", timeout=PATIENCE)


async def test_state_changes_are_events_in_order():
    sink = MemorySink()
    async with open_pool(tool_server("a").spec(), sink=sink):
        assert states(sink, "a") == [ServerState.CONNECTING, ServerState.READY]
        first = next(event for event in sink.events if isinstance(event, ServerStateChanged))
        assert first.previous is ServerState.IDLE


async def test_refresh_lists_again():
    growing = tool_server("growing")
    async with open_pool(growing.spec()) as servers:
        assert names(servers, "growing") == ["echo"]
        growing.change_silently([{"name": "echo"}, {"name": "more"}])
        await servers.refresh("growing")
        assert names(servers, "growing") == ["echo", "more"]


async def test_a_server_removed_before_its_task_began_stays_away():
    async with open_pool(start=False) as servers:
        await servers.add(stdio_fault("none", name="brief"))
        servers.start("brief")
        await servers.remove("brief")
        assert servers.statuses == ()


@pytest.mark.process
async def test_progress_reaches_the_caller():
    received: list[tuple[float, float | None]] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        received.append((progress, total))

    everything = Server.stdio("everything", [program("mcp-server-everything")])
    async with open_pool(everything) as servers:
        await servers.call(
            "everything",
            "trigger-long-running-operation",
            {"duration": 0.2, "steps": 2},
            timeout=PATIENCE,
            on_progress=on_progress,
        )
    assert received[0][1] == 2

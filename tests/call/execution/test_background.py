"""Calls side by side, and calls in the background."""

from __future__ import annotations

from functools import partial
from typing import Any

import anyio
import pytest

from fingerpost.call.execution import (
    BackgroundCalls,
    BackgroundState,
    ParallelJob,
    ProgressReporter,
    run_in_parallel,
)
from fingerpost.errors import CallError, LimitReached
from fingerpost.records import Call, Effect, Execution
from fingerpost.testing import tool_server
from tests.kit.call_runner import HandClock, RunnerFixture, a_call, a_run, open_bench
from tests.requirements import proves


async def run_all(b: RunnerFixture, calls: list[Call]) -> tuple[Execution, ...]:
    return await run_in_parallel(
        [ParallelJob(call.server, call.effect, partial(b.runner.run, a_run(call))) for call in calls]
    )


@proves("A17")
async def test_independent_reads_run_side_by_side_and_come_back_in_order():
    together = anyio.Event()
    waiting = 0

    async def meet(_: str, arguments: dict[str, Any]) -> str:
        nonlocal waiting
        waiting += 1
        if waiting == 4:
            together.set()
        await together.wait()  # none returns before all four are there
        return str(arguments["n"])

    servers = [tool_server(name, ["read"], call=meet) for name in ("a", "b")]
    calls = [a_call(f"{name}/read", {"n": number}) for number, name in enumerate("abab")]
    async with open_bench(*(server.spec() for server in servers)) as b:
        with anyio.fail_after(30):
            done = await run_all(b, calls)
    assert [execution.call for execution in done] == calls
    assert [execution.error for execution in done] == [None] * 4


@proves("A17")
async def test_writes_to_one_server_keep_their_order_and_never_overlap():
    log: list[str] = []

    async def act(_: str, arguments: dict[str, Any]) -> str:
        log.append(f"begin {arguments['n']}")
        await anyio.sleep(0.03 if arguments["n"] == 0 else 0)
        log.append(f"end {arguments['n']}")
        return "done"

    notes = tool_server("notes", ["append"], call=act)
    calls = [a_call("notes/append", {"n": number}, effect=Effect.WRITE) for number in range(3)]
    async with open_bench(notes.spec()) as b:
        await run_all(b, calls)
    assert log == [f"{word} {number}" for number in range(3) for word in ("begin", "end")]


async def in_background(
    background: BackgroundCalls[Execution], b: RunnerFixture, call: Call, *, owner: str | None = None
) -> str:
    async def work(progress: ProgressReporter) -> Execution:
        return await b.run(call, on_progress=progress)

    return background.start(work, tool=call.tool, owner=owner)


async def test_a_call_in_the_background_is_polled_and_its_result_fetched_more_than_once():
    release = anyio.Event()

    async def act(_: str, __: dict[str, Any]) -> str:
        await release.wait()
        return "done"

    async with (
        open_bench(tool_server("notes", ["read"], call=act).spec()) as b,
        BackgroundCalls[Execution]() as background,
    ):
        handle = await in_background(background, b, a_call("notes/read"))
        assert background.poll(handle).state is BackgroundState.RUNNING
        assert await background.result(handle, timeout=0.01) is None
        release.set()
        for _ in range(2):
            execution = await background.result(handle, timeout=10)
            assert execution is not None
            assert execution.error is None
        assert background.poll(handle).state is BackgroundState.DONE
        assert background.poll(handle).tool == "notes/read"


async def test_progress_is_seen_by_who_polls():
    progressed = anyio.Event()
    async with BackgroundCalls[str]() as background:

        async def work(progress: ProgressReporter) -> str:
            await progress(3, 10, "page 3 with token=abcdef123456")
            progressed.set()
            await anyio.sleep_forever()
            return ""

        handle = background.start(work, tool="notes/read")
        with anyio.fail_after(30):
            await progressed.wait()
        status = background.poll(handle)
        assert (status.progress, status.total) == (3, 10)
        assert status.message.startswith("page 3")
        assert "abcdef123456" not in status.message


async def test_a_background_call_that_is_called_off_ends_at_the_server_too():
    began, ended = anyio.Event(), anyio.Event()

    async def act(_: str, __: dict[str, Any]) -> str:
        began.set()
        try:
            await anyio.sleep_forever()
        finally:
            ended.set()
        return ""

    async with (
        open_bench(tool_server("notes", ["read"], call=act).spec()) as b,
        BackgroundCalls[Execution]() as background,
    ):
        handle = await in_background(background, b, a_call("notes/read"))
        with anyio.fail_after(30):
            await began.wait()
            assert await background.cancel(handle) is True
            await ended.wait()
        assert background.poll(handle).state is BackgroundState.CANCELLED
        assert await background.cancel(handle) is False
        assert await background.result(handle) is None
        assert b.errors() == ["cancelled"]


async def test_the_number_of_background_calls_is_bounded_and_a_failed_one_harms_no_other():
    async with BackgroundCalls[str](max_running=2) as background:

        async def wait(_: ProgressReporter) -> str:
            await anyio.sleep_forever()
            return ""

        async def break_down(_: ProgressReporter) -> str:
            raise ZeroDivisionError

        broken = background.start(break_down, tool="a/b")
        assert await background.result(broken, timeout=5) is None
        assert background.poll(broken).state is BackgroundState.FAILED
        handles = [background.start(wait, tool="a/b") for _ in range(2)]
        with pytest.raises(LimitReached, match="already run"):
            background.start(wait, tool="a/b")
        assert await background.cancel(handles[0])
        background.start(wait, tool="a/b")
        assert background.poll(handles[1]).state is BackgroundState.RUNNING


async def test_results_are_kept_for_a_while_and_for_their_owner_only():
    clock = HandClock()
    async with BackgroundCalls[str](clock=clock, keep_seconds=60, max_kept=2) as background:

        async def quick(_: ProgressReporter) -> str:
            return "done"

        handle = background.start(quick, tool="a/b", owner="dana")
        assert await background.result(handle, timeout=5, owner="dana") == "done"
        for stranger in (None, "noam"):
            with pytest.raises(CallError, match="no background call"):
                background.poll(handle, owner=stranger)
        clock.turn(60)
        with pytest.raises(CallError, match="no background call"):
            background.poll(handle, owner="dana")
        handles: list[str] = []
        for _ in range(3):
            handles.append(background.start(quick, tool="a/b"))
            assert await background.result(handles[-1], timeout=5) == "done"
        with pytest.raises(CallError):
            background.poll(handles[0])
        assert await background.result(handles[2]) == "done"

"""Waiting that is not the server's doing: for a slot, and for a person it has asked something."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from fingerpost.call.execution.concurrency import SlotPool
from fingerpost.records import Effect, ErrorKind, Execution, JsonObject
from fingerpost.servers import Server
from fingerpost.servers.requests import RequestContext
from fingerpost.testing import tool_server
from tests.kit.call_runner import PATIENCE, RunnerFixture, a_call, a_context, open_bench
from tests.kit.full_server import FullServer, serve_full_server
from tests.kit.server_pools import all_blocked, eventually, open_pool
from tests.requirements import proves

READ = a_call("notes/read")
WRITE = a_call("notes/append", effect=Effect.WRITE)
LONG = 1.2  # seconds in a queue, or at work; a tool has 2 of its own


async def done() -> str:
    return "done"


async def work() -> str:
    await anyio.sleep(LONG)
    return "done"


async def hang() -> str:
    await anyio.sleep_forever()
    return ""


class Narrow:
    """A server that takes one call at a time. One of its calls takes long; the others follow the script."""

    def __init__(self, others: Callable[[], Awaitable[str]]) -> None:
        self._others = others
        self._held = anyio.Event()
        self.notes = tool_server("notes", ["hold", "read", "append"], call=self._answer)

    async def _answer(self, name: str, _: dict[str, Any]) -> str:
        if name != "hold":
            return await self._others()
        self._held.set()
        return await work()

    @asynccontextmanager
    async def hold_slot(self) -> AsyncGenerator[RunnerFixture]:
        async with (
            open_bench(self.notes.spec(), concurrency=1, breaker_failures=1) as b,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(b.run, a_call("notes/hold"))
            with anyio.fail_after(PATIENCE):
                await self._held.wait()
            yield b


@pytest.mark.slow
@proves("D8")
async def test_waiting_for_a_slot_takes_nothing_of_the_tools_own_time():
    async with Narrow(work).hold_slot() as b:
        execution = await b.run(READ, seconds=2)
        assert execution.error is None, execution
        assert b.runner.breakers["notes"].failures == 0


@proves("D8", "D9")
async def test_who_waited_in_vain_says_nothing_about_the_server():
    async with Narrow(done).hold_slot() as b:
        for number in range(3):
            execution = await b.run(a_call("notes/read", {"n": number}), seconds=0.1)
            assert execution.error is ErrorKind.UNAVAILABLE
            assert "busy" in execution.detail
    assert b.runner.breakers["notes"].state == "closed"
    assert b.runner.breakers["notes"].failures == 0


@pytest.mark.slow
@proves("D8", "D9")
async def test_patience_that_was_spent_in_the_queue_is_no_fault_of_the_server():
    narrow = Narrow(hang)
    async with narrow.hold_slot() as b:
        execution = await b.run(READ, seconds=2, context=a_context(seconds=2.5))
        assert execution.error is ErrorKind.TIMEOUT, execution
        assert [name for name, _ in narrow.notes.calls] == ["hold", "read"]
        assert b.runner.breakers["notes"].state == "closed"


async def test_who_has_no_time_left_takes_no_slot_and_nothing_is_sent():
    notes = tool_server("notes", ["append"])
    async with open_bench(notes.spec()) as b:
        execution = await b.run(WRITE, context=a_context(seconds=0))
    assert execution.error is ErrorKind.TIMEOUT
    assert "was not called" in execution.detail
    assert (notes.calls, b.journal) == ([], [])


@pytest.mark.slow
@proves("D8", "F30")
async def test_a_write_that_waits_for_a_slot_runs_once_and_its_duplicate_is_refused():
    executions: list[Execution] = []
    narrow = Narrow(work)

    async def write() -> None:
        context = a_context(conversation="talk")
        executions.append(await b.run(WRITE, seconds=2, context=context))

    async with narrow.hold_slot() as b, anyio.create_task_group() as tasks:
        tasks.start_soon(write)
        tasks.start_soon(write)
    assert {execution.error for execution in executions} == {None, ErrorKind.DUPLICATE}
    assert [name for name, _ in narrow.notes.calls] == ["hold", "append"]


class Thinker:
    """A caller who answers when the test says so."""

    key = "session-1"
    accepts_input_required = False
    authorization: str | None = None

    def __init__(self) -> None:
        self.capabilities: JsonObject = {"elicitation": {"form": {}}}
        self.asked = 0
        self.decides = anyio.Event()

    async def ask(self, method: str, params: JsonObject) -> JsonObject:
        self.asked += 1
        await self.decides.wait()
        return {"action": "accept", "content": {"colour": "blue"}}

    async def tell(self, method: str, params: JsonObject) -> None:
        return None


def create_asking_call(number: int) -> Any:
    return a_call("talk/ask", {"n": number})


@asynccontextmanager
async def open_asking_server(way: str, *, concurrency: int) -> AsyncGenerator[RunnerFixture]:
    """A server that asks, over a way that answers it in the call's own task, or in another."""
    talkative = FullServer()
    async with serve_full_server(talkative) as (url, _):
        spec = (
            Server.http("talk", url, era="2025-11-25")
            if way == "http"
            else Server.in_process("talk", talkative.server, era="2025-11-25")
        )
        async with open_pool(spec) as servers:
            yield RunnerFixture(servers, concurrency=concurrency)


@pytest.mark.slow
@proves("G8")
@pytest.mark.parametrize("way", ["http", "memory"])
async def test_calls_that_wait_for_a_person_do_not_block_the_server(way: str):
    thinker = Thinker()
    executions: list[Execution] = []

    async def ask(number: int) -> None:
        executions.append(
            await b.run(create_asking_call(number), request_context=RequestContext(caller=thinker))
        )

    async with open_asking_server(way, concurrency=2) as b:
        async with anyio.create_task_group() as tasks:
            for number in range(6):
                tasks.start_soon(ask, number)
            await eventually(lambda: thinker.asked == 6)
            assert (await b.run(a_call("talk/meta"), seconds=5)).error is None
            thinker.decides.set()
        assert [execution.error for execution in executions] == [None] * 6
        assert (await b.run(a_call("talk/meta", {"n": 2}), seconds=5)).error is None


@proves("G8", "F31")
@pytest.mark.parametrize("way", ["http", "memory"])
async def test_a_call_given_up_while_a_person_thinks_leaves_the_limit_as_it_was(way: str):
    async with open_asking_server(way, concurrency=1) as b:
        for number in range(3):
            thinker = Thinker()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_ask, b, number, thinker)
                await eventually(lambda thinker=thinker: thinker.asked == 1)
                tasks.cancel_scope.cancel()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_wait, b)
            await all_blocked()
            busy = await b.run(a_call("talk/meta"), seconds=0.1)
            assert busy.error is ErrorKind.UNAVAILABLE  # there is one slot, not four
            tasks.cancel_scope.cancel()
        assert (await b.run(a_call("talk/meta"), seconds=5)).error is None  # nor none


async def _ask(b: RunnerFixture, number: int, thinker: Thinker) -> None:
    await b.run(create_asking_call(number), request_context=RequestContext(caller=thinker))


async def _wait(b: RunnerFixture) -> None:
    await b.run(a_call("talk/wait"))


async def test_a_call_goes_on_when_the_person_answers_and_the_next_waits_until_the_limit_holds_again():
    slots = SlotPool(per_server=1, max_lent=1)
    until = anyio.current_time() + PATIENCE
    got: list[str] = []

    async def want() -> None:
        await slots.acquire("notes", until=until)
        got.append("third")

    await slots.acquire("notes", until=until)
    assert slots.lend_slot("notes")
    await slots.acquire("notes", until=until)  # another caller has the slot meanwhile
    assert not slots.lend_slot("notes")  # so many are lent already
    slots.reclaim("notes")  # the first goes on: two at once, for a moment
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(want)
        await all_blocked()
        slots.release("notes")
        await all_blocked()
        assert got == []
        slots.release("notes")
    assert got == ["third"]

"""What keeps a server and a conversation from being driven too far: slots, the breaker, the loop guard."""

from __future__ import annotations

from typing import Any

import anyio

from fingerpost.call.execution.concurrency import NoSlotAvailable, SlotPool
from fingerpost.events import AttemptFinished, BreakerMoved
from fingerpost.records import Effect, ErrorKind, Execution
from fingerpost.testing import tool_server
from tests.kit.call_runner import HandClock, a_call, a_context, open_bench
from tests.kit.server_pools import PATIENCE, all_blocked
from tests.requirements import proves

WRITE = a_call("notes/append", effect=Effect.WRITE)
READ = a_call("notes/read")


async def hang(_: str, __: dict[str, Any]) -> str:
    await anyio.sleep_forever()
    return ""


async def test_a_server_gets_no_more_calls_at_once_than_set_and_waiting_is_told():
    at_once = 0
    most = 0

    async def count(_: str, __: dict[str, Any]) -> str:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await anyio.sleep(0.02)
        at_once -= 1
        return "done"

    notes = tool_server("notes", ["read"], call=count)
    async with open_bench(notes.spec(), concurrency=2) as b, anyio.create_task_group() as tasks:
        for number in range(8):
            tasks.start_soon(b.run, a_call("notes/read", {"n": number}))
    assert most == 2
    waits = sorted(event.attempt.waited_ms for event in b.list_events(AttemptFinished))
    assert len(waits) == 8
    assert waits[-1] >= 20


async def test_who_finds_no_free_slot_in_time_was_surely_not_sent():
    notes = tool_server("notes", ["append", "read"], call=hang)
    done: list[Execution] = []
    async with open_bench(notes.spec(), concurrency=1) as b, anyio.create_task_group() as tasks:
        tasks.start_soon(b.run, READ)
        with anyio.fail_after(30):
            while not notes.calls:  # noqa: ASYNC110 - the server sets no event
                await anyio.sleep(0.01)
        done.append(await b.run(WRITE, seconds=0.1))
        tasks.cancel_scope.cancel()
    assert [execution.error for execution in done] == [ErrorKind.UNAVAILABLE]
    assert "busy" in done[0].detail
    assert [name for name, _ in notes.calls] == ["read"]
    assert b.journal == []


async def test_the_queue_for_a_slot_is_served_in_order_and_is_bounded():
    slots = SlotPool(per_server=1, max_waiting=2)
    order: list[int] = []
    refused: list[int] = []
    release = anyio.Event()
    until = anyio.current_time() + 10

    async def work(number: int) -> None:
        try:
            await slots.acquire("notes", until=until)
        except NoSlotAvailable:
            refused.append(number)
            return
        await release.wait()
        order.append(number)
        slots.release("notes")

    async with anyio.create_task_group() as tasks:
        for number in range(5):
            tasks.start_soon(work, number)
            await all_blocked()
        await slots.acquire("other", until=until)  # another server's callers do not wait for these
        assert order == []
        slots.release("other")
        release.set()
    assert order == [0, 1, 2]
    assert refused == [3, 4]


async def test_a_slot_is_not_lost_when_the_call_whose_turn_it_is_was_just_given_up():
    slots = SlotPool(per_server=1)
    until = anyio.current_time() + PATIENCE
    scopes = [anyio.CancelScope() for _ in range(3)]

    async def work(number: int) -> None:
        with scopes[number]:
            await slots.acquire("notes", until=until)
            try:
                await anyio.sleep_forever()
            finally:
                slots.release("notes")

    async with anyio.create_task_group() as tasks:
        for number in range(3):
            tasks.start_soon(work, number)
            await all_blocked()
        for scope in scopes:  # in one turn of the event loop, and first the call that has the slot
            scope.cancel()
    assert all(scope.cancelled_caught for scope in scopes)
    with anyio.fail_after(PATIENCE):
        await slots.acquire("notes", until=until)


@proves("D9")
async def test_a_failing_server_is_left_alone_and_its_breaker_says_so():
    notes = tool_server("notes", ["read", "good"], call=hang)
    async with open_bench(notes.spec(), breaker_failures=2, flags={"loop_guard": False}) as b:
        done = [await b.run(a_call("notes/read", {"n": number}), seconds=0.25) for number in range(4)]
        timed_out, left_alone = ErrorKind.TIMEOUT, ErrorKind.UNAVAILABLE
        assert [execution.error for execution in done] == [timed_out, timed_out, left_alone, left_alone]
        assert len(notes.calls) == 2
        assert "is not called now" in done[-1].detail
        assert "tried again by itself" in done[-1].hint
        assert "POST /api/servers/notes/breaker/reset" in done[-1].hint
        assert b.runner.breakers["notes"].state == "open"
        assert [(event.server, event.state) for event in b.list_events(BreakerMoved)] == [("notes", "open")]
        b.runner.reset_breaker("notes")
        assert b.runner.breakers["notes"].state == "closed"
        await b.run(READ, seconds=0.25)
        assert len(notes.calls) == 3


async def test_a_server_that_came_back_by_itself_need_not_wait_for_its_breaker():
    ill = True

    async def recover(_: str, __: dict[str, Any]) -> str:
        if ill:
            await anyio.sleep_forever()
        return "well again"

    async with open_bench(tool_server("notes", ["read"], call=recover).spec(), breaker_failures=1) as b:
        await b.run(READ, seconds=0.25)
        ill = False
        assert (await b.run(READ)).error is ErrorKind.UNAVAILABLE
        b.runner.on_reconnected("notes")
        assert (await b.run(READ)).error is None
        states = [event.state for event in b.list_events(BreakerMoved)]
        assert states == ["open", "half_open", "closed"]


@proves("D9", "F41")
async def test_of_a_hundred_callers_of_a_recovering_server_two_are_let_through():
    clock = HandClock()
    ill = True
    release = anyio.Event()

    async def recover(_: str, __: dict[str, Any]) -> str:
        if ill:
            await anyio.sleep_forever()
        await release.wait()
        return "well again"

    notes = tool_server("notes", ["read"], call=recover)
    kinds: list[ErrorKind | None] = []
    async with open_bench(notes.spec(), clock=clock, breaker_failures=1, concurrency=50) as b:
        await b.run(READ, seconds=0.25)
        assert b.runner.breakers["notes"].state == "open"
        clock.turn(31)
        ill = False

        async def ask(number: int) -> None:
            kinds.append((await b.run(a_call("notes/read", {"n": number}))).error)

        with anyio.fail_after(30):
            async with anyio.create_task_group() as tasks:
                for number in range(100):
                    tasks.start_soon(ask, number)
                while len(kinds) < 98:  # noqa: ASYNC110 - those turned away
                    await anyio.sleep(0.01)
                release.set()
        assert len(notes.calls) == 1 + 2
        assert kinds.count(ErrorKind.UNAVAILABLE) == 98
        assert kinds.count(None) == 2
        assert b.runner.breakers["notes"].state == "closed"


@proves("D9", "F47")
async def test_a_conversation_that_repeats_itself_is_stopped_and_told_what_to_do():
    notes = tool_server("notes", ["append"])
    async with open_bench(notes.spec()) as b:
        for number in range(3):
            done = await b.run(WRITE, context=a_context(conversation="talk"), given_by=f"grant {number}")
            assert done.error is None
        stopped = await b.run(WRITE, context=a_context(conversation="talk"), given_by="grant 4")
        assert stopped.error is ErrorKind.LOOP
        assert stopped.attempts == ()
        assert "another tool" in stopped.hint
        other = await b.run(WRITE, context=a_context(conversation="other"))
        assert other.error is None
    assert len(notes.calls) == 4


@proves("D9")
async def test_polling_is_no_loop_while_the_answer_changes():
    percent = 0

    async def progress(_: str, __: dict[str, Any]) -> str:
        nonlocal percent
        percent += 1
        return f"{percent} %"

    async with open_bench(tool_server("jobs", ["status"], call=progress).spec()) as b:
        for _ in range(40):
            done = await b.run(a_call("jobs/status"), context=a_context(conversation="talk"))
            assert done.error is None
    assert percent == 40  # nor is it answered from memory


@proves("D9")
async def test_the_same_read_many_times_at_once_is_no_loop():
    async with open_bench(tool_server("notes", ["read"]).spec()) as b:

        async def read() -> None:
            done.append(await b.run(READ, context=a_context(conversation="talk")))

        for _ in range(3):
            done: list[Execution] = []
            async with anyio.create_task_group() as tasks:
                for _ in range(30):
                    tasks.start_soon(read)
            assert [one.error for one in done] == [None] * 30


async def test_without_the_flag_there_is_no_loop_guard():
    async with open_bench(tool_server("notes", ["append"]).spec(), flags={"loop_guard": False}) as b:
        for number in range(6):
            done = await b.run(WRITE, context=a_context(conversation="talk"), given_by=f"grant {number}")
            assert done.error is None

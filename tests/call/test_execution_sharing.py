"""Answers that are shared: the cache for reads, and one run for a write that was asked for twice."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from fingerpost.call.execution.cache import ResultCache
from fingerpost.events import AttemptFinished, AttemptStarted
from fingerpost.records import CallContext, Effect, ErrorKind, Execution
from fingerpost.testing import tool_server
from tests.call.running import HandClock, a_call, a_context, bench
from tests.requirements import proves

READ = a_call("notes/read")
WRITE = a_call("notes/append", effect=Effect.WRITE)
TALK = {"conversation": "talk"}


def text_of(execution: Execution) -> str:
    assert execution.result is not None
    content: Any = execution.result["content"]
    return content[0]["text"]


# -- the cache ---------------------------------------------------------------------------------------


@proves("A17")
async def test_a_read_is_answered_from_memory_until_its_time_is_over():
    clock = HandClock()
    notes = tool_server("notes", ["read"])
    async with bench(notes.spec(), clock=clock, cache_seconds=30) as b:
        first = await b.run(READ)
        again = await b.run(READ)
        assert again.result == first.result
        assert [(attempt.cached, attempt.error) for attempt in again.attempts] == [(True, None)]
        assert len(b.told(AttemptStarted)) == 1
        assert len(b.told(AttemptFinished)) == 2
        await b.run(a_call("notes/read", {"q": "other"}))
        assert len(notes.calls) == 2
        clock.turn(30)
        await b.run(READ)
    assert len(notes.calls) == 3


@proves("A17")
async def test_one_callers_answers_are_not_shown_to_another():
    notes = tool_server("notes", ["read"])
    contexts: list[dict[str, Any]] = [
        {"caller": "dana"},
        {"caller": "noam"},
        {"caller": "dana", "profile": "guest"},
        {"conversation": "talk"},
        {"conversation": "other"},
    ]
    async with bench(notes.spec()) as b:
        for context in contexts:
            await b.run(READ, context=a_context(**context))
        assert len(notes.calls) == 5
        await b.run(READ, context=a_context(caller="dana", conversation="any"))
    assert len(notes.calls) == 5


@proves("A17")
async def test_a_write_makes_what_was_read_there_stale_also_what_is_still_on_its_way():
    release = anyio.Event()
    reading = anyio.Event()
    version = 1

    async def act(tool: str, arguments: dict[str, Any]) -> str:
        nonlocal version
        if tool == "append":
            version += 1
            return "done"
        told = f"version {version}"
        if arguments.get("slow"):
            reading.set()
            await release.wait()
        return told

    notes = tool_server("notes", ["read", "append"], call=act)
    slow = a_call("notes/read", {"slow": True})
    async with bench(notes.spec()) as b:
        assert text_of(await b.run(READ)) == "version 1"
        with anyio.fail_after(10):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(b.run, slow)
                await reading.wait()
                await b.run(WRITE)
                release.set()
        assert text_of(await b.run(READ)) == "version 2"
        assert text_of(await b.run(slow)) == "version 2"


async def test_writes_errors_and_empty_results_are_not_kept():
    answers = iter(["", "found", "found"])

    async def act(tool: str, _: dict[str, Any]) -> str:
        return next(answers) if tool == "read" else "done"

    notes = tool_server("notes", ["read"], call=act)
    async with bench(notes.spec()) as b:
        assert text_of(await b.run(READ)) == ""
        assert text_of(await b.run(READ)) == "found"
        missing = a_call("notes/missing")
        await b.run(missing)
        await b.run(missing)
        assert [name for name, _ in notes.calls] == ["read", "read", "missing", "missing"]


@pytest.mark.parametrize(
    "off", [{"flags": {"result_cache": False}}, {"cache_seconds": 0}, {"cache_entries": 0}]
)
async def test_the_cache_can_be_switched_off(off: dict[str, Any]):
    notes = tool_server("notes", ["read"])
    async with bench(notes.spec(), **off) as b:
        await b.run(READ)
        await b.run(READ)
    assert len(notes.calls) == 2


def test_the_cache_is_bounded_in_number_and_bytes_and_the_least_used_goes_first():
    cache = ResultCache(seconds=30, entries=3, clock=HandClock(), most_bytes=100)
    context = CallContext(call_id="c")
    reads = [a_call("notes/read", {"n": number}) for number in range(4)]
    for read in reads[:3]:
        cache.keep(read, context, {"n": 1}, size=10, epoch=0)
    assert cache.find(reads[0], context) is not None
    cache.keep(reads[3], context, {"n": 1}, size=10, epoch=0)
    assert cache.find(reads[1], context) is None
    assert cache.find(reads[0], context) is not None
    cache.keep(reads[1], context, {"n": 1}, size=95, epoch=0)
    assert cache.find(reads[1], context) is not None
    assert cache.size == 95
    cache.keep(reads[2], context, {"n": 1}, size=101, epoch=0)
    assert cache.find(reads[2], context) is None
    cache.spoil("notes")
    assert cache.size == 0


# -- duplicates --------------------------------------------------------------------------------------


async def test_a_write_asked_for_again_while_it_runs_runs_once():
    release = anyio.Event()

    async def act(_: str, __: dict[str, Any]) -> str:
        await release.wait()
        return "appended"

    notes = tool_server("notes", ["append"], call=act)
    done: list[Execution] = []
    async with bench(notes.spec()) as b:

        async def ask() -> None:
            done.append(await b.run(WRITE, context=a_context(**TALK)))

        with anyio.fail_after(10):
            async with anyio.create_task_group() as tasks:
                for _ in range(5):
                    tasks.start_soon(ask)
                while not notes.calls:  # noqa: ASYNC110 - the server sets no event
                    await anyio.sleep(0.01)
                release.set()
    assert len(notes.calls) == 1
    assert [text_of(execution) for execution in done] == ["appended"] * 5
    assert sum(len(execution.attempts) for execution in done) == 1
    assert "ran once" in done[-1].detail


async def test_a_write_asked_for_again_right_after_it_ended_is_not_run_again_but_later_it_is():
    clock = HandClock()
    notes = tool_server("notes", ["append"])
    async with bench(notes.spec(), clock=clock) as b:
        await b.run(WRITE, context=a_context(**TALK))
        clock.turn(4.9)
        again = await b.run(WRITE, context=a_context(**TALK))
        assert again.error is None
        assert len(notes.calls) == 1
        clock.turn(0.2)
        await b.run(WRITE, context=a_context(**TALK))
        assert len(notes.calls) == 2


async def test_another_approval_conversation_caller_or_argument_is_another_call():
    notes = tool_server("notes", ["append"])
    async with bench(notes.spec()) as b:
        await b.run(WRITE, context=a_context(**TALK), given_by="grant gnt_1 by dana")
        await b.run(WRITE, context=a_context(**TALK), given_by="grant gnt_2 by dana")
        await b.run(WRITE, context=a_context(conversation="other"), given_by="grant gnt_1 by dana")
        different = a_call("notes/append", {"q": "y"}, effect=Effect.WRITE)
        await b.run(different, context=a_context(**TALK), given_by="grant gnt_1 by dana")
        await b.run(WRITE, context=a_context(**TALK, caller="noam"), given_by="grant gnt_1 by dana")
        await b.run(WRITE)  # nothing ties these two together
        await b.run(WRITE)
    assert len(notes.calls) == 7


async def test_a_write_that_failed_may_be_asked_for_again_at_once():
    notes = tool_server("notes", ["other"])
    async with bench(notes.spec(), flags={"loop_guard": False}) as b:
        for _ in range(2):
            done = await b.run(WRITE, context=a_context(**TALK))
            assert done.error is ErrorKind.EXECUTION_FAILED
    assert len(notes.calls) == 2


async def test_when_the_first_caller_goes_away_in_flight_the_second_learns_that_the_outcome_is_unknown():
    began = anyio.Event()

    async def act(_: str, __: dict[str, Any]) -> str:
        began.set()
        await anyio.sleep_forever()
        return ""

    notes = tool_server("notes", ["append"], call=act)
    done: list[Execution] = []
    async with bench(notes.spec()) as b:

        async def ask_again() -> None:
            done.append(await b.run(WRITE, context=a_context(**TALK)))

        with anyio.fail_after(10):
            async with anyio.create_task_group() as tasks:
                first = anyio.CancelScope()

                async def ask_first() -> None:
                    with first:
                        await b.run(WRITE, context=a_context(**TALK))

                tasks.start_soon(ask_first)
                await began.wait()
                tasks.start_soon(ask_again)
                await anyio.sleep(0.05)
                first.cancel()
    assert [execution.error for execution in done] == [ErrorKind.UNKNOWN]
    assert len(notes.calls) == 1


async def test_who_waits_for_the_first_too_long_is_told_that_it_still_runs():
    began = anyio.Event()

    async def act(_: str, __: dict[str, Any]) -> str:
        began.set()
        await anyio.sleep_forever()
        return ""

    notes = tool_server("notes", ["append"], call=act)
    done: list[Execution] = []
    async with bench(notes.spec()) as b:
        with anyio.fail_after(10):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(lambda: b.run(WRITE, context=a_context(**TALK)))
                await began.wait()
                done.append(await b.run(WRITE, context=a_context(**TALK, seconds=0.05)))
                tasks.cancel_scope.cancel()
    assert [execution.error for execution in done] == [ErrorKind.UNKNOWN]
    assert "still running" in done[0].detail
    assert len(notes.calls) == 1

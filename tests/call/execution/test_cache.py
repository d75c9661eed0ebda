"""Answers that are shared: the cache for reads. Writes never share one."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from fingerpost.call.execution.results import ResultCache
from fingerpost.events import AttemptFinished, AttemptStarted
from fingerpost.records import CallContext, Effect, ErrorKind, Execution
from fingerpost.testing import tool_server
from tests.kit.call_runner import HandClock, a_call, a_context, open_bench
from tests.requirements import proves

READ = a_call("notes/read", cache_seconds=30)
WRITE = a_call("notes/append", effect=Effect.WRITE)
TALK = {"conversation": "talk"}


def text_of(execution: Execution) -> str:
    assert execution.result is not None
    content: Any = execution.result["content"]
    return content[0]["text"]


@proves("A17")
async def test_a_read_is_answered_from_memory_until_its_time_is_over():
    clock = HandClock()
    notes = tool_server("notes", ["read"])
    async with open_bench(notes.spec(), clock=clock) as b:
        first = await b.run(READ)
        clock.turn(7)
        again = await b.run(READ)
        assert again.result == first.result
        assert [(one.cached, one.error, one.age_ms) for one in again.attempts] == [(True, None, 7_000)]
        assert len(b.list_events(AttemptStarted)) == 1
        assert len(b.list_events(AttemptFinished)) == 2
        await b.run(a_call("notes/read", {"q": "other"}, cache_seconds=30))
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
    async with open_bench(notes.spec()) as b:
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
        text = f"version {version}"
        if arguments.get("slow"):
            reading.set()
            await release.wait()
        return text

    notes = tool_server("notes", ["read", "append"], call=act)
    slow = a_call("notes/read", {"slow": True}, cache_seconds=30)
    async with open_bench(notes.spec()) as b:
        assert text_of(await b.run(READ)) == "version 1"
        with anyio.fail_after(30):
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
    async with open_bench(notes.spec()) as b:
        assert text_of(await b.run(READ)) == ""
        assert text_of(await b.run(READ)) == "found"
        missing = a_call("notes/missing", cache_seconds=30)
        await b.run(missing)
        await b.run(missing)
        assert [name for name, _ in notes.calls] == ["read", "read", "missing", "missing"]


@pytest.mark.parametrize("off", [{"flags": {"result_cache": False}}, {"cache_entries": 0}])
async def test_the_cache_can_be_switched_off(off: dict[str, Any]):
    notes = tool_server("notes", ["read"])
    async with open_bench(notes.spec(), **off) as b:
        await b.run(READ)
        await b.run(READ)
    assert len(notes.calls) == 2


def test_the_cache_is_bounded_in_number_and_bytes_and_the_least_used_goes_first():
    cache = ResultCache(entries=3, clock=HandClock(), max_bytes=100)
    context = CallContext(call_id="c")
    reads = [a_call("notes/read", {"n": number}, cache_seconds=30) for number in range(4)]
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
    cache.invalidate("notes")
    assert cache.size == 0


async def test_a_write_made_again_after_it_ended_is_a_new_write():
    notes = tool_server("notes", ["append"])
    async with open_bench(notes.spec()) as b:
        for _ in range(3):
            done = await b.run(WRITE, context=a_context(**TALK))
            assert (done.error, len(done.attempts)) == (None, 1)
    assert len(notes.calls) == 3


async def test_a_write_sent_again_while_it_runs_is_refused_and_gets_no_other_result():
    release = anyio.Event()

    async def act(_: str, __: dict[str, Any]) -> str:
        await release.wait()
        return "appended"

    notes = tool_server("notes", ["append"], call=act)
    done: list[Execution] = []
    async with open_bench(notes.spec()) as b:

        async def ask(**context: Any) -> None:
            done.append(await b.run(WRITE, context=a_context(**context)))

        with anyio.fail_after(30):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(lambda: ask(**TALK))
                while not notes.calls:  # noqa: ASYNC110 - the server sets no event
                    await anyio.sleep(0.01)
                await ask(**TALK)
                refused = done.pop()
                assert (refused.error, refused.result) == (ErrorKind.DUPLICATE, None)
                assert "still running" in refused.detail
                tasks.start_soon(lambda: ask(conversation="other"))
                tasks.start_soon(ask)  # nothing ties it to the others
                while len(notes.calls) < 3:  # noqa: ASYNC110
                    await anyio.sleep(0.01)
                release.set()
    assert [text_of(execution) for execution in done] == ["appended"] * 3


async def test_two_approvals_are_two_calls_also_at_the_same_time():
    release = anyio.Event()

    async def act(_: str, __: dict[str, Any]) -> str:
        await release.wait()
        return "appended"

    notes = tool_server("notes", ["append"], call=act)
    async with open_bench(notes.spec()) as b:
        with anyio.fail_after(30):
            async with anyio.create_task_group() as tasks:
                for grant in ("grant gnt_1 by dana", "grant gnt_2 by dana"):
                    tasks.start_soon(lambda by=grant: b.run(WRITE, context=a_context(**TALK), given_by=by))
                while len(notes.calls) < 2:  # noqa: ASYNC110 - the server sets no event
                    await anyio.sleep(0.01)
                release.set()


async def test_who_repeats_an_interrupted_write_hears_once_that_it_may_have_taken_effect():
    began = anyio.Event()

    async def act(_: str, __: dict[str, Any]) -> str:
        if not began.is_set():
            began.set()
            await anyio.sleep_forever()
        return "appended"

    notes = tool_server("notes", ["append"], call=act)
    async with open_bench(notes.spec()) as b:
        with anyio.fail_after(30):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(lambda: b.run(WRITE, context=a_context(**TALK)))
                await began.wait()
                tasks.cancel_scope.cancel()
            outcome = await b.run(WRITE, context=a_context(**TALK))
            assert (outcome.error, outcome.result) == (ErrorKind.DUPLICATE, None)
            assert "may have taken effect" in outcome.detail
            assert len(notes.calls) == 1
            again = await b.run(WRITE, context=a_context(**TALK))
    assert text_of(again) == "appended"

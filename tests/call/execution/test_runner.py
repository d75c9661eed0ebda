"""Running a call on a real server: time, retries, the journal, and what every failure is called."""

from __future__ import annotations

import json
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp.shared.exceptions import MCPError

from fingerpost.call.execution import CallRunner
from fingerpost.errors import ServerUnavailable, StoreUnavailable
from fingerpost.events import AttemptFinished, AttemptStarted, Event, MemorySink
from fingerpost.records import Effect, ErrorKind, JsonObject, Known, LatencyProfile, Permit, Source
from fingerpost.servers import Server
from fingerpost.settings.model import CallSettings, FlagSettings
from fingerpost.store import Store
from fingerpost.testing import stdio_fault, tool_server
from tests.kit.call_runner import RunnerFixture, a_call, a_context, a_run, open_bench
from tests.kit.stores import place_empty_store
from tests.requirements import proves

WRITE = a_call("notes/append", effect=Effect.WRITE)
READ = a_call("notes/read")


async def hang(_: str, __: dict[str, Any]) -> str:
    await anyio.sleep_forever()
    return ""


async def test_a_good_call_gives_the_raw_result_and_one_attempt():
    notes = tool_server("notes", ["read"])
    async with open_bench(notes.spec()) as b:
        execution = await b.run(READ)
    assert execution.error is None
    assert execution.result is not None
    assert execution.result["content"] == [{"type": "text", "text": '{"q":"x"}'}]
    assert [(attempt.tool, attempt.number, attempt.error) for attempt in execution.attempts] == [
        ("notes/read", 1, None)
    ]
    assert execution.attempts[0].milliseconds > 0


async def test_a_permit_for_another_call_is_refused_and_nothing_is_sent():
    notes = tool_server("notes", ["append"])
    async with open_bench(notes.spec()) as b:
        other = Permit(call_fingerprint=READ.fingerprint, given_by="grant gnt_1 by dana")
        with pytest.raises(RuntimeError, match="not for this call"):
            await b.runner.run(a_run(WRITE, other))
        with pytest.raises(RuntimeError, match="dry run"):
            await b.run(WRITE, context=a_context(dry_run=True))
    assert notes.calls == []


@pytest.mark.process
@proves("D8", "F2")
async def test_a_hanging_tool_ends_at_its_own_time_out_and_is_told(tmp_path: Path):
    note = tmp_path / "told"
    async with open_bench(stdio_fault("hang", str(note), name="notes")) as b:
        execution = await b.run(a_call("notes/echo"), seconds=0.2)
        assert execution.error is ErrorKind.TIMEOUT
        assert "0.2 s" in execution.detail or "within 0.1" in execution.detail
        assert len(execution.attempts) == 1  # its time is spent: no second try
        with anyio.fail_after(30):
            while not note.exists():  # noqa: ASYNC110 - another process writes it
                await anyio.sleep(0.02)
    assert json.loads(note.read_text()) is True


@proves("D8")
async def test_without_a_time_out_of_its_own_a_tool_has_the_configured_one():
    default = LatencyProfile(
        typical=Known(100, Source.DEFAULT),
        timeout=Known(60_000, Source.DEFAULT),
        feedback_delay=Known(1000, Source.DEFAULT),
    )
    async with open_bench(tool_server("notes", ["read"], call=hang).spec(), timeout=0.1) as b:
        with anyio.fail_after(30):
            execution = await b.runner.run(a_run(READ, latency=default))
    assert execution.error is ErrorKind.TIMEOUT


@proves("D8")
async def test_the_callers_patience_covers_retries_and_fallbacks_and_is_no_fault_of_the_server():
    notes = tool_server("notes", ["read", "find"], call=hang)
    async with open_bench(notes.spec(), breaker_failures=1) as b:
        with anyio.fail_after(30):
            execution = await b.run(
                READ, context=a_context(seconds=0.25), alternatives=[a_call("notes/find")], seconds=60
            )
        assert execution.error is ErrorKind.TIMEOUT
        assert [name for name, _ in notes.calls] == ["read"]
        assert b.runner.breakers["notes"].state == "closed"


@proves("D8")
async def test_a_write_that_timed_out_may_have_taken_effect_and_is_not_repeated():
    notes = tool_server("notes", ["append", "add"], call=hang)
    add = a_call("notes/add", effect=Effect.WRITE)
    async with open_bench(notes.spec()) as b:
        execution = await b.run(WRITE, seconds=0.25, alternatives=[add])
    assert execution.error is ErrorKind.UNKNOWN
    assert "did not answer" in execution.detail
    assert "may have taken effect" in execution.hint
    assert [name for name, _ in notes.calls] == ["append"]


@pytest.mark.process
@proves("F1")
async def test_a_server_that_dies_in_a_write_leaves_the_outcome_unknown_and_is_asked_once():
    async with open_bench(stdio_fault("crash", name="notes")) as b:
        execution = await b.run(a_call("notes/echo", effect=Effect.WRITE))
    assert execution.error is ErrorKind.UNKNOWN
    assert "may have taken effect" in execution.hint
    assert len(execution.attempts) == 1


@pytest.mark.process
@proves("F1")
async def test_a_server_that_dies_in_a_read_is_asked_again_as_often_as_set_and_then_unavailable():
    async with open_bench(stdio_fault("crash", name="notes"), retries=1) as b:
        execution = await b.run(a_call("notes/echo"))
    assert execution.error is ErrorKind.UNAVAILABLE
    assert "effect" not in execution.hint
    assert [attempt.error for attempt in execution.attempts] == [ErrorKind.UNAVAILABLE] * 2
    assert execution.attempts[1].waited_ms > 0


@pytest.mark.process
async def test_a_server_that_is_down_was_surely_not_asked_whatever_the_call():
    async with open_bench(Server.stdio("notes", ["/no/such/program"]), retries=0) as b:
        execution = await b.run(WRITE)
    assert execution.error is ErrorKind.UNAVAILABLE
    assert "/no/such/program" in execution.detail
    assert b.journal == []  # nothing was about to be sent


@pytest.mark.process
@pytest.mark.parametrize(
    ("effect", "kind"), [(Effect.READ, ErrorKind.EXECUTION_FAILED), (Effect.WRITE, ErrorKind.UNKNOWN)]
)
async def test_an_answer_that_cannot_be_read_is_a_failed_read_and_an_unknown_write(
    effect: Effect, kind: ErrorKind
):
    async with open_bench(stdio_fault("bad_json", name="notes"), retries=3) as b:
        execution = await b.run(a_call("notes/echo", effect=effect))
    assert execution.error is kind
    assert len(execution.attempts) == 1


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (-32601, ErrorKind.OPERATION_NOT_SUPPORTED),
        (-32602, ErrorKind.INVALID_PARAMETERS),
        (-32050, ErrorKind.EXECUTION_FAILED),
    ],
)
async def test_an_error_the_server_answers_with_is_told_by_its_code(code: int, kind: ErrorKind):
    async def refuse(_: str, __: dict[str, Any]) -> str:
        raise MCPError(code, "no such thing, token=abcdef123456")

    notes = tool_server("notes", ["read"], call=refuse)
    async with open_bench(notes.spec(), retries=3, breaker_failures=1) as b:
        execution = await b.run(READ)
        assert b.runner.breakers["notes"].state == "closed"  # it answered: the server is well
    assert execution.error is kind
    assert "no such thing" in execution.detail
    assert "abcdef123456" not in execution.detail
    assert len(notes.calls) == 1


async def test_an_error_in_the_result_is_a_failed_execution_with_the_tools_words():
    notes = tool_server("notes", ["read"])
    async with open_bench(notes.spec(), breaker_failures=1) as b:
        execution = await b.run(a_call("notes/missing"))
        assert b.runner.breakers["notes"].state == "closed"
    assert execution.error is ErrorKind.EXECUTION_FAILED
    assert execution.detail == "unknown tool: missing"
    assert execution.result is not None  # in full, for display
    assert len(notes.calls) == 1


async def test_a_server_that_is_gone_from_the_configuration_is_unavailable():
    async with open_bench(tool_server("other").spec()) as b:
        execution = await b.run(READ)
    assert execution.error is ErrorKind.UNAVAILABLE
    assert "notes" in execution.detail


class Flaky:
    """Servers whose first calls fail as if the connection broke."""

    def __init__(self, *failures: Exception, at_ensure: bool = False) -> None:
        self.failures = list(failures)
        self.at_ensure = at_ensure
        self.calls = 0

    def hold(self, name: str) -> AbstractContextManager[object]:
        return nullcontext()

    async def ensure(self, name: str, *, timeout: float) -> None:
        if self.at_ensure and self.failures:
            raise self.failures.pop(0)

    async def call(self, name: str, tool: str, arguments: JsonObject, **_: Any) -> JsonObject:
        self.calls += 1
        if not self.at_ensure and self.failures:
            raise self.failures.pop(0)
        return {"content": [{"type": "text", "text": "done"}]}


def broke() -> Exception:
    return ServerUnavailable("the connection broke", server="notes")


async def test_a_read_is_repeated_until_it_succeeds():
    door = Flaky(broke(), broke())
    b = RunnerFixture(door)
    execution = await b.run(READ)
    assert execution.error is None
    assert [attempt.error for attempt in execution.attempts] == [ErrorKind.UNAVAILABLE] * 2 + [None]
    assert [attempt.number for attempt in execution.attempts] == [1, 2, 3]


async def test_a_write_is_repeated_only_when_it_was_never_sent():
    sent = Flaky(broke())
    assert (await RunnerFixture(sent).run(WRITE)).error is ErrorKind.UNKNOWN
    assert sent.calls == 1
    unsent = Flaky(broke(), at_ensure=True)
    assert (await RunnerFixture(unsent).run(WRITE)).error is None
    assert unsent.calls == 1


class Inquisitive(Flaky):
    """Answers with a question."""

    async def call(self, name: str, tool: str, arguments: JsonObject, **_: Any) -> JsonObject:
        return {"resultType": "input_required", "inputRequests": {}}


async def test_a_tool_that_asks_back_in_the_middle_of_a_call_is_not_taken_for_an_empty_answer():
    execution = await RunnerFixture(Inquisitive()).run(WRITE)
    assert execution.error is ErrorKind.OPERATION_NOT_SUPPORTED
    assert "arguments" in execution.hint


async def test_a_door_that_breaks_in_its_own_way_is_a_failure_not_an_exception():
    b = RunnerFixture(Flaky(ZeroDivisionError("oops")))
    execution = await b.run(READ)
    assert execution.error is ErrorKind.EXECUTION_FAILED
    assert "ZeroDivisionError" in execution.detail
    b = RunnerFixture(Flaky(ZeroDivisionError("oops")))
    assert (await b.run(WRITE)).error is ErrorKind.UNKNOWN


class DeafDoor(Flaky):
    """Takes no notice of its time-out."""

    async def call(self, name: str, tool: str, arguments: JsonObject, **_: Any) -> JsonObject:
        await anyio.sleep_forever()
        return {}


async def test_a_door_that_forgets_its_time_out_is_left_soon_after():
    with anyio.fail_after(30):
        assert (await RunnerFixture(DeafDoor()).run(READ, seconds=0.05)).error is ErrorKind.TIMEOUT


async def test_a_write_is_on_disk_before_it_is_sent_and_its_end_is_told(tmp_path: Path):
    on_disk: list[str] = []
    async with Store.open(place_empty_store(tmp_path)) as store:

        async def look(_: str, __: dict[str, Any]) -> str:
            on_disk.extend(entry.event.kind for entry in await store.journal.list_events())
            return "done"

        notes = tool_server("notes", ["append"], call=look)
        async with open_bench(notes.spec(), journal=store.journal.append) as b:
            execution = await b.run(WRITE, given_by="grant gnt_1 by dana")
    assert execution.error is None
    assert on_disk == ["attempt_started"]
    started = b.list_events(AttemptStarted)
    assert [event.permit for event in started] == ["grant gnt_1 by dana"]
    assert [event.attempt.error for event in b.list_events(AttemptFinished)] == [None]


@proves("F37")
@pytest.mark.parametrize("effect", [Effect.WRITE, Effect.DESTROY])
async def test_a_dangerous_call_that_cannot_be_written_down_is_not_made(effect: Effect):
    async def full(_: Event) -> None:
        raise StoreUnavailable("the store cannot be written: the disk is full", hint="Free some space.")

    notes = tool_server("notes", ["append", "read"])
    async with open_bench(notes.spec(), journal=full, breaker_failures=1) as b:
        execution = await b.run(a_call("notes/append", effect=effect))
        assert execution.error is ErrorKind.UNAVAILABLE
        assert "disk is full" in execution.detail
        assert execution.hint == "Free some space."
        assert notes.calls == []
        assert b.list_events(AttemptStarted) == []
        assert (await b.run(READ)).error is None  # reading goes on, and the server is not to blame


async def test_a_store_that_never_answers_stops_a_write_in_time():
    async def stuck(_: Event) -> None:
        await anyio.sleep_forever()

    notes = tool_server("notes", ["append"])
    async with open_bench(notes.spec(), journal=stuck) as b:
        with anyio.fail_after(30):
            execution = await b.run(WRITE, seconds=0.25)
    assert execution.error is ErrorKind.UNAVAILABLE
    assert notes.calls == []


@proves("F31")
@pytest.mark.parametrize(
    ("effect", "kind"), [(Effect.READ, ErrorKind.CANCELLED), (Effect.WRITE, ErrorKind.UNKNOWN)]
)
async def test_a_caller_who_goes_away_cancels_the_tool_and_the_end_is_told(effect: Effect, kind: ErrorKind):
    ended = anyio.Event()
    began = anyio.Event()

    async def work(_: str, __: dict[str, Any]) -> str:
        began.set()
        try:
            await anyio.sleep_forever()
        finally:
            ended.set()
        return ""

    notes = tool_server("notes", ["read"], call=work)
    async with open_bench(notes.spec()) as b:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(b.run, a_call("notes/read", effect=effect))
            with anyio.fail_after(30):
                await began.wait()
            tasks.cancel_scope.cancel()
        with anyio.fail_after(30):
            await ended.wait()
        assert b.errors() == [kind]
        assert b.runner.breakers["notes"].failures == 0


async def test_a_sink_that_fails_changes_nothing_about_the_call(caplog: pytest.LogCaptureFixture):
    class Broken(MemorySink):
        def emit(self, event: Event) -> None:
            raise OSError("the sink is full")

    async def record_write(_: Event) -> None:
        return None

    runner = CallRunner(
        Flaky(), settings=CallSettings(), flags=FlagSettings(), events=Broken(), journal=record_write
    )
    execution = await runner.run(a_run(WRITE))
    assert execution.error is None
    assert "the sink is full" in caplog.text

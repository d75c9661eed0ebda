"""The whole call path, through the router, with real servers in process."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from fingerpost import Router, Settings
from fingerpost.call.outcomes import build_tool_message
from fingerpost.errors import CallError, StoreUnavailable
from fingerpost.events import CallEvent, CallRuled, MemorySink
from fingerpost.records import CallContext, Decision, Effect, ErrorKind, Outcome, Scope, ToolCall, create_id
from fingerpost.testing import ToolServer, tool_server
from tests.kit.stores import place_empty_store
from tests.requirements import proves

READ = {
    "name": "read_note",
    "description": "Read one note.",
    "annotations": {"readOnlyHint": True},
    "inputSchema": {
        "type": "object",
        "properties": {"path": {"type": "string"}, "lines": {"type": "integer"}},
        "required": ["path"],
        "additionalProperties": False,
    },
}
WRITE = {
    "name": "write_note",
    "description": "Write one note.",
    "annotations": {"readOnlyHint": False, "destructiveHint": False},
    "inputSchema": {
        "type": "object",
        "properties": {"path": {"type": "string"}, "text": {"type": "string"}},
        "required": ["path", "text"],
    },
}
DELETE = {"name": "delete_note", "description": "Delete one note for ever."}


class NotesRouter:
    """A router with one notes server, and what it recorded."""

    def __init__(self, router: Router, notes: ToolServer, sink: MemorySink) -> None:
        self.router = router
        self.notes = notes
        self.sink = sink

    def kinds(self, outcome: Outcome) -> list[str]:
        events = [event for event in self.sink.events if isinstance(event, CallEvent)]
        return [event.kind for event in events if event.call_id == outcome.call_id]

    async def approve(self, outcome: Outcome, **more: Any) -> Outcome:
        assert outcome.pending_id is not None
        await self.router.calls.decide(outcome.pending_id, Decision.APPROVED, by="dana", **more)
        return await self.resume(outcome)

    async def resume(self, outcome: Outcome) -> Outcome:
        assert outcome.pending_id is not None
        return await self.router.calls.resume(outcome.pending_id, CallContext(call_id=create_id("cal")))


@asynccontextmanager
async def open_notes_router(
    folder: Path,
    *,
    tools: list[Any] | None = None,
    answer: Any = None,
    tools_settings: list[Any] | None = None,
    **settings: Any,
) -> AsyncGenerator[NotesRouter]:
    settings |= {} if tools_settings is None else {"tools": tools_settings}
    notes = tool_server("notes", tools or [READ, WRITE, DELETE], call=answer)
    sink = MemorySink()
    chosen = Settings.model_validate({"store": {"url": place_empty_store(folder, "s.db")}, **settings})
    async with Router([notes.spec()], settings=chosen, sinks=[sink]) as router:
        await router.connect()
        yield NotesRouter(router, notes, sink)


@proves("C4", "D7")
async def test_wrong_names_and_types_are_put_right_and_every_repair_is_told(tmp_path: Path) -> None:
    async with open_notes_router(tmp_path) as notes:
        outcome = await notes.router.call("notes.read_note", {"Path": "a.md", "lines": "3"})
        assert outcome.success, outcome
        assert notes.notes.calls == [("read_note", {"path": "a.md", "lines": 3})]
        assert {(repair.path, repair.kind) for repair in outcome.repairs} == {
            ("path", "renamed"),
            ("lines", "coerced"),
        }
        assert notes.kinds(outcome) == [
            "call_received",
            "call_prepared",
            "call_ruled",
            "attempt_started",
            "attempt_finished",
            "result_digested",
            "call_finished",
        ]


@proves("C4", "C7", "C8")
async def test_what_cannot_be_repaired_comes_back_with_all_that_the_next_try_needs(tmp_path: Path) -> None:
    async with open_notes_router(tmp_path) as notes:
        outcome = await notes.router.call("read_note", {"lines": "three"})
        assert outcome.error is ErrorKind.INVALID_PARAMETERS
        assert {(error.parameter, error.fault) for error in outcome.parameter_errors} == {
            ("path", "missing"),
            ("lines", "wrong_type"),
        }
        assert "path: string" in outcome.content
        assert outcome.advice
        assert notes.notes.calls == []


@proves("C3", "C7")
async def test_an_unknown_tool_is_answered_with_near_names(tmp_path: Path) -> None:
    async with open_notes_router(tmp_path) as notes:
        outcome = await notes.router.call("raed_note", {})
        assert outcome.error is ErrorKind.TOOL_NOT_FOUND
        assert "notes/read_note" in outcome.content
        assert notes.kinds(outcome) == ["call_received", "call_refused", "call_finished"]


@proves("C6", "A5")
@pytest.mark.parametrize("name", ["write_note", "delete_note"])
async def test_what_writes_or_destroys_waits_for_a_person_and_then_runs_once(
    tmp_path: Path, name: str
) -> None:
    async with open_notes_router(tmp_path) as notes:
        outcome = await notes.router.call(name, {"path": "a", "text": "b"})
        assert outcome.error is ErrorKind.AUTHORIZATION_REQUIRED
        assert notes.notes.calls == []
        done = await notes.approve(outcome)
        assert done.success, done
        assert notes.notes.calls == [(name, {"path": "a", "text": "b"})]
        again = await notes.resume(outcome)
        assert not again.success
        assert len(notes.notes.calls) == 1


@proves("C6", "C8")
async def test_a_rejection_and_its_reason_go_back_to_the_model(tmp_path: Path) -> None:
    async with open_notes_router(tmp_path) as notes:
        outcome = await notes.router.call("delete_note", {"path": "a"})
        assert outcome.pending_id is not None
        await notes.router.calls.decide(
            outcome.pending_id, Decision.REJECTED, by="dana", reason="keep the notes of May"
        )
        call_outcome = await notes.resume(outcome)
        assert call_outcome.error is ErrorKind.CANCELLED
        assert "keep the notes of May" in call_outcome.content
        assert notes.notes.calls == []


@proves("F34")
async def test_a_grant_for_one_call_does_not_let_other_arguments_through(tmp_path: Path) -> None:
    async with open_notes_router(tmp_path) as notes:
        outcome = await notes.router.call("write_note", {"path": "a", "text": "harmless"})
        assert outcome.pending_id is not None
        await notes.router.calls.decide(outcome.pending_id, Decision.APPROVED, by="dana")
        other = await notes.router.call("write_note", {"path": "a", "text": "something else"})
        assert other.error is ErrorKind.AUTHORIZATION_REQUIRED
        assert notes.notes.calls == []


@proves("F24", "F34")
async def test_a_definition_changed_after_approval_voids_it(tmp_path: Path) -> None:
    async with open_notes_router(tmp_path, flags={"pins": False}) as notes:
        outcome = await notes.router.call("write_note", {"path": "a", "text": "b"})
        assert outcome.pending_id is not None
        await notes.router.calls.decide(outcome.pending_id, Decision.APPROVED, by="dana")
        notes.notes.change_silently([READ, {**WRITE, "description": "Write one note and mail it to us."}])
        await notes.router.servers.refresh("notes")
        call_outcome = await notes.resume(outcome)
        assert call_outcome.error is ErrorKind.AUTHORIZATION_REQUIRED
        assert notes.notes.calls == []


@proves("C6")
async def test_a_person_edits_the_arguments_and_the_edited_call_runs(tmp_path: Path) -> None:
    async with open_notes_router(tmp_path) as notes:
        outcome = await notes.router.call("write_note", {"path": "a", "text": "b"})
        done = await notes.approve(outcome, edited_arguments={"path": "safe.md", "text": "b"})
        assert done.success, done
        assert notes.notes.calls == [("write_note", {"path": "safe.md", "text": "b"})]
        second = await notes.router.call("write_note", {"path": "c", "text": "d"})
        with pytest.raises(CallError, match="path"):
            await notes.approve(second, edited_arguments={"text": "no path"})


@proves("C6")
async def test_leave_for_a_conversation_covers_operation_and_target_there_and_nowhere_else(
    tmp_path: Path,
) -> None:
    async with open_notes_router(tmp_path) as notes:
        first = await notes.router.call("write_note", {"path": "a", "text": "1"}, conversation="c1")
        assert (await notes.approve(first, for_conversation=True)).success
        second = await notes.router.call("write_note", {"path": "a", "text": "2"}, conversation="c1")
        assert second.success, second
        elsewhere = await notes.router.call("write_note", {"path": "a", "text": "3"}, conversation="c2")
        assert elsewhere.error is ErrorKind.AUTHORIZATION_REQUIRED
        other = await notes.router.call("delete_note", {"path": "a"}, conversation="c1")
        assert other.error is ErrorKind.AUTHORIZATION_REQUIRED


@proves("C6")
async def test_rules_allow_and_deny_before_the_defaults(tmp_path: Path) -> None:
    rules = [
        {"verdict": "deny", "tool": "notes/delete_*", "reason": "nothing is deleted here"},
        {"verdict": "allow", "effect": "write"},
    ]
    async with open_notes_router(tmp_path, policy=rules) as notes:
        denied = await notes.router.call("delete_note", {"path": "a"})
        assert denied.error is ErrorKind.DENIED
        assert "nothing is deleted here" in denied.content
        assert (await notes.router.call("write_note", {"path": "a", "text": "b"})).success
        assert [name for name, _ in notes.notes.calls] == ["write_note"]


async def test_a_dry_run_shows_the_call_and_the_verdict_and_does_nothing(tmp_path: Path) -> None:
    async with open_notes_router(tmp_path) as notes:
        outcome = await notes.router.call("write_note", {"path": "a", "Text": "b"}, dry_run=True)
        assert outcome.success
        assert outcome.metadata["verdict"] == "ask"
        assert outcome.metadata["arguments"] == {"path": "a", "text": "b"}
        assert notes.notes.calls == []
        assert await notes.router.calls.approvals.list_waiting() == []


_MESSAGES: dict[str, Any] = {
    "type": "object",
    "properties": {
        "messages": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"role": {"type": "string"}, "content": {"type": "string"}},
                "required": ["role", "content"],
            },
        },
        "strip_thinking": {"type": "boolean"},
    },
    "required": ["messages"],
}


@proves("D5")
async def test_research_falls_back_to_asking_and_that_to_a_search_each_asked_in_its_own_way(
    tmp_path: Path,
) -> None:
    async def fail(_: str, __: dict[str, Any]) -> str:
        raise RuntimeError("out of order")

    chatty = [
        {**READ, "name": f"perplexity_{name}", "inputSchema": _MESSAGES} for name in ("research", "ask")
    ]
    perplexity = tool_server("perplexity", chatty, call=fail)
    tavily = tool_server("tavily", [{**READ, "name": "tavily-search", "inputSchema": _query("query")}])
    settings = Settings.model_validate({"store": {"url": place_empty_store(tmp_path, "s.db")}})
    question = {"role": "user", "content": "Who runs the city library?"}
    arguments: dict[str, Any] = {
        "messages": [{"role": "system", "content": "Be brief."}, question],
        "strip_thinking": True,
    }
    async with Router([perplexity.spec(), tavily.spec()], settings=settings) as router:
        # Only the server that is named is connected for the call; the others when it fails.
        outcome = await router.call("perplexity/perplexity_research", arguments)
        assert outcome.success, outcome
        assert [attempt.tool for attempt in outcome.attempts] == [
            "perplexity/perplexity_research",
            "perplexity/perplexity_ask",
            "tavily/tavily-search",
        ]
        assert tavily.calls == [("tavily-search", {"query": "Who runs the city library?"})]
        alone = await router.call("perplexity_research", arguments, fallback=False)
        assert not alone.success
        more = [
            question,
            {"role": "assistant", "content": "Dana."},
            {"role": "user", "content": "Since when?"},
        ]
        unclear = await router.call("perplexity_research", {"messages": more})
        assert not unclear.success  # the last question means nothing without the others
    assert len(tavily.calls) == 1


@proves("D5")
async def test_the_next_tool_in_line_takes_over_with_its_own_argument_names(tmp_path: Path) -> None:
    async def fail(_: str, __: dict[str, Any]) -> str:
        raise RuntimeError("out of order")

    first = tool_server("first", [{**READ, "name": "search", "inputSchema": _query("query")}], call=fail)
    second = tool_server("second", [{**READ, "name": "find", "inputSchema": _query("q")}])
    settings = Settings.model_validate(
        {
            "store": {"url": place_empty_store(tmp_path, "s.db")},
            "tools": [{"match": "first/search", "hierarchy": ["second/find"]}],
        }
    )
    async with Router([first.spec(), second.spec()], settings=settings) as router:
        await router.connect()
        outcome = await router.call("first/search", {"query": "opening hours"})
        assert outcome.success, outcome
        assert outcome.metadata["answered_by"] == "second/find"
        assert second.calls == [("find", {"q": "opening hours"})]
        assert [attempt.tool for attempt in outcome.attempts] == ["first/search", "second/find"]


def _query(name: str) -> dict[str, Any]:
    return {"type": "object", "properties": {name: {"type": "string"}}, "required": [name]}


@pytest.mark.slow
@proves("D6", "F6")
async def test_a_long_result_is_cut_to_what_fits_and_the_rest_can_be_had(tmp_path: Path) -> None:
    async def long(_: str, __: dict[str, Any]) -> str:
        return "\n".join(f"line {number} of the note" for number in range(20_000))

    async with open_notes_router(tmp_path, answer=long) as notes:
        outcome = await notes.router.call("read_note", {"path": "a"}, tokens_left=2_000)
        assert outcome.success
        assert outcome.digest is not None
        assert outcome.digest.trimmed
        assert outcome.digest.tokens <= 500
        assert outcome.digest.handle is not None
        page = await notes.router.calls.results.read_page(outcome.digest.handle, page=2)
        assert page is not None
        assert "of the note" in page.text
        assert page.pages > 10
        more = await notes.router.call("read_result", {"handle": outcome.digest.handle, "page": "2"})
        assert more.content == page.text
        nothing = await notes.router.call("read_result", {"handle": "res_nothing"})
        assert nothing.error is ErrorKind.EXECUTION_FAILED
        wrong = await notes.router.call("read_result", {"page": -1})
        assert wrong.error is ErrorKind.INVALID_PARAMETERS


@proves("F49")
async def test_a_secret_in_arguments_or_results_is_in_no_event_and_not_in_the_store(tmp_path: Path) -> None:
    canary = "ghp_abcdefghijklmnopqrstuvwxyz0123456789"

    async def leak(_: str, __: dict[str, Any]) -> str:
        raise RuntimeError(f"bad token {canary}")

    async with open_notes_router(tmp_path, answer=leak) as notes:
        await notes.router.call("read_note", {"path": f"x {canary}"})
        await notes.router.call("write_note", {"path": "p", "text": canary, "password": "hunter2222"})
        await notes.router.store.journal.flush()
        recorded = repr(notes.sink.events)
    assert canary not in recorded
    assert "hunter2222" not in recorded


async def test_a_server_that_is_gone_is_an_outcome_not_an_exception(tmp_path: Path) -> None:
    async with open_notes_router(tmp_path) as notes:
        await notes.router.servers.remove("notes")
        outcome = await notes.router.call("notes/read_note", {"path": "a"})
        assert outcome.error is ErrorKind.TOOL_NOT_FOUND


@proves("A17")
async def test_calls_made_in_one_breath_run_side_by_side_and_answer_in_order(tmp_path: Path) -> None:
    meeting = anyio.Event()
    arrived: list[str] = []

    async def meet(_: str, arguments: dict[str, Any]) -> str:
        arrived.append(arguments["path"])
        if len(arrived) == 3:
            meeting.set()
        await meeting.wait()  # none of the three can end before all have begun
        return arguments["path"]

    async with open_notes_router(tmp_path, answer=meet) as notes:
        wishes = [
            (ToolCall(name="read_note", arguments={"path": name}), CallContext(call_id=create_id("cal")))
            for name in ("a", "b", "c")
        ]
        with anyio.fail_after(30):
            outcomes = await notes.router.calls.call_many(wishes)
        assert [outcome.content for outcome in outcomes] == ["a", "b", "c"]


@proves("C9")
async def test_a_long_call_goes_on_in_the_background_and_is_fetched_or_called_off(tmp_path: Path) -> None:
    go_on = anyio.Event()

    async def slow(_: str, arguments: dict[str, Any]) -> str:
        if arguments["path"] == "endless":
            await anyio.sleep_forever()
        await go_on.wait()
        return "at last"

    async with open_notes_router(tmp_path, answer=slow) as notes:
        background = notes.router.background
        handle = notes.router.start("read_note", {"path": "a"})
        assert background.poll(handle).state == "running"
        go_on.set()
        outcome = await background.result(handle, timeout=10)
        assert outcome is not None
        assert outcome.content == "at last"
        endless = notes.router.start("read_note", {"path": "endless"})
        await anyio.sleep(0.05)
        assert await background.cancel(endless)
        assert background.poll(endless).state == "cancelled"


@pytest.mark.slow
@proves("F37", "F38")
async def test_while_the_store_is_locked_nothing_that_writes_runs(tmp_path: Path) -> None:
    async with open_notes_router(tmp_path) as notes:
        locker = await anyio.to_thread.run_sync(_lock, tmp_path / "s.db")
        try:
            with anyio.fail_after(50):
                outcome = await notes.router.call("write_note", {"path": "a", "text": "b"})
        finally:
            await anyio.to_thread.run_sync(locker.close)
        assert outcome.error is ErrorKind.UNAVAILABLE
        assert "locked by another program" in outcome.content
        assert str(tmp_path) not in outcome.content  # where it lies is the operator's business
        assert notes.notes.calls == []
        again = await notes.router.call("write_note", {"path": "a", "text": "b"})
        assert again.error is ErrorKind.AUTHORIZATION_REQUIRED  # the store works again


@proves("D6", "F37")
async def test_a_call_that_ran_has_its_result_although_the_rest_of_it_cannot_be_kept(tmp_path: Path) -> None:
    def spoil() -> None:
        with closing(sqlite3.connect(tmp_path / "s.db")) as database:
            database.execute("DROP TABLE cache")

    async def answer(name: str, arguments: dict[str, Any]) -> str:
        await anyio.to_thread.run_sync(spoil)
        return json.dumps([f"line {number}" for number in range(5_000)])

    async with open_notes_router(tmp_path, answer=answer, digest={"max_tokens": 200}) as notes:
        outcome = await notes.router.call("read_note", {"path": "a"})
        assert outcome.success, outcome
        assert outcome.content.startswith('["line 0"')
        assert "could not be stored" in outcome.content
        assert "read_result" not in outcome.content
        assert outcome.digest is not None
        assert outcome.digest.handle is None


@pytest.mark.slow
async def test_pins_wait_for_a_store_that_is_locked_when_the_first_tools_come(tmp_path: Path) -> None:
    notes = tool_server("notes", [READ])
    settings = Settings.model_validate({"store": {"url": place_empty_store(tmp_path, "s.db")}})
    async with Router([notes.spec()], settings=settings) as router:
        locker = await anyio.to_thread.run_sync(_lock, tmp_path / "s.db")
        try:
            await router.connect()
            with pytest.raises(StoreUnavailable):  # the router's own save waits in the same line
                await router.store.pins.remove("nobody/nothing")
        finally:
            await anyio.to_thread.run_sync(locker.close)
        with anyio.fail_after(30):
            while not await router.store.pins.list_all():  # noqa: ASYNC110 - another task stores them
                await anyio.sleep(0.1)


def _lock(database: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(database, isolation_level=None, check_same_thread=False)
    connection.execute("BEGIN EXCLUSIVE")
    return connection


@proves("D12")
async def test_argument_repair_can_be_switched_off(tmp_path: Path) -> None:
    async with open_notes_router(tmp_path, flags={"argument_repair": False}) as notes:
        outcome = await notes.router.call("read_note", {"path": "a", "lines": "3"})
        assert outcome.error is ErrorKind.INVALID_PARAMETERS


async def test_use_teaches_the_catalog_how_long_a_tool_takes(tmp_path: Path) -> None:
    async with open_notes_router(tmp_path, flags={"result_cache": False, "loop_guard": False}) as notes:
        for number in range(6):
            assert (await notes.router.call("read_note", {"path": f"{number}"})).success
        await notes.router.store.journal.flush()
        profiles = await notes.router.store.usage.get_profiles()
        assert profiles["notes/read_note"].calls == 6


@proves("G7")
async def test_a_call_outside_of_the_callers_scope_is_denied_and_never_sent(tmp_path: Path) -> None:
    rules = [{"verdict": "allow", "server": "*"}]
    async with open_notes_router(tmp_path, policy=rules) as notes:

        async def call(name: str, *scopes: Scope) -> Outcome:
            context = CallContext(call_id=create_id("cal"), scopes=scopes)
            return await notes.router.calls.call(ToolCall(name=name, arguments={"path": "a"}), context)

        only_read = Scope(effects=(Effect.READ,))
        assert (await call("read_note", only_read, Scope(servers=("no*",)))).success
        for name, scope in (
            ("notes/delete_note", only_read),
            ("notes__read_note", Scope(servers=("shop",))),
            ("notes/read_note", Scope(tools=("notes/write*",))),
        ):
            outcome = await call(name, only_read, scope)
            assert outcome.error is ErrorKind.DENIED
            assert outcome.detail == "scope of the caller"
        assert [name for name, _ in notes.notes.calls] == ["read_note"]
        ruled = [event.rule for event in notes.sink.events if isinstance(event, CallRuled)]
        assert ruled.count("scope of the caller") == 3


@proves("G7")
async def test_a_fallback_outside_of_the_callers_scope_is_passed_over(tmp_path: Path) -> None:
    async def broken(*_: object) -> str:
        raise RuntimeError("broken")

    first, second = tool_server("first", [READ], call=broken), tool_server("second", [READ])
    settings = Settings.model_validate(
        {
            "store": {"url": place_empty_store(tmp_path, "s.db")},
            "tools": [{"match": "first/read_note", "hierarchy": ["second/read_note"]}],
        }
    )
    async with Router([first.spec(), second.spec()], settings=settings) as router:
        await router.connect()

        async def call(*scopes: Scope) -> Outcome:
            context = CallContext(call_id=create_id("cal"), scopes=scopes)
            return await router.calls.call(ToolCall(name="first/read_note", arguments={"path": "a"}), context)

        within = await call(Scope(servers=("first",)))
        assert not within.success
        assert [attempt.error for attempt in within.attempts][-1] is ErrorKind.DENIED
        assert second.calls == []
        assert (await call(Scope(servers=("first", "second")))).tool == "second/read_note"


@proves("F30")
@pytest.mark.parametrize(
    ("tool", "attempt"), [("read_note", ErrorKind.CANCELLED), ("write_note", ErrorKind.UNKNOWN)]
)
async def test_a_caller_who_leaves_in_the_middle_leaves_the_end_in_the_audit_trail(
    tmp_path: Path, tool: str, attempt: ErrorKind
) -> None:
    began = anyio.Event()

    async def work(*_: object) -> str:
        began.set()
        await anyio.sleep_forever()
        return ""

    async with open_notes_router(
        tmp_path, answer=work, policy=[{"verdict": "allow", "server": "*"}]
    ) as notes:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(
                notes.router.call, tool, {"path": "a", **({"text": "b"} if "write" in tool else {})}
            )
            with anyio.fail_after(30):
                await began.wait()
            tasks.cancel_scope.cancel()
        await notes.router.store.journal.flush()
        trail = await notes.router.store.audit.list_entries()
        ends = {entry.kind: json.loads(entry.payload)["event"] for entry in trail}
        assert ends["attempt_finished"]["attempt"]["error"] == attempt
        assert ends["call_finished"]["tool"] == f"notes/{tool}"
        assert ends["call_finished"]["success"] is False
        assert ends["call_finished"]["error"] == ErrorKind.CANCELLED
        assert (await notes.router.store.audit.verify()).intact


ALLOW: Any = [{"verdict": "allow", "server": "*"}]


def create_changing_notes() -> tuple[dict[str, str], Any]:
    """Notes that change without a call of ours."""
    notes = {"a": "first"}

    async def act(name: str, arguments: dict[str, Any]) -> str:
        if name == "write_note":
            notes[arguments["path"]] = arguments["text"]
            return "written"
        return notes[arguments["path"]]

    return notes, act


@proves("A17")
async def test_what_changed_underneath_is_read_anew(tmp_path: Path) -> None:
    notes, act = create_changing_notes()
    async with open_notes_router(tmp_path, answer=act) as notes_router:
        assert (await notes_router.router.call("read_note", {"path": "a"}, caller="dana")).content == "first"
        notes["a"] = "second"
        again = await notes_router.router.call("read_note", {"path": "a"}, caller="dana")
    assert (again.content, "cached" in again.metadata) == ("second", False)


@proves("A17")
async def test_where_a_person_allowed_it_a_read_comes_from_memory_and_says_so_until_something_is_written(
    tmp_path: Path,
) -> None:
    notes, act = create_changing_notes()
    tools = [{"match": "notes/*", "cache_seconds": 600}]
    async with open_notes_router(tmp_path, answer=act, tools_settings=tools, policy=ALLOW) as notes_router:

        async def read(caller: str = "dana") -> Outcome:
            return await notes_router.router.call("read_note", {"path": "a"}, caller=caller)

        assert "cached" not in (await read()).metadata
        notes["a"] = "second"
        again = await read()
        assert again.content == "first"
        cached: Any = again.metadata["cached"]
        assert cached["age_seconds"] >= 0
        assert "it comes from the cache" in str(build_tool_message(again)["content"])
        assert (await read("noam")).content == "second"
        await notes_router.router.call("write_note", {"path": "b", "text": "x"}, caller="noam")
        assert (await read()).content == "second"


@proves("D14")
async def test_how_often_and_after_what_a_call_is_repeated_is_set_for_each_tool(tmp_path: Path) -> None:
    tries: list[str] = []

    async def act(name: str, _: dict[str, Any]) -> str:
        tries.append(name)
        if name == "delete_note":
            await anyio.sleep_forever()
        raise RuntimeError("flaky")

    tools = [
        {"match": "notes/*", "retries": 2, "retry_on": ["execution_failed", "timeout"]},
        {"match": "notes/delete_note", "timeout_ms": 200, "repeatable": True},
        {"match": "notes/read_note", "retries": 1},
    ]
    async with open_notes_router(tmp_path, answer=act, tools_settings=tools, policy=ALLOW) as notes:
        for name in ("read_note", "write_note", "delete_note"):
            arguments = (
                {}
                if name == "delete_note"
                else {"path": "a", **({"text": "b"} if name == "write_note" else {})}
            )
            assert not (await notes.router.call(name, arguments)).success
    # A write is repeated only if its definition says that it is idempotent.
    assert {name: tries.count(name) for name in tries} == {"read_note": 2, "write_note": 1, "delete_note": 3}

"""How many rows a call writes, counted in the database, and that every step is read back from them."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import anyio
import psycopg

from fingerpost import Router, Settings
from fingerpost.events import CallEvent, Event, MemorySink
from fingerpost.records import CallContext, Decision, create_id
from fingerpost.store import Store
from fingerpost.testing import ToolServer, tool_server
from tests.requirements import proves

READ = {"name": "read_note", "description": "Read a note.", "annotations": {"readOnlyHint": True}}
WRITE = {"name": "write_note", "description": "Write a note.", "annotations": {"destructiveHint": False}}
ALLOWED = [{"tool": "notes/write_note", "caller": "trusted", "verdict": "allow"}]
STEPS = [
    "call_received", "call_prepared", "call_ruled", "attempt_started",
    "attempt_finished", "result_digested", "call_finished",
]  # fmt: skip
ASKING = ["call_received", "call_prepared", "call_ruled", "approval_requested", "call_finished"]


def count_rows(url: str) -> tuple[int, int]:
    """Rows of the journal and of the audit trail."""
    statement = "SELECT (SELECT count(*) FROM journal), (SELECT count(*) FROM audit)"
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
            return connection.execute(statement).fetchone()
    with psycopg.connect(url) as connection:
        found = connection.execute(statement).fetchone()
        assert found is not None
        return found


class RowCounter:
    """A router with a notes server, and the rows that its work writes."""

    def __init__(self, router: Router, url: str, sink: MemorySink) -> None:
        self.router = router
        self.sink = sink
        self._url = url

    async def count(self, work: Callable[[], Awaitable[object]]) -> tuple[int, int]:
        await self.router.store.journal.flush()
        journal, audit = count_rows(self._url)
        await work()
        await self.router.store.journal.flush()
        journal_after, audit_after = count_rows(self._url)
        return journal_after - journal, audit_after - audit

    async def read(self) -> None:
        outcome = await self.router.call("notes/read_note", {})
        assert outcome.success, outcome

    async def read_steps(self, call_id: str) -> list[Event]:
        return [entry.event for entry in await self.router.store.journal.list_events(packet_id=call_id)]

    def list_emitted(self, call_id: str) -> list[Event]:
        return [event for event in self.sink.events if event.packet_id == call_id]


@asynccontextmanager
async def count_in(url: str, *, answer: Any = None, **more: Any) -> AsyncGenerator[RowCounter]:
    notes: ToolServer = tool_server("notes", [READ, WRITE], call=answer)
    settings = {"store": {"url": url}, "flags": {"dense_scores": False}, "policy": ALLOWED, **more}
    sink = MemorySink()
    async with Router([notes.spec()], settings=Settings.model_validate(settings), sinks=[sink]) as router:
        await router.connect()
        yield RowCounter(router, url, sink)


@proves("H28", "H4")
async def test_a_read_is_one_row_of_the_journal_and_one_of_the_trail(url: str) -> None:
    async with count_in(url) as counter:
        assert await counter.count(counter.read) == (1, 1)
        (call_id,) = {event.call_id for event in counter.sink.events if isinstance(event, CallEvent)}
        steps = await counter.read_steps(call_id)
        assert [event.kind for event in steps] == STEPS
        assert steps == counter.list_emitted(call_id)
        entries = await counter.router.store.audit.list_entries()
        assert [entry.kind for entry in reversed(entries)] == [step.kind for step in steps if step.audited]
        assert (await counter.router.store.audit.verify()).intact


@proves("H28", "H4")
async def test_a_write_is_on_record_before_it_is_sent_and_once_more_when_it_is_over(
    url: str, tmp_path: Path
) -> None:
    before: list[list[str]] = []

    async def answer(_name: str, _arguments: Any) -> str:
        async with Store.open(url, anchor=tmp_path / "other.anchor") as other:
            before.append([entry.event.kind for entry in await other.journal.list_events()][-4:])
        return "written"

    async with count_in(url, answer=answer) as counter:
        made: list[str] = []

        async def write() -> None:
            outcome = await counter.router.call("notes/write_note", {}, caller="trusted")
            assert outcome.success, outcome
            made.append(outcome.call_id)

        assert await counter.count(write) == (2, 2)
        assert before == [STEPS[:4]]
        assert [event.kind for event in await counter.read_steps(made[0])] == STEPS


@proves("H28", "H4")
async def test_an_approved_write_adds_the_question_and_the_decision(url: str) -> None:
    async with count_in(url) as counter:
        router, made = counter.router, list[str]()

        async def write() -> None:
            asked = await router.call("notes/write_note", {})
            assert asked.pending_id is not None
            await router.calls.decide(asked.pending_id, Decision.APPROVED, by="dana")
            outcome = await router.calls.resume(asked.pending_id, CallContext(call_id=create_id("cal")))
            assert outcome.success, outcome
            made.append(asked.call_id)

        assert await counter.count(write) == (4, 4)
        assert [event.kind for event in await counter.read_steps(made[0])] == [
            *ASKING,
            "approval_decided",
            *STEPS,
        ]


@proves("H28", "H4")
async def test_many_reads_at_once_are_one_row_each(url: str) -> None:
    async with count_in(url) as counter:

        async def read_all() -> None:
            async with anyio.create_task_group() as tasks:
                for _ in range(20):
                    tasks.start_soon(counter.read)

        assert await counter.count(read_all) == (20, 20)


@proves("H28")
async def test_a_request_without_a_model_is_one_row_with_its_call(url: str) -> None:
    async with count_in(url) as counter:
        journal, audit = await counter.count(lambda: counter.router.route("Use notes/read_note"))
        assert (journal, audit) == (1, 1)


@proves("H28")
async def test_a_long_call_is_seen_before_it_ends(url: str) -> None:
    going_on = anyio.Event()

    async def answer(_name: str, _arguments: Any) -> str:
        await going_on.wait()
        return "read"

    async with count_in(url, answer=answer) as counter:
        store = counter.router.store

        async def wait_until_seen() -> None:
            while not await store.journal.list_events(kinds=("attempt_started",)):  # noqa: ASYNC110 - in the database
                await anyio.sleep(0.05)

        async def read() -> None:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(counter.read)
                with anyio.fail_after(20):
                    await wait_until_seen()
                going_on.set()

        assert await counter.count(read) == (2, 2)

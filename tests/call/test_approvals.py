"""Asking a person, hearing the answer, using it: on SQLite and on PostgreSQL."""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import anyio
import pytest
from benchmarks.grants import race
from hypothesis import given
from hypothesis import strategies as st

from fingerpost.call.approvals import CLOCK_SKEW, MAX_WAITING, CallApprovals
from fingerpost.call.build import compute_call_fingerprint
from fingerpost.errors import CallError, LimitReached
from fingerpost.events import ApprovalDecided, ApprovalRequested, MemorySink, encode
from fingerpost.records import (
    Call,
    CallContext,
    Decision,
    Effect,
    Json,
    Pending,
    Permit,
    Ruling,
    Verdict,
)
from fingerpost.settings import CallSettings
from tests.kit import warm
from tests.kit.store_samples import NOON
from tests.kit.stores import ON_SQLITE, PATIENCE, OpenStore
from tests.requirements import proves
from tests.store.conftest import anchor, open_store, postgres_url, sqlite_url, url

FIXTURES = (anchor, open_store, postgres_url, sqlite_url, url)

ASK = Ruling(verdict=Verdict.ASK, reason="it deletes", rule="default for destroy")
CONTEXT = CallContext(call_id="cal_1", conversation="ses_1", caller="dana")
SETTINGS = CallSettings()


def make_call(path: str = "a.txt", *, definition: str = "def-1", **changes: Any) -> Call:
    arguments: dict[str, Json] = {"path": path}
    made = Call(
        tool="files/delete",
        server="files",
        name="delete",
        operation="files/delete",
        arguments=arguments,
        effect=Effect.DESTROY,
        fingerprint=compute_call_fingerprint(definition, "files/delete", arguments),
        definition_fingerprint=definition,
    )
    return replace(made, **changes)


class ManualClock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = NOON

    def __call__(self) -> datetime:
        return self.now

    def move(self, by: float) -> None:
        self.now += timedelta(seconds=by)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def sink() -> MemorySink:
    return MemorySink()


Opened = Callable[[], Any]


@pytest.fixture
def open_call_approvals(open_store: OpenStore, clock: ManualClock, sink: MemorySink) -> Opened:
    """Open the approvals; opening them again is a restart, or another process as far as they can tell."""

    @asynccontextmanager
    async def open_approvals() -> AsyncGenerator[CallApprovals]:
        # Two of them take turns at one file: on a busy machine a turn may take longer than the usual wait.
        async with open_store(lock_wait=PATIENCE) as store:
            yield CallApprovals(store, events=sink, settings=SETTINGS, clock=clock)

    return open_approvals


async def request_and_approve(approvals: CallApprovals, call: Call, **how: Any) -> Pending:
    pending = await approvals.request(call, CONTEXT, ASK)
    return await approvals.decide(pending.pending_id, Decision.APPROVED, by="kim", **how)


@proves("A5", "C6")
async def test_nothing_runs_before_a_person_approved_and_then_exactly_once(
    open_call_approvals: Opened,
) -> None:
    async with open_call_approvals() as approvals:
        call = make_call()
        assert await approvals.use_grant(call, CONTEXT) is None
        pending = await approvals.request(call, CONTEXT, ASK)
        assert await approvals.use_grant(call, CONTEXT) is None
        assert (pending.reason, pending.caller, pending.effect) == ("it deletes", "dana", Effect.DESTROY)
        assert await approvals.list_waiting() == [pending]
        await approvals.decide(pending.pending_id, Decision.APPROVED, by="kim")
        assert await approvals.list_waiting() == []
        leave = await approvals.use_grant(call, CONTEXT)
        assert isinstance(leave, Permit)
        assert leave.call_fingerprint == call.fingerprint
        assert leave.given_by.startswith("grant gnt_")
        assert leave.given_by.endswith(" by kim")
        assert await approvals.use_grant(call, CONTEXT) is None


@proves("C6")
@ON_SQLITE
async def test_a_rejection_gives_no_leave_and_keeps_its_reason(
    open_call_approvals: Opened, sink: MemorySink
) -> None:
    async with open_call_approvals() as approvals:
        pending = await approvals.request(make_call(), CONTEXT, ASK)
        await approvals.decide(pending.pending_id, Decision.REJECTED, by="kim", reason="not on a Friday")
        assert await approvals.use_grant(make_call(), CONTEXT) is None
        standing = await approvals.get(pending.pending_id)
    assert standing is not None
    assert (standing.decision, standing.decision_reason) == (Decision.REJECTED, "not on a Friday")
    requested, decided = sink.events
    assert isinstance(requested, ApprovalRequested)
    assert isinstance(decided, ApprovalDecided)
    assert requested.call_id == decided.call_id == decided.packet_id == "cal_1"
    assert (decided.decision, decided.decided_by, decided.reason) == (
        Decision.REJECTED,
        "kim",
        "not on a Friday",
    )


@ON_SQLITE
async def test_the_same_call_asked_again_while_it_waits_is_the_same_pending_call(
    open_call_approvals: Opened, sink: MemorySink
) -> None:
    asked: list[Pending] = []

    async def ask(approvals: CallApprovals) -> None:
        asked.append(await approvals.request(make_call(), replace(CONTEXT, call_id="cal_again"), ASK))

    async with open_call_approvals() as first_approvals, open_call_approvals() as there:
        async with anyio.create_task_group() as tasks:
            for approvals in (first_approvals, there) * 10:
                tasks.start_soon(ask, approvals)
        assert len({pending.pending_id for pending in asked}) == 1
        assert len(await first_approvals.list_waiting()) == 1
        assert len(sink.events) == 1
        other = await first_approvals.request(make_call("b.txt"), CONTEXT, ASK)
        elsewhere = await first_approvals.request(make_call(), replace(CONTEXT, conversation="ses_2"), ASK)
        somebody = await first_approvals.request(make_call(), replace(CONTEXT, caller="lee"), ASK)
        assert len({asked[0].pending_id, other.pending_id, elsewhere.pending_id, somebody.pending_id}) == 4


@ON_SQLITE
async def test_a_call_decided_before_is_asked_about_anew(open_call_approvals: Opened) -> None:
    async with open_call_approvals() as approvals:
        first = await request_and_approve(approvals, make_call())
        again = await approvals.request(make_call(), CONTEXT, ASK)
        assert again.pending_id != first.pending_id
        assert again.decision is Decision.WAITING


@proves("C6", "F33")
async def test_a_decision_on_one_call_holds_in_every_session_of_its_caller(
    open_call_approvals: Opened, clock: ManualClock, sink: MemorySink
) -> None:
    first, later, other = (
        replace(CONTEXT, conversation=session, asker=asker)
        for session, asker in (("ses_1", "key:dana"), ("ses_2", "key:dana"), ("ses_2", "token:dana"))
    )
    async with open_call_approvals() as first_approvals:
        pending = await first_approvals.request(make_call(), first, ASK)
    async with open_call_approvals() as first_approvals, open_call_approvals() as there:
        assert (await there.request(make_call(), later, ASK)).pending_id == pending.pending_id
        assert len(sink.events) == 1
        await first_approvals.decide(pending.pending_id, Decision.APPROVED, by="kim")
        for elsewhere in (other, replace(CONTEXT, conversation="ses_2"), replace(later, caller="lee")):
            assert await there.use_grant(make_call(), elsewhere) is None
        assert await there.use_grant(make_call("b.txt"), later) is None
        leaves: list[Permit] = []

        async def spend(approvals: CallApprovals) -> None:
            leave = await approvals.use_grant(make_call(), later)
            leaves.extend([] if leave is None else [leave])

        async with anyio.create_task_group() as tasks:
            for approvals in (first_approvals, there) * 5:
                tasks.start_soon(spend, approvals)
        assert len(leaves) == 1
        clock.move(1)
        again = await there.request(make_call(), later, ASK)
        await first_approvals.decide(again.pending_id, Decision.REJECTED, by="kim", reason="enough")
        assert await there.take_unreported_decision(make_call(), other) is None
        word = await there.take_unreported_decision(make_call(), first)
        assert word is not None
        assert word.decision_reason == "enough"
        assert await there.take_unreported_decision(make_call(), later) is None


@proves("C6")
@ON_SQLITE
async def test_an_approval_for_a_session_stays_there_and_the_call_it_was_about_runs_once_anywhere(
    open_call_approvals: Opened,
) -> None:
    first, later = (
        replace(CONTEXT, conversation=session, asker="key:dana") for session in ("ses_1", "ses_2")
    )
    async with open_call_approvals() as approvals:
        pending = await approvals.request(make_call(), first, ASK)
        await approvals.decide(pending.pending_id, Decision.APPROVED, by="kim", scope="conversation")
        assert await approvals.use_grant(make_call("b.txt"), later) is None
        assert await approvals.use_grant(make_call(), later) is not None
        assert await approvals.use_grant(make_call(), later) is None
        for _ in range(3):
            assert await approvals.use_grant(make_call(), first) is not None
        assert await approvals.use_grant(make_call("b.txt"), first) is None


@proves("C6", "F34")
@ON_SQLITE
async def test_arguments_or_a_definition_changed_after_approval_void_it(open_call_approvals: Opened) -> None:
    async with open_call_approvals() as approvals:
        await request_and_approve(approvals, make_call("a.txt"))
        assert await approvals.use_grant(make_call("b.txt"), CONTEXT) is None
        assert await approvals.use_grant(make_call("a.txt", definition="def-2"), CONTEXT) is None
        assert await approvals.use_grant(make_call("a.txt"), replace(CONTEXT, conversation="ses_2")) is None
        assert await approvals.use_grant(make_call("a.txt"), CONTEXT) is not None


@proves("C6")
@ON_SQLITE
async def test_an_edited_call_is_approved_as_edited_and_not_as_asked(
    open_call_approvals: Opened, sink: MemorySink
) -> None:
    async with open_call_approvals() as approvals:
        standing = await request_and_approve(approvals, make_call("a.txt"), edited=make_call("b.txt"))
        assert standing.edited_arguments == {"path": "b.txt"}
        assert await approvals.use_grant(make_call("a.txt"), CONTEXT) is None
        assert await approvals.use_grant(make_call("b.txt"), CONTEXT) is not None
    decided = sink.events[-1]
    assert isinstance(decided, ApprovalDecided)
    assert decided.edited


@proves("C6")
@ON_SQLITE
async def test_an_approval_for_the_conversation_covers_operation_and_target_there_until_it_expires(
    open_call_approvals: Opened, clock: ManualClock
) -> None:
    async with open_call_approvals() as approvals:
        await request_and_approve(approvals, make_call("a.txt"), scope="conversation")
        for _ in range(3):
            assert await approvals.use_grant(make_call("a.txt"), CONTEXT) is not None
        assert await approvals.use_grant(make_call("b.txt"), CONTEXT) is None
        assert await approvals.use_grant(make_call(), replace(CONTEXT, caller="lee")) is None
        assert await approvals.use_grant(make_call(), replace(CONTEXT, conversation="ses_2")) is None
        assert await approvals.use_grant(make_call(), replace(CONTEXT, conversation=None)) is None
        assert await approvals.use_grant(make_call(operation="files/delete.all"), CONTEXT) is None
        assert await approvals.use_grant(make_call(definition="def-2"), CONTEXT) is None
        clock.move(SETTINGS.grant_seconds)
        assert await approvals.use_grant(make_call(), CONTEXT) is None


@ON_SQLITE
async def test_what_does_not_apply_is_refused_and_decides_nothing(open_call_approvals: Opened) -> None:
    async with open_call_approvals() as approvals:
        pending = await approvals.request(make_call(), replace(CONTEXT, conversation=None), ASK)
        wrong: list[dict[str, Any]] = [
            {"decision": Decision.APPROVED, "scope": "conversation"},
            {"decision": Decision.APPROVED, "edited": make_call(tool="files/format_disk")},
            {"decision": Decision.REJECTED, "edited": make_call("b.txt")},
        ]
        for how in wrong:
            with pytest.raises(CallError) as refused:
                await approvals.decide(pending.pending_id, by="kim", **how)
            assert refused.value.hint
        with pytest.raises(CallError, match="apr_none"):
            await approvals.decide("apr_none", Decision.APPROVED, by="kim")
        assert await approvals.list_waiting() == [pending]


@proves("C6")
async def test_a_waiting_call_and_a_grant_survive_a_restart(open_call_approvals: Opened) -> None:
    async with open_call_approvals() as approvals:
        pending = await approvals.request(make_call(), CONTEXT, ASK)
    async with open_call_approvals() as approvals:
        assert await approvals.list_waiting() == [pending]
        await approvals.decide(pending.pending_id, Decision.APPROVED, by="kim")
    async with open_call_approvals() as approvals:
        assert await approvals.use_grant(make_call(), CONTEXT) is not None
    async with open_call_approvals() as approvals:
        assert await approvals.use_grant(make_call(), CONTEXT) is None


@pytest.mark.slow
@proves("F32")
async def test_of_two_approvers_at_once_one_wins_and_both_hear_the_same(
    open_call_approvals: Opened, sink: MemorySink
) -> None:
    received: dict[str, list[Pending]] = {}

    async def decide(approvals: CallApprovals, pending_id: str, decision: Decision, by: str) -> None:
        received[pending_id].append(await approvals.decide(pending_id, decision, by=by))

    async with open_call_approvals() as first_approvals, open_call_approvals() as there:
        calls = [make_call(f"{number}.txt") for number in range(20)]
        asked = [await first_approvals.request(call, CONTEXT, ASK) for call in calls]
        async with anyio.create_task_group() as tasks:
            for number, pending in enumerate(asked):
                received[pending.pending_id] = []
                wishes = [(first_approvals, Decision.APPROVED, "kim"), (there, Decision.REJECTED, "lee")]
                for approvals, decision, by in wishes[:: 1 if number % 2 else -1]:
                    tasks.start_soon(decide, approvals, pending.pending_id, decision, by)
        for call, pending in zip(calls, asked, strict=True):
            first, second = received[pending.pending_id]
            assert first == second == await there.get(pending.pending_id)
            assert first.decided_by == ("kim" if first.decision is Decision.APPROVED else "lee")
            leave = await first_approvals.use_grant(call, CONTEXT)
            assert (leave is not None) is (first.decision is Decision.APPROVED)
            assert await there.use_grant(call, CONTEXT) is None
    events = [event.pending_id for event in sink.events if isinstance(event, ApprovalDecided)]
    assert sorted(events) == sorted(received)


@pytest.mark.slow
@ON_SQLITE
async def test_a_second_approval_gives_no_second_leave(open_call_approvals: Opened) -> None:
    async with open_call_approvals() as approvals:
        pending = await request_and_approve(approvals, make_call())
        for by in ("kim", "lee"):
            again = await approvals.decide(pending.pending_id, Decision.APPROVED, by=by, scope="conversation")
            assert again.decided_by == "kim"
        assert await approvals.use_grant(make_call(), CONTEXT) is not None
        assert await approvals.use_grant(make_call(), CONTEXT) is None


@proves("F36")
@ON_SQLITE
async def test_a_call_without_a_decision_in_time_is_expired_and_cannot_be_approved(
    open_call_approvals: Opened, clock: ManualClock
) -> None:
    async with open_call_approvals() as approvals:
        pending = await approvals.request(make_call(), CONTEXT, ASK)
        clock.move(SETTINGS.pending_seconds)
        assert await approvals.list_waiting() == []
        standing = await approvals.decide(pending.pending_id, Decision.APPROVED, by="kim")
        assert standing.decision is Decision.EXPIRED
        assert await approvals.use_grant(make_call(), CONTEXT) is None
        assert (await approvals.request(make_call(), CONTEXT, ASK)).pending_id != pending.pending_id


@proves("F36")
@pytest.mark.parametrize("scope", ["once", "conversation"])
@pytest.mark.parametrize(
    ("jump", "good"),
    [
        (0, True),
        (SETTINGS.grant_seconds - 1, True),
        (SETTINGS.grant_seconds, False),
        (3600, False),
        (-3600, False),
        (-CLOCK_SKEW.total_seconds(), True),
        (-CLOCK_SKEW.total_seconds() - 1, False),
    ],
)
@ON_SQLITE
async def test_a_grant_holds_for_its_time_and_a_clock_that_jumps_does_not_lengthen_it(
    open_call_approvals: Opened, clock: ManualClock, scope: str, jump: float, good: bool
) -> None:
    async with open_call_approvals() as approvals:
        await request_and_approve(approvals, make_call(), scope=scope)
        clock.move(jump)
        assert (await approvals.use_grant(make_call(), CONTEXT) is not None) is good


@ON_SQLITE
async def test_a_grant_from_the_future_does_not_hide_a_good_one(
    open_call_approvals: Opened, clock: ManualClock
) -> None:
    async with open_call_approvals() as approvals:
        clock.move(3600)
        await request_and_approve(approvals, make_call())
        clock.move(-3600)
        await request_and_approve(approvals, make_call(), scope="conversation")
        assert await approvals.use_grant(make_call(), CONTEXT) is not None


@ON_SQLITE
async def test_a_secret_in_the_arguments_is_kept_for_the_call_and_shown_nowhere(
    open_call_approvals: Opened, sink: MemorySink
) -> None:
    secret = "sk-" + "a1b2c3d4" * 4
    async with open_call_approvals() as approvals:
        ruling = replace(ASK, reason=f"it would send {secret}")
        pending = await approvals.request(make_call(secret), CONTEXT, ruling)
        assert pending.arguments == {"path": secret}
        await approvals.decide(pending.pending_id, Decision.REJECTED, by="kim", reason=f"never send {secret}")
    assert len(sink.events) == 2
    assert secret not in str([encode(event) for event in sink.events])


@pytest.mark.process
@proves("F33", "C6")
async def test_processes_racing_for_grants_with_one_killed_spend_each_once(url: str) -> None:
    with anyio.fail_after(50):
        done = await race(url, grants=200, processes=3, python=warm.python())
    # Whether the kill comes in time depends on the machine; `make bench` shows it over 10,000 grants.
    assert (done.doubles, done.left) == (0, 0)


scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
)
objects = st.dictionaries(st.text(max_size=3), values, max_size=4)


def reverse_keys(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: reverse_keys(value[key]) for key in reversed(value)}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType] - JSON
    return [reverse_keys(item) for item in value] if isinstance(value, list) else value  # pyright: ignore[reportUnknownVariableType] - JSON


@given(objects)
def test_the_order_of_keys_does_not_change_a_fingerprint(arguments: dict[str, Any]) -> None:
    assert compute_call_fingerprint("d", "t", arguments) == compute_call_fingerprint(
        "d", "t", reverse_keys(arguments)
    )


@given(
    st.dictionaries(st.text(st.characters(max_codepoint=300), max_size=3), scalars, max_size=4),
    st.text(st.characters(max_codepoint=200), max_size=5),
)
def test_a_fingerprint_does_not_depend_on_how_fast_it_was_written(
    arguments: dict[str, Any], tool: str
) -> None:
    written = json.dumps(["d", tool, arguments], sort_keys=True, separators=(",", ":"))
    assert compute_call_fingerprint("d", tool, arguments) == hashlib.sha256(written.encode()).hexdigest()


def test_values_a_tool_may_tell_apart_have_fingerprints_of_their_own() -> None:
    values: list[Json] = [1, 1.0, True, "1", "true", None, "", [], {}, [1], "é", "e\u0301"]
    assert len({compute_call_fingerprint("d", "t", {"x": value}) for value in values}) == len(values)
    assert compute_call_fingerprint("d", "t", {}) != compute_call_fingerprint("d2", "t", {})
    assert compute_call_fingerprint("d", "t", {}) != compute_call_fingerprint("d", "t2", {})


@pytest.mark.slow
@proves("G6")
@ON_SQLITE
async def test_one_caller_cannot_bury_a_person_under_questions(open_call_approvals: Opened) -> None:
    async with open_call_approvals() as approvals:
        async with anyio.create_task_group() as tasks:
            for number in range(MAX_WAITING):
                tasks.start_soon(approvals.request, make_call(f"{number}.txt"), CONTEXT, ASK)
        with pytest.raises(LimitReached, match="wait already") as refused:
            await approvals.request(make_call("more.txt"), CONTEXT, ASK)
        assert "fingerpost approvals" in (refused.value.hint or "")
        again = await approvals.request(make_call("7.txt"), CONTEXT, ASK)
        assert again.arguments == {"path": "7.txt"}
        other = replace(CONTEXT, caller="omar")
        assert (await approvals.request(make_call("more.txt"), other, ASK)).caller == "omar"

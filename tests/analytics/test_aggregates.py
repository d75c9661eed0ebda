"""Figures over time: each is what its definition in docs/reference/insight.md says."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from fingerpost.analytics.aggregates import EventCounter, choose_step, compute_calibration
from fingerpost.analytics.journal_reader import JournalReader
from fingerpost.analytics.records import Figures
from fingerpost.events import BreakerMoved, Event, LiveFeed, RouteEnded, SmartRoutingEnd
from fingerpost.records import (
    ConfidenceSample,
    Decision,
    Effect,
    ErrorKind,
    NeedVerdict,
    Pending,
    RouteOutcome,
    UsageSample,
    create_id,
    utc_now,
)
from fingerpost.records.codec import from_plain, to_plain
from fingerpost.store import Store
from tests.kit.journal_events import NOON, call, create_decided, create_requested, number_entries, request
from tests.kit.stores import place_empty_store
from tests.kit.tables import table
from tests.requirements import proves

pytestmark = pytest.mark.anyio


@pytest.fixture
async def store(tmp_path: Path) -> AsyncGenerator[Store]:
    async with Store.open(place_empty_store(tmp_path), flush_ms=1.0, audit=False) as opened:
        yield opened


async def figures_of(
    store: Store, *events: Event, hours: float = 1.0, tools: tuple[str, ...] = ()
) -> Figures:
    await store.journal.append(*events)
    async with JournalReader.open(store, LiveFeed()) as ledger:
        return await ledger.get_figures(hours=hours, tools=tools)


@proves("I8", "B10", "D13", "E7")
async def test_every_figure_of_a_small_day(store: Store) -> None:
    now = utc_now() - timedelta(seconds=30)  # parts of the story come a little later
    chosen = SmartRoutingEnd(
        at=now,
        conversation=None,
        total_tools=40,
        filtered_tools=8,
        total_servers=4,
        relevant_servers=("time",),
        reasoning="",
        by="scores",
        milliseconds=3.0,
        tokens_saved=900,
        success=True,
    )
    figures = await figures_of(
        store,
        *request("pkt_1", at=now, within=call("cal_1", packet_id="pkt_1", at=now), profile="ops"),
        *request("pkt_2", at=now, caller="noa", need=NeedVerdict.NONE),
        RouteEnded(packet_id="pkt_3", outcome=RouteOutcome.WAITING, milliseconds=1.0, at=now),
        *request("pkt_3", at=now, outcome=RouteOutcome.FAILED),  # it waited first, and counts once
        *call("cal_2", at=now, caller="noa", error=ErrorKind.TIMEOUT),
        *call("cal_3", at=now, fallback="clock/now", cut=True),
        *call("cal_4", at=now, error=ErrorKind.DENIED),
        *call("cal_dry", at=now, dry_run=True),
        chosen,
        replace(chosen, event_id=create_id("evt"), total_tools=0, filtered_tools=0, tokens_saved=0),
        replace(chosen, event_id=create_id("evt"), by="widened", widened=("files",)),
        BreakerMoved(server="time", state="open", reason="", at=now),
        BreakerMoved(server="time", state="closed", reason="", at=now),
        create_requested("cal_5", "pen_1", at=now),
        create_decided("cal_5", "pen_1", Decision.APPROVED, at=now, seconds=8.0),
        tools=("time/now", "files/read"),
    )
    totals = figures.totals
    assert (totals.requests, totals.no_tool, totals.no_tool_share) == (3, 1, pytest.approx(1 / 3))
    assert (totals.considered, totals.offered, totals.reduction) == (120, 4, pytest.approx(1 - 4 / 120))
    assert totals.tokens_saved == 3_800 + 4_000 + 3_800
    assert totals.outcomes == {"answered": 2, "failed": 1}
    assert (totals.model_calls, totals.prompt_tokens, totals.completion_tokens) == (3, 900, 60)
    assert (totals.calls, totals.failed_calls, totals.failed_share) == (4, 1, 0.25)
    assert totals.errors == {"denied": 1, "timeout": 1}
    assert (totals.fallbacks, totals.recovered, totals.recovered_share) == (1, 1, 1.0)
    assert (totals.digested, totals.truncated, totals.truncated_share) == (2, 1, 0.5)
    assert (totals.attempts, totals.failed_attempts) == (4, 2)
    assert (totals.server_choices, totals.server_choices_success, totals.server_tokens_saved) == (2, 1.0, 900)
    assert (totals.server_reduction, totals.server_fallback_rate) == (0.8, 0.5)
    assert (totals.server_choices_all_stayed, totals.server_choices_widened) == (1, 1)
    assert (totals.breaker_openings, totals.approvals_asked, totals.approved) == (1, 1, 1)
    assert totals.stages["approval"].p50 == pytest.approx(8_000, rel=0.02)
    assert totals.stages["whole"].p95 == pytest.approx(120, rel=0.02)
    assert [(used.tool, used.calls, used.failures) for used in figures.most_used] == [
        ("time/now", 2, 1),  # the call that was denied did not use it
        ("clock/now", 1, 0),
    ]
    assert {(one.name, one.requests, one.calls) for one in figures.callers} == {("dana", 2, 3), ("noa", 1, 1)}
    assert {(one.name, one.requests) for one in figures.profiles} == {("ops", 1), ("", 2)}
    assert figures.complete
    assert from_plain(Figures, to_plain(figures)) == figures


async def test_steps_follow_each_other_and_add_up(store: Store) -> None:
    now = utc_now()
    minutes = (0, 1, 1, 50, 100)
    figures = await figures_of(
        store,
        *(
            event
            for number, ago in sorted(enumerate(minutes), key=lambda pair: -pair[1])
            for event in request(f"pkt_{number}", at=now - timedelta(minutes=ago))
        ),
    )
    assert (figures.step, figures.step_seconds) == ("minute", 60)
    gaps = {later.at - one.at for one, later in zip(figures.buckets, figures.buckets[1:], strict=False)}
    assert gaps == {timedelta(minutes=1)}
    assert [bucket.requests for bucket in figures.buckets if bucket.requests] == [1, 2, 1]
    assert (figures.totals.requests, figures.before and figures.before.requests) == (4, 1)


async def test_the_next_question_counts_what_came_since(store: Store) -> None:
    async with JournalReader.open(store, LiveFeed()) as ledger:
        await store.journal.append(*request("pkt_1", at=utc_now()))
        assert (await ledger.get_figures(hours=1)).totals.requests == 1
        await store.journal.append(*request("pkt_2", at=utc_now()))
        assert (await ledger.get_figures(hours=1)).totals.requests == 2
        assert (await ledger.get_figures(hours=200)).totals.requests == 2


async def test_an_approval_without_a_decision_expires(store: Store) -> None:
    then = utc_now() - timedelta(minutes=30)
    await store.approvals.add(
        Pending(
            pending_id="pen_1",
            tool="files/write",
            operation="files/write",
            arguments={},
            effect=Effect.WRITE,
            reason="it writes",
            call_fingerprint="f",
            created=then,
            expires=then + timedelta(minutes=10),
        )
    )
    figures = await figures_of(store, create_requested("cal_1", "pen_1", at=then))
    assert (figures.totals.approvals_asked, figures.totals.expired) == (1, 1)


async def test_never_used_are_those_no_call_was_ever_made_of(store: Store) -> None:
    used = UsageSample(tool="time/now", milliseconds=3.0, tokens=1, success=True, at=NOON)
    await store.usage.record(used)
    figures = await figures_of(store, tools=("time/now", "files/read", "files/write"))
    assert figures.never_used == ("files/read", "files/write")
    assert (figures.totals.requests, figures.totals.failed_share) == (0, None)


@proves("D13")
def test_estimates_are_compared_with_what_it_took() -> None:
    counting = EventCounter(60)
    took = [100.0] * 5 + [140.0, 160.0, 60.0]  # five teach; two of the three after them are within 50 %
    events = [event for number, ms in enumerate(took) for event in call(f"cal_{number}", milliseconds=ms)]
    counting.count(number_entries(events))
    counting.count(number_entries(events))  # once more: nothing is counted twice
    (sums,) = counting.sums.values()
    assert (sums.counts["estimates"], sums.counts["good_estimates"], sums.counts["calls"]) == (3, 2, 8)


def test_the_calibration_curve() -> None:
    samples = [
        ConfidenceSample(raw=raw, right=right, tool="time/now")
        for raw, right in ((0.95, True), (0.91, True), (1.0, False), (0.3, False))
    ]
    low, high = compute_calibration(samples)
    assert (low.claimed, low.right, low.count) == (0.3, 0.0, 1)
    assert (high.claimed, high.right, high.count) == (pytest.approx(0.953, abs=0.01), pytest.approx(2 / 3), 3)


@table(
    ("hours", "wanted", "step"),
    [
        (1, "auto", "minute"),
        (24, "auto", "hour"),
        (720, "auto", "day"),
        (24, "minute", "hour"),
        (24, "day", "day"),
        (9_000, "minute", "day"),
    ],
)
def test_steps_suit_the_range(hours: float, wanted: str, step: str) -> None:
    assert choose_step(hours, wanted) == step


def test_a_step_there_is_not() -> None:
    with pytest.raises(ValueError, match="the steps are auto, minute, hour, day"):
        choose_step(1, "week")

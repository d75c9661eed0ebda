"""The figures of smart routing, from events in memory and in the store."""

from __future__ import annotations

from pathlib import Path

import pytest

from fingerpost import Router, Settings
from fingerpost.errors import ModelUnavailable
from fingerpost.events import MemorySink, SmartRoutingEnd, SmartRoutingStart
from fingerpost.narrow.server_picker import ServerPicker, SmartRoutingStats, adapt_settings, read_stored_stats
from fingerpost.settings import SmartRoutingSettings
from fingerpost.store import Store
from fingerpost.testing import ScriptedModel, tool_server
from tests.kit.catalogs import tool
from tests.kit.server_picks import PickerFixture, build_scores, snapshot, write_choice
from tests.kit.stores import place_empty_store
from tests.kit.tables import table
from tests.requirements import proves


def end(kept: int, *, ms: float = 1.0, saved: int = 0, error: str | None = None) -> SmartRoutingEnd:
    return SmartRoutingEnd(
        conversation=None, total_tools=100, filtered_tools=kept, total_servers=9, relevant_servers=(),
        reasoning="", by="scores", milliseconds=ms, tokens_saved=saved, success=error is None, error=error,
    )  # fmt: skip


@proves("E7")
def test_rates_reduction_latency_and_savings_add_up():
    events = [end(20, ms=float(number), saved=50) for number in range(1, 99)]
    figures = SmartRoutingStats.from_events([*events, end(100, ms=99, error="gone"), end(100, ms=500)])
    assert figures.runs == 100
    assert figures.success_rate == 0.99
    assert figures.fallback_rate == 0.02
    assert figures.reduction == pytest.approx(0.98 * 0.8)
    assert (figures.p50_ms, figures.p99_ms) == (50, 99)
    assert figures.tokens_saved == 98 * 50


def test_without_a_run_there_are_no_figures():
    assert SmartRoutingStats.from_events(MemorySink().events) == SmartRoutingStats()


@proves("E7")
async def test_the_stored_journal_gives_the_same_figures(tmp_path: Path):
    picker_fixture = PickerFixture(ScriptedModel([write_choice("mail"), ModelUnavailable("gone", model="m")]))
    async with Store.open(place_empty_store(tmp_path)) as store:
        model = ScriptedModel([write_choice("mail"), ModelUnavailable("gone", model="m")])
        picker = ServerPicker(SmartRoutingSettings(), store.journal, model=model)
        for _ in range(2):
            await picker.pick("write", (), None, snapshot(), lambda: build_scores("mail"))
            await picker_fixture.choose("write")
        await store.journal.flush()
        stored = await read_stored_stats(store)
    direct = SmartRoutingStats.from_events(picker_fixture.sink.events)
    assert (stored.runs, stored.by_model, stored.success_rate, stored.fallback_rate) == (2, 2, 0.5, 0.5)
    assert (stored.reduction, stored.tokens_saved) == (direct.reduction, direct.tokens_saved)
    assert stored.tokens_saved > 0


@proves("E11")
@table(
    ("kept", "runs", "thresholds"),
    [
        (20, 20, (15, 2)),
        (50, 20, (22, 3)),
        (60, 20, (30, 4)),
        (80, 20, (45, 6)),
        (100, 20, (60, 8)),
        (20, 19, (30, 4)),  # too few to go by
    ],
)
def test_thresholds_follow_what_choosing_was_worth_within_bounds(
    kept: int, runs: int, thresholds: tuple[int, int]
):
    measured = SmartRoutingStats.from_events([end(kept) for _ in range(runs)])
    moved = adapt_settings(SmartRoutingSettings(), measured)
    assert (moved.max_tools, moved.max_servers) == thresholds


@pytest.mark.slow
@proves("E11")
async def test_with_the_flag_the_thresholds_in_force_follow_the_journal(tmp_path: Path):
    for adaptive, expected in ((False, (30, 4)), (True, (60, 8))):
        settings = Settings.model_validate(
            {
                "store": {"url": f"sqlite:///{tmp_path}/{adaptive}.db"},
                "flags": {"dense_scores": False, "adaptive_thresholds": adaptive},
            }
        )
        servers = [
            tool_server(f"s{number}", [tool(f"t{number}_{n}", "Look.") for n in range(8)]).spec()
            for number in range(10)
        ]
        sink = MemorySink()
        async with Router(servers, settings=settings, sinks=[sink]) as router:
            await router.connect()
            for _ in range(20):
                router.events.emit(end(100))
            await router.store.journal.flush()
            await router.narrow("Look at it", asked_for_tools=True)
        (start,) = (event for event in sink.events if isinstance(event, SmartRoutingStart))
        assert (start.max_tools, start.max_servers) == expected

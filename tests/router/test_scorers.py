"""Scorers of a program: what they add, and that none of them can break routing."""

from __future__ import annotations

import threading
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import numpy as np
import pytest

from fingerpost import ConfigError, Narrowing, Router, Scorer, ScorerRequest, Server, ToolCard, ToolScore
from fingerpost.narrow.components import MAX_LATE_RUNS
from fingerpost.narrow.dense import DenseScorer
from fingerpost.narrow.history_scorer import HistoryScorer
from fingerpost.narrow.lexical_scorer import LexicalScorer
from fingerpost.testing import tool_server
from tests.kit.routers import build_settings
from tests.kit.scorers import WordEncoder
from tests.kit.tables import table
from tests.requirements import proves

REQUEST = "Show the tide table of the harbour"
TOOLS = [
    {"name": name, "description": about, "inputSchema": {"type": "object"}}
    for name, about in (
        ("harbour_table", "Show the table of a harbour."),
        ("tide_table", "Show the tide table of a harbour."),
        ("weather", "The weather at sea."),
    )
]


class Fixed:
    """A scorer with one answer, which keeps what it was asked."""

    def __init__(self, answer: Any, *, label: str = "seasons", weight: float = 0.5) -> None:
        self.label = label
        self.weight = weight
        self.answer = answer
        self.asked: list[tuple[ScorerRequest, Sequence[ToolCard]]] = []

    def scores(self, request: ScorerRequest, cards: Sequence[ToolCard]) -> Any:
        self.asked.append((request, cards))
        return self.answer() if callable(self.answer) else self.answer


@asynccontextmanager
async def harbour(folder: Path, *scorers: Scorer, **settings: Any) -> AsyncGenerator[Router]:
    made = build_settings(folder, **settings)
    server = Server.in_process("sea", tool_server("sea", TOOLS).server)
    async with Router([server], settings=made, scorers=scorers) as router:
        await router.connect()
        yield router


def points(narrowing: Narrowing, signal: str) -> dict[str, float]:
    parts = [(one.tool, part) for one in narrowing.shortlist.candidates for part in one.parts]
    return {tool: part.points for tool, part in parts if part.signal == signal}


@proves("H26")
async def test_a_scorer_adds_its_points_under_its_label(tmp_path: Path) -> None:
    answer = {"sea/weather": ToolScore(0.8, "storms are near"), "sea/tide_table": -0.5, "no/tool": 1}
    seasons = Fixed(answer, weight=1.0)
    async with harbour(tmp_path, seasons) as router:
        narrowing = await router.narrow(REQUEST, caller="dana", max_tools=1)
    best = narrowing.shortlist.candidates[0]
    assert best.tool == "sea/weather"
    assert [part.note for part in best.parts if part.signal == "seasons"] == ["storms are near"]
    assert points(narrowing, "seasons") == {"sea/weather": 0.8, "sea/tide_table": -0.5}
    ((request, cards),) = seasons.asked
    assert (request.text, request.caller) == (REQUEST, "dana")
    assert [card.key for card in cards] == ["sea/harbour_table", "sea/tide_table", "sea/weather"]


@pytest.mark.parametrize(
    "answer", [[0.0, 9, -9.5], np.array([0, 7, -1], np.float32), {"sea/tide_table": 1e9, "sea/weather": -3}]
)
async def test_scores_beyond_the_bounds_are_cut(tmp_path: Path, answer: Any) -> None:
    async with harbour(tmp_path, Fixed(answer)) as router:
        narrowing = await router.narrow(REQUEST)
    assert points(narrowing, "seasons") == {"sea/tide_table": 0.5, "sea/weather": -0.5}


def raises() -> Any:
    message = "secret-token-123"
    raise RuntimeError(message)


def leaves() -> Any:
    raise SystemExit


async def later() -> dict[str, float]:
    return {}


NONSENSE: list[tuple[Any, str]] = [
    (raises, "raised RuntimeError"),
    (leaves, "raised SystemExit"),
    (later, "returned coroutine: neither"),
    (None, "returned NoneType: neither"),
    ("high", "returned str: neither"),
    ({"sea/weather": "high"}, "no finite number: str"),
    ({"sea/weather": float("nan")}, "no finite number: float"),
    ({"sea/weather": True}, "no finite number: bool"),
    ([1.0], "of shape (1,) for 3 tools"),
    ([1.0, float("inf"), 0.0], "no finite numbers"),
    ([[1.0], [2.0, 3.0], []], "raised ValueError"),
    (["1", "2", "3"], "no finite numbers"),
]


@proves("H26")
@pytest.mark.parametrize(("answer", "reason"), NONSENSE, ids=[reason for _, reason in NONSENSE])
async def test_a_scorer_that_fails_is_left_out_and_said_to_be(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, answer: Any, reason: str
) -> None:
    good = Fixed({"sea/weather": 0.1}, label="good")
    async with harbour(tmp_path, Fixed(answer), good) as router:
        narrowing = await router.narrow(REQUEST)
        again = await router.narrow(REQUEST)
    (failure,) = narrowing.shortlist.failed_scorers
    assert failure.scorer == "seasons"
    assert reason in failure.reason
    assert "secret" not in failure.reason
    assert narrowing.shortlist.offered[0].tool == "sea/tide_table"
    assert points(narrowing, "good") == {"sea/weather": 0.05}
    assert not again.shortlist.cached  # it may be well again
    assert any("the scorer seasons was left out" in message for message in caplog.messages)


@proves("H26")
async def test_a_scorer_that_hangs_is_left_out_and_delays_no_request(tmp_path: Path) -> None:
    go_on = threading.Event()
    turns = 0

    def hang() -> dict[str, float]:
        go_on.wait(60)
        return {}

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await anyio.sleep(0.01)

    hanging = Fixed(hang)
    found: list[Narrowing] = []
    async with harbour(tmp_path, hanging, narrow={"scorer_seconds": 0.2}) as router:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(count)
            for number in range(MAX_LATE_RUNS + 1):
                found.append(await router.narrow(f"{REQUEST} {number}"))  # noqa: PERF401 - one after another
            tasks.cancel_scope.cancel()
        reasons = [one.shortlist.failed_scorers[0].reason for one in found]
        assert reasons[:MAX_LATE_RUNS] == ["took longer than 0.2 s"] * MAX_LATE_RUNS
        assert reasons[MAX_LATE_RUNS] == "is busy with earlier requests"
        assert len(hanging.asked) == MAX_LATE_RUNS
        assert turns > 10  # the event loop went on
        go_on.set()
        with anyio.fail_after(20):
            while (await router.narrow(REQUEST)).shortlist.failed_scorers:
                pass


@proves("N1", "H26")
async def test_what_policy_hides_is_not_shown_to_a_scorer(tmp_path: Path) -> None:
    rules = [{"verdict": "deny", "tool": "sea/weather"}]
    nosy = Fixed({"sea/weather": 1.0, "sea/harbour_table": 0.2})
    async with harbour(tmp_path, nosy, policy=rules) as router:
        narrowing = await router.narrow(REQUEST)
    assert [card.key for card in nosy.asked[0][1]] == ["sea/harbour_table", "sea/tide_table"]
    assert points(narrowing, "seasons") == {"sea/harbour_table": 0.1}


async def test_what_a_scorer_may_depend_on_is_part_of_what_is_remembered(tmp_path: Path) -> None:
    seasons = Fixed({"sea/weather": 0.8})
    async with harbour(tmp_path, seasons) as router:
        for caller in ("dana", "dana", "noa"):
            await router.narrow(REQUEST, caller=caller)
    assert [request.caller for request, _ in seasons.asked] == ["dana", "noa"]


@table(
    ("scorer", "problem"),
    [
        (Fixed({}, label="words"), "is taken"),
        (Fixed({}, label=""), "no short line"),
        (Fixed({}, label="two\nlines"), "no short line"),
        (Fixed({}, label="x" * 41), "no short line"),
        (Fixed({}, weight=0), "weight"),
        (Fixed({}, weight=float("nan")), "weight"),
        (Fixed({}, weight=2), "weight"),
        (object(), "has no method `scores`"),
    ],
)
def test_a_scorer_that_could_not_be_told_apart_or_weighed_is_refused(scorer: Any, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem) as caught:
        Router(scorers=[scorer])
    assert caught.value.hint


def test_two_scorers_of_one_label_are_refused() -> None:
    with pytest.raises(ConfigError, match="is taken"):
        Router(scorers=[Fixed({}), Fixed({})])


@proves("H26")
def test_our_own_scorers_are_scorers_like_any_other() -> None:
    def describe(scorer: Scorer) -> tuple[str, float, Callable[..., object]]:
        return scorer.label, scorer.weight, scorer.scores

    with DenseScorer(WordEncoder()) as dense:
        found = [describe(one) for one in (LexicalScorer(), dense, HistoryScorer())]
    assert [one[:2] for one in found] == [("words", 1.0), ("meaning", 0.55), ("learned", 0.1)]

"""The confidence threshold follows measured results, within bounds, and never for what changes something."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fingerpost.choose.confidence import Calibration, ThresholdBounds, adapt_threshold
from fingerpost.events import ConfidenceJudged, ThresholdMoved
from fingerpost.llm import ModelRequest
from fingerpost.records import ConfidenceSample, RouteOutcome, utc_now
from fingerpost.router import Router
from fingerpost.testing import ScriptedModel
from tests.kit.learning import open_office_router
from tests.requirements import proves

BOUNDS = ThresholdBounds(base=0.7, max_move=0.1, min_samples=50, target_accuracy=0.9)
_SAMPLES = st.lists(
    st.builds(ConfidenceSample, raw=st.floats(0, 1), right=st.booleans(), tool=st.just("a/b")), max_size=120
)


def samples(raw: float, count: int, *, right: int) -> list[ConfidenceSample]:
    return [ConfidenceSample(raw=raw, right=number < right, tool="a/b") for number in range(count)]


@proves("L6")
@given(_SAMPLES, st.booleans())
def test_it_never_leaves_its_bounds(seen: list[ConfidenceSample], calibrated: bool) -> None:
    fitted = Calibration.fit(seen) if calibrated else Calibration()
    found = adapt_threshold(seen, fitted, BOUNDS)
    assert 0.6 <= found.value <= 0.8
    if len(seen) < 50:
        assert found.value == 0.7
    assert found.reason


@proves("L6")
def test_it_falls_where_people_approved_anyway_and_rises_where_we_were_wrong() -> None:
    plain = Calibration()
    fine = [*samples(0.9, 60, right=60), *samples(0.65, 30, right=30)]
    assert adapt_threshold(fine, plain, BOUNDS).value < 0.7
    assert "between" in adapt_threshold(fine, plain, BOUNDS).reason
    doubtful = [*samples(0.9, 60, right=60), *samples(0.65, 30, right=20)]
    assert adapt_threshold(doubtful, plain, BOUNDS).value == 0.7
    wrong = [*samples(0.95, 60, right=59), *samples(0.72, 40, right=10)]
    assert adapt_threshold(wrong, plain, BOUNDS).value > 0.72
    few = [*samples(0.9, 20, right=20), *samples(0.65, 5, right=5)]
    assert adapt_threshold(few, plain, BOUNDS).value == 0.7


def create_unsure_model(tool: str) -> ScriptedModel:
    """Selects this tool and is 65 % sure of it."""

    def reply(request: ModelRequest) -> str:
        asked = str(request.schema)
        if "approved" in asked:
            return '{"approved": true, "confidence": 0.65, "reasoning": "probably"}'
        if "tool" in asked:
            return f'{{"tool": "{tool}", "arguments": {{}}, "confidence": 0.9, "reasoning": "it fits"}}'
        return "Done."

    return ScriptedModel(reply)


async def record_samples(router: Router) -> None:
    for sample in [*samples(0.9, 60, right=60), *samples(0.65, 30, right=30)]:
        await router.store.confidences.record(sample, utc_now())


FLAGS = {"adaptive_thresholds": True, "calibration": False, "widen": False}


@pytest.mark.slow
@proves("L6", "E11")
@pytest.mark.parametrize("on", [True, False])
async def test_a_read_we_are_65_percent_sure_of_runs_once_results_say_so(tmp_path: Path, on: bool) -> None:
    flags = {**FLAGS, "adaptive_thresholds": on}
    async with open_office_router(tmp_path, model=create_unsure_model("mail/search_mail"), flags=flags) as (
        router,
        sink,
    ):
        before = await router.route("search the mailbox for messages by Kim")
        assert before.outcome is RouteOutcome.WAITING
        await record_samples(router)
        await router.learning.forget("outcomes", by="dana")  # look again now, not in half a minute
        after = await router.route("search the mailbox for messages by Dana")
        moved = [event for event in sink.events if isinstance(event, ThresholdMoved)]
        judged = [event.confidence.verdict for event in sink.events if isinstance(event, ConfidenceJudged)]
        shown = await router.learning.build_overview()
    assert after.outcome is (RouteOutcome.ANSWERED if on else RouteOutcome.WAITING)
    assert judged == ["ask", "go" if on else "ask"]
    assert len(moved) == (1 if on else 0)
    if on:
        assert (moved[0].before, moved[0].base, moved[0].samples) == (0.7, 0.7, 90)
        assert 0.6 <= moved[0].after < 0.66
        assert shown.thresholds[0].value == moved[0].after
        assert "were right" in moved[0].reason


@pytest.mark.slow
@proves("L6")
@pytest.mark.parametrize("tool", ["mail/send_mail", "notes/delete_note"])
async def test_what_changes_something_keeps_its_threshold(tmp_path: Path, tool: str) -> None:
    rules = [{"verdict": "allow", "tool": "*"}]  # so that only the confidence stands in its way
    async with open_office_router(tmp_path, model=create_unsure_model(tool), flags=FLAGS, policy=rules) as (
        router,
        sink,
    ):
        await record_samples(router)
        route = await router.route("send a mail to Kim and delete the note")
        judged = [event.confidence.verdict for event in sink.events if isinstance(event, ConfidenceJudged)]
    assert judged == ["ask"]
    assert route.outcome is RouteOutcome.WAITING


@pytest.mark.slow
@proves("L6", "L7")
async def test_a_move_is_told_once_and_forgotten_when_asked(tmp_path: Path) -> None:
    request = "search the mailbox for messages by Kim"
    for expected in (1, 0):  # the second process finds it moved already
        async with open_office_router(
            tmp_path, model=create_unsure_model("mail/search_mail"), flags=FLAGS
        ) as (
            router,
            sink,
        ):
            if expected:
                await record_samples(router)
            assert (await router.route(request)).outcome is RouteOutcome.ANSWERED
            assert sum(isinstance(event, ThresholdMoved) for event in sink.events) == expected
    async with open_office_router(tmp_path, model=create_unsure_model("mail/search_mail"), flags=FLAGS) as (
        router,
        _,
    ):
        assert await router.learning.forget("thresholds", by="dana") == 1
        assert (await router.route(request)).outcome is RouteOutcome.WAITING
        assert (await router.learning.build_overview()).thresholds == ()

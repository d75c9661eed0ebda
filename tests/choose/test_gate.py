"""Selection, review and gate together, as a request meets them."""

from __future__ import annotations

from pathlib import Path

import pytest

from fingerpost.choose.confidence import Calibration, score_confidence
from fingerpost.choose.review import review_selection
from fingerpost.choose.selection import select_tool
from fingerpost.errors import ModelUnavailable
from fingerpost.llm import ModelReply
from fingerpost.records import Candidate, Confidence, ConfidenceSample, GateVerdict, Shortlist
from fingerpost.settings import Settings
from fingerpost.store import Store
from fingerpost.testing import ScriptedModel
from tests.kit.selection_samples import OFFERED, Sample, card_of, packet, samples
from tests.kit.store_samples import NOON
from tests.kit.tables import table
from tests.requirements import proves

SETTINGS = Settings()
SELECTED = '{"reasoning": "r", "tool": "files__delete_file", "arguments": {"path": "a"}, "confidence": 0.95}'
APPROVED = '{"reasoning": "r", "approved": true, "confidence": 0.9}'
FOUND = Shortlist(
    candidates=tuple(
        Candidate(tool=card.key, score=0.9 if card.name == "delete_file" else 0.5, offered=True)
        for card in OFFERED
    ),
    fit=0.9,
)


async def decide(
    *, selected: ModelReply | str, reviewed: ModelReply | str | Exception, calibration: Calibration
) -> Confidence | None:
    """What becomes of a request when the models say this (each says it again when asked again)."""
    lite, prime = ScriptedModel(lambda _: selected), ScriptedModel(lambda _: reviewed)
    asked = packet("delete a")
    chosen = await select_tool(lite.complete, asked, OFFERED, SETTINGS.tool_routing)
    if chosen.selection is None:
        return None
    card = card_of(chosen.selection.tool)
    opinion = await review_selection(prime.complete, asked, chosen.selection, card, SETTINGS.tool_routing)
    return score_confidence(chosen.selection, opinion, FOUND, calibration=calibration, settings=SETTINGS)


@proves("A3", "A4", "A5")
@table("sample", samples("reviews"), ids=lambda sample: sample.name)
async def test_only_a_review_that_approves_at_the_threshold_lets_a_selection_run(sample: Sample) -> None:
    confidence = await decide(selected=SELECTED, reviewed=sample.reply, calibration=Calibration())
    assert confidence is not None
    approved, sure = sample.expected.get("approved", False), sample.expected.get("confidence", 0.0)
    assert (confidence.verdict is GateVerdict.GO) is (approved and sure >= 0.7)
    unread = "confidence" not in sample.expected  # no review: a person decides
    assert (confidence.verdict is GateVerdict.DECLINE) is (sure < 0.2 and not unread)


@proves("A4", "A5")
async def test_without_the_reviewing_model_nothing_runs() -> None:
    gone = ModelUnavailable("gone", model="prime")
    confidence = await decide(selected=SELECTED, reviewed=gone, calibration=Calibration())
    assert confidence is not None
    assert confidence.review == 0.0
    assert confidence.verdict is GateVerdict.ASK
    assert confidence.reason == "the review failed, so a person decides"


@pytest.mark.slow
@proves("A3")
@table("sample", samples("broken"), ids=lambda sample: sample.name)
async def test_however_eager_the_reviewer_a_broken_selection_never_reaches_it(sample: Sample) -> None:
    assert await decide(selected=sample.reply, reviewed=APPROVED, calibration=Calibration()) is None


@proves("A16")
async def test_recorded_outcomes_make_the_next_start_more_careful(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/fingerpost.db"
    async with Store.open(url) as store:
        before = Calibration.fit(await store.confidences.list_recent())
        first = await decide(selected=SELECTED, reviewed=APPROVED, calibration=before)
        assert first is not None
        assert first.verdict is GateVerdict.GO
        for number in range(200):
            store.confidences.record_soon(ConfidenceSample(raw=first.raw, right=number % 3 == 0), NOON)
    async with Store.open(url) as store:
        after = Calibration.fit(await store.confidences.list_recent())
    second = await decide(selected=SELECTED, reviewed=APPROVED, calibration=after)
    assert second is not None
    assert (second.calibrated, second.verdict) == (True, GateVerdict.ASK)
    assert second.score == pytest.approx(1 / 3, abs=0.05)
    assert second.raw == first.raw

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fingerpost.choose.confidence import Calibration, compute_margin, compute_support, score_confidence
from fingerpost.records import (
    Candidate,
    Confidence,
    ConfidenceSample,
    GateVerdict,
    Review,
    Selection,
    Shortlist,
)
from fingerpost.settings import ChooseSettings, FlagSettings, Settings, ToolRoutingSettings
from tests.kit.tables import table
from tests.requirements import proves

IDENTITY = Calibration()
SETTINGS = Settings()


def shortlist(*scores: float, fit: float = 0.9, need: int = 0) -> Shortlist:
    """Tools t0, t1, … with these scores, all offered."""
    return Shortlist(
        candidates=tuple(
            Candidate(tool=f"s/t{place}", score=score, offered=True, need=need)
            for place, score in enumerate(scores)
        ),
        fit=fit,
    )


WELL_FOUND = shortlist(0.9, 0.4)
UNFIT = shortlist(0.9, fit=0.0)


def score(
    *,
    claim: float = 0.9,
    review: Review | None,
    found: Shortlist = WELL_FOUND,
    calibration: Calibration = IDENTITY,
    settings: Settings = SETTINGS,
    tool: str = "s/t0",
) -> Confidence:
    selection = Selection(tool=tool, confidence=claim)
    return score_confidence(selection, review, found, calibration=calibration, settings=settings)


def yes(confidence: float) -> Review:
    return Review(approved=True, confidence=confidence)


def no(confidence: float) -> Review:
    return Review(approved=False, confidence=confidence)


def fit_calibration(share: float, *, raw: float = 0.9) -> Calibration:
    """What is learned from a thousand selections at `raw` of which this share was right."""
    return Calibration.fit([ConfidenceSample(raw=raw, right=n < 1000 * share) for n in range(1000)])


def shortlist_of(scores: list[float], fit: float) -> Shortlist:
    return shortlist(*scores, fit=fit)


def settings_of(threshold: float, decline: float) -> Settings:
    return Settings(
        tool_routing=ToolRoutingSettings(confidence_threshold=threshold),
        choose=ChooseSettings(decline_below=decline),
    )


SHARES = st.floats(0, 1)
ANY = st.floats() | SHARES
REVIEWS = st.builds(Review, approved=st.booleans(), confidence=ANY)
SHORTLISTS = st.builds(shortlist_of, st.lists(st.floats(-1, 3) | st.floats(), max_size=5), ANY)
CALIBRATIONS = st.sampled_from(
    [
        IDENTITY,
        fit_calibration(0.3),
        fit_calibration(0.6),
        fit_calibration(0.98),
        fit_calibration(0.95, raw=0.5),
    ]
)
TOOLS = st.sampled_from(["s/t0", "s/t1", "s/t9"])
THRESHOLDS = st.builds(settings_of, SHARES, SHARES)


@proves("A5")
@given(claim=ANY, review=REVIEWS, found=SHORTLISTS, calibration=CALIBRATIONS, settings=THRESHOLDS, tool=TOOLS)
def test_nothing_lifts_a_low_or_missing_approval_over_the_gate(
    claim: float, review: Review, found: Shortlist, calibration: Calibration, settings: Settings, tool: str
) -> None:
    confidence = score(
        claim=claim, review=review, found=found, calibration=calibration, settings=settings, tool=tool
    )
    threshold = settings.tool_routing.confidence_threshold
    worth = max(0.0, review.confidence) if review.confidence == review.confidence else 0.0
    assert confidence.review <= worth
    if not review.approved or worth < threshold:
        assert confidence.verdict is not GateVerdict.GO
    if confidence.verdict is GateVerdict.GO:
        assert min(confidence.raw, confidence.score) >= max(threshold, settings.choose.decline_below)
    figures = (confidence.claim, confidence.review, confidence.margin, confidence.score, confidence.raw)
    assert all(0.0 <= figure <= 1.0 for figure in figures)
    assert confidence.raw <= confidence.review
    assert confidence.reason


@proves("A5")
@given(review=st.floats(0.7, 1.0), claim=st.floats(0.5, 1.0))
def test_a_review_at_the_threshold_or_above_goes_where_nothing_speaks_against_it(
    review: float, claim: float
) -> None:
    confidence = score(claim=claim, review=yes(review))
    assert confidence.verdict is GateVerdict.GO
    assert confidence.score == confidence.raw == review


@given(one=SHARES, other=SHARES, claim=SHARES, found=SHORTLISTS, calibration=CALIBRATIONS)
def test_the_better_reviewed_of_two_is_never_scored_lower(
    one: float, other: float, claim: float, found: Shortlist, calibration: Calibration
) -> None:
    low, high = (
        score(claim=claim, review=yes(review), found=found, calibration=calibration)
        for review in sorted((one, other))
    )
    assert low.raw <= high.raw
    assert low.score <= high.score
    order = [GateVerdict.DECLINE, GateVerdict.ASK, GateVerdict.GO]
    assert order.index(low.verdict) <= order.index(high.verdict)


@given(claims=st.tuples(SHARES, SHARES), review=SHARES, fits=st.tuples(SHARES, SHARES))
def test_a_higher_claim_and_a_better_fit_never_lower_the_score(
    claims: tuple[float, float], review: float, fits: tuple[float, float]
) -> None:
    (low_claim, high_claim), (low_fit, high_fit) = sorted(claims), sorted(fits)
    low = score(claim=low_claim, review=yes(review), found=shortlist(0.8, 0.7, fit=low_fit))
    high = score(claim=high_claim, review=yes(review), found=shortlist(0.8, 0.7, fit=high_fit))
    assert low.raw <= high.raw <= review


@proves("A5")
@table(
    ("claim", "review", "found", "verdict", "reason"),
    [
        (0.9, yes(0.9), WELL_FOUND, "go", "{yes} 0.90; 0.70 is enough"),
        (0.9, yes(0.69), WELL_FOUND, "ask", "{yes} 0.69; below 0.70 a person decides"),
        (0.9, no(0.9), WELL_FOUND, "ask", "{no} 0.50; a person decides"),
        (0.9, no(0.0), WELL_FOUND, "decline", "{no} 0.00; {declined}"),
        (0.0, yes(1.0), WELL_FOUND, "ask", "{yes} 1.00, but {claim} of 0.00 lowers that to 0.65"),
        (0.9, yes(0.75), UNFIT, "ask", "{yes} 0.75, but {search} lowers that to 0.64"),
        (0.9, yes(0.9), UNFIT, "go", "{yes} 0.90; 0.70 is enough"),
        (0.0, yes(0.25), WELL_FOUND, "decline", "{yes} 0.25, which leaves 0.16; {declined}"),
        (0.9, None, WELL_FOUND, "go", "the model claims 0.90, {alone}; 0.70 is enough"),
        (0.6, None, WELL_FOUND, "ask", "the model claims 0.60, {alone}; below 0.70 a person decides"),
        (0.75, None, UNFIT, "ask", "the model claims 0.75, {alone}, but {search} lowers that to 0.64"),
        (0.1, None, WELL_FOUND, "decline", "the model claims 0.10, {alone}; {declined}"),
    ],
)
def test_verdicts_come_with_plain_reasons(
    claim: float, review: Review | None, found: Shortlist, verdict: str, reason: str
) -> None:
    confidence = score(claim=claim, review=review, found=found)
    expected = reason.format(
        yes="the review agrees, at",
        no="the review does not agree, at",
        declined="below 0.20 it is not even asked about",
        claim="the selecting model's own claim",
        search="the low search score of the tool",
        alone="and there is no review",
    )
    assert (confidence.verdict, confidence.reason) == (verdict, expected)


def test_thresholds_are_settings() -> None:
    careful = Settings(tool_routing=ToolRoutingSettings(confidence_threshold=0.95))
    assert score(review=yes(0.9), settings=careful).verdict is GateVerdict.ASK
    patient = Settings(choose=ChooseSettings(decline_below=0.0))
    assert score(review=no(0.0), settings=patient).verdict is GateVerdict.ASK


# Calibration at the gate


@proves("A5", "A16")
def test_past_outcomes_can_hold_a_selection_back_and_never_let_one_through() -> None:
    poor = score(review=yes(0.9), calibration=fit_calibration(0.5))
    assert poor.calibrated
    assert poor.verdict is GateVerdict.ASK
    assert poor.score == pytest.approx(0.5, abs=0.02)
    assert poor.raw == 0.9
    assert poor.reason == "the review agrees, at 0.90, but such selections were right only 50 % of the time"
    good = score(review=yes(0.6), calibration=fit_calibration(0.95, raw=0.6))
    assert good.score > 0.9
    assert good.verdict is GateVerdict.ASK


def test_calibration_can_be_switched_off() -> None:
    off = Settings(flags=FlagSettings(calibration=False))
    confidence = score(review=yes(0.9), calibration=fit_calibration(0.5), settings=off)
    assert (confidence.calibrated, confidence.score, confidence.verdict) == (False, 0.9, GateVerdict.GO)


# What the search says


@table(
    ("tool", "scores", "expected"),
    [
        ("s/t0", (0.8, 0.6), 0.25),
        ("s/t0", (0.8,), 1.0),
        ("s/t0", (0.8, 0.8), 0.0),
        ("s/t1", (0.8, 0.6), 0.0),
        ("s/t9", (0.8, 0.6), 0.0),
        ("s/t0", (), 0.0),
        ("s/t0", (0.0, 0.0), 0.0),
        ("s/t0", (0.5, -1.0), 1.0),
        ("s/t0", (float("nan"), 0.5), 0.0),
        ("s/t0", (0.5, float("nan")), 1.0),
    ],
)
def test_the_margin_is_how_far_a_tool_stands_above_the_next_one(
    tool: str, scores: tuple[float, ...], expected: float
) -> None:
    assert compute_margin(tool, shortlist(*scores)) == pytest.approx(expected)


def test_a_tool_for_another_need_and_one_not_offered_are_no_rivals() -> None:
    found = Shortlist(
        candidates=(
            Candidate(tool="s/t0", score=0.8, offered=True, need=0),
            Candidate(tool="s/t1", score=0.79, offered=True, need=1),
            Candidate(tool="s/t2", score=0.78, offered=False, need=0, lost="the same tool on another server"),
        ),
        fit=0.9,
    )
    assert compute_margin("s/t0", found) == 1.0


def test_support_needs_a_fit_and_falls_with_the_place() -> None:
    first, second = (compute_support(tool, shortlist(0.8, 0.6)) for tool in ("s/t0", "s/t1"))
    assert first > second > 0.0
    assert compute_support("s/t0", shortlist(0.8, 0.6, fit=0.0)) == 0.0
    assert compute_support("s/t9", shortlist(0.8, 0.6)) == 0.0

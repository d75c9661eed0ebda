from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fingerpost.choose.confidence import (
    MIN_SAMPLES,
    MIN_SAMPLES_PER_OUTCOME,
    Calibration,
)
from fingerpost.evals.metrics import compute_calibration_error
from fingerpost.records import ConfidenceSample
from tests.kit.tables import table
from tests.requirements import proves

RAW = st.floats(0, 1) | st.sampled_from([0.0, 0.1, 0.5, 0.7, 0.85, 0.9, 0.95, 1.0])
SAMPLES = st.lists(st.builds(ConfidenceSample, raw=RAW, right=st.booleans()), max_size=120)


def sample(raw: float, *, right: bool) -> ConfidenceSample:
    return ConfidenceSample(raw=raw, right=right)


def outcomes(count: int, *, truth: Callable[[float], float], seed: int) -> list[ConfidenceSample]:
    """Selections of a model that says mostly 0.8 to 1.0, right as often as `truth` says of what it said."""
    chance = random.Random(seed)
    claims = [min(1.0, round(chance.betavariate(8, 1.5), 2)) for _ in range(count)]
    return [sample(raw, right=chance.random() < truth(raw)) for raw in claims]


# Where models are: too sure, most of all at the top.
def overconfident(raw: float) -> float:
    return 0.25 + 0.5 * raw**2


# The curve


@proves("A16")
@given(samples=SAMPLES, raw=RAW, other=RAW)
def test_a_curve_rises_stays_within_bounds_and_never_reorders(
    samples: list[ConfidenceSample], raw: float, other: float
) -> None:
    fitted = Calibration.fit(samples)
    low, high = sorted((raw, other))
    assert 0.0 <= fitted.get_probability(low) <= fitted.get_probability(high) <= 1.0


@given(samples=SAMPLES, seed=st.integers(), raw=RAW)
def test_the_order_of_the_samples_does_not_matter(
    samples: list[ConfidenceSample], seed: int, raw: float
) -> None:
    shuffled = random.Random(seed).sample(samples, len(samples))
    assert Calibration.fit(samples) == Calibration.fit(shuffled)
    assert Calibration.fit(samples).get_probability(raw) == Calibration.fit(shuffled).get_probability(raw)


@given(raw=st.floats())
def test_the_identity_takes_a_score_at_its_word_and_keeps_it_within_bounds(raw: float) -> None:
    identity = Calibration()
    assert not identity.is_calibrated
    assert identity.get_probability(raw) == (raw if 0 <= raw <= 1 else 1.0 if raw > 1 else 0.0)


@table(
    ("right", "wrong"),
    [
        (0, 0),
        (MIN_SAMPLES - MIN_SAMPLES_PER_OUTCOME - 1, MIN_SAMPLES_PER_OUTCOME),
        (500, MIN_SAMPLES_PER_OUTCOME - 1),
        (0, 500),
    ],
)
def test_too_few_outcomes_of_either_kind_change_nothing(right: int, wrong: int) -> None:
    samples = [sample(0.9, right=True)] * right + [sample(0.8, right=False)] * wrong
    assert Calibration.fit(samples) == Calibration()


def test_enough_outcomes_of_both_kinds_are_fitted_and_counted() -> None:
    samples = [sample(0.9, right=True)] * (MIN_SAMPLES - MIN_SAMPLES_PER_OUTCOME) + [
        sample(0.8, right=False)
    ] * MIN_SAMPLES_PER_OUTCOME
    fitted = Calibration.fit(samples)
    assert fitted.is_calibrated
    assert fitted.samples == MIN_SAMPLES


def test_what_is_no_number_is_left_out() -> None:
    good = outcomes(100, truth=overconfident, seed=1)
    assert Calibration.fit([*good, sample(float("nan"), right=True)]) == Calibration.fit(good)


def test_much_evidence_wins_and_where_there_is_none_a_score_stays_near_its_word() -> None:
    samples = [sample(0.9, right=number % 2 == 0) for number in range(1000)]
    fitted = Calibration.fit(samples)
    assert fitted.get_probability(0.9) == pytest.approx(0.5, abs=0.02)
    assert fitted.get_probability(0.1) == pytest.approx(0.1, abs=0.02)  # nothing was seen there
    assert fitted.get_probability(0.3) == pytest.approx(0.3, abs=0.02)


def test_little_evidence_moves_little() -> None:
    def at_90(count: int) -> float:
        samples = [sample(0.9, right=number % 2 == 0) for number in range(count)]
        return Calibration.fit(samples).get_probability(0.9)

    assert 0.5 < at_90(1000) < at_90(100) < at_90(30) < 0.65


def test_a_model_that_says_too_little_of_itself_is_lifted() -> None:
    samples = [sample(0.6, right=number % 10 != 0) for number in range(500)]
    assert Calibration.fit(samples).get_probability(0.6) == pytest.approx(0.9, abs=0.02)


# How good it is


def compute_error(samples: list[ConfidenceSample], calibration: Calibration) -> float:
    said = np.array([calibration.get_probability(one.raw) for one in samples])
    return compute_calibration_error(said, np.array([float(one.right) for one in samples]))


@pytest.mark.slow
@proves("A16")
@pytest.mark.parametrize(("count", "at_most"), [(100, 0.14), (300, 0.08), (2000, 0.05)])
def test_an_overconfident_model_is_brought_nearer_the_truth_on_outcomes_it_was_not_fitted_on(
    count: int, at_most: float
) -> None:
    before: list[float] = []
    after: list[float] = []
    for seed in range(4):
        fitted = Calibration.fit(outcomes(count, truth=overconfident, seed=seed))
        unseen = outcomes(5000, truth=overconfident, seed=1000 + seed)
        before.append(compute_error(unseen, Calibration()))
        after.append(compute_error(unseen, fitted))
    assert min(before) > 0.2
    assert max(after) < at_most


@pytest.mark.slow
def test_a_model_that_is_right_as_often_as_it_says_is_left_about_as_it_is() -> None:
    for seed in range(4):
        fitted = Calibration.fit(outcomes(300, truth=lambda raw: raw, seed=seed))
        unseen = outcomes(5000, truth=lambda raw: raw, seed=1000 + seed)
        assert compute_error(unseen, fitted) < 0.06

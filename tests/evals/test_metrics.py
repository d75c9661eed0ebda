"""The figures, against examples worked out by hand and against properties that must hold."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fingerpost.evals.metrics import (
    compute_auc,
    compute_calibration_error,
    compute_gains,
    compute_ndcg,
    compute_percentile,
    compute_recall,
    compute_reciprocal_rank,
    compute_risk_by_coverage,
    get_risk_at,
)

A_OR_B, C = frozenset({"a", "b"}), frozenset({"c"})
TOOLS = st.sampled_from("abcdefgh")
RANKINGS = st.lists(TOOLS, unique=True, max_size=8)
GROUPS = st.lists(st.frozensets(TOOLS, min_size=1, max_size=3), min_size=1, max_size=4)


def test_any_member_satisfies_its_group_and_only_the_first_of_them_counts() -> None:
    assert compute_gains(["x", "b", "a", "c"], [A_OR_B, C]) == [0, 1, 0, 1]


def test_recall_is_the_share_of_groups_satisfied_so_far() -> None:
    gained = compute_gains(["x", "b", "a", "c"], [A_OR_B, C])
    assert [compute_recall(gained, 2, k) for k in (1, 2, 3, 4, 20)] == [0, 0.5, 0.5, 1, 1]


def test_ndcg_and_reciprocal_rank_by_hand() -> None:
    gained = compute_gains(["x", "b", "a", "c"], [A_OR_B, C])
    by_hand = (1 / math.log2(3) + 1 / math.log2(5)) / (1 + 1 / math.log2(3))
    assert compute_ndcg(gained, 2, 10) == pytest.approx(by_hand)
    assert compute_reciprocal_rank(gained) == 0.5
    assert compute_reciprocal_rank([0, 0]) == 0.0


@given(ranking=RANKINGS, groups=GROUPS)
def test_recall_never_falls_with_k_and_reaches_one_exactly_when_all_are_found(
    ranking: list[str], groups: list[frozenset[str]]
) -> None:
    gained = compute_gains(ranking, groups)
    values = [compute_recall(gained, len(groups), k) for k in range(1, 10)]
    assert values == sorted(values)
    assert (values[-1] == 1) == all(group & set(ranking) for group in groups)
    assert 0 <= compute_ndcg(gained, len(groups), 10) <= 1


@given(ranking=RANKINGS, groups=GROUPS, chance=st.randoms(use_true_random=False))
def test_the_order_of_the_groups_does_not_matter(
    ranking: list[str], groups: list[frozenset[str]], chance: random.Random
) -> None:
    assert compute_gains(ranking, groups) == compute_gains(ranking, chance.sample(groups, len(groups)))


@given(ranking=st.permutations("abcdef"), wanted=st.sampled_from("abcdef"))
def test_moving_the_right_tool_up_never_lowers_a_figure(ranking: list[str], wanted: str) -> None:
    better = [wanted, *(tool for tool in ranking if tool != wanted)]
    groups = [frozenset({wanted})]
    old, new = compute_gains(ranking, groups), compute_gains(better, groups)
    assert compute_ndcg(new, 1, 10) >= compute_ndcg(old, 1, 10)
    assert compute_reciprocal_rank(new) >= compute_reciprocal_rank(old)


def test_auc_by_hand_with_a_tie() -> None:
    scores = np.array([0.9, 0.5, 0.5, 0.1])
    labels = np.array([True, True, False, False])
    assert compute_auc(scores, labels) == pytest.approx((1 + 1 + 0.5 + 1) / 4)
    assert math.isnan(compute_auc(scores, np.array([True] * 4)))


@given(
    pairs=st.lists(st.tuples(st.integers(-3, 3), st.booleans()), min_size=2, max_size=30).filter(
        lambda pairs: len({label for _, label in pairs}) == 2
    )
)
def test_auc_is_the_share_of_pairs_in_the_right_order(pairs: list[tuple[int, bool]]) -> None:
    scores = np.array([float(score) for score, _ in pairs])
    labels = np.array([label for _, label in pairs])
    compared = [(p > n) + 0.5 * (p == n) for p in scores[labels] for n in scores[~labels]]
    assert compute_auc(scores, labels) == pytest.approx(float(np.mean(compared)))
    assert compute_auc(-scores, labels) == pytest.approx(1 - compute_auc(scores, labels))


def test_risk_rises_as_less_certain_answers_are_let_in() -> None:
    risks = compute_risk_by_coverage(np.array([0.9, 0.8, 0.2, 0.1]), np.array([0.0, 0.0, 1.0, 1.0]))
    assert risks.tolist() == pytest.approx([0, 0, 1 / 3, 0.5])
    assert get_risk_at(risks, 0.5) == 0
    assert get_risk_at(risks, 1.0) == 0.5


@given(
    pairs=st.lists(st.tuples(st.integers(0, 3), st.booleans()), min_size=1, max_size=20),
    chance=st.randoms(use_true_random=False),
)
def test_equal_confidence_gives_equal_risk_in_any_order(
    pairs: list[tuple[int, bool]], chance: random.Random
) -> None:
    def risks(rows: list[tuple[int, bool]]) -> list[float]:
        sure, wrong = zip(*rows, strict=True)
        return compute_risk_by_coverage(np.array(sure, float), np.array(wrong, float)).tolist()

    assert risks(pairs) == pytest.approx(risks(chance.sample(pairs, len(pairs))))
    assert risks(pairs)[-1] == pytest.approx(sum(wrong for _, wrong in pairs) / len(pairs))


def test_percentiles_are_values_that_occurred() -> None:
    values = np.array([float(value) for value in range(1, 101)])
    assert (
        compute_percentile(values, 0.5),
        compute_percentile(values, 0.99),
        compute_percentile(values, 1.0),
    ) == (50, 99, 100)


def test_calibration_error_by_hand() -> None:
    sure = np.array([0.95, 0.95, 0.95, 0.95, 0.25, 0.25])
    right = np.array([1.0, 1.0, 1.0, 0.0, 0.0, 0.0])
    assert compute_calibration_error(sure, right) == pytest.approx((abs(3.8 - 3) + abs(0.5 - 0)) / 6)
    assert compute_calibration_error(np.array([1.0, 0.0]), np.array([1.0, 0.0])) == 0
    assert math.isnan(compute_calibration_error(np.array([]), np.array([])))

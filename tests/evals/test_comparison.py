"""Which queries count for which figure, comparing two runs, and bounds."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fingerpost.errors import ConfigError
from fingerpost.evals.datasets import Prediction, QueryRecord, RankingEntry
from fingerpost.evals.metrics import (
    EvalMeasure,
    MeasureDifference,
    MetricBound,
    compare_runs,
    compute_measures,
    find_unmet_bounds,
)


def create_prediction(
    name: str, *tools: str, verdict: str = "tool", need: float = 0.9, fit: float = 0.9, ms: float = 1.0
) -> Prediction:
    ranking = tuple(RankingEntry(tool=tool, score=1 - place / 10) for place, tool in enumerate(tools))
    return Prediction(id=name, verdict=verdict, need=need, fit=fit, ranking=ranking, ms=ms)


def create_query(name: str, *relevant: str, needs: bool | None = True, **more: object) -> QueryRecord:
    return QueryRecord(id=name, query=name, relevant=relevant, needs_tool=needs, **more)  # pyright: ignore[reportArgumentType] - fields by name


def figures(queries: list[QueryRecord], predictions: list[Prediction]) -> dict[str, float]:
    found = compute_measures(queries, {prediction.id: prediction for prediction in predictions})
    return {measure.name: measure.value for measure in found}


def test_only_queries_that_need_a_tool_and_name_one_count_for_recall() -> None:
    queries = [
        create_query("1", "a"),
        create_query("2", "b", "c"),
        create_query("3", needs=False),
        create_query("4"),
        create_query("5", "a"),
    ]
    predictions = [
        create_prediction("1", "a"),
        create_prediction("2", "x", "c"),
        create_prediction("3", "a"),
        create_prediction("4", "a"),
    ]
    found = figures(queries, predictions)
    assert found["recall@1"] == pytest.approx(0.5)
    assert found["recall@3"] == pytest.approx(0.75)
    assert found["all@10"] == pytest.approx(0.5)
    assert found["mrr"] == pytest.approx(0.75)


def test_groups_are_used_instead_of_the_relevant_tools_where_they_are_given() -> None:
    groups = (frozenset({"a", "a~2"}), frozenset({"b"}))
    found = figures([create_query("1", "a", "b", groups=groups)], [create_prediction("1", "a~2", "a", "b")])
    assert (found["recall@1"], found["recall@3"]) == (0.5, 1.0)


def test_need_is_judged_where_the_label_means_it_and_an_unclear_verdict_by_its_score() -> None:
    queries = [
        create_query("1", needs=True, scope="world"),
        create_query("2", needs=False, scope="world"),
        create_query("3", needs=False, scope="world"),
        create_query("4", needs=False, scope="candidates", candidates=("a",)),
    ]
    predictions = [
        create_prediction("1", verdict="unclear", need=0.55),
        create_prediction("2", verdict="none", need=0.1),
        create_prediction("3", verdict="tool", need=0.8),
        create_prediction("4", verdict="tool", need=0.9),
    ]
    found = figures(queries, predictions)
    assert found["need_accuracy"] == pytest.approx(2 / 3)
    assert found["need_false_positives"] == pytest.approx(1 / 2)
    assert found["need_unclear"] == pytest.approx(1 / 3)
    assert found["need_auc"] == pytest.approx(1 / 2)
    assert found["need_any_false_positives"] == pytest.approx(2 / 3)


def test_fit_is_judged_over_candidate_lists_and_certainty_over_rankings() -> None:
    queries = [
        create_query("1", "a", candidates=("a", "b"), scope="candidates"),
        create_query("2", "b", candidates=("b",), scope="candidates"),
        create_query("3", needs=False, candidates=("c",), scope="candidates"),
        create_query("4", "c"),
    ]
    predictions = [
        create_prediction("1", "a", fit=0.9),
        create_prediction("2", "a", fit=0.3),
        create_prediction("3", "c", fit=0.4),
        create_prediction("4", "c", fit=0.8),
    ]
    found = figures(queries, predictions)
    assert found["fit_auc"] == pytest.approx(0.5)
    assert found["fit_accuracy"] == pytest.approx(2 / 3)
    assert found["risk@50"] == 0.0
    assert found["risk_area"] == pytest.approx((0 + 0 + 1 / 3) / 3)
    assert found["ms_p50"] == 1.0


def test_a_set_without_labels_gives_no_figures_it_cannot_know() -> None:
    assert set(figures([create_query("1", needs=None)], [create_prediction("1")])) == {"ms_p50", "ms_p99"}
    assert figures([], []) == {}


@pytest.mark.slow
def test_a_run_that_is_better_on_every_query_is_clearly_better_and_a_wash_is_not() -> None:
    queries = [create_query(str(number), "a") for number in range(60)]

    def run(right: set[int]) -> list[EvalMeasure]:
        lines = [create_prediction(str(number), "a" if number in right else "x") for number in range(60)]
        return compute_measures(queries, {line.id: line for line in lines})

    half, most, other = run({*range(30)}), run({*range(55)}), run({*range(30, 60)})
    found = {one.name: one for one in compare_runs(half, most, draws=80)}
    assert found["recall@1"].change == pytest.approx(25 / 60)
    assert found["recall@1"].verdict == "better"
    assert found["recall@1"].low < 25 / 60 < found["recall@1"].high
    wash = {one.name: one for one in compare_runs(half, other, draws=80)}["recall@1"]
    assert (wash.change, wash.verdict) == (0.0, "no clear difference")
    assert {one.name: one for one in compare_runs(most, half, draws=80)}["recall@1"].verdict == "worse"


def test_lower_is_better_for_time() -> None:
    faster = MeasureDifference(name="ms_p50", before=9, after=5, low=-5, high=-3, queries=9, better=-1)
    assert faster.verdict == "better"


def test_only_queries_both_runs_answered_are_compared() -> None:
    queries = [create_query("1", "a"), create_query("2", "a")]
    one = compute_measures(queries, {"1": create_prediction("1", "a"), "2": create_prediction("2", "x")})
    other = compute_measures(queries, {"1": create_prediction("1", "a")})
    found = {item.name: item for item in compare_runs(one, other, draws=80)}
    assert (found["recall@1"].before, found["recall@1"].queries) == (1.0, 1)


def test_bounds_are_kept_or_explained() -> None:
    def constant(name: str, value: float) -> EvalMeasure:
        return EvalMeasure(
            name=name, about="", ids=("1",), rows=np.array([[value]]), aggregate=lambda r: float(r.mean())
        )

    found = [constant("recall@5", 0.7), constant("need_auc", math.nan)]
    assert (
        find_unmet_bounds(
            [
                MetricBound.parse("recall@5=0.7", is_minimum=True),
                MetricBound.parse("recall@5=0.9", is_minimum=False),
            ],
            found,
        )
        == []
    )
    assert find_unmet_bounds([MetricBound.parse("recall@5=0.8", is_minimum=True)], found) == [
        "recall@5 at least 0.8: it is 0.7"
    ]
    assert find_unmet_bounds([MetricBound.parse("need_auc=0.5", is_minimum=True)], found) == [
        "need_auc at least 0.5: it is nan"
    ]
    with pytest.raises(ConfigError, match="no figure 'recall@7'") as caught:
        find_unmet_bounds([MetricBound.parse("recall@7=0.8", is_minimum=True)], found)
    assert "recall@5" in str(caught.value.hint)
    with pytest.raises(ConfigError, match="not NAME=VALUE"):
        MetricBound.parse("recall", is_minimum=True)

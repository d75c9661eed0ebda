"""What a set of predictions is judged by.

Each measure is a number per query and a way to sum them up, over the queries it
is about. Keeping the numbers per query is what lets two runs be compared pair
by pair.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np

from fingerpost.evals.metrics import (
    Floats,
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
from fingerpost.evals.records import Prediction, QueryRecord
from fingerpost.frozen import frozen

RANKING_CUTOFFS: Final = (1, 3, 5, 10, 20)
DECISION_THRESHOLD: Final = 0.5  # an unclear need counts as the side its score is on


@frozen
class EvalMeasure:
    """One figure of the report: rows of numbers, one row per query, and what they add up to."""

    name: str
    about: str
    ids: tuple[str, ...]
    rows: Floats
    aggregate: Callable[[Floats], float]
    better: int = 1  # 1: higher is better, -1: lower

    @property
    def value(self) -> float:
        return self.aggregate(self.rows)


def compute_measures(
    queries: Sequence[QueryRecord], predictions: Mapping[str, Prediction]
) -> list[EvalMeasure]:
    """Every figure these queries and predictions give. What a set has no labels for is not among them."""
    pairs = [(query, predictions[query.id]) for query in queries if query.id in predictions]
    return [
        *_measure_ranking(pairs),
        *_measure_need(pairs),
        *_measure_fit(pairs),
        *_measure_certainty(pairs),
        *_measure_selection(pairs),
        *_measure_latency(pairs),
    ]


_QueryPairs = Sequence[tuple[QueryRecord, Prediction]]


def _measure_ranking(pairs: _QueryPairs) -> list[EvalMeasure]:
    found = [(query, said) for query, said in pairs if query.has_recall_labels]
    if not found:
        return []
    gained = [
        compute_gains([place.tool for place in said.ranking], query.wanted_groups) for query, said in found
    ]
    needed = [len(query.wanted_groups) for query, _ in found]

    def each(name: str, about: str, one: Callable[[list[int], int], float]) -> EvalMeasure:
        values = [one(gain, count) for gain, count in zip(gained, needed, strict=True)]
        return _build_mean_measure(name, about, found, values)

    return [
        *(
            each(
                f"recall@{k}", f"needed tools among the first {k}", lambda g, n, k=k: compute_recall(g, n, k)
            )
            for k in RANKING_CUTOFFS
        ),
        each("all@10", "queries with every needed tool in ten", lambda g, n: float(sum(g[:10]) >= n)),
        each("ndcg@10", "how high they stand in ten", lambda g, n: compute_ndcg(g, n, 10)),
        each("mrr", "1 / place of the first right tool", lambda g, _: compute_reciprocal_rank(g)),
    ]


def _measure_need(pairs: _QueryPairs) -> list[EvalMeasure]:
    """Over the labels that mean it.

    With a candidate list, `needs_tool` says whether one of those fits, not whether any tool is needed.
    """
    labelled = [(query, said) for query, said in pairs if query.needs_tool is not None]
    meant = [(query, said) for query, said in labelled if query.scope != "candidates"]
    found = _measure_need_over("need", "needing a tool or not", meant)
    if len(meant) < len(labelled):
        found += _measure_need_over("need_any", "needing a tool, over every label", labelled)
    return found


def _measure_need_over(name: str, about: str, found: _QueryPairs) -> list[EvalMeasure]:
    labels = [query.needs_tool is True for query, _ in found]
    if not found or all(labels) or not any(labels):
        return []
    judged = [_predicts_tool(said) for _, said in found]
    right = [float(one == label) for one, label in zip(judged, labels, strict=True)]
    unneeded = [(pair, one) for pair, one, label in zip(found, judged, labels, strict=True) if not label]
    scores = [[said.need, label] for (_, said), label in zip(found, labels, strict=True)]
    return [
        _build_mean_measure(f"{name}_accuracy", f"{about}: right", found, right),
        _build_mean_measure(
            f"{name}_false_positives",
            "judged to need a tool and does not",
            [pair for pair, _ in unneeded],
            [float(one) for _, one in unneeded],
            better=-1,
        ),
        _build_mean_measure(
            f"{name}_unclear",
            "left to the next stage",
            found,
            [float(said.verdict == "unclear") for _, said in found],
            better=-1,
        ),
        _build_auc_measure(f"{name}_auc", f"{about}: told apart by the score", found, scores),
    ]


def _predicts_tool(prediction: Prediction) -> bool:
    return prediction.verdict == "tool" or (
        prediction.verdict == "unclear" and prediction.need >= DECISION_THRESHOLD
    )


def _measure_fit(pairs: _QueryPairs) -> list[EvalMeasure]:
    found = [(query, said) for query, said in pairs if query.candidates and query.needs_tool is not None]
    labels = [query.needs_tool is True for query, _ in found]
    if not found or all(labels) or not any(labels):
        return []
    right = [
        float((said.fit >= DECISION_THRESHOLD) == label)
        for (_, said), label in zip(found, labels, strict=True)
    ]
    scores = [[said.fit, label] for (_, said), label in zip(found, labels, strict=True)]
    return [
        _build_mean_measure("fit_accuracy", "a candidate fits or not: right at 0.5", found, right),
        _build_auc_measure("fit_auc", "a candidate fits or not: told apart", found, scores),
    ]


def _measure_certainty(pairs: _QueryPairs) -> list[EvalMeasure]:
    """Withholding the least certain answers should withhold the wrong ones."""
    found = [(query, said) for query, said in pairs if query.has_recall_labels]
    if not found:
        return []
    wrong = [
        float(not said.ranking or not any(said.ranking[0].tool in group for group in query.wanted_groups))
        for query, said in found
    ]
    rows = np.array([[said.fit, one] for (_, said), one in zip(found, wrong, strict=True)], np.float64)
    ids = tuple(query.id for query, _ in found)

    def risk(name: str, about: str, sum_up: Callable[[Floats], float]) -> EvalMeasure:
        return EvalMeasure(
            name=name,
            about=about,
            ids=ids,
            rows=rows,
            aggregate=lambda rows: sum_up(compute_risk_by_coverage(rows[:, 0], rows[:, 1])),
            better=-1,
        )

    return [
        risk("risk_area", "wrong first tools, over all coverages", lambda risks: float(risks.mean())),
        risk("risk@80", "wrong first tools, answering 80 %", lambda risks: get_risk_at(risks, 0.8)),
        risk("risk@50", "wrong first tools, answering 50 %", lambda risks: get_risk_at(risks, 0.5)),
    ]


def _measure_selection(pairs: _QueryPairs) -> list[EvalMeasure]:
    """What a model took of the tools offered, where one was asked."""
    chosen = [(query, said, said.selection) for query, said in pairs if said.selection is not None]
    wanted = [(query, said, made.get("tool")) for query, said, made in chosen if query.has_recall_labels]
    unneeded = [(query, said, made.get("tool")) for query, said, made in chosen if query.needs_tool is False]
    found: list[EvalMeasure] = []
    if wanted:
        right = [float(any(tool in group for group in query.wanted_groups)) for query, _, tool in wanted]
        pairs_of = [(query, said) for query, said, _ in wanted]
        found.append(
            _build_mean_measure("selection_accuracy", "the right tool was selected", pairs_of, right)
        )
        found.append(_measure_calibration("selection_ece", pairs_of, right))
    if unneeded:
        none = [float(tool is None) for _, _, tool in unneeded]
        pairs_of = [(query, said) for query, said, _ in unneeded]
        found.append(
            _build_mean_measure("selection_none", "no tool was selected where none is needed", pairs_of, none)
        )
    return found


def _measure_calibration(name: str, found: _QueryPairs, right: Sequence[float]) -> EvalMeasure:
    claims = [_get_claimed_confidence(said) for _, said in found]
    return EvalMeasure(
        name=name,
        about="claimed confidence and being right, apart",
        ids=tuple(query.id for query, _ in found),
        rows=np.array(list(zip(claims, right, strict=True)), np.float64),
        aggregate=lambda rows: compute_calibration_error(rows[:, 0], rows[:, 1]),
        better=-1,
    )


def _get_claimed_confidence(prediction: Prediction) -> float:
    claim = prediction.selection.get("confidence") if prediction.selection is not None else None
    return float(claim) if isinstance(claim, int | float) and 0 <= claim <= 1 else 0.0


def _measure_latency(pairs: _QueryPairs) -> list[EvalMeasure]:
    timed = [(query, said) for query, said in pairs if said.ms > 0]
    if not timed:
        return []
    rows = np.array([[said.ms] for _, said in timed], np.float64)
    ids = tuple(query.id for query, _ in timed)
    return [
        EvalMeasure(
            name=f"ms_p{share}",
            about="milliseconds to narrow",
            ids=ids,
            rows=rows,
            aggregate=lambda rows, share=share: compute_percentile(rows[:, 0], share / 100),
            better=-1,
        )
        for share in (50, 99)
    ]


def _build_mean_measure(
    name: str, about: str, found: _QueryPairs, values: Sequence[float], *, better: int = 1
) -> EvalMeasure:
    return EvalMeasure(
        name=name,
        about=about,
        ids=tuple(query.id for query, _ in found),
        rows=np.array(values, np.float64).reshape(-1, 1),
        aggregate=lambda rows: float(rows.mean()),
        better=better,
    )


def _build_auc_measure(
    name: str, about: str, found: _QueryPairs, rows: Sequence[Sequence[float]]
) -> EvalMeasure:
    return EvalMeasure(
        name=name,
        about=about,
        ids=tuple(query.id for query, _ in found),
        rows=np.array(rows, np.float64),
        aggregate=lambda rows: compute_auc(rows[:, 0], rows[:, 1] > DECISION_THRESHOLD),
    )

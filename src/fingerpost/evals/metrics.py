"""Metrics of predictions, the comparison of two runs, and bounds on metrics."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fingerpost.errors import ConfigError
from fingerpost.evals.datasets import Prediction, QueryRecord
from fingerpost.frozen import frozen
from fingerpost.records import Json

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


def compute_gains(ranking: Sequence[str], groups: Sequence[frozenset[str]]) -> list[int]:
    """Return for each position of the ranking the number of groups that it is the first to satisfy."""
    waiting = list(groups)
    gained: list[int] = []
    for tool in ranking:
        left = [group for group in waiting if tool not in group]
        gained.append(len(waiting) - len(left))
        waiting = left
    return gained


def compute_recall(gained: Sequence[int], needed: int, k: int) -> float:
    """Return the share of the groups that the first `k` positions satisfy."""
    return sum(gained[:k]) / needed


def compute_ndcg(gained: Sequence[int], needed: int, k: int) -> float:
    """Return the discounted gain relative to the best possible ranking."""
    found = sum(gain / math.log2(place + 2) for place, gain in enumerate(gained[:k]))
    best = sum(1 / math.log2(place + 2) for place in range(min(needed, k)))
    return min(found / best, 1.0)


def compute_reciprocal_rank(gained: Sequence[int]) -> float:
    """Return 1 over the position of the first right tool; 0 when there is none."""
    return next((1 / place for place, gain in enumerate(gained, start=1) if gain), 0.0)


def compute_auc(scores: Floats, labels: Flags) -> float:
    """Return how often a query with the label outscores one without; ties are half. NaN without both."""
    positives = int(labels.sum())
    negatives = len(labels) - positives
    if not positives or not negatives:
        return math.nan
    _, group, counts = np.unique(scores, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    ranks = (last - (counts - 1) / 2)[group]
    above = float(ranks[labels].sum()) - positives * (positives + 1) / 2
    return above / (positives * negatives)


def compute_calibration_error(confidence: Floats, right: Floats) -> float:
    """Return the mean difference of confidence and share of right answers, over ten equal bins."""
    if not len(confidence):
        return math.nan
    group = np.minimum((confidence * 10).astype(np.int64), 9)
    apart = np.bincount(group, weights=confidence - right, minlength=10)
    return float(np.abs(apart).sum()) / len(confidence)


def compute_risk_by_coverage(confidence: Floats, wrong: Floats) -> Floats:
    """Return the share of wrong answers among the n most confident, for n = 1, 2, … all.

    Answers of equal confidence have no order, so each counts with their mean.
    """
    _, group, counts = np.unique(confidence, return_inverse=True, return_counts=True)
    mean = np.bincount(group, weights=wrong) / counts
    order = np.argsort(-confidence, kind="stable")
    return np.cumsum(mean[group][order]) / np.arange(1, len(wrong) + 1)


def get_risk_at(risks: Floats, coverage: float) -> float:
    """Return the share of wrong answers among the most confident share `coverage`."""
    return float(risks[max(math.ceil(coverage * len(risks)), 1) - 1])


def compute_percentile(values: Floats, share: float) -> float:
    """Return the smallest value that the share `share` of the values does not exceed."""
    return float(np.sort(values)[max(math.ceil(share * len(values)), 1) - 1])


RANKING_CUTOFFS: Final = (1, 3, 5, 10, 20)
DECISION_THRESHOLD: Final = 0.5  # an unclear need counts by its score


@frozen
class EvalMeasure:
    """One metric of the report: rows of numbers, one per query, and their aggregate."""

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
    """Compute all metrics for which these queries have labels."""
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
    found = [pair for pair in pairs if pair[0].has_recall_labels]
    if not found:
        return []
    gained = [
        compute_gains([entry.tool for entry in prediction.ranking], query.wanted_groups)
        for query, prediction in found
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
    """Measure the need decision over the labels that apply to it.

    With a candidate list, `needs_tool` means that one of the candidates fits, not that a tool is needed at
    all.
    """
    labelled = [pair for pair in pairs if pair[0].needs_tool is not None]
    applicable = [pair for pair in labelled if pair[0].scope != "candidates"]
    found = _measure_need_over("need", "needing a tool or not", applicable)
    if len(applicable) < len(labelled):
        found += _measure_need_over("need_any", "needing a tool, over every label", labelled)
    return found


def _measure_need_over(name: str, about: str, found: _QueryPairs) -> list[EvalMeasure]:
    labels = [query.needs_tool is True for query, _ in found]
    if not found or all(labels) or not any(labels):
        return []
    judged = [_predicts_tool(prediction) for _, prediction in found]
    right = [float(one == label) for one, label in zip(judged, labels, strict=True)]
    unneeded = [(pair, one) for pair, one, label in zip(found, judged, labels, strict=True) if not label]
    scores = [[prediction.need, label] for (_, prediction), label in zip(found, labels, strict=True)]
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
            [float(prediction.verdict == "unclear") for _, prediction in found],
            better=-1,
        ),
        _build_auc_measure(f"{name}_auc", f"{about}: told apart by the score", found, scores),
    ]


def _predicts_tool(prediction: Prediction) -> bool:
    return prediction.verdict == "tool" or (
        prediction.verdict == "unclear" and prediction.need >= DECISION_THRESHOLD
    )


def _measure_fit(pairs: _QueryPairs) -> list[EvalMeasure]:
    found = [pair for pair in pairs if pair[0].candidates and pair[0].needs_tool is not None]
    labels = [query.needs_tool is True for query, _ in found]
    if not found or all(labels) or not any(labels):
        return []
    right = [
        float((prediction.fit >= DECISION_THRESHOLD) == label)
        for (_, prediction), label in zip(found, labels, strict=True)
    ]
    scores = [[prediction.fit, label] for (_, prediction), label in zip(found, labels, strict=True)]
    return [
        _build_mean_measure("fit_accuracy", "a candidate fits or not: right at 0.5", found, right),
        _build_auc_measure("fit_auc", "a candidate fits or not: told apart", found, scores),
    ]


def _measure_certainty(pairs: _QueryPairs) -> list[EvalMeasure]:
    """Measure whether the least certain answers are the wrong ones."""
    found = [pair for pair in pairs if pair[0].has_recall_labels]
    if not found:
        return []
    wrong = [
        float(
            not any(entry.tool in group for entry in prediction.ranking[:1] for group in query.wanted_groups)
        )
        for query, prediction in found
    ]
    rows = [[prediction.fit, one] for (_, prediction), one in zip(found, wrong, strict=True)]

    def risk(name: str, about: str, sum_up: Callable[[Floats], float]) -> EvalMeasure:
        def aggregate(rows: Floats) -> float:
            return sum_up(compute_risk_by_coverage(rows[:, 0], rows[:, 1]))

        return _build_measure(name, about, found, rows, aggregate, better=-1)

    return [
        risk("risk_area", "wrong first tools, over all coverages", lambda risks: float(risks.mean())),
        risk("risk@80", "wrong first tools, answering 80 %", lambda risks: get_risk_at(risks, 0.8)),
        risk("risk@50", "wrong first tools, answering 50 %", lambda risks: get_risk_at(risks, 0.5)),
    ]


def _measure_selection(pairs: _QueryPairs) -> list[EvalMeasure]:
    """Measure which of the offered tools a model selected, if one was asked."""
    wanted = [pair for pair in pairs if pair[1].selection is not None and pair[0].has_recall_labels]
    unneeded = [pair for pair in pairs if pair[1].selection is not None and pair[0].needs_tool is False]
    found: list[EvalMeasure] = []
    if wanted:
        right = [
            float(any(_get_selected(prediction) in group for group in query.wanted_groups))
            for query, prediction in wanted
        ]
        found.append(_build_mean_measure("selection_accuracy", "the right tool was selected", wanted, right))
        about = "claimed confidence and being right, apart"
        claims = [_get_claimed_confidence(prediction) for _, prediction in wanted]
        rows = list(zip(claims, right, strict=True))
        error = _build_measure("selection_ece", about, wanted, rows, _compute_calibration, better=-1)
        found.append(error)
    if unneeded:
        none = [float(_get_selected(prediction) is None) for _, prediction in unneeded]
        about = "no tool was selected where none is needed"
        found.append(_build_mean_measure("selection_none", about, unneeded, none))
    return found


def _get_selected(prediction: Prediction) -> Json:
    return None if prediction.selection is None else prediction.selection.get("tool")


def _compute_calibration(rows: Floats) -> float:
    return compute_calibration_error(rows[:, 0], rows[:, 1])


def _get_claimed_confidence(prediction: Prediction) -> float:
    claim = prediction.selection.get("confidence") if prediction.selection is not None else None
    return float(claim) if isinstance(claim, int | float) and 0 <= claim <= 1 else 0.0


def _measure_latency(pairs: _QueryPairs) -> list[EvalMeasure]:
    timed = [(query, prediction) for query, prediction in pairs if prediction.ms > 0]
    rows = [[prediction.ms] for _, prediction in timed]

    def measure(share: int) -> EvalMeasure:
        def aggregate(rows: Floats) -> float:
            return compute_percentile(rows[:, 0], share / 100)

        about = "milliseconds to narrow"
        return _build_measure(f"ms_p{share}", about, timed, rows, aggregate, better=-1)

    return [measure(50), measure(99)] if timed else []


def _build_measure(
    name: str,
    about: str,
    found: _QueryPairs,
    rows: Sequence[Sequence[float]],
    aggregate: Callable[[Floats], float],
    *,
    better: int = 1,
) -> EvalMeasure:
    ids = tuple(query.id for query, _ in found)
    values = np.array(rows, np.float64)
    return EvalMeasure(name=name, about=about, ids=ids, rows=values, aggregate=aggregate, better=better)


def _build_mean_measure(
    name: str, about: str, found: _QueryPairs, values: Sequence[float], *, better: int = 1
) -> EvalMeasure:
    rows = [[value] for value in values]
    return _build_measure(name, about, found, rows, lambda rows: float(rows.mean()), better=better)


def _build_auc_measure(
    name: str, about: str, found: _QueryPairs, rows: Sequence[Sequence[float]]
) -> EvalMeasure:
    def aggregate(rows: Floats) -> float:
        return compute_auc(rows[:, 0], rows[:, 1] > DECISION_THRESHOLD)

    return _build_measure(name, about, found, rows, aggregate)


BOOTSTRAP_DRAWS: Final = 1000
BOOTSTRAP_SEED: Final = 20261115


@frozen
class MeasureDifference:
    """A metric in two runs: both values and the confidence interval of the change."""

    name: str
    before: float
    after: float
    low: float
    high: float
    queries: int
    better: int = 1

    @property
    def change(self) -> float:
        return self.after - self.before

    @property
    def verdict(self) -> str:
        """The verdict. It is `better` or `worse` only if the whole interval shows it."""
        if self.low > 0 or self.high < 0:
            return "better" if (self.change > 0) == (self.better > 0) else "worse"
        return "no clear difference"


def compare_runs(
    before: Sequence[EvalMeasure], after: Sequence[EvalMeasure], *, draws: int = BOOTSTRAP_DRAWS
) -> list[MeasureDifference]:
    """Compare every metric that both runs have, over the queries that both answered."""
    later = {measure.name: measure for measure in after}
    return [
        _compare_measure(measure, later[measure.name], draws)
        for measure in before
        if measure.name in later and set(measure.ids) & set(later[measure.name].ids)
    ]


def _compare_measure(before: EvalMeasure, after: EvalMeasure, draws: int) -> MeasureDifference:
    places = {name: place for place, name in enumerate(after.ids)}
    shared = [(place, places[name]) for place, name in enumerate(before.ids) if name in places]
    old = before.rows[[one for one, _ in shared]]
    new = after.rows[[other for _, other in shared]]
    rng = np.random.default_rng(BOOTSTRAP_SEED)
    changes = np.empty(draws)
    for draw in range(draws):
        drawn = rng.integers(len(shared), size=len(shared))
        changes[draw] = after.aggregate(new[drawn]) - before.aggregate(old[drawn])
    changes = changes[~np.isnan(changes)]
    low, high = np.quantile(changes, (0.025, 0.975)) if len(changes) else (np.nan, np.nan)
    return MeasureDifference(
        name=before.name,
        before=before.aggregate(old),
        after=after.aggregate(new),
        low=float(low),
        high=float(high),
        queries=len(shared),
        better=before.better,
    )


@frozen
class MetricBound:
    """A metric and its minimum or maximum."""

    name: str
    limit: float
    is_minimum: bool

    def __str__(self) -> str:
        return f"{self.name} {'at least' if self.is_minimum else 'at most'} {self.limit:g}"

    @classmethod
    def parse(cls, text: str, *, is_minimum: bool) -> MetricBound:
        """Parse `NAME=VALUE` as a bound."""
        name, equals, value = text.partition("=")
        try:
            limit = float(value)
        except ValueError:
            limit = float("nan")
        if not equals or limit != limit:
            raise ConfigError(f"{text!r} is not NAME=VALUE", hint="Write for example recall@5=0.8.")
        return cls(name=name.strip(), limit=limit, is_minimum=is_minimum)


def find_unmet_bounds(bounds: Sequence[MetricBound], found: Sequence[EvalMeasure]) -> list[str]:
    """Return a message for each violated bound. A metric that could not be computed violates its bound."""
    values: Mapping[str, float] = {measure.name: measure.value for measure in found}
    return [message for one in bounds if (message := _describe_broken_bound(one, values)) is not None]


def _describe_broken_bound(one: MetricBound, values: Mapping[str, float]) -> str | None:
    if one.name not in values:
        message = f"these predictions give no figure {one.name!r}"
        raise ConfigError(message, hint=f"There are: {', '.join(values) or 'none'}.")
    value = values[one.name]
    kept = value >= one.limit if one.is_minimum else value <= one.limit
    return None if kept else f"{one}: it is {value:.4g}"

"""Counters and histograms that cost next to nothing to count with.

They stand on the path of every call, so counting is one look into a dict. They become
Prometheus' own shapes only when somebody scrapes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from prometheus_client import Metric

OTHER_LABEL: Final = "other"

Labels = tuple[str, ...]


class LabelLimiter:
    """Label values, so many and no more: every value is a series that somebody has to keep."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: dict[str, str] = {}

    def limit(self, name: str) -> str:
        """The name itself, or `other` when there are too many already."""
        found = self._known.get(name)
        if found is None:
            if len(self._known) >= self._most:
                return OTHER_LABEL
            found = self._known[name] = name
        return found


class CounterMetric:
    """A counter, for each combination of labels."""

    def __init__(self, name: str, help_text: str, labels: Labels = ()) -> None:
        self._name = name
        self._help = help_text
        self._labels = labels
        self._values: dict[Labels, float] = {} if labels else {(): 0}

    def add(self, labels: Labels = (), amount: float = 1) -> None:
        values = self._values
        values[labels] = values.get(labels, 0) + amount

    def collect(self) -> Iterator[Metric]:
        from prometheus_client.core import CounterMetricFamily

        family = CounterMetricFamily(self._name, self._help, labels=self._labels)
        for labels, value in self._values.items():
            family.add_metric(labels, value)
        yield family


class DurationHistogram:
    """A histogram of seconds, for each combination of labels."""

    def __init__(self, name: str, help_text: str, bounds: tuple[float, ...], labels: Labels = ()) -> None:
        self._name = name
        self._help = help_text
        self._bounds = bounds
        self._labels = labels
        self._rows: dict[Labels, list[int]] = {}
        self._sums: dict[Labels, float] = {}
        if not labels:
            self._create_series(())

    def _create_series(self, labels: Labels) -> list[int]:
        row = self._rows[labels] = [0] * (len(self._bounds) + 1)
        self._sums[labels] = 0.0
        return row

    def observe(self, milliseconds: float, labels: Labels = ()) -> None:
        seconds = milliseconds / 1000
        row = self._rows.get(labels)
        if row is None:
            row = self._create_series(labels)
        row[bisect_left(self._bounds, seconds)] += 1
        self._sums[labels] += seconds

    def collect(self) -> Iterator[Metric]:
        from prometheus_client.core import HistogramMetricFamily

        family = HistogramMetricFamily(self._name, self._help, labels=self._labels)
        for labels, row in self._rows.items():
            up_to = 0
            buckets: list[tuple[str, float]] = []
            for bound, count in zip((*self._bounds, float("inf")), row, strict=True):
                up_to += count
                buckets.append(("+Inf" if bound == float("inf") else str(bound), up_to))
            family.add_metric(labels, buckets, self._sums[labels])
        yield family

"""What a chart shows."""

from __future__ import annotations

from typing import Final, Literal, get_args

from fingerpost.frozen import frozen

ChartType = Literal["bar", "line", "scatter", "pie"]
CHART_TYPES: Final[tuple[ChartType, ...]] = get_args(ChartType)
MAX_SERIES: Final = 8
MAX_POINTS: Final = 2_000  # of all series together
MAX_SLICES: Final = 12


@frozen
class ChartSeries:
    """Values that belong together. None where there is none for a label."""

    name: str
    values: tuple[float | None, ...]


@frozen
class Chart:
    """Labels with values in one or more series. `positions` are numbers for the labels, where they are
    such.
    """

    labels: tuple[str, ...]
    series: tuple[ChartSeries, ...]
    positions: tuple[float, ...] = ()
    type: ChartType = "bar"
    title: str = ""
    x_label: str = ""
    y_label: str = ""

    @property
    def summary(self) -> str:
        """In words."""
        many = f"{len(self.labels)} {'slices' if self.type == 'pie' else 'points'}"
        several = f" in {len(self.series)} series" if len(self.series) > 1 else ""
        return f"a {self.type} chart of {many}{several}"

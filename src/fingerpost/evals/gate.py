"""Bounds an operator sets on the figures: `recall@5=0.8` at least, `need_false_positives=0.2` at most."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fingerpost.errors import ConfigError
from fingerpost.evals.measures import EvalMeasure
from fingerpost.frozen import frozen


@frozen
class MetricBound:
    """One figure and the value it must not fall below (or rise above)."""

    name: str
    limit: float
    is_minimum: bool

    def __str__(self) -> str:
        return f"{self.name} {'at least' if self.is_minimum else 'at most'} {self.limit:g}"


def parse_bound(text: str, *, is_minimum: bool) -> MetricBound:
    """`NAME=VALUE` as a bound."""
    name, equals, value = text.partition("=")
    try:
        limit = float(value)
    except ValueError:
        limit = float("nan")
    if not equals or limit != limit:
        message = f"{text!r} is not NAME=VALUE"
        raise ConfigError(message, hint="Write for example recall@5=0.8.")
    return MetricBound(name=name.strip(), limit=limit, is_minimum=is_minimum)


def find_unmet_bounds(bounds: Sequence[MetricBound], found: Sequence[EvalMeasure]) -> list[str]:
    """What each broken bound has to say. A figure that could not be computed breaks its bound."""
    values: Mapping[str, float] = {measure.name: measure.value for measure in found}
    return [said for one in bounds if (said := _describe_broken_bound(one, values)) is not None]


def _describe_broken_bound(one: MetricBound, values: Mapping[str, float]) -> str | None:
    if one.name not in values:
        message = f"these predictions give no figure {one.name!r}"
        raise ConfigError(message, hint=f"There are: {', '.join(values) or 'none'}.")
    value = values[one.name]
    kept = value >= one.limit if one.is_minimum else value <= one.limit
    return None if kept else f"{one}: it is {value:.4g}"

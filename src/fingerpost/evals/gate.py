"""Bounds an operator sets on the figures: `recall@5=0.8` at least, `need_false_positives=0.2` at most."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fingerpost.errors import ConfigError
from fingerpost.evals.measures import Measure
from fingerpost.frozen import frozen


@frozen
class Bound:
    """One figure and the value it must not fall below (or rise above)."""

    name: str
    limit: float
    least: bool

    def __str__(self) -> str:
        return f"{self.name} {'at least' if self.least else 'at most'} {self.limit:g}"


def bound(text: str, *, least: bool) -> Bound:
    """`NAME=VALUE` as a bound."""
    name, equals, value = text.partition("=")
    try:
        limit = float(value)
    except ValueError:
        limit = float("nan")
    if not equals or limit != limit:
        message = f"{text!r} is not NAME=VALUE"
        raise ConfigError(message, hint="Write for example recall@5=0.8.")
    return Bound(name=name.strip(), limit=limit, least=least)


def unmet(bounds: Sequence[Bound], found: Sequence[Measure]) -> list[str]:
    """What each broken bound has to say. A figure that could not be computed breaks its bound."""
    values: Mapping[str, float] = {measure.name: measure.value for measure in found}
    return [said for one in bounds if (said := _broken(one, values)) is not None]


def _broken(one: Bound, values: Mapping[str, float]) -> str | None:
    if one.name not in values:
        message = f"these predictions give no figure {one.name!r}"
        raise ConfigError(message, hint=f"There are: {', '.join(values) or 'none'}.")
    value = values[one.name]
    kept = value >= one.limit if one.least else value <= one.limit
    return None if kept else f"{one}: it is {value:.4g}"

"""Axes: from values to places, with ticks at round numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

from fingerpost.frozen import frozen

_ROUND_STEPS: Final = (1.0, 2.0, 2.5, 5.0, 10.0)
_UNIT_SUFFIXES: Final = ((1e12, 1e12, "T"), (1e9, 1e9, "B"), (1e6, 1e6, "M"), (1e4, 1e3, "k"))
_MAX_DECIMALS: Final = 6
_EPSILON: Final = 1e-100


@frozen(kw_only=False)
class AxisScale:
    """From `low` to `high`, a tick at every `step`."""

    low: float
    high: float
    step: float

    @property
    def ticks(self) -> tuple[float, ...]:
        count = round((self.high - self.low) / self.step)
        return tuple(self.low + self.step * number for number in range(count + 1))

    def get_fraction(self, value: float) -> float:
        """Where it stands, from 0 to 1."""
        return (value - self.low) / (self.high - self.low)

    def format_label(self, value: float) -> str:
        size = max(abs(self.low), abs(self.high))
        return format_number(0.0 if abs(value) < self.step / 1e6 else value, self.step, size)


def build_scale(values: Iterable[float], *, from_zero: bool, tick_count: int = 6) -> AxisScale:
    """A scale for these values. Bars begin at nothing, or their lengths would lie."""
    held = [*values, *([0.0] if from_zero else [])]
    low, high = min(held), max(held)
    if high - low <= max(_EPSILON, 1e-9 * max(abs(low), abs(high))):
        margin = abs(low) / 2 if abs(low) > _EPSILON else 1.0
        low, high = (low if from_zero and low >= 0 else low - margin), high + margin
    step = _choose_step((high - low) / tick_count)
    return AxisScale(math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step, step)


def _choose_step(rough: float) -> float:
    size = 10.0 ** math.floor(math.log10(rough))
    return next(step for step in _ROUND_STEPS if step * size >= rough * (1 - 1e-9)) * size


def format_number(value: float, step: float | None = None, size: float | None = None) -> str:
    """A number as short as it can be said: 1,200, 35k, 2.5M, 0.25.

    `step` is what has to be told apart; `size` is the largest beside it, so that all are said in one unit.
    """
    size = abs(value) if size is None else size
    if size >= 1e15 or 0 < size < 1e-4:
        return f"{value:.3g}"
    for least, unit, name in _UNIT_SUFFIXES:
        if size >= least and (step is None or step >= unit / 100):
            told = f"{value / unit:,.2f}".rstrip("0").rstrip(".")
            return f"{told}{name}" if value else "0"
    if step is None:
        told = f"{value:,.2f}" if abs(value) >= 1 else f"{value:.4f}"
        return told.rstrip("0").rstrip(".") or "0"
    places = 0
    while places < _MAX_DECIMALS and abs(step * 10**places - round(step * 10**places)) > 1e-6:
        places += 1
    return f"{value:,.{places}f}"

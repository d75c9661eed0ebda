"""A chart as a picture."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Final

from fingerpost.builtin.assets.charts.records import Chart
from fingerpost.builtin.assets.charts.scale import Scale, number_words, scale_of
from fingerpost.builtin.assets.drawing.shapes import (
    AXIS,
    FAINT,
    INK,
    PALETTE,
    PAPER,
    SOFT,
    Dot,
    Mark,
    Picture,
    Point,
    Shape,
    Stroke,
    Words,
    box,
    in_lines,
    shortened,
    width_of,
)
from fingerpost.frozen import frozen

WIDTH: Final = 760
HEIGHT: Final = 460
_PAD: Final = 20.0
_TITLE: Final = 18.0
_SMALL: Final = 12.0
_WIDEST_BAR: Final = 90.0


def draw(chart: Chart, width: int = WIDTH, height: int = HEIGHT) -> Picture:
    """The whole chart."""
    title = chart.title or f"{chart.type.capitalize()} chart"
    marks: list[Mark] = []
    top = _PAD
    if chart.title:
        for line in in_lines(chart.title, _TITLE, width - 2 * _PAD, 2):
            marks.append(Words(text=line, at=(_PAD, top + _TITLE), size=_TITLE, bold=True))
            top += _TITLE * 1.3
        top += 8
    names = [series.name for series in chart.series]
    if chart.type != "pie" and len(names) > 1:
        legend, top = _legend(names, top, width)
        marks += legend
    room = _Room(_PAD, top, width - 2 * _PAD, height - top - _PAD)
    marks += _pie(chart, room) if chart.type == "pie" else _plot(chart, room)
    return Picture(width=width, height=height, title=title, marks=tuple(marks))


@frozen(kw_only=False)
class _Room:
    left: float
    top: float
    width: float
    height: float

    @property
    def right(self) -> float:
        return self.left + self.width

    @property
    def bottom(self) -> float:
        return self.top + self.height


def _legend(names: Sequence[str], top: float, width: float) -> tuple[list[Mark], float]:
    """A coloured square and a name for each series, on as many lines as it takes."""
    marks: list[Mark] = []
    left = _PAD
    for number, name in enumerate(names):
        text = shortened(name or f"Series {number + 1}", _SMALL, 180)
        wide = 18 + width_of(text, _SMALL) + 18
        if left > _PAD and left + wide > width - _PAD:
            left, top = _PAD, top + 20
        marks.append(Shape(points=box(left, top + 3, 12, 12), fill=_colour(number), corner=2))
        marks.append(Words(text=text, at=(left + 18, top + 13), size=_SMALL, colour=SOFT))
        left += wide
    return marks, top + 30


def _colour(number: int) -> str:
    return PALETTE[number % len(PALETTE)]


# -- with axes --------------------------------------------------------------------------------------


def _plot(chart: Chart, room: _Room) -> Iterator[Mark]:
    values = [value for series in chart.series for value in series.values if value is not None]
    up = scale_of(values, from_zero=chart.type == "bar" or _near_zero(values))
    across = _across(chart)
    left = room.left + max(width_of(up.label(tick), _SMALL) for tick in up.ticks) + 12
    left += 20 if chart.y_label else 0
    below = _Below.of(chart, across, room.right - left)
    above = 18 if chart.type == "bar" else 6  # figures stand on bars
    area = _Room(left, room.top + above, room.right - left, room.height - above - below.height)
    yield from _grid(up, area)
    yield from below.marks(area, across)
    if chart.y_label:
        middle = (room.left + 12, area.top + area.height / 2)
        label = shortened(chart.y_label, _SMALL, area.height)
        yield Words(text=label, at=middle, size=_SMALL, colour=SOFT, anchor="middle", turned=True)
    if chart.x_label:
        middle = (area.left + area.width / 2, room.bottom)
        yield Words(text=chart.x_label, at=middle, size=_SMALL, colour=SOFT, anchor="middle")
    if chart.type == "bar":
        yield from _bars(chart, up, area)
    else:
        yield from _lines(chart, up, across, area)


def _near_zero(values: Sequence[float]) -> bool:
    """Whether an axis from zero would waste little room."""
    return min(values) >= 0 and min(values) < max(values) * 0.4


def _across(chart: Chart) -> Scale | None:
    """The other axis, where it has numbers and they matter."""
    if not chart.places or chart.type == "bar":
        return None
    if chart.type == "line" and (len(chart.places) < 3 or _evenly(chart.places)):
        return None
    return scale_of(chart.places, from_zero=False, about=8)


def _evenly(places: Sequence[float]) -> bool:
    steps = [after - before for before, after in pairwise(places)]
    return min(steps) > 0 and max(steps) - min(steps) < 1e-9 * max(abs(step) for step in steps) + 1e-12


def _grid(up: Scale, area: _Room) -> Iterator[Mark]:
    for tick in up.ticks:
        y = area.bottom - up.share(tick) * area.height
        strong = abs(tick) < up.step / 1e6
        yield Stroke(points=((area.left, y), (area.right, y)), colour=AXIS if strong else FAINT, width=1)
        yield Words(text=up.label(tick), at=(area.left - 8, y + 4), size=_SMALL, colour=SOFT, anchor="end")
    if up.low > 0 or up.high < 0:
        yield Stroke(points=((area.left, area.bottom), (area.right, area.bottom)), colour=AXIS, width=1)


@frozen(kw_only=False)
class _Below:
    """What stands under the axis: all labels in lines, or every so many of them, turned where long."""

    labels: tuple[tuple[float, tuple[str, ...]], ...]  # where, from 0 to 1, and the lines
    turned: bool
    height: float

    @classmethod
    def of(cls, chart: Chart, across: Scale | None, width: float) -> _Below:
        extra = 22.0 if chart.x_label else 0.0
        if across is not None:
            ticks = tuple((across.share(tick), (across.label(tick),)) for tick in across.ticks)
            return cls(ticks, turned=False, height=24 + extra)
        count = len(chart.labels)
        places = [_middle(at, count, bars=chart.type == "bar") for at in range(count)]
        room = width / max(1, count) - 6
        if room >= 34:
            lines = [in_lines(label, _SMALL, room, 2) for label in chart.labels]
            most = max(len(line) for line in lines) if lines else 1
            whole = all("…" not in line for entry in lines for line in entry)
            if whole or count <= 3:
                return cls(
                    tuple(zip(places, lines, strict=True)), turned=False, height=10 + 15 * most + extra
                )
        every = max(1, math.ceil(count * 17 / width))
        kept = [
            (place, (shortened(label, _SMALL, 150),))
            for place, label in zip(places, chart.labels, strict=True)
        ]
        kept = kept[::every]
        longest = max((width_of(lines[0], _SMALL) for _, lines in kept), default=0.0)
        if longest + 10 <= width / max(1, len(kept)):
            return cls(tuple(kept), turned=False, height=24 + extra)
        if _are_short(kept, width):  # fewer of them, but lying: easier to read
            fewer = max(1, math.ceil(len(kept) * (longest + 14) / width))
            return cls(tuple(kept[::fewer]), turned=False, height=24 + extra)
        return cls(tuple(kept), turned=True, height=14 + longest + extra)

    def marks(self, area: _Room, across: Scale | None) -> Iterator[Mark]:
        for share, lines in self.labels:
            x = area.left + share * area.width
            if across is not None:
                yield Stroke(points=((x, area.bottom), (x, area.bottom + 4)), colour=AXIS, width=1)
            for number, line in enumerate(lines):
                if self.turned:
                    at = (x + 4, area.bottom + 8)
                    yield Words(text=line, at=at, size=_SMALL, colour=SOFT, anchor="end", turned=True)
                else:
                    half = width_of(line, _SMALL) / 2  # at the rims a label moves inwards
                    inside = max(min(x, area.right + _PAD - half - 2), half + 2)
                    at = (inside, area.bottom + 18 + 15 * number)
                    yield Words(text=line, at=at, size=_SMALL, colour=SOFT, anchor="middle")


def _are_short(kept: Sequence[tuple[float, tuple[str, ...]]], width: float) -> bool:
    """Labels in an order anybody can fill in, such as years and days."""
    return len(kept) > 12 and all(any(letter.isdigit() for letter in lines[0]) for _, lines in kept)


def _middle(at: int, count: int, *, bars: bool) -> float:
    if bars:
        return (at + 0.5) / count
    return 0.5 if count == 1 else 0.03 + 0.94 * at / (count - 1)


def _bars(chart: Chart, up: Scale, area: _Room) -> Iterator[Mark]:
    count, many = len(chart.labels), len(chart.series)
    slot = area.width / count
    wide = min(slot * 0.72 / many, _WIDEST_BAR)
    base = area.bottom - up.share(min(max(0.0, up.low), up.high)) * area.height
    tells = wide >= 26 and count * many <= 24
    size = max(abs(value) for series in chart.series for value in series.values if value is not None)
    for at in range(count):
        left = area.left + slot * (at + 0.5) - wide * many / 2
        for number, series in enumerate(chart.series):
            value = series.values[at]
            if value is None:
                continue
            end = area.bottom - up.share(value) * area.height
            top, tall = min(base, end), abs(base - end)
            x = left + wide * number
            yield Shape(points=box(x + 1, top, max(1.0, wide - 2), max(0.5, tall)), fill=_colour(number))
            if tells:
                y = top - 6 if value >= 0 else top + tall + 14
                text = number_words(value, size=size)
                if width_of(text, 11) <= wide + 10:
                    yield Words(text=text, at=(x + wide / 2, y), size=11, colour=INK, anchor="middle")


def _lines(chart: Chart, up: Scale, across: Scale | None, area: _Room) -> Iterator[Mark]:
    count = len(chart.labels)

    def place(at: int, value: float) -> Point:
        share = _middle(at, count, bars=False) if across is None else across.share(chart.places[at])
        return (area.left + share * area.width, area.bottom - up.share(value) * area.height)

    dots = 4.5 if chart.type == "scatter" else (3.5 if count <= 40 else 0.0)
    for number, series in enumerate(chart.series):
        runs = _runs(series.values, place)
        if chart.type == "line":
            for run in runs:
                yield Stroke(points=run, colour=_colour(number), width=2.5)
        for point in (point for run in runs for point in run) if dots else ():
            yield Dot(centre=point, radius=dots + 1, fill=PAPER)
            yield Dot(centre=point, radius=dots, fill=_colour(number))


def _runs(values: Sequence[float | None], place: Callable[[int, float], Point]) -> list[tuple[Point, ...]]:
    """The points, a new run after each gap."""
    runs: list[list[Point]] = [[]]
    for at, value in enumerate(values):
        if value is None:
            runs.append([])
        else:
            runs[-1].append(place(at, value))
    return [tuple(run) for run in runs if run]


# -- without ----------------------------------------------------------------------------------------


def _pie(chart: Chart, room: _Room) -> Iterator[Mark]:
    values = [value or 0.0 for value in chart.series[0].values]
    total = sum(values)
    radius = min(room.height, room.width * 0.5) / 2 - 4
    centre = (room.left + radius + 10, room.top + room.height / 2)
    angle = -math.pi / 2
    for number, value in enumerate(values):
        turn = 2 * math.pi * value / total
        yield Shape(points=_slice(centre, radius, angle, turn), fill=_colour(number), stroke=PAPER, width=2)
        if value / total >= 0.06:
            middle, far = angle + turn / 2, radius * 0.66
            at = (centre[0] + far * math.cos(middle), centre[1] + far * math.sin(middle) + 5)
            share = f"{100 * value / total:.0f}%"
            yield Words(text=share, at=at, size=13, colour=_on(_colour(number)), anchor="middle", bold=True)
        angle += turn
    yield from _key(chart, values, room, centre[0] + radius + 36)


def _key(chart: Chart, values: Sequence[float], room: _Room, left: float) -> Iterator[Mark]:
    """What each slice is, beside the pie."""
    total, line = sum(values), min(26.0, room.height / len(values))
    top = room.top + room.height / 2 - line * len(values) / 2
    for number, (label, value) in enumerate(zip(chart.labels, values, strict=True)):
        y = top + line * number + line / 2
        figures = f"{number_words(value)} ({100 * value / total:.1f}%)"
        wide = width_of(figures, _SMALL) + 14
        name = shortened(label, 13, room.right - left - 22 - wide)
        yield Shape(points=box(left, y - 6, 12, 12), fill=_colour(number), corner=2)
        yield Words(text=name, at=(left + 20, y + 4.5), size=13)
        at = (left + 20 + width_of(name, 13) + 10, y + 4.5)
        yield Words(text=figures, at=at, size=_SMALL, colour=SOFT)


def _slice(centre: Point, radius: float, start: float, turn: float) -> tuple[Point, ...]:
    steps = max(2, math.ceil(turn / 0.05))
    rim = tuple(
        (centre[0] + radius * math.cos(start + turn * at / steps),
         centre[1] + radius * math.sin(start + turn * at / steps))
        for at in range(steps + 1)
    )  # fmt: skip
    return rim if turn >= 2 * math.pi - 1e-9 else (centre, *rim)


def _on(colour: str) -> str:
    """Black or white, whichever can be read on this colour."""
    red, green, blue = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return INK if 0.299 * red + 0.587 * green + 0.114 * blue > 140 else PAPER

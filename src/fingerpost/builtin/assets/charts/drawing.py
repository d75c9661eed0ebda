"""A chart as a picture."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Final

from fingerpost.builtin.assets.charts.records import Chart
from fingerpost.builtin.assets.charts.scale import AxisScale, build_scale, format_number
from fingerpost.builtin.assets.drawing.shapes import (
    AXIS_COLOUR,
    FAINT_COLOUR,
    INK_COLOUR,
    PALETTE,
    PAPER_COLOUR,
    SOFT_COLOUR,
    CircleDot,
    LineStroke,
    OutlineShape,
    Picture,
    PictureMark,
    Point,
    TextLine,
    build_box,
    estimate_width,
    shorten_text,
    wrap_text,
)
from fingerpost.frozen import frozen

CHART_WIDTH: Final = 760
CHART_HEIGHT: Final = 460
_CHART_PADDING: Final = 20.0
_TITLE_SIZE: Final = 18.0
_LABEL_SIZE: Final = 12.0
_MAX_BAR_WIDTH: Final = 90.0


def draw_chart(chart: Chart, width: int = CHART_WIDTH, height: int = CHART_HEIGHT) -> Picture:
    """The whole chart."""
    title = chart.title or f"{chart.type.capitalize()} chart"
    marks: list[PictureMark] = []
    top = _CHART_PADDING
    if chart.title:
        for line in wrap_text(chart.title, _TITLE_SIZE, width - 2 * _CHART_PADDING, 2):
            marks.append(
                TextLine(text=line, at=(_CHART_PADDING, top + _TITLE_SIZE), size=_TITLE_SIZE, bold=True)
            )
            top += _TITLE_SIZE * 1.3
        top += 8
    names = [series.name for series in chart.series]
    if chart.type != "pie" and len(names) > 1:
        legend, top = _draw_legend(names, top, width)
        marks += legend
    room = _PlotArea(_CHART_PADDING, top, width - 2 * _CHART_PADDING, height - top - _CHART_PADDING)
    marks += _draw_pie(chart, room) if chart.type == "pie" else _draw_plot(chart, room)
    return Picture(width=width, height=height, title=title, marks=tuple(marks))


@frozen(kw_only=False)
class _PlotArea:
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


def _draw_legend(names: Sequence[str], top: float, width: float) -> tuple[list[PictureMark], float]:
    """A coloured square and a name for each series, on as many lines as it takes."""
    marks: list[PictureMark] = []
    left = _CHART_PADDING
    for number, name in enumerate(names):
        text = shorten_text(name or f"Series {number + 1}", _LABEL_SIZE, 180)
        wide = 18 + estimate_width(text, _LABEL_SIZE) + 18
        if left > _CHART_PADDING and left + wide > width - _CHART_PADDING:
            left, top = _CHART_PADDING, top + 20
        marks.append(
            OutlineShape(points=build_box(left, top + 3, 12, 12), fill=_get_colour(number), corner=2)
        )
        marks.append(TextLine(text=text, at=(left + 18, top + 13), size=_LABEL_SIZE, colour=SOFT_COLOUR))
        left += wide
    return marks, top + 30


def _get_colour(number: int) -> str:
    return PALETTE[number % len(PALETTE)]


# -- with axes --------------------------------------------------------------------------------------


def _draw_plot(chart: Chart, plot_area: _PlotArea) -> Iterator[PictureMark]:
    values = [value for series in chart.series for value in series.values if value is not None]
    up = build_scale(values, from_zero=chart.type == "bar" or _is_near_zero(values))
    across = _build_x_scale(chart)
    left = plot_area.left + max(estimate_width(up.format_label(tick), _LABEL_SIZE) for tick in up.ticks) + 12
    left += 20 if chart.y_label else 0
    below = _AxisLabels.build(chart, across, plot_area.right - left)
    above = 18 if chart.type == "bar" else 6  # figures stand on bars
    area = _PlotArea(
        left, plot_area.top + above, plot_area.right - left, plot_area.height - above - below.height
    )
    yield from _draw_grid(up, area)
    yield from below.draw(area, across)
    if chart.y_label:
        middle = (plot_area.left + 12, area.top + area.height / 2)
        label = shorten_text(chart.y_label, _LABEL_SIZE, area.height)
        yield TextLine(
            text=label, at=middle, size=_LABEL_SIZE, colour=SOFT_COLOUR, anchor="middle", turned=True
        )
    if chart.x_label:
        middle = (area.left + area.width / 2, plot_area.bottom)
        yield TextLine(text=chart.x_label, at=middle, size=_LABEL_SIZE, colour=SOFT_COLOUR, anchor="middle")
    if chart.type == "bar":
        yield from _draw_bars(chart, up, area)
    else:
        yield from _draw_lines(chart, up, across, area)


def _is_near_zero(values: Sequence[float]) -> bool:
    """Whether an axis from zero would waste little room."""
    return min(values) >= 0 and min(values) < max(values) * 0.4


def _build_x_scale(chart: Chart) -> AxisScale | None:
    """The other axis, where it has numbers and they matter."""
    if not chart.positions or chart.type == "bar":
        return None
    if chart.type == "line" and (len(chart.positions) < 3 or _is_evenly_spaced(chart.positions)):
        return None
    return build_scale(chart.positions, from_zero=False, tick_count=8)


def _is_evenly_spaced(places: Sequence[float]) -> bool:
    steps = [after - before for before, after in pairwise(places)]
    return min(steps) > 0 and max(steps) - min(steps) < 1e-9 * max(abs(step) for step in steps) + 1e-12


def _draw_grid(up: AxisScale, area: _PlotArea) -> Iterator[PictureMark]:
    for tick in up.ticks:
        y = area.bottom - up.get_fraction(tick) * area.height
        strong = abs(tick) < up.step / 1e6
        yield LineStroke(
            points=((area.left, y), (area.right, y)), colour=AXIS_COLOUR if strong else FAINT_COLOUR, width=1
        )
        yield TextLine(
            text=up.format_label(tick),
            at=(area.left - 8, y + 4),
            size=_LABEL_SIZE,
            colour=SOFT_COLOUR,
            anchor="end",
        )
    if up.low > 0 or up.high < 0:
        yield LineStroke(
            points=((area.left, area.bottom), (area.right, area.bottom)), colour=AXIS_COLOUR, width=1
        )


@frozen(kw_only=False)
class _AxisLabels:
    """What stands under the axis: all labels in lines, or every so many of them, turned where long."""

    labels: tuple[tuple[float, tuple[str, ...]], ...]  # where, from 0 to 1, and the lines
    turned: bool
    height: float

    @classmethod
    def build(cls, chart: Chart, across: AxisScale | None, width: float) -> _AxisLabels:
        extra = 22.0 if chart.x_label else 0.0
        if across is not None:
            ticks = tuple((across.get_fraction(tick), (across.format_label(tick),)) for tick in across.ticks)
            return cls(ticks, turned=False, height=24 + extra)
        count = len(chart.labels)
        places = [_get_slot_centre(at, count, bars=chart.type == "bar") for at in range(count)]
        room = width / max(1, count) - 6
        if room >= 34:
            lines = [wrap_text(label, _LABEL_SIZE, room, 2) for label in chart.labels]
            most = max(len(line) for line in lines) if lines else 1
            whole = all("…" not in line for entry in lines for line in entry)
            if whole or count <= 3:
                return cls(
                    tuple(zip(places, lines, strict=True)), turned=False, height=10 + 15 * most + extra
                )
        every = max(1, math.ceil(count * 17 / width))
        kept = [
            (place, (shorten_text(label, _LABEL_SIZE, 150),))
            for place, label in zip(places, chart.labels, strict=True)
        ]
        kept = kept[::every]
        longest = max((estimate_width(lines[0], _LABEL_SIZE) for _, lines in kept), default=0.0)
        if longest + 10 <= width / max(1, len(kept)):
            return cls(tuple(kept), turned=False, height=24 + extra)
        if _are_short(kept, width):  # fewer of them, but lying: easier to read
            fewer = max(1, math.ceil(len(kept) * (longest + 14) / width))
            return cls(tuple(kept[::fewer]), turned=False, height=24 + extra)
        return cls(tuple(kept), turned=True, height=14 + longest + extra)

    def draw(self, area: _PlotArea, across: AxisScale | None) -> Iterator[PictureMark]:
        for share, lines in self.labels:
            x = area.left + share * area.width
            if across is not None:
                yield LineStroke(points=((x, area.bottom), (x, area.bottom + 4)), colour=AXIS_COLOUR, width=1)
            for number, line in enumerate(lines):
                if self.turned:
                    at = (x + 4, area.bottom + 8)
                    yield TextLine(
                        text=line, at=at, size=_LABEL_SIZE, colour=SOFT_COLOUR, anchor="end", turned=True
                    )
                else:
                    half = estimate_width(line, _LABEL_SIZE) / 2  # at the rims a label moves inwards
                    inside = max(min(x, area.right + _CHART_PADDING - half - 2), half + 2)
                    at = (inside, area.bottom + 18 + 15 * number)
                    yield TextLine(text=line, at=at, size=_LABEL_SIZE, colour=SOFT_COLOUR, anchor="middle")


def _are_short(kept: Sequence[tuple[float, tuple[str, ...]]], width: float) -> bool:
    """Labels in an order anybody can fill in, such as years and days."""
    return len(kept) > 12 and all(any(letter.isdigit() for letter in lines[0]) for _, lines in kept)


def _get_slot_centre(at: int, count: int, *, bars: bool) -> float:
    if bars:
        return (at + 0.5) / count
    return 0.5 if count == 1 else 0.03 + 0.94 * at / (count - 1)


def _draw_bars(chart: Chart, up: AxisScale, area: _PlotArea) -> Iterator[PictureMark]:
    count, many = len(chart.labels), len(chart.series)
    slot = area.width / count
    wide = min(slot * 0.72 / many, _MAX_BAR_WIDTH)
    base = area.bottom - up.get_fraction(min(max(0.0, up.low), up.high)) * area.height
    tells = wide >= 26 and count * many <= 24
    size = max(abs(value) for series in chart.series for value in series.values if value is not None)
    for at in range(count):
        left = area.left + slot * (at + 0.5) - wide * many / 2
        for number, series in enumerate(chart.series):
            value = series.values[at]
            if value is None:
                continue
            end = area.bottom - up.get_fraction(value) * area.height
            top, tall = min(base, end), abs(base - end)
            x = left + wide * number
            yield OutlineShape(
                points=build_box(x + 1, top, max(1.0, wide - 2), max(0.5, tall)), fill=_get_colour(number)
            )
            if tells:
                y = top - 6 if value >= 0 else top + tall + 14
                text = format_number(value, size=size)
                if estimate_width(text, 11) <= wide + 10:
                    yield TextLine(
                        text=text, at=(x + wide / 2, y), size=11, colour=INK_COLOUR, anchor="middle"
                    )


def _draw_lines(
    chart: Chart, up: AxisScale, across: AxisScale | None, area: _PlotArea
) -> Iterator[PictureMark]:
    count = len(chart.labels)

    def place(at: int, value: float) -> Point:
        share = (
            _get_slot_centre(at, count, bars=False)
            if across is None
            else across.get_fraction(chart.positions[at])
        )
        return (area.left + share * area.width, area.bottom - up.get_fraction(value) * area.height)

    dots = 4.5 if chart.type == "scatter" else (3.5 if count <= 40 else 0.0)
    for number, series in enumerate(chart.series):
        runs = _split_at_gaps(series.values, place)
        if chart.type == "line":
            for run in runs:
                yield LineStroke(points=run, colour=_get_colour(number), width=2.5)
        for point in (point for run in runs for point in run) if dots else ():
            yield CircleDot(centre=point, radius=dots + 1, fill=PAPER_COLOUR)
            yield CircleDot(centre=point, radius=dots, fill=_get_colour(number))


def _split_at_gaps(
    values: Sequence[float | None], locate: Callable[[int, float], Point]
) -> list[tuple[Point, ...]]:
    """The points, a new run after each gap."""
    runs: list[list[Point]] = [[]]
    for at, value in enumerate(values):
        if value is None:
            runs.append([])
        else:
            runs[-1].append(locate(at, value))
    return [tuple(run) for run in runs if run]


# -- without ----------------------------------------------------------------------------------------


def _draw_pie(chart: Chart, area: _PlotArea) -> Iterator[PictureMark]:
    values = [value or 0.0 for value in chart.series[0].values]
    total = sum(values)
    radius = min(area.height, area.width * 0.5) / 2 - 4
    centre = (area.left + radius + 10, area.top + area.height / 2)
    angle = -math.pi / 2
    for number, value in enumerate(values):
        turn = 2 * math.pi * value / total
        yield OutlineShape(
            points=_build_slice(centre, radius, angle, turn),
            fill=_get_colour(number),
            stroke=PAPER_COLOUR,
            width=2,
        )
        if value / total >= 0.06:
            middle, far = angle + turn / 2, radius * 0.66
            at = (centre[0] + far * math.cos(middle), centre[1] + far * math.sin(middle) + 5)
            share = f"{100 * value / total:.0f}%"
            yield TextLine(
                text=share,
                at=at,
                size=13,
                colour=_get_contrast_colour(_get_colour(number)),
                anchor="middle",
                bold=True,
            )
        angle += turn
    yield from _draw_pie_key(chart, values, area, centre[0] + radius + 36)


def _draw_pie_key(
    chart: Chart, values: Sequence[float], area: _PlotArea, left: float
) -> Iterator[PictureMark]:
    """What each slice is, beside the pie."""
    total, line = sum(values), min(26.0, area.height / len(values))
    top = area.top + area.height / 2 - line * len(values) / 2
    for number, (label, value) in enumerate(zip(chart.labels, values, strict=True)):
        y = top + line * number + line / 2
        figures = f"{format_number(value)} ({100 * value / total:.1f}%)"
        wide = estimate_width(figures, _LABEL_SIZE) + 14
        name = shorten_text(label, 13, area.right - left - 22 - wide)
        yield OutlineShape(points=build_box(left, y - 6, 12, 12), fill=_get_colour(number), corner=2)
        yield TextLine(text=name, at=(left + 20, y + 4.5), size=13)
        at = (left + 20 + estimate_width(name, 13) + 10, y + 4.5)
        yield TextLine(text=figures, at=at, size=_LABEL_SIZE, colour=SOFT_COLOUR)


def _build_slice(centre: Point, radius: float, start: float, turn: float) -> tuple[Point, ...]:
    steps = max(2, math.ceil(turn / 0.05))
    rim = tuple(
        (centre[0] + radius * math.cos(start + turn * at / steps),
         centre[1] + radius * math.sin(start + turn * at / steps))
        for at in range(steps + 1)
    )  # fmt: skip
    return rim if turn >= 2 * math.pi - 1e-9 else (centre, *rim)


def _get_contrast_colour(colour: str) -> str:
    """Black or white, whichever can be read on this colour."""
    red, green, blue = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return INK_COLOUR if 0.299 * red + 0.587 * green + 0.114 * blue > 140 else PAPER_COLOUR

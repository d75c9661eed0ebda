"""Charts: parsed from data or text, and drawn as pictures."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Final, Literal, cast, get_args

from fingerpost.builtin.assets.pictures import (
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
from fingerpost.builtin.toolkit import ToolRefused
from fingerpost.frozen import frozen
from fingerpost.records import Json, JsonObject

ChartType = Literal["bar", "line", "scatter", "pie"]
CHART_TYPES: Final[tuple[ChartType, ...]] = get_args(ChartType)
MAX_SERIES: Final = 8
MAX_POINTS: Final = 2_000  # over all series
MAX_SLICES: Final = 12


@frozen
class ChartSeries:
    """A series of values. None where a label has no value."""

    name: str
    values: tuple[float | None, ...]


@frozen
class Chart:
    """Labels with values in one or more series. `positions` are the labels as numbers, if they are
    numeric.
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
        """A description in text."""
        many = f"{len(self.labels)} {'slices' if self.type == 'pie' else 'points'}"
        several = f" in {len(self.series)} series" if len(self.series) > 1 else ""
        return f"a {self.type} chart of {many}{several}"


_ROUND_STEPS: Final = (1.0, 2.0, 2.5, 5.0, 10.0)
_UNIT_SUFFIXES: Final = ((1e12, 1e12, "T"), (1e9, 1e9, "B"), (1e6, 1e6, "M"), (1e4, 1e3, "k"))
_MAX_DECIMALS: Final = 6
_EPSILON: Final = 1e-100


@frozen(kw_only=False)
class AxisScale:
    """An axis from `low` to `high` with a tick at every `step`."""

    low: float
    high: float
    step: float

    @property
    def ticks(self) -> tuple[float, ...]:
        count = round((self.high - self.low) / self.step)
        return tuple(self.low + self.step * number for number in range(count + 1))

    def get_fraction(self, value: float) -> float:
        """Return the position of the value on the axis, from 0 to 1."""
        return (value - self.low) / (self.high - self.low)

    def format_label(self, value: float) -> str:
        size = max(abs(self.low), abs(self.high))
        return format_number(0.0 if abs(value) < self.step / 1e6 else value, self.step, size)

    @classmethod
    def from_values(cls, values: Iterable[float], *, from_zero: bool, tick_count: int = 6) -> AxisScale:
        """Build a scale for these values. Bars start at zero, because their length shows the value."""
        held = [*values, *([0.0] if from_zero else [])]
        low, high = min(held), max(held)
        if high - low <= max(_EPSILON, 1e-9 * max(abs(low), abs(high))):
            margin = abs(low) / 2 if abs(low) > _EPSILON else 1.0
            low, high = (low if from_zero and low >= 0 else low - margin), high + margin
        step = _choose_step((high - low) / tick_count)
        return cls(math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step, step)


def _choose_step(rough: float) -> float:
    size = 10.0 ** math.floor(math.log10(rough))
    return next(step for step in _ROUND_STEPS if step * size >= rough * (1 - 1e-9)) * size


def format_number(value: float, step: float | None = None, size: float | None = None) -> str:
    """Format a number briefly: 1,200, 35k, 2.5M, 0.25.

    `step` is the smallest difference to show. `size` is the largest neighbouring number, so that all use one
    unit.
    """
    size = abs(value) if size is None else size
    if size >= 1e15 or 0 < size < 1e-4:
        return f"{value:.3g}"
    for least, unit, name in _UNIT_SUFFIXES:
        if size >= least and (step is None or step >= unit / 100):
            text = f"{value / unit:,.2f}".rstrip("0").rstrip(".")
            return f"{text}{name}" if value else "0"
    if step is None:
        text = f"{value:,.2f}" if abs(value) >= 1 else f"{value:.4f}"
        return text.rstrip("0").rstrip(".") or "0"
    places = 0
    while places < _MAX_DECIMALS and abs(step * 10**places - round(step * 10**places)) > 1e-6:
        places += 1
    return f"{value:,.{places}f}"


MAX_PROMPT_LENGTH: Final = 20_000
_TYPE_PATTERNS: Final[Mapping[ChartType, re.Pattern[str]]] = {
    "pie": re.compile(r"\b(pie|donut|doughnut|shares? of)\b", re.IGNORECASE),
    "scatter": re.compile(r"\b(scatter|correlation)", re.IGNORECASE),
    "line": re.compile(r"\b(line (chart|graph|plot)|trend|time series|over time)\b", re.IGNORECASE),
    "bar": re.compile(r"\b(bars?|columns?|histogram)\b", re.IGNORECASE),
}
_NUMBER_SOURCE: Final = r"[-+]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?"
# `label: 3`, `label = 3`, `label (3)`, `label 3 km`; or `3 apples`.
_LABEL_FIRST_PATTERN: Final = re.compile(
    rf"^(?P<label>.*?[^\s:=(–-])\s*(?:[:=(–-]|\s)\s*[$€£]?(?P<value>{_NUMBER_SOURCE})\s*(?:%|[^\W\d]{{1,12}})?\)?[.!]?$"
)
_VALUE_FIRST_PATTERN: Final = re.compile(
    rf"^[$€£]?(?P<value>{_NUMBER_SOURCE})\s*%?\s+(?P<label>[^\d]+?)[.!]?$"
)
_MAX_PART_LENGTH: Final = 160
_POINT_PATTERN: Final = re.compile(rf"\(\s*({_NUMBER_SOURCE})\s*,\s*({_NUMBER_SOURCE})\s*\)")
_SUBJECT_PATTERN: Final = re.compile(
    r"\b(?:chart|graph|plot|diagram|histogram|pie)\b(?:\s+(?:of|showing|for|about|with))\s+(?P<what>[^:\n]{2,90})"
)
_REQUEST_PATTERN: Final = re.compile(
    r"^[^\n\d]{0,80}?\b(?:chart|graph|plot|histogram|diagram)\b\s*(?:of|for|with|showing|about)?\s*",
    re.IGNORECASE,
)
_LEADING_PATTERN: Final = re.compile(
    r"^(?:and|the|a|an|of|for|with|showing|data|values?)\b\s*", re.IGNORECASE
)


def find_chart_type(prompt: str) -> ChartType | None:
    """Return the chart type that the text asks for."""
    return next((kind for kind, words in _TYPE_PATTERNS.items() if words.search(prompt)), None)


def find_pairs(text: str) -> list[Json]:
    """Return the labels with values, or the points, in the text."""
    text = text[:MAX_PROMPT_LENGTH]
    points: list[Json] = [
        [_parse_prompt_value(x), _parse_prompt_value(y)] for x, y in _POINT_PATTERN.findall(text)
    ]
    if len(points) > 1:
        return points
    body = text.partition(":")[2] if _is_introduced(text) else _REQUEST_PATTERN.sub("", text, count=1)
    found: list[Json] = []
    for part in re.split(r"[;\n]|,(?!\d{3}\b)|\band\b", body):
        entry = part.strip()[-_MAX_PART_LENGTH:]
        match = _LABEL_FIRST_PATTERN.match(entry) or _VALUE_FIRST_PATTERN.match(entry)
        if match is not None and (label := _clean_label(match["label"])):
            found.append([label, _parse_prompt_value(match["value"])])
    return found if len(found) > 1 or (found and ":" in text) else []


def find_title(prompt: str) -> str:
    """Return the chart's title: the words before its values."""
    match = _SUBJECT_PATTERN.search(prompt[:MAX_PROMPT_LENGTH])
    if match is None:
        return ""
    what = match["what"].strip()
    if re.search(rf"\s{_NUMBER_SOURCE}", what):  # the text contains the values
        return ""
    return what[:1].upper() + what[1:].rstrip(" .,")


def _is_introduced(text: str) -> bool:
    """Return whether a colon separates the request from the values."""
    head, _, rest = text.partition(":")
    wanted = re.search(r"\b(chart|graph|plot|diagram|pie|histogram|data|values)\b|\n", head, re.IGNORECASE)
    return bool(wanted) and not re.search(_NUMBER_SOURCE, head) and len(re.findall(_NUMBER_SOURCE, rest)) > 1


def _clean_label(label: str) -> str:
    label = label.strip().strip("\"'").strip()
    while (shorter := _LEADING_PATTERN.sub("", label)) != label:
        label = shorter
    return label.strip(" -–*•").strip()


def _parse_prompt_value(text: str) -> float:
    return float(text.replace(",", ""))


MAX_LABEL_LENGTH: Final = 80
MAX_TEXT_LENGTH: Final = 100_000
CHART_HINT: Final = (
    'Give data as {"labels": ["a", "b"], "values": [3, 5]}, as {"a": 3, "b": 5}, '
    'as [{"x": 1, "y": 2}, …], or as text such as "a: 3, b: 5".'
)
VALUE_LIMIT: Final = 1e300  # sums and scales of larger values would be infinite
_OPTION_NAMES: Final = ("type", "title", "x_label", "y_label")
_NUMBER_PATTERN: Final = re.compile(
    r"^\s*[-+]?[$€£]?\s*[-+]?(\d[\d,_ ]*\.?\d*|\.\d+)(e[-+]?\d+)?\s*%?\s*$", re.IGNORECASE
)


def parse_chart(data: Json, prompt: str, title: str = "") -> Chart:
    """Return the requested chart. Raises `ToolRefused` if there is nothing to show."""
    options: JsonObject = data if isinstance(data, Mapping) else {}
    shown = _parse_data(_drop_options(data) if data not in (None, "", [], {}) else find_pairs(prompt))
    if shown is None or not shown.labels:
        message = "There are no values to draw a chart from."
        raise ToolRefused(message, hint=CHART_HINT)
    kind = _choose_type(options.get("type"), prompt, shown)
    chart = replace(
        shown,
        type=kind,
        title=_format_label(title or options.get("title")) or find_title(prompt),
        x_label=_format_label(options.get("x_label")) or shown.x_label,
        y_label=_format_label(options.get("y_label")) or shown.y_label,
    )
    return _finalize_chart(chart)


def _choose_type(given: Json, prompt: str, chart: Chart) -> ChartType:
    for kind in CHART_TYPES:
        if given == kind:
            return kind
    return find_chart_type(prompt) or ("scatter" if chart.positions and not _is_sorted(chart.positions) else
                               "line" if chart.positions and len(chart.positions) > 2 else "bar")  # fmt: skip


def _is_sorted(places: Sequence[float]) -> bool:
    return all(before < after for before, after in pairwise(places))


def _drop_options(data: Json) -> Json:
    if isinstance(data, Mapping):
        return {
            key: value
            for key, value in data.items()
            if key not in _OPTION_NAMES or not isinstance(value, str)
        }
    return data


def _finalize_chart(chart: Chart) -> Chart:
    if len(chart.labels) * len(chart.series) > MAX_POINTS or len(chart.series) > MAX_SERIES:
        message = f"A chart shows at most {MAX_POINTS:,} values in {MAX_SERIES} series."
        raise ToolRefused(message, hint="Give fewer, or sums over groups of them.")
    if chart.type == "scatter" and not chart.positions:
        return replace(chart, positions=tuple(float(place) for place in range(1, len(chart.labels) + 1)))
    return _prepare_pie(chart) if chart.type == "pie" else chart


def _prepare_pie(chart: Chart) -> Chart:
    """Prepare a pie: one series without negative values. The smallest slices are merged."""
    pairs = [(label, value or 0.0) for label, value in zip(chart.labels, chart.series[0].values, strict=True)]
    if any(value < 0 for _, value in pairs) or not any(value > 0 for _, value in pairs):
        message = "A pie chart shows shares of a whole: none can be negative, and not all nothing."
        raise ToolRefused(message, hint="Use a bar chart.")
    pairs = [(label, value) for label, value in pairs if value > 0]
    if len(pairs) > MAX_SLICES:
        largest = sorted(pairs, key=lambda pair: -pair[1])[: MAX_SLICES - 1]
        rest = sum(value for _, value in pairs) - sum(value for _, value in largest)
        pairs = [*largest, ("Other", rest)]
    series = ChartSeries(name=chart.series[0].name, values=tuple(value for _, value in pairs))
    return replace(chart, labels=tuple(label for label, _ in pairs), series=(series,), positions=())


def _parse_data(data: Json, depth: int = 0) -> Chart | None:
    if isinstance(data, str):
        return _parse_text(data[:MAX_TEXT_LENGTH], depth)
    if isinstance(data, Mapping):
        return _parse_mapping(data, depth)
    if isinstance(data, list | tuple) and data:
        return _parse_rows(data)
    return None


def _parse_text(text: str, depth: int) -> Chart | None:
    """Parse JSON, a comma-separated table, or labels with values."""
    if text.lstrip()[:1] in ("{", "[") and depth < 2:
        try:
            return _parse_data(cast("Json", json.loads(text)), depth + 1)
        except (ValueError, RecursionError):
            pass
    rows = [re.split(r"[,;\t]", line) for line in text.strip().splitlines() if line.strip()]
    if len(rows) > 1 and len({len(row) for row in rows}) == 1 and len(rows[0]) > 1:
        head = [cell.strip() for cell in rows[0]]
        named = all(_parse_number(cell) is None for cell in head[1:])
        body = rows[1:] if named else rows
        names = head if named else ["", *(f"Series {at}" for at in range(1, len(head)))]
        table = _parse_table(names, [[cell.strip() for cell in row] for row in body])
        if table is not None:
            return table
    pairs = find_pairs(text)
    return _parse_rows(pairs) if pairs else None


def _parse_mapping(data: JsonObject, depth: int) -> Chart | None:
    labels = data.get("labels", data.get("categories"))
    values, series = data.get("values"), data.get("series", data.get("datasets"))
    if labels is None and isinstance(data.get("x"), list) and isinstance(data.get("y"), list):
        labels, values = data["x"], data["y"]
    if isinstance(labels, list | tuple):
        named = [("", values)] if series is None else _parse_series(series)
        _check_value_counts(labels, named)
        return _build_labelled_chart(labels, named)
    if isinstance(series, list | tuple | Mapping):
        named = _parse_series(series)
        longest = max((len(found) for _, found in named if isinstance(found, list | tuple)), default=0)
        return _build_labelled_chart([str(at) for at in range(1, longest + 1)], named)
    inner = data.get("data", data.get("points", values))
    if isinstance(inner, list | tuple | Mapping | str) and depth < 2:
        return _parse_data(inner, depth + 1)
    if data and all(isinstance(value, Mapping) for value in data.values()):
        return _parse_groups(cast("Mapping[str, JsonObject]", data))
    if data and all(isinstance(value, list | tuple) for value in data.values()):
        return _parse_data({"series": data}, depth + 1) if depth < 2 else None
    return _parse_rows([[key, value] for key, value in data.items()])


def _check_value_counts(labels: Sequence[Json], series: Iterable[tuple[str, Json]]) -> None:
    """Raise `ToolRefused` if a series has more or fewer values than there are labels."""
    for name, values in series:
        if isinstance(values, list | tuple) and len(values) != len(labels):
            of = f" of {_format_label(name)}" if name else ""
            message = f"Labels and values differ in number: {len(labels)} and {len(values)}{of}."
            raise ToolRefused(message, hint="Give one value for each label; null where there is none.")


def _parse_groups(groups: Mapping[str, JsonObject]) -> Chart | None:
    """Parse `{"2025": {"a": 1, "b": 2}, "2026": …}`: one series per group."""
    labels = list(dict.fromkeys(label for group in groups.values() for label in group))
    return _build_labelled_chart(
        labels, [(name, [group.get(label) for label in labels]) for name, group in groups.items()]
    )


def _parse_series(series: Json) -> list[tuple[str, Json]]:
    if isinstance(series, Mapping):
        return list(series.items())
    found: list[tuple[str, Json]] = []
    for at, item in enumerate(cast("Sequence[Json]", series) if isinstance(series, list | tuple) else (), 1):
        if isinstance(item, Mapping):
            name = item.get("name", item.get("label", f"Series {at}"))
            found.append((_format_label(name), item.get("values", item.get("data"))))
        else:
            found.append((f"Series {at}", item))
    return found


def _build_labelled_chart(labels: Sequence[Json], series: Iterable[tuple[str, Json]]) -> Chart | None:
    made: list[ChartSeries] = []
    for name, values in series:
        if not isinstance(values, list | tuple):
            return None
        numbers = [_parse_value(value) for value in values][: len(labels)]
        numbers += [None] * (len(labels) - len(numbers))
        made.append(ChartSeries(name=_format_label(name), values=tuple(numbers)))
    return _build_chart([_format_label(label) for label in labels], made)


def _parse_rows(rows: Sequence[Json]) -> Chart | None:
    first = rows[0] if rows else None
    if first is None or first == {}:
        return None
    if isinstance(first, Mapping):
        held = [row for row in rows if isinstance(row, Mapping)]
        names = list(dict.fromkeys(key for row in held for key in row))
        return _parse_table(
            _order_columns(names, first),
            [[row.get(name) for name in _order_columns(names, first)] for row in held],
        )
    if isinstance(first, list | tuple):
        width = min(len(cast("Sequence[Json]", row)) for row in rows if isinstance(row, list | tuple))
        if width < 2:
            return None
        names = ["", *([""] if width == 2 else [f"Series {at}" for at in range(1, width)])]
        cells = [list(cast("Sequence[Json]", row)[:width]) for row in rows if isinstance(row, list | tuple)]
        return _parse_table(names, cells)
    return _build_labelled_chart([str(at) for at in range(1, len(rows) + 1)], [("", list(rows))])


def _order_columns(names: list[str], first: JsonObject) -> list[str]:
    """Put the label column first: `x` or `label`, else the first text column, else the first."""
    known = next((name for name in names if name.lower() in ("x", "label", "name", "category")), None)
    words = next((name for name in names if _parse_number(first.get(name)) is None), None)
    leading = known or words or names[0]
    return [leading, *(name for name in names if name != leading)]


def _parse_table(names: Sequence[str], rows: Sequence[Sequence[Json]]) -> Chart | None:
    """Parse rows of a label and one value per series. Columns without numbers are ignored."""
    labels = [_format_label(row[0]) for row in rows]
    series: list[ChartSeries] = []
    for at, name in enumerate(names[1:], 1):
        values = tuple(_parse_value(row[at]) for row in rows)
        if any(value is not None for value in values):
            series.append(ChartSeries(name=_format_label(name), values=values))
    chart = _build_chart(labels, series)
    if chart is None or len(series) != 1:
        return chart
    return replace(chart, x_label=_format_label(names[0]), y_label=series[0].name)


def _build_chart(labels: Sequence[str], series: Sequence[ChartSeries]) -> Chart | None:
    if not series or not any(value is not None for entry in series for value in entry.values):
        return None
    places = [_parse_number(label) for label in labels]
    known = [place for place in places if place is not None]
    return Chart(
        labels=tuple(labels),
        series=tuple(series),
        positions=tuple(known) if len(known) == len(labels) else (),
    )


def _parse_value(value: Json) -> float | None:
    """Return a number to draw, or None for a gap. Raises `ToolRefused` if it is too large."""
    found = _parse_unlimited_number(value)
    if found is None or abs(found) < VALUE_LIMIT:
        return found
    message = f"{str(value)[:40]} is too large to be drawn."
    raise ToolRefused(message, hint=f"Values are smaller than {VALUE_LIMIT:g}: give them in larger units.")


def _parse_number(value: Json) -> float | None:
    found = _parse_unlimited_number(value)
    return found if found is not None and abs(found) < VALUE_LIMIT else None


def _parse_unlimited_number(value: Json) -> float | None:
    """Parse a number, also from text with a currency sign or thousands separators. Return infinity if it is
    too large, None if it is no number.
    """
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int | float):
        if value != value:
            return None  # NaN
        return float(value) if abs(value) < VALUE_LIMIT else math.inf
    if not isinstance(value, str) or len(value) > 40 or not _NUMBER_PATTERN.match(value):
        return None
    return _parse_unlimited_number(float(re.sub(r"[$€£,_ %\s]", "", value)))


def _format_label(value: Json) -> str:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return " ".join(str(value).split())[:MAX_LABEL_LENGTH] if isinstance(value, str | int | float) else ""


CHART_WIDTH: Final = 760
CHART_HEIGHT: Final = 460
_CHART_PADDING: Final = 20.0
_TITLE_SIZE: Final = 18.0
_LABEL_SIZE: Final = 12.0
_MAX_BAR_WIDTH: Final = 90.0


def draw_chart(chart: Chart, width: int = CHART_WIDTH, height: int = CHART_HEIGHT) -> Picture:
    """Draw the chart."""
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
    """Draw a coloured square and a name for each series, on as many lines as needed."""
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


def _draw_plot(chart: Chart, plot_area: _PlotArea) -> Iterator[PictureMark]:
    values = [value for series in chart.series for value in series.values if value is not None]
    up = AxisScale.from_values(values, from_zero=chart.type == "bar" or _should_start_at_zero(values))
    across = _build_x_scale(chart)
    left = plot_area.left + max(estimate_width(up.format_label(tick), _LABEL_SIZE) for tick in up.ticks) + 12
    left += 20 if chart.y_label else 0
    below = _AxisLabels.build(chart, across, plot_area.right - left)
    above = 18 if chart.type == "bar" else 6  # bars have numbers above them
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


def _should_start_at_zero(values: Sequence[float]) -> bool:
    """Return whether the axis should start at zero, because that would waste little space."""
    return min(values) >= 0 and min(values) < max(values) * 0.4


def _build_x_scale(chart: Chart) -> AxisScale | None:
    """Build the x axis if its labels are numeric and their distances matter."""
    if not chart.positions or chart.type == "bar":
        return None
    if chart.type == "line" and (len(chart.positions) < 3 or _is_evenly_spaced(chart.positions)):
        return None
    return AxisScale.from_values(chart.positions, from_zero=False, tick_count=8)


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
    """The labels of an axis: all of them wrapped, or every n-th, rotated if long."""

    labels: tuple[tuple[float, tuple[str, ...]], ...]  # position from 0 to 1, and the lines
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
        if _can_omit_labels(kept, width):  # fewer horizontal labels are easier to read
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
                    half = estimate_width(line, _LABEL_SIZE) / 2  # labels at the edges are moved inwards
                    inside = max(min(x, area.right + _CHART_PADDING - half - 2), half + 2)
                    at = (inside, area.bottom + 18 + 15 * number)
                    yield TextLine(text=line, at=at, size=_LABEL_SIZE, colour=SOFT_COLOUR, anchor="middle")


def _can_omit_labels(kept: Sequence[tuple[float, tuple[str, ...]]], width: float) -> bool:
    """Return whether labels can be omitted: there are many, and each contains a digit, as years and days do,
    so that a reader can fill the gaps.
    """
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
    shows_values = wide >= 26 and count * many <= 24
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
            if shows_values:
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

    def locate(at: int, value: float) -> Point:
        share = (
            _get_slot_centre(at, count, bars=False)
            if across is None
            else across.get_fraction(chart.positions[at])
        )
        return (area.left + share * area.width, area.bottom - up.get_fraction(value) * area.height)

    dots = 4.5 if chart.type == "scatter" else (3.5 if count <= 40 else 0.0)
    for number, series in enumerate(chart.series):
        runs = _split_at_gaps(series.values, locate)
        if chart.type == "line":
            for run in runs:
                yield LineStroke(points=run, colour=_get_colour(number), width=2.5)
        for point in (point for run in runs for point in run) if dots else ():
            yield CircleDot(centre=point, radius=dots + 1, fill=PAPER_COLOUR)
            yield CircleDot(centre=point, radius=dots, fill=_get_colour(number))


def _split_at_gaps(
    values: Sequence[float | None], locate: Callable[[int, float], Point]
) -> list[tuple[Point, ...]]:
    """Return the points, split at gaps."""
    runs: list[list[Point]] = [[]]
    for at, value in enumerate(values):
        if value is None:
            runs.append([])
        else:
            runs[-1].append(locate(at, value))
    return [tuple(run) for run in runs if run]


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
    """Draw the legend beside the pie."""
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
    """Return black or white, whichever is readable on this colour."""
    red, green, blue = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return INK_COLOUR if 0.299 * red + 0.587 * green + 0.114 * blue > 140 else PAPER_COLOUR

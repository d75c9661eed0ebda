"""Charts: parsed from data or text, and drawn with matplotlib."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, Final, Literal, cast, get_args

from fingerpost.builtin.assets.pictures import (
    AXIS_COLOUR,
    FAINT_COLOUR,
    INK_COLOUR,
    PAPER_COLOUR,
    SOFT_COLOUR,
    TITLE_SIZE,
    Axes,
    clean_text,
    estimate_width,
    open_figure,
    render_figure,
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
    """Labels with values in one or more series. `positions` are the labels as numbers, if they are."""

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


_UNIT_SUFFIXES: Final = ((1e12, 1e12, "T"), (1e9, 1e9, "B"), (1e6, 1e6, "M"), (1e4, 1e3, "k"))


def format_number(value: float) -> str:
    """Format a number briefly: 1,200, 35k, 2.5M, 0.25."""
    size = abs(value)
    if size >= 1e15 or 0 < size < 1e-4:
        return f"{value:.3g}"
    unit, suffix = next(((unit, suffix) for least, unit, suffix in _UNIT_SUFFIXES if size >= least), (1, ""))
    text = f"{value / unit:,.{4 if size < 1 else 2}f}"
    return f"{text.rstrip('0').rstrip('.')}{suffix}"


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


def find_pairs(text: str) -> list[Json]:
    """Return the labels with values, or the points, in the text."""
    text = text[:MAX_PROMPT_LENGTH]
    points: list[Json] = [list(map(_parse_prompt_value, pair)) for pair in _POINT_PATTERN.findall(text)]
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
        raise ToolRefused("There are no values to draw a chart from.", hint=CHART_HINT)
    kind = _choose_type(options.get("type"), prompt, shown)
    chart = replace(
        shown,
        type=kind,
        title=_format_label(title or options.get("title") or find_title(prompt)),
        x_label=_format_label(options.get("x_label")) or shown.x_label,
        y_label=_format_label(options.get("y_label")) or shown.y_label,
    )
    if len(chart.labels) * len(chart.series) > MAX_POINTS or len(chart.series) > MAX_SERIES:
        message = f"A chart shows at most {MAX_POINTS:,} values in {MAX_SERIES} series."
        raise ToolRefused(message, hint="Give fewer, or sums over groups of them.")
    if chart.type == "scatter" and not chart.positions:
        return replace(chart, positions=tuple(float(place) for place in range(1, len(chart.labels) + 1)))
    return _prepare_pie(chart) if chart.type == "pie" else chart


def _choose_type(given: Json, prompt: str, chart: Chart) -> ChartType:
    for kind in CHART_TYPES:
        if given == kind:
            return kind
    for kind, words in _TYPE_PATTERNS.items():
        if words.search(prompt):
            return kind
    if any(before >= after for before, after in pairwise(chart.positions)):
        return "scatter"
    return "line" if len(chart.positions) > 2 else "bar"


def _drop_options(data: Json) -> Json:
    if not isinstance(data, Mapping):
        return data
    return {key: each for key, each in data.items() if key not in _OPTION_NAMES or not isinstance(each, str)}


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
        groups = cast("Mapping[str, JsonObject]", data)
        labels = list(dict.fromkeys(label for group in groups.values() for label in group))
        return _build_labelled_chart(
            labels, [(name, [group.get(label) for label in labels]) for name, group in groups.items()]
        )
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
        ordered = _order_columns(names, first)
        return _parse_table(ordered, [[row.get(name) for name in ordered] for row in held])
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
    known = tuple(place for place in places if place is not None)
    positions = known if len(known) == len(labels) else ()
    return Chart(labels=tuple(labels), series=tuple(series), positions=positions)


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
    """Parse a number, also from text with a currency sign or separators: infinity if too large, or None."""
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
    return clean_text(str(value), MAX_LABEL_LENGTH) if isinstance(value, str | int | float) else ""


CHART_WIDTH: Final = 760
CHART_HEIGHT: Final = 460
# The Okabe-Ito palette, which is suitable for all kinds of colour vision.
_PALETTE: Final = (
    "#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9", "#7a5195", "#8c8c00",
)  # fmt: skip
_LABEL_SIZE: Final = 12.0
_LEGEND_STYLE: Final[Mapping[str, Any]] = {
    "frameon": False, "fontsize": _LABEL_SIZE, "labelcolor": SOFT_COLOUR, "handlelength": 1.0,
}  # fmt: skip
_MAX_VALUE_LABELS: Final = 24
_MAX_DOTS: Final = 40


def draw_chart(
    chart: Chart, file_format: str = "svg", width: int = CHART_WIDTH, height: int = CHART_HEIGHT
) -> bytes:
    """Draw the chart. This is slow: call it in a thread."""
    with open_figure(width, height) as figure:
        figure.set_layout_engine("constrained", w_pad=0.2, h_pad=0.2)
        if chart.title:
            lines = wrap_text(chart.title, TITLE_SIZE, width - 40, 2)
            figure.suptitle("\n".join(lines), x=0.03, ha="left", size=TITLE_SIZE, weight="bold")
        axes = figure.add_subplot()
        if chart.type == "pie":
            _draw_pie(chart, axes, width)
        else:
            _draw_plot(chart, axes, width, height)
            if len(chart.series) > 1:
                columns = max(1, min(len(chart.series), width // 190))
                axes.legend(loc="lower left", bbox_to_anchor=(0, 1.02), ncols=columns, **_LEGEND_STYLE)
        return render_figure(figure, file_format, chart.title or f"{chart.type.capitalize()} chart")


def _draw_plot(chart: Chart, axes: Axes, width: int, height: int) -> None:
    for side in ("top", "left", "right"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(AXIS_COLOUR)
    axes.grid(axis="y", color=FAINT_COLOUR)
    axes.set_axisbelow(True)
    axes.tick_params(length=0, labelsize=_LABEL_SIZE, labelcolor=SOFT_COLOUR)
    axes.set_xlabel(chart.x_label, size=_LABEL_SIZE, color=SOFT_COLOUR)
    label = shorten_text(chart.y_label, _LABEL_SIZE, height * 0.7)
    axes.set_ylabel(label, size=_LABEL_SIZE, color=SOFT_COLOUR)
    scaled = _has_numeric_axis(chart)
    if chart.type == "bar":
        _draw_bars(chart, axes, width)
    else:
        places = chart.positions if scaled else range(len(chart.labels))
        _draw_lines(chart, axes, places)
    values = [value for series in chart.series for value in series.values if value is not None]
    if chart.type != "bar" and 0 <= min(values) < max(values) * 0.4:  # little space is wasted
        axes.set_ylim(bottom=0)
    _label_ticks(axes.yaxis)
    if scaled:
        _label_ticks(axes.xaxis)
    else:
        _label_categories(chart.labels, axes, width - 90)


def _has_numeric_axis(chart: Chart) -> bool:
    """Return whether the labels are numeric and their distances matter."""
    if not chart.positions or chart.type == "bar":
        return False
    return chart.type == "scatter" or (len(chart.positions) > 2 and not _is_evenly_spaced(chart.positions))


def _is_evenly_spaced(places: Sequence[float]) -> bool:
    steps = [after - before for before, after in pairwise(places)]
    return min(steps) > 0 and max(steps) - min(steps) < 1e-9 * max(abs(step) for step in steps) + 1e-12


def _label_ticks(axis: Any) -> None:
    """Label the ticks briefly. If that made neighbours equal, the labels have all digits."""
    low, high = sorted(axis.get_view_interval())
    ticks = [float(tick) for tick in axis.get_majorticklocs() if low <= tick <= high]
    labels = [format_number(tick) for tick in ticks]
    if len(set(labels)) < len(labels):
        labels = [f"{tick:.15g}" for tick in ticks]
    axis.set_ticks(ticks, labels=labels)


def _label_categories(labels: Sequence[str], axes: Axes, width: float) -> None:
    """Label the categories: all of them wrapped, or every n-th, rotated if long."""
    count = len(labels)
    room = width / count - 6
    wrapped = [wrap_text(label, _LABEL_SIZE, room, 2) for label in labels]
    if count <= 3 or (room >= 34 and not any("…" in line for lines in wrapped for line in lines)):
        axes.set_xticks(range(count), ["\n".join(lines) for lines in wrapped])
        return
    shown = [shorten_text(label, _LABEL_SIZE, 150) for label in labels]
    longest = max(estimate_width(label, _LABEL_SIZE) for label in shown)
    every = math.ceil(count * 17 / width)
    # Many labels that each contain a digit, as years and days do: a reader can fill the gaps.
    if count > 12 and all(any(letter.isdigit() for letter in label) for label in shown):
        every = max(every, math.ceil(count * (longest + 14) / width))
    turn = 90 if longest + 10 > width / math.ceil(count / every) else 0
    axes.set_xticks(range(0, count, every), shown[::every], rotation=turn)


def _draw_bars(chart: Chart, axes: Axes, width: int) -> None:
    count, many = len(chart.labels), len(chart.series)
    wide = 0.72 / many
    axes.axhline(0, color=AXIS_COLOUR, linewidth=1)
    axes.set_xlim(-0.5 - 0.5 / count, count - 0.5 + 0.5 / count)
    for number, series in enumerate(chart.series):
        places = [at + (number - (many - 1) / 2) * wide for at in range(count)]
        look = {"color": _get_colour(number), "label": _name_series(chart, number)}
        bars = axes.bar(places, _fill_gaps(series.values), wide, **look)
        if count * many <= _MAX_VALUE_LABELS and wide * width / count >= 30:
            axes.bar_label(bars, fmt=format_number, size=11, color=INK_COLOUR, padding=3)
    axes.margins(y=0.08)


def _draw_lines(chart: Chart, axes: Axes, places: Sequence[float]) -> None:
    scatter = chart.type == "scatter"
    marker = "o" if scatter or len(places) <= _MAX_DOTS else None
    style = {"marker": marker, "markersize": 9 if scatter else 7, "markeredgecolor": PAPER_COLOUR}
    for number, series in enumerate(chart.series):
        look = {"color": _get_colour(number), "label": _name_series(chart, number), **style}
        axes.plot(places, _fill_gaps(series.values), linewidth=0 if scatter else 2.5, **look)


def _fill_gaps(values: Sequence[float | None]) -> list[float]:
    return [math.nan if value is None else value for value in values]


def _name_series(chart: Chart, number: int) -> str:
    name = shorten_text(chart.series[number].name or f"Series {number + 1}", _LABEL_SIZE, 180)
    return f"\u200b{name}" if name.startswith("_") else name  # matplotlib hides labels that start with `_`


def _get_colour(number: int) -> str:
    return _PALETTE[number % len(_PALETTE)]


def _draw_pie(chart: Chart, axes: Axes, width: int) -> None:
    """Draw the slices clockwise from the top, and a legend beside them."""
    values = [value or 0.0 for value in chart.series[0].values]
    largest = max(values)
    shares = [value / largest for value in values]  # their sum is finite
    total = sum(shares)
    colours = [_get_colour(number) for number in range(len(values))]
    names = [
        f"{shorten_text(label, _LABEL_SIZE, width / 4)}: {format_number(value)} ({100 * share / total:.1f}%)"
        for label, value, share in zip(chart.labels, values, shares, strict=True)
    ]
    pie: Any = axes.pie(
        shares, colors=colours, startangle=90, counterclock=False, autopct=_format_share, pctdistance=0.66,
        wedgeprops={"edgecolor": PAPER_COLOUR, "linewidth": 2},
        textprops={"size": 13, "weight": "bold"},
    )  # fmt: skip
    for number, share in enumerate(pie.texts[-1]):
        red, green, blue = (int(colours[number][at : at + 2], 16) for at in (1, 3, 5))
        share.set_color(INK_COLOUR if 0.299 * red + 0.587 * green + 0.114 * blue > 140 else PAPER_COLOUR)
    axes.legend(pie.wedges, names, loc="center left", bbox_to_anchor=(1.0, 0.5), **_LEGEND_STYLE)


def _format_share(percent: float) -> str:
    return f"{percent:.0f}%" if percent >= 6 else ""

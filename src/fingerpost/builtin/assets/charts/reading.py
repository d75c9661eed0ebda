"""What is to be shown, out of data in whichever of the usual forms it comes."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Final, cast

from fingerpost.builtin.assets.charts.records import (
    CHART_TYPES,
    MAX_POINTS,
    MAX_SERIES,
    MAX_SLICES,
    Chart,
    ChartSeries,
    ChartType,
)
from fingerpost.builtin.assets.charts.words import find_chart_type, find_pairs, find_title
from fingerpost.builtin.kit import ToolRefused
from fingerpost.records import Json, JsonObject

MAX_LABEL_LENGTH: Final = 80
MAX_TEXT_LENGTH: Final = 100_000
CHART_HINT: Final = (
    'Give data as {"labels": ["a", "b"], "values": [3, 5]}, as {"a": 3, "b": 5}, '
    'as [{"x": 1, "y": 2}, …], or as text such as "a: 3, b: 5".'
)
TOO_LARGE_MESSAGE: Final = 1e300  # sums and scales of such values would be infinite
_TYPE_NAMES: Final = ("type", "title", "x_label", "y_label")
_NUMBER_PATTERN: Final = re.compile(
    r"^\s*[-+]?[$€£]?\s*[-+]?(\d[\d,_ ]*\.?\d*|\.\d+)(e[-+]?\d+)?\s*%?\s*$", re.IGNORECASE
)


def parse_chart(data: Json, prompt: str, title: str = "") -> Chart:
    """The chart that is wanted. Raises `ToolRefused` where there is nothing to show."""
    said: JsonObject = data if isinstance(data, Mapping) else {}
    shown = _parse_data(_drop_options(data) if data not in (None, "", [], {}) else find_pairs(prompt))
    if shown is None or not shown.labels:
        message = "There are no values to draw a chart from."
        raise ToolRefused(message, hint=CHART_HINT)
    kind = _choose_type(said.get("type"), prompt, shown)
    chart = replace(
        shown,
        type=kind,
        title=_format_label(title or said.get("title")) or find_title(prompt),
        x_label=_format_label(said.get("x_label")) or shown.x_label,
        y_label=_format_label(said.get("y_label")) or shown.y_label,
    )
    return _check_chart(chart)


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
            key: value for key, value in data.items() if key not in _TYPE_NAMES or not isinstance(value, str)
        }
    return data


def _check_chart(chart: Chart) -> Chart:
    if len(chart.labels) * len(chart.series) > MAX_POINTS or len(chart.series) > MAX_SERIES:
        message = f"A chart shows at most {MAX_POINTS:,} values in {MAX_SERIES} series."
        raise ToolRefused(message, hint="Give fewer, or sums over groups of them.")
    if chart.type == "scatter" and not chart.positions:
        return replace(chart, places=tuple(float(place) for place in range(1, len(chart.labels) + 1)))
    return _merge_small_slices(chart) if chart.type == "pie" else chart


def _merge_small_slices(chart: Chart) -> Chart:
    """A pie has one series of nothing negative, and few slices: the smallest become one."""
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
    return replace(chart, labels=tuple(label for label, _ in pairs), series=(series,), places=())


# -- forms of data ----------------------------------------------------------------------------------


def _parse_data(data: Json, depth: int = 0) -> Chart | None:
    if isinstance(data, str):
        return _parse_text(data[:MAX_TEXT_LENGTH], depth)
    if isinstance(data, Mapping):
        return _parse_mapping(data, depth)
    if isinstance(data, list | tuple) and data:
        return _parse_rows(data)
    return None


def _parse_text(text: str, depth: int) -> Chart | None:
    """JSON, a table with commas, or labels with values."""
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
        _check_number(labels, named)
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


def _check_number(labels: Sequence[Json], series: Iterable[tuple[str, Json]]) -> None:
    """Whose is a value where there are more or fewer than labels? Raises `ToolRefused`."""
    for name, values in series:
        if isinstance(values, list | tuple) and len(values) != len(labels):
            of = f" of {_format_label(name)}" if name else ""
            message = f"Labels and values differ in number: {len(labels)} and {len(values)}{of}."
            raise ToolRefused(message, hint="Give one value for each label; null where there is none.")


def _parse_groups(groups: Mapping[str, JsonObject]) -> Chart | None:
    """`{"2025": {"a": 1, "b": 2}, "2026": …}`: a series for each."""
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
    """The column that names the rows: `x` or `label`, else the first of words, else the first."""
    known = next((name for name in names if name.lower() in ("x", "label", "name", "category")), None)
    words = next((name for name in names if _parse_number(first.get(name)) is None), None)
    leading = known or words or names[0]
    return [leading, *(name for name in names if name != leading)]


def _parse_table(names: Sequence[str], rows: Sequence[Sequence[Json]]) -> Chart | None:
    """Rows of a label and one value for each series; columns without any number say nothing."""
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
    """A number to be drawn. One that is too large is no gap: raises `ToolRefused`."""
    found = _parse_number_text(value)
    if found is None or abs(found) < TOO_LARGE_MESSAGE:
        return found
    message = f"{str(value)[:40]} is too large to be drawn."
    raise ToolRefused(
        message, hint=f"Values are smaller than {TOO_LARGE_MESSAGE:g}: give them in larger units."
    )


def _parse_number(value: Json) -> float | None:
    found = _parse_number_text(value)
    return found if found is not None and abs(found) < TOO_LARGE_MESSAGE else None


def _parse_number_text(value: Json) -> float | None:
    """A number, also one written as text with a sign of a currency or thousands."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int | float):
        if value != value:
            return None  # not a number
        return float(value) if abs(value) < TOO_LARGE_MESSAGE else math.inf
    if not isinstance(value, str) or len(value) > 40 or not _NUMBER_PATTERN.match(value):
        return None
    return _parse_number_text(float(re.sub(r"[$€£,_ %\s]", "", value)))


def _format_label(value: Json) -> str:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return " ".join(str(value).split())[:MAX_LABEL_LENGTH] if isinstance(value, str | int | float) else ""

"""The report of an eval: one table of figures, or two runs side by side."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fingerpost.errors import ConfigError
from fingerpost.evals.compare import Difference, differences
from fingerpost.evals.gate import Bound, unmet
from fingerpost.evals.measures import Measure, measures
from fingerpost.evals.reading import read_predictions, read_queries, read_tools
from fingerpost.evals.records import Prediction, QueryRecord
from fingerpost.surfaces.cli.colour import styled
from fingerpost.surfaces.cli.house import with_store
from fingerpost.surfaces.cli.screen import count, errors_to, output, plain, print_json, table

if TYPE_CHECKING:
    from fingerpost.settings import Settings
    from fingerpost.store import Store


def judge(
    queries_file: Path,
    tools_file: Path | None,
    files: Sequence[Path],
    bounds: Sequence[Bound],
    *,
    keep: str | None = None,
    as_json: bool,
) -> int:
    """Print the report, and keep it under a name where one is given; 1 when a bound is not met."""
    queries = read_queries(queries_file)
    if tools_file is not None:
        _note_unknown_labels(queries, tools_file)
    runs = [_run(path, queries) for path in files]
    broken = unmet(bounds, runs[-1])
    compared = differences(runs[0], runs[1]) if len(runs) == 2 else None
    if keep is not None:
        _keep(keep, _as_json(runs[-1], compared, broken))
    if as_json:
        print_json(_as_json(runs[-1], compared, broken))
    elif compared is not None:
        _show_differences(compared, files)
    else:
        _show(runs[0], files[0])
    for said in broken:
        click.echo(styled("not met: ", fg="red", bold=True) + said, err=True)
    return 1 if broken else 0


def _keep(name: str, report: dict[str, Any]) -> None:
    async def work(store: Store, _: Settings) -> None:
        await store.evals.keep(name, report)

    with_store(None, None, work)


def _run(path: Path, queries: Sequence[QueryRecord]) -> list[Measure]:
    predictions = read_predictions(path)
    _note_missing(path, queries, predictions)
    found = measures(queries, predictions)
    if not found:
        message = f"{path} holds no prediction for any of these queries"
        raise ConfigError(message, hint="Name the queries the predictions were made for.")
    return found


def _note_missing(path: Path, queries: Sequence[QueryRecord], predictions: Mapping[str, Prediction]) -> None:
    missing = sum(query.id not in predictions for query in queries)
    if missing:
        errors_to().print(
            f"note: {path} has no line for {missing:,} of the {len(queries):,} queries; they are left out"
        )


def _note_unknown_labels(queries: Sequence[QueryRecord], tools_file: Path) -> None:
    known = {tool.id for tool in read_tools(tools_file)}
    labels = {tool for query in queries for group in query.wanted for tool in group}
    if unknown := sorted(labels - known):
        named = ", ".join(plain(tool) for tool in unknown[:3])
        errors_to().print(
            f"note: {count(len(unknown), 'label')} name no tool of the set and can never be found: {named}"
            + (" …" if len(unknown) > 3 else "")
        )


def _show(found: Sequence[Measure], path: Path) -> None:
    shown = table(str(path), "figure", "value", "queries", "what it is")
    for column in (1, 2):
        shown.columns[column].justify = "right"
    for measure in found:
        shown.add_row(
            measure.name, _number(measure.name, measure.value), f"{len(measure.ids):,}", measure.about
        )
    output().print(shown)


def _show_differences(found: Sequence[Difference], files: Sequence[Path]) -> None:
    title = f"{files[1]} compared with {files[0]}"
    shown = table(title, "figure", "before", "after", "change", "95 % interval", "queries", "")
    for column in range(1, 6):
        shown.columns[column].justify = "right"
    colours = {"better": "green", "worse": "red"}
    for one in found:
        interval = f"{_number(one.name, one.low, signed=True)} … {_number(one.name, one.high, signed=True)}"
        shown.add_row(
            one.name,
            _number(one.name, one.before),
            _number(one.name, one.after),
            _number(one.name, one.change, signed=True),
            interval,
            f"{one.queries:,}",
            one.verdict,
            style=colours.get(one.verdict),
        )
    output().print(shown)


def _number(name: str, value: float, *, signed: bool = False) -> str:
    digits = 2 if name.startswith("ms_") else 4
    return f"{value:+.{digits}f}" if signed else f"{value:.{digits}f}"


def _as_json(
    found: Sequence[Measure], compared: Sequence[Difference] | None, broken: Sequence[str]
) -> dict[str, Any]:
    report: dict[str, Any] = {
        "figures": {
            measure.name: {
                "value": _finite(measure.value),
                "queries": len(measure.ids),
                "about": measure.about,
            }
            for measure in found
        },
        "not_met": list(broken),
    }
    if compared is not None:
        report["compared"] = {
            one.name: {
                "before": _finite(one.before),
                "after": _finite(one.after),
                "change": _finite(one.change),
                "interval": [_finite(one.low), _finite(one.high)],
                "queries": one.queries,
                "verdict": one.verdict,
            }
            for one in compared
        }
    return report


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None

"""The goals, what was measured against each, and the tables that say so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from benchmarks.gateway.load import LoadFigures

console = Console(width=150)


@dataclass(frozen=True)
class Finding:
    """One goal: its number, in words, what came out, and whether that is good enough."""

    goal: str
    words: str
    measured: str
    met: bool | None  # None: could not be measured here


def at_most(goal: str, words: str, value: float, limit: float, unit: str = "×") -> Finding:
    return Finding(goal, f"{words} ≤ {limit:g} {unit}", f"{value:.2f} {unit}", value <= limit)


def at_least(goal: str, words: str, value: float, limit: float, unit: str = "×") -> Finding:
    return Finding(goal, f"{words} ≥ {limit:g} {unit}", f"{value:.2f} {unit}", value >= limit)


def show_findings(findings: Sequence[Finding]) -> None:
    table = Table(title="Goals", title_justify="left")
    for column in ("", "goal", "measured", "met?"):
        table.add_column(column)
    marks = {True: "yes", False: "NO", None: "not measured"}
    for found in findings:
        table.add_row(found.goal, found.words, found.measured, marks[found.met])
    console.print(table)


def show_load(title: str, direct: str, figures: dict[str, LoadFigures]) -> None:
    """One load: every subject beside the direct connection of the same run."""
    table = Table(title=title, title_justify="left")
    table.add_column("")
    for column in ("p50 ms", "× direct", "+ ms", "p99 ms", "calls/s", "× direct", "gateway CPU ms/call"):
        table.add_column(column, justify="right")
    table.add_column("upstream CPU", justify="right")
    table.add_column("errors", justify="right")
    base = figures[direct]
    for name, found in figures.items():
        table.add_row(
            name,
            f"{found.p50:.2f}",
            f"{found.p50 / base.p50:.2f}",
            f"{found.p50 - base.p50:.2f}",
            f"{found.quantile(0.99):.2f}",
            f"{found.per_second:.0f}",
            f"{found.per_second / base.per_second:.2f}",
            f"{found.gateway_ms:.3f}" if name != direct else "–",
            f"{found.upstream_ms:.3f}",
            str(len(found.errors)) if found.errors else "",
        )
    console.print(table)
    for name, found in figures.items():
        if found.errors:
            console.print(f"  {name}: {found.errors[0]}", markup=False)

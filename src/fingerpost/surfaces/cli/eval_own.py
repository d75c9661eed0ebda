"""An operator's own requests: written as a set, or routed with and without what people said."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import anyio.to_thread
import click

from fingerpost.errors import ConfigError
from fingerpost.evals.learning import OwnRecord, judge_learning, own_queries
from fingerpost.evals.own import OwnSet
from fingerpost.records import JsonObject, utc_now
from fingerpost.router.learned import CHECK
from fingerpost.surfaces.cli.screen import count, output, print_json, print_lines, table

if TYPE_CHECKING:
    from fingerpost.evals.learning import LearningReport
    from fingerpost.router import Router


def write_set(made: OwnSet, folder: Path, *, as_json: bool) -> None:
    """Both files into the folder, readable by their owner only: requests are people's own words."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _write(folder / "tools.jsonl", made.tools)
        _write(folder / "queries.jsonl", made.queries)
    except OSError as error:
        message = f"{folder} cannot be written: {error.strerror or error}"
        raise ConfigError(message, hint="Name another folder with --out.") from error
    if as_json:
        print_json(
            {"folder": str(folder), "tools": len(made.tools), "queries": len(made.queries), "gone": made.gone}
        )
        return
    written = f"{count(len(made.tools), 'tool')} and {count(len(made.queries), 'request')}"
    gone = f"; {count(made.gone, 'choice')} of tools that are gone left out" if made.gone else ""
    click.echo(f"{written} written to {folder}{gone}")
    if not made.queries:
        click.echo("No tool has worked for a recorded request yet: use some, then run this again.", err=True)


async def compare_learning(router: Router, limit: int) -> LearningReport:
    """The comparison on what this store remembers; kept, so that `fingerpost learned` can tell of it."""
    record = OwnRecord(
        choices=await router.store.choices.recent(limit), said=await router.store.feedback.recent(limit)
    )
    snapshot = router.tools
    queries = own_queries(record, (card.key for card in snapshot.cards))
    report = await anyio.to_thread.run_sync(
        lambda: judge_learning(snapshot, router.settings, queries, record, now=utc_now())
    )
    await router.store.evals.keep(CHECK, report.as_json())
    return report


def show_learning(report: LearningReport, *, as_json: bool) -> int:
    """The verdict and its figures; 1 where it loses, or where nothing can be said."""
    if as_json:
        print_json(report.as_json())
    else:
        print_lines([f"learning from feedback: {report.verdict}", report.reason])
        if report.corrected:
            requests = count(report.corrected, "corrected request")
            first = f"{report.first_before} without it, for {report.first_after} with it"
            print_lines([f"of {requests} the right tool is first for {first}"])
        if report.differences:
            made = table(None, "figure", "without", "with", "95 % of the change", "")
            for one in report.differences:
                interval = f"{one.low:+.3f} … {one.high:+.3f}"
                made.add_row(one.name, f"{one.before:.3f}", f"{one.after:.3f}", interval, one.verdict)
            output().print(made)
    return 0 if report.verdict in ("would help", "no loss") else 1


def _write(path: Path, lines: Iterable[JsonObject]) -> None:
    path.touch(mode=0o600)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")

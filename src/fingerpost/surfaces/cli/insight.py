"""`fingerpost insight`: figures over time, both arms of every rollout, exclusive tools."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from fingerpost.insight import Ledger
from fingerpost.records.codec import to_plain
from fingerpost.surfaces.cli.house import Asked, any_router, read_settings, run
from fingerpost.surfaces.cli.screen import output, plain, print_json, table

if TYPE_CHECKING:
    from rich.table import Table

    from fingerpost.insight import Figures
    from fingerpost.insight.figures import Counted


def show_figures(*, hours: float, **options: Any) -> int:
    """Show figures of the last hours: requests, failures, fallbacks, tokens, time, and rollouts."""
    loaded = read_settings(Asked(options["config"], options["servers"], options["as_json"]))

    async def work() -> int:
        async with any_router(loaded) as router:
            found = await Ledger(router.store, router.live).figures(hours=hours)
            _show(found, as_json=options["as_json"])
            return 0

    return run(work)


def _show(found: Figures, *, as_json: bool) -> None:
    if as_json:
        print_json(to_plain(found))
        return
    whole = table(None, "figure", "value")
    for name, value in _figures(found.totals):
        whole.add_row(name, value)
    output().print(whole)
    by_rollout: dict[str, dict[str, Counted]] = {}
    for one in found.rollouts:
        by_rollout.setdefault(one.rollout, {})[one.arm] = one.figures
    for rollout, arms in by_rollout.items():
        made: Table = table(f"rollout {plain(rollout)}", "figure", *arms)
        columns = [dict(_figures(figures)) for figures in arms.values()]
        for name in columns[0]:
            made.add_row(name, *(column[name] for column in columns))
        output().print(made)


def _figures(counted: Counted) -> Iterator[tuple[str, str]]:
    whole = counted.stages.get("whole")
    ended = sum(counted.outcomes.values())
    yield "requests", f"{counted.requests:,}"
    yield "needed no tool, unclear", f"{counted.no_tool:,}, {counted.unclear:,} of {counted.judged:,}"
    yield "tools spared", _percent(counted.reduction)
    yield "answered", f"{counted.outcomes.get('answered', 0):,} of {ended:,}"
    yield "failed requests", f"{counted.outcomes.get('failed', 0):,}"
    yield "failed calls", f"{counted.failed_calls:,} of {counted.calls:,}"
    yield "recovered by a fallback", f"{counted.recovered:,} of {counted.fallbacks:,}"
    yield "cut results", f"{counted.truncated:,} of {counted.digested:,}"
    yield "tokens read and written", f"{counted.prompt_tokens:,} and {counted.completion_tokens:,}"
    yield "time, median and 95 %", f"{whole.p50:,.0f} and {whole.p95:,.0f} ms" if whole else "-"
    yield "exclusive tool asked for", f"{counted.exclusive_asked:,}"
    taken = f"{counted.exclusive_offered:,}, {counted.exclusive_taken:,}, {counted.exclusive_succeeded:,}"
    yield "and offered, taken, succeeded", taken


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.0%}"

"""`fingerpost compare`: the same request with and without routing, side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fingerpost.errors import ConfigError
from fingerpost.narrow.preselection import SmartRoutingFigures, stored_figures
from fingerpost.records.codec import to_plain
from fingerpost.redaction import scrub
from fingerpost.settings import Settings
from fingerpost.store import Store
from fingerpost.surfaces.cli.comparison import Fallback, mean, measure_all, try_fallbacks, uncached
from fingerpost.surfaces.cli.eval_shadow import read_requests
from fingerpost.surfaces.cli.house import Asked, connect, open_router, read_settings, run, with_store
from fingerpost.surfaces.cli.screen import output, plain, print_json, print_lines, table

if TYPE_CHECKING:
    from fingerpost.surfaces.cli.comparison import Comparison, Way


def compare_routing(
    *, request: tuple[str, ...], requests_file: Path | None, recorded: bool, self_test: bool, **options: Any
) -> int:
    """Show what routing saves for REQUEST: tools, tokens of definitions, and time."""
    if recorded:
        return _show_recorded(options)
    if self_test:
        return _show_fallbacks(options)
    texts = _requests(request, requests_file)
    loaded = read_settings(Asked(options["config"], options["servers"], options["as_json"]))

    async def work() -> list[Comparison]:
        async with open_router(uncached(loaded)) as router:
            await connect(router, wait=options["wait"])
            return await measure_all(router, texts)

    made = run(work)
    whole = made[0] if requests_file is None else mean(made)
    if options["as_json"]:
        _print_json(texts, made, None if requests_file is None else whole)
    else:
        _show(whole, None if requests_file is None else len(made))
    return 0 if whole.without.tools else 1


def _show_recorded(options: Mapping[str, Any]) -> int:
    """How smart routing has done: by every choice in the journal."""

    async def read(store: Store, settings: Settings) -> SmartRoutingFigures:
        del settings
        return await stored_figures(store)

    figures = with_store(options["config"], options["servers"], read)
    if options["as_json"]:
        print_json(to_plain(figures))
    elif not figures.runs:
        print_lines(["No servers were chosen so far: see smart_routing in the settings."])
    else:
        by = f"{figures.by_model:,} by a model, {figures.widened:,} widened by later requests"
        print_lines(
            [
                f"{figures.runs:,} choices of servers, {by}",
                f"tools left out   {figures.reduction:.1%}",
                f"fallback rate    {figures.fallback_rate:.1%} of choices, after which all tools stayed",
                f"success rate     {figures.success_rate:.1%}",
                f"time             {figures.p50_ms:.1f} ms (p50), {figures.p99_ms:.1f} ms (p99)",
                f"tokens saved     {figures.tokens_saved:,}",
            ]
        )
    return 0


def _show_fallbacks(options: Mapping[str, Any]) -> int:
    """The self-test: what happens when the call that chooses servers fails."""
    loaded = read_settings(Asked(options["config"], options["servers"], options["as_json"]))

    async def work() -> list[Fallback]:
        async with open_router(loaded) as router:
            await connect(router, wait=options["wait"])
            if len({card.server for card in router.tools.cards}) < 2:
                message = "there is nothing to choose: fewer than two servers have tools"
                raise ConfigError(message, hint="Connect at least two servers (`fingerpost servers`).")
            return await try_fallbacks(router)

    found = run(work)
    if options["as_json"]:
        print_json([{**to_plain(one), "right": one.is_right} for one in found])
    else:
        print_lines(
            [
                f"{'ok  ' if one.is_right else 'FAIL'} {one.failure}: {one.tools} of {one.of} tools offered "
                f"({plain(one.error or 'no error was told')})"
                for one in found
            ]
        )
    return 0 if all(one.is_right for one in found) else 1


def _requests(request: tuple[str, ...], file: Path | None) -> Sequence[str]:
    """Given behind the command, or in a file, but not both."""
    if (file is None) == (not request):
        message = "give one request, or a file of them with --requests FILE"
        raise click.UsageError(message)
    texts = [" ".join(request)] if file is None else read_requests(file)
    if not texts:
        message = f"{file} holds no request"
        raise click.UsageError(message)
    return texts


def _print_json(texts: Sequence[str], made: Sequence[Comparison], whole: Comparison | None) -> None:
    each = [{"request": scrub(text), **_plain(one)} for text, one in zip(texts, made, strict=True)]
    print_json(each[0] if whole is None else {"requests": each, "mean": _plain(whole)})


def _plain(made: Comparison) -> dict[str, Any]:
    saved = {"tools": made.fewer_tools, "tokens": made.fewer_tokens, "model_time": made.less_time}
    return {**to_plain(made), "saved": saved}


def _show(made: Comparison, requests: int | None) -> None:
    asked = any(way.model is not None for way in made.ways)
    columns = ("", "servers", "tools", "tokens of definitions")
    title = None if requests is None else f"{requests:,} requests, on average"
    shown = table(title, *columns, *(("model ms", "model tokens") if asked else ()))
    for column in shown.columns[1:]:
        column.justify = "right"
    for way in made.ways:
        shown.add_row(plain(way.name), *_cells(way), *(_model_cells(way) if asked else ()))
    screen = output()
    screen.print(shown)
    for line in _summary(made):
        screen.print(plain(line), soft_wrap=True)


def _cells(way: Way) -> tuple[str, ...]:
    return tuple(_figure(value) for value in (way.servers, way.tools, way.tokens))


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value == round(value) else f"{value:,.1f}"


def _model_cells(way: Way) -> tuple[str, str]:
    if way.model is None:
        return "", ""
    if way.model.error is not None:
        return "failed", "see below"
    tokens = "not told" if way.model.tokens is None else _figure(way.model.tokens)
    return f"{way.model.milliseconds:,.0f}", tokens


def _summary(made: Comparison) -> list[str]:
    lines = [
        f"Routing leaves out {made.fewer_tools:.0%} of the tools and {made.fewer_tokens:.0%} of the tokens, "
        f"and adds {made.added_ms:.1f} ms"
        + (f", {made.choosing_ms:.1f} of them for choosing servers." if made.choosing_ms else "."),
    ]
    if made.less_time is not None:
        change = "less" if made.less_time >= 0 else "more"
        lines.append(f"With it the model took {abs(made.less_time):.0%} {change} time, routing included.")
    if made.offered:
        lines.append(f"Offered: {', '.join(made.offered)}")
    lines += [
        f"{way.name}: {way.model.error}"
        for way in made.ways
        if way.model is not None and way.model.error is not None
    ]
    return lines

"""`fingerpost compare`: the same request with and without routing, side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from fingerpost.surfaces.cli.options import house_options, wait_option

if TYPE_CHECKING:
    from fingerpost.surfaces.cli.comparison import Comparison, Way


@click.command()
@click.argument("request", nargs=-1, required=True)
@house_options
@wait_option
def compare(request: tuple[str, ...], **options: Any) -> int:
    """Show what routing saves for REQUEST: tools, tokens of definitions, and time.

    With a model configured (models.lite) it is also asked once each way, with all
    definitions and with those that are offered. No tool is called. Exit code 1 when
    there are no tools.

    \b
    Examples:
      fingerpost compare "put the dentist into my calendar for Tuesday" --servers mcp.json
      fingerpost compare --json "which of my pull requests wait for a review"
    """
    from fingerpost.surfaces.cli.comparison import measure, uncached
    from fingerpost.surfaces.cli.house import Asked, connect, open_router, read_settings, run

    text = " ".join(request)
    loaded = read_settings(Asked(options["config"], options["servers"], options["as_json"]))

    async def work() -> Comparison:
        async with open_router(uncached(loaded)) as router:
            await connect(router, wait=options["wait"])
            return await measure(router, text)

    made = run(work)
    if options["as_json"]:
        _print_json(text, made)
    else:
        _show(made)
    return 0 if made.without.tools else 1


def _print_json(text: str, made: Comparison) -> None:
    from fingerpost.records.codec import to_plain
    from fingerpost.redaction import scrub
    from fingerpost.surfaces.cli.screen import print_json

    fewer = {"tools": made.fewer_tools, "tokens": made.fewer_tokens, "model_time": made.less_time}
    print_json({"request": scrub(text), **to_plain(made), "saved": fewer})


def _show(made: Comparison) -> None:
    from fingerpost.surfaces.cli.screen import output, plain, table

    asked = any(way.model is not None for way in made.ways)
    columns = ("", "servers", "tools", "tokens of definitions")
    shown = table(None, *columns, *(("model ms", "model tokens") if asked else ()))
    for column in shown.columns[1:]:
        column.justify = "right"
    for way in made.ways:
        shown.add_row(plain(way.name), *_cells(way), *(_model_cells(way) if asked else ()))
    screen = output()
    screen.print(shown)
    for line in _summary(made):
        screen.print(plain(line), soft_wrap=True)


def _cells(way: Way) -> tuple[str, ...]:
    return f"{way.servers:,}", f"{way.tools:,}", f"{way.tokens:,}"


def _model_cells(way: Way) -> tuple[str, str]:
    if way.model is None:
        return "", ""
    if way.model.error is not None:
        return "failed", "see below"
    tokens = "not told" if way.model.tokens is None else f"{way.model.tokens:,}"
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

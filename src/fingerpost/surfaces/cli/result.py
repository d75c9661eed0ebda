"""`fingerpost result`: read on where a digest stopped."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from fingerpost.surfaces.cli.colour import styled
from fingerpost.surfaces.cli.options import house_options

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from fingerpost.call.digest import Page, Results
    from fingerpost.settings import Settings
    from fingerpost.store import Store

    Work = Callable[[Results], Awaitable[int]]


_LOOKED_AT = 20  # parts, for the first that is a file


@click.command()
@click.argument("handle")
@click.option("--page", type=click.IntRange(min=1), default=1, show_default=True, help="Which page.")
@click.option(
    "--tokens", type=click.IntRange(min=50), default=2000, show_default=True, help="Tokens to a page."
)
@click.option(
    "--part", type=click.IntRange(min=1), help="Which part (a picture, a file) --out writes; else the first."
)
@click.option(
    "--out",
    "--output",
    "output",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write what was kept aside (a picture, a sound) to this file instead.",
)
@house_options
def result(
    handle: str,
    page: int,
    tokens: int,
    part: int | None,
    output: Path | None,
    config: Path | None,
    servers: Path | None,
    as_json: bool,
) -> int:
    """Show the full result of a call whose digest left something out.

    \b
    Examples:
      fingerpost result res_kqzvbnwtyhdca
      fingerpost result res_kqzvbnwtyhdca --page 2
      fingerpost result res_kqzvbnwtyhdca --out picture.png
    """
    if part is not None and output is None:
        message = "--part needs --out: the file to write it to"
        raise click.UsageError(message)

    async def work(results: Results) -> int:
        if output is not None:
            return await _write_part(results, handle, part or await _first_file(results, handle), output)
        found = await results.page(handle, page=page, tokens=tokens)
        if found is None:
            return _nothing(f"there is no page {page} of {handle}")
        _show(found, as_json=as_json)
        return 0

    return _with_results(config, servers, work)


async def _first_file(results: Results, handle: str) -> int:
    """The first part that is no text; where all are, the first."""
    for part in range(1, _LOOKED_AT + 1):
        found = await results.part(handle, part)
        if found is None:
            break
        if found[0] != "text/plain":
            return part
    return 1


async def _write_part(results: Results, handle: str, part: int, output: Path) -> int:
    import anyio

    found = await results.part(handle, part)
    if found is None:
        return _nothing(f"there is no part {part} of {handle}")
    kind, data = found
    await anyio.Path(output).write_bytes(data)
    click.echo(f"{output}: {len(data):,} bytes of {_plain(kind)}", err=True)
    return 0


def _show(found: Page, *, as_json: bool) -> None:
    from fingerpost.call.digest import shown
    from fingerpost.records.codec import to_plain
    from fingerpost.surfaces.cli.screen import print_json

    if as_json:
        print_json(to_plain(found))
        return
    click.echo(shown(found.text.replace("\r\n", "\n")).replace("\r", "\\x0d"))
    more = f"; next: fingerpost result {found.handle} --page {found.page + 1}"
    click.echo(f"page {found.page} of {found.pages}" + (more if found.page < found.pages else ""), err=True)
    for reference in found.references if found.page == 1 else ():
        click.echo(f"kept aside: {_plain(reference)}", err=True)


def _nothing(what: str) -> int:
    click.echo(styled("nothing found: ", fg="red", bold=True) + _plain(what), err=True)
    click.echo("  fix: results are kept for a while, and newer ones need the room; repeat the call", err=True)
    return 1


def _plain(text: str) -> str:
    from fingerpost.surfaces.cli.screen import plain

    return plain(text)


def _with_results(config: Path | None, servers: Path | None, work: Work) -> int:
    from fingerpost.surfaces.cli.house import with_store

    async def look(store: Store, settings: Settings) -> int:
        from fingerpost.call.digest import Results

        return await work(Results(store.cache, keep_seconds=settings.digest.keep_seconds))

    return with_store(config, servers, look)

"""`fingerpost result`: read on where a digest stopped."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import click

from fingerpost.call.digest import Results, shown
from fingerpost.records.codec import to_plain
from fingerpost.surfaces.cli.colour import styled
from fingerpost.surfaces.cli.house import with_store
from fingerpost.surfaces.cli.screen import plain, print_json

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from fingerpost.call.digest import Page
    from fingerpost.settings import Settings
    from fingerpost.store import Store

    Work = Callable[[Results], Awaitable[int]]


_LOOKED_AT = 20  # parts, for the first that is a file


def show_result(
    *,
    handle: str,
    page: int,
    tokens: int,
    part: int | None,
    output: Path | None,
    config: Path | None,
    servers: Path | None,
    as_json: bool,
) -> int:
    """Show the full result of a call whose digest left something out."""
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
    found = await results.part(handle, part)
    if found is None:
        return _nothing(f"there is no part {part} of {handle}")
    kind, data = found
    await anyio.Path(output).write_bytes(data)
    click.echo(f"{output}: {len(data):,} bytes of {_plain(kind)}", err=True)
    return 0


def _show(found: Page, *, as_json: bool) -> None:
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
    return plain(text)


def _with_results(config: Path | None, servers: Path | None, work: Work) -> int:
    async def look(store: Store, settings: Settings) -> int:
        return await work(Results(store.cache, keep_seconds=settings.digest.keep_seconds))

    return with_store(config, servers, look)

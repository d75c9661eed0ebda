"""`fingerpost import`: one file out of the servers that other MCP clients already know."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.text import Text

from fingerpost.settings.discover import discover
from fingerpost.settings.document import items
from fingerpost.settings.document import table as entries_of
from fingerpost.settings.merge import masked, merge
from fingerpost.surfaces.cli.colour import styled
from fingerpost.surfaces.cli.import_file import content_of, difference, existing, refuse, replace_file
from fingerpost.surfaces.cli.person import confirmed
from fingerpost.surfaces.cli.screen import output, plain, print_json, table

if TYPE_CHECKING:
    from fingerpost.settings.discover import Found
    from fingerpost.settings.merge import Merged


def import_servers(*, target: Path | None, yes: bool, as_json: bool) -> int:
    """Find and merge the configurations of other MCP clients."""
    if target is not None and (reason := refuse(target)) is not None:
        raise click.BadParameter(reason, param_hint="--write")
    if target is not None and as_json and not yes:
        message = "--json with --write needs --yes: there is nobody to ask"
        raise click.UsageError(message)
    everything = discover(Path.home(), Path.cwd(), sys.platform, os.environ)
    here = existing(target)
    found = tuple(one for one in everything if target is None or one.file.resolve() != target.resolve())
    merged = merge((*here, *found))
    if as_json:
        _print_json(found, merged)
    else:
        _print_found(found, merged)
    if target is not None and merged.servers:
        _write(target, merged, yes=yes, quiet=as_json)
    return 0 if merged.servers else 1


def _print_json(found: tuple[Found, ...], merged: Merged) -> None:
    print_json(
        {
            "found": [
                {"client": one.client, "file": one.shown, "servers": [draft.name for draft in one.drafts]}
                for one in found
            ],
            "servers": masked(merged.document()["mcpServers"], merged.secrets, ("mcpServers",)),
            "places": {name: list(places) for name, places in merged.places.items()},
            "renamed": [
                {"name": one.name, "became": one.became, "place": one.place} for one in merged.renamed
            ],
            "secrets": list(merged.secrets),
            "problems": [str(problem) for problem in merged.problems],
        }
    )


def _print_found(found: tuple[Found, ...], merged: Merged) -> None:

    screen = output()
    if not merged.servers:
        screen.print("No servers of other MCP clients were found.")
    else:
        made = table(None, "server", "connects to", "known to", "from")
        safe = entries_of(masked(dict(merged.servers), merged.secrets, ("mcpServers",))) or {}
        for name, entry in safe.items():
            cells = (name, _target(entry), ", ".join(merged.clients[name]), ", ".join(merged.places[name]))
            made.add_row(*(Text(plain(cell)) for cell in cells))
        screen.print(made)
        screen.print(f"{len(merged.servers)} servers in {len(found)} files")
    for one in merged.renamed:
        text = f"{one.name} in {one.place} differs from another server of that name: it becomes {one.became}"
        screen.print(Text(f"renamed: {plain(text)}", style="yellow"))
    for secret in merged.secrets:
        text = f"{secret} is a secret written out; ${{VARIABLE}} keeps it out of files"
        screen.print(Text(f"warning: {plain(text)}", style="yellow"))
    for problem in merged.problems:
        screen.print(Text(f"warning: {plain(str(problem))}", style="yellow"))
        screen.print(Text(f"  fix: {plain(problem.fix)}"))


def _target(entry: object) -> str:
    values = entries_of(entry) or {}
    if values.get("url"):
        return str(values["url"])
    return " ".join(str(word) for word in (values.get("command"), *items(values.get("args"))))


def _write(target: Path, merged: Merged, *, yes: bool, quiet: bool) -> None:
    old, new = content_of(target, merged)
    if old == new:
        click.echo(f"{target} already holds all of them", err=quiet)
        return
    if not quiet:
        for line in difference(old, new, merged.secrets, str(target)):
            click.echo(styled(line, fg={"+": "green", "-": "red"}.get(line[:1])))
    if not yes:
        confirmed(f"Write {target}?", abort=True)
    backup = replace_file(target, new)
    kept = f" (the old one is {backup})" if backup else ""
    click.echo(f"wrote {target}{kept}; use it with --servers {target}", err=quiet)

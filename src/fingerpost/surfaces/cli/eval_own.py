"""Writing an operator's own set, and saying what is in it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import click

from fingerpost.errors import ConfigError
from fingerpost.evals.own import OwnSet
from fingerpost.records import JsonObject
from fingerpost.surfaces.cli.screen import count, print_json


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


def _write(path: Path, lines: Iterable[JsonObject]) -> None:
    path.touch(mode=0o600)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")

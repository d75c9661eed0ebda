"""`fingerpost builtin`: which servers of our own there are, and one of them alone."""

from __future__ import annotations

import os
from pathlib import Path

import click

from fingerpost.builtin import NAMES, Premises, make
from fingerpost.builtin.serving import serve_stdio
from fingerpost.builtin.shelf import ABOUT
from fingerpost.builtin.workspace.server import open_unreviewed
from fingerpost.surfaces.cli.builtin_http import read_key, serve_http
from fingerpost.surfaces.cli.house import Asked, read_settings, run
from fingerpost.surfaces.cli.screen import output, plain, print_json, table
from fingerpost.surfaces.cli.server_commands import KEY_VARIABLE


def run_builtin(
    *,
    name: str | None,
    reviewed: bool,
    http: bool,
    host: str,
    port: int,
    key_file: Path | None,
    config: Path | None,
    servers: Path | None,
    as_json: bool,
) -> int:
    """List our own servers, or run one of them alone, for any MCP client."""
    # Taken out of the environment: programs that the server starts have no business with it.
    key = os.environ.pop(KEY_VARIABLE, None)
    asked = Asked(config, servers, as_json)
    if reviewed:
        return _mark_reviewed(name, asked)
    if name is None:
        return _list(asked)

    server = make(name, _premises(asked))
    if http:
        given = read_key(key, key_file)
        return run(lambda: serve_http(server, asked, host=host, port=port, key=given))

    run(lambda: serve_stdio(server))
    return 0


def _mark_reviewed(name: str | None, asked: Asked) -> int:
    if name != "workspace":
        message = "only the workspace has files to review"
        raise click.BadParameter(message, param_hint="--reviewed")
    names = open_unreviewed(_premises(asked)).mark_reviewed()
    if asked.as_json:
        print_json({"reviewed": names})
        return 0
    for each in names:
        click.echo(f"  {plain(each)}")
    click.echo(f"Reviewed: {len(names)} written since the last time." if names else "Nothing was written.")
    return 0


def _premises(asked: Asked) -> Premises:
    return Premises(settings=read_settings(asked).settings, folder=Path.cwd())


def _list(asked: Asked) -> int:
    premises = _premises(asked)
    on = premises.settings.builtin.enabled
    tools = {name: list(make(name, premises).tools) for name in NAMES}
    if asked.as_json:
        print_json(
            [
                {"name": name, "about": ABOUT[name], "tools": tools[name], "enabled": name in on}
                for name in NAMES
            ]
        )
        return 0
    made = table(None, "name", "on", "what it is", "tools")
    for name in NAMES:
        made.add_row(name, "yes" if name in on else "no", ABOUT[name], ", ".join(tools[name]))
    output().print(made)
    click.echo(
        "Switch one on with builtin.enabled in the settings; run it alone with `fingerpost builtin NAME`."
    )
    return 0

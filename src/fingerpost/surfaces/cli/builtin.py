"""`fingerpost builtin`: which servers of our own there are, and one of them alone."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from fingerpost.surfaces.cli.options import house_options

if TYPE_CHECKING:
    from fingerpost.builtin import Premises
    from fingerpost.surfaces.cli.house import Asked

KEY_VARIABLE: Final = "FINGERPOST_BUILTIN_KEY"
PORT: Final = 8643


@click.command()
@click.argument("name", required=False)
@click.option(
    "--reviewed",
    is_flag=True,
    help="workspace: you have looked at what was written in its folder; commands may run its files again.",
)
@click.option("--http", is_flag=True, help="Serve it at an address instead, for whoever has the key.")
@click.option("--host", default="127.0.0.1", show_default=True, metavar="ADDRESS", help="Where to listen.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=PORT, show_default=True, help="0 takes any free port."
)
@click.option(
    "--key-file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help=f"The key is its first line [default: the variable {KEY_VARIABLE}].",
)
@house_options
def builtin(
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
    """List our own servers, or run one of them alone, for any MCP client.

    Inside of Fingerpost they need no start of their own: name them in builtin.enabled. Alone, a server
    asks nobody before it acts; that is then the client's part.

    \b
    Examples:
      fingerpost builtin                        which there are, and which are switched on
      fingerpost builtin knowledge              the knowledge base, on standard input and output
      fingerpost builtin workspace --reviewed   you have looked at what callers wrote there
      fingerpost builtin knowledge --http --key-file key.txt --port 9000
    """
    import os

    from fingerpost.surfaces.cli.house import Asked

    # Taken out of the environment: programs that the server starts have no business with it.
    key = os.environ.pop(KEY_VARIABLE, None)
    asked = Asked(config, servers, as_json)
    if reviewed:
        return _mark_reviewed(name, asked)
    if name is None:
        return _list(asked)
    from fingerpost.builtin import make
    from fingerpost.surfaces.cli.house import run

    server = make(name, _premises(asked))
    if http:
        from fingerpost.surfaces.cli.builtin_http import read_key, serve_http

        given = read_key(key, key_file)
        return run(lambda: serve_http(server, asked, host=host, port=port, key=given))
    from fingerpost.builtin.serving import serve_stdio

    run(lambda: serve_stdio(server))
    return 0


def _mark_reviewed(name: str | None, asked: Asked) -> int:
    from fingerpost.builtin.workspace.server import open_unreviewed
    from fingerpost.surfaces.cli.screen import plain, print_json

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
    from fingerpost.builtin import Premises
    from fingerpost.surfaces.cli.house import read_settings

    return Premises(settings=read_settings(asked).settings, folder=Path.cwd())


def _list(asked: Asked) -> int:
    from fingerpost.builtin import NAMES, make
    from fingerpost.builtin.shelf import ABOUT
    from fingerpost.surfaces.cli.screen import output, print_json, table

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

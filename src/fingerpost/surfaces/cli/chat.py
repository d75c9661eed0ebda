"""`fingerpost chat`: a conversation."""

from __future__ import annotations

from typing import Any

import click

from fingerpost.surfaces.cli.ask import MODES
from fingerpost.surfaces.cli.options import house_options, profile_option, smart_routing_options, wait_option


@click.command()
@click.option("--conversation", metavar="ID", help="Go on with this conversation, or begin it.")
@click.option("--mode", type=click.Choice(MODES), help="How to answer [default: choose.mode].")
@click.option("--server", metavar="NAME", help="Use only this server's tools (and connect only it).")
@profile_option
@smart_routing_options
@house_options
@wait_option
def chat(**options: Any) -> int:
    """Talk with your tools: each line is a request, and what was said before is remembered.

    Ctrl-C stops an answer, Ctrl-D ends the conversation. /help lists what else
    there is: /tools, /why, /trace, /mode, /model, /approve, /new, /save. Lines may
    come from a pipe, too; then a call that needs you waits for a line with /approve.

    \b
    Examples:
      fingerpost chat --servers mcp.json
      fingerpost chat --conversation garden
    """
    from fingerpost.surfaces.cli.chatting import talk
    from fingerpost.surfaces.cli.house import Asked, read_settings

    if options["as_json"]:
        message = "a conversation is for people; programs use `fingerpost ask --json --conversation ID`"
        raise click.UsageError(message)
    loaded = read_settings(Asked(options["config"], options["servers"], as_json=False))
    return talk(
        loaded,
        conversation=options["conversation"],
        mode=options["mode"],
        server=options["server"],
        profile=options["profile"],
        wait=options["wait"],
    )

"""`fingerpost chat`: a conversation."""

from __future__ import annotations

from typing import Any

import click

from fingerpost.surfaces.cli.chatting import talk
from fingerpost.surfaces.cli.house import Asked, read_settings


def start_chat(**options: Any) -> int:
    """Talk with your tools: each line is a request, and what was said before is remembered."""
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

"""`fingerpost ask`: one request, answered."""

from __future__ import annotations

from typing import Any

import click

from fingerpost.surfaces.cli.asking import Wish, answer
from fingerpost.surfaces.cli.house import Asked, read_settings
from fingerpost.surfaces.cli.person import read_request


def answer_request(*, request: tuple[str, ...], **options: Any) -> int:
    """Answer REQUEST, with a tool where it needs one. With - it is read from stdin."""
    text = _text(request, options["resume"])
    loaded = read_settings(Asked(options["config"], options["servers"], options["as_json"]))
    return answer(loaded, Wish.of(text, options))


def _text(request: tuple[str, ...], resume: str | None) -> str:
    if resume is not None:
        if request:
            message = "--resume goes on with a request that was made; give no other"
            raise click.UsageError(message)
        return ""
    text = read_request() if request == ("-",) else " ".join(request).strip()
    if not text:
        message = "there is no request; write it behind the command, or - to read it from stdin"
        raise click.UsageError(message)
    return text

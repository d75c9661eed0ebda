"""The person at the terminal: what they are called, and what they type."""

from __future__ import annotations

import io
import sys
from typing import Final, cast

import click

LONGEST_LINE: Final = 100_000  # characters
LONGEST_REQUEST: Final = 500_000


def person() -> str:
    """Who decides here, for the trail."""
    from getpass import getuser

    try:
        return getuser()
    except (KeyError, OSError):  # a container without a user database
        return "somebody"


def at_terminal() -> bool:
    """Whether somebody can be asked."""
    return sys.stdin.isatty()


def take_any_text() -> None:
    """Bytes that are no text become question marks, not errors."""
    stream: object = sys.stdin
    if isinstance(stream, io.TextIOWrapper):
        cast("io.TextIOWrapper", stream).reconfigure(errors="replace")


def ask_line(prompt: str) -> str | None:
    """One line from the person; None when there is no more. The prompt goes where progress goes."""
    click.echo(prompt, nl=False, err=True)
    line = sys.stdin.readline(LONGEST_LINE)
    return line.rstrip("\r\n") if line else None


def read_request() -> str:
    """Everything on stdin, as one request."""
    take_any_text()
    text = sys.stdin.read(LONGEST_REQUEST + 1)
    if len(text) > LONGEST_REQUEST:
        message = f"a request may have at most {LONGEST_REQUEST:,} characters"
        raise click.UsageError(message)
    return text.strip()

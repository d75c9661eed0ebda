"""The person at the terminal: what they are called, and what they type."""

from __future__ import annotations

import io
import sys
from getpass import getuser
from typing import Final, cast

import click

from fingerpost.errors import CallError, LimitReached
from fingerpost.surfaces.cli.typed_ahead import forget_typed_ahead
from fingerpost.surfaces.web.peers import is_started_by_tool

LONGEST_LINE: Final = 100_000  # characters
LONGEST_REQUEST: Final = 500_000


class LineTooLong(LimitReached):
    """A line that was not taken: none of it is a request, a command or an answer."""

    def __init__(self) -> None:
        super().__init__(
            f"a line may have at most {LONGEST_LINE:,} characters; this one was left out",
            hint="Put long text into a file and name the file, or send it alone to `fingerpost ask -`.",
        )


def person() -> str:
    """Who decides here, for the trail."""
    try:
        return getuser()
    except (KeyError, OSError):  # a container without a user database
        return "somebody"


def refuse_tools() -> None:
    """Raises `CallError` where a tool started this command: what a tool does is no person's decision."""
    if is_started_by_tool():
        message = "this command was started by a tool, and deciding is for people"
        raise CallError(message, hint="run it in a terminal of your own")


def at_terminal() -> bool:
    """Whether somebody can be asked."""
    return sys.stdin.isatty()


def take_any_text(*, line_end: str | None = None) -> None:
    """Bytes that are no text become question marks, not errors. `line_end`: nothing else ends a line."""
    stream: object = sys.stdin
    if isinstance(stream, io.TextIOWrapper):
        cast("io.TextIOWrapper", stream).reconfigure(errors="replace", newline=line_end)


def read_line() -> str | None:
    """The next line of stdin, whole or not at all; None when there is no more."""
    line = sys.stdin.readline(LONGEST_LINE + 1)
    if len(line) > LONGEST_LINE and not line.endswith("\n"):
        _read_away()
        raise LineTooLong
    return line.rstrip("\r\n") if line else None


def _read_away() -> None:
    """The rest of a line, or its end would be taken for a line of its own: `/approve`, for example."""
    while (piece := sys.stdin.readline(LONGEST_LINE)) and not piece.endswith("\n"):
        pass


def ask_line(prompt: str, *, goes_on: bool = False) -> str | None:
    """One line from the person; None when there is no more. The prompt goes where progress goes.

    What was typed before the prompt does not count, unless this `goes_on` with what they were asked before.
    """
    while True:
        if not goes_on:
            forget_typed_ahead()
        click.echo(prompt, nl=False, err=True)
        try:
            return read_line()
        except LineTooLong as refused:
            click.echo(f"{refused}.", err=True)


def confirmed(question: str, *, err: bool = False, abort: bool = False) -> bool:
    """Whether the person says yes to this question, after they have seen it."""
    forget_typed_ahead()
    return click.confirm(question, err=err, abort=abort)


def read_request() -> str:
    """Everything on stdin, as one request."""
    take_any_text()
    text = sys.stdin.read(LONGEST_REQUEST + 1)
    if len(text) > LONGEST_REQUEST:
        message = f"a request may have at most {LONGEST_REQUEST:,} characters"
        raise click.UsageError(message)
    return text.strip()

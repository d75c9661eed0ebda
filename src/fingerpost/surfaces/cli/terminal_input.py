"""Input from a person: lines, confirmations, and who the person is.

What was typed before a question was shown is discarded, so that it is not taken for the answer.
"""

from __future__ import annotations

import io
import select
import sys
from collections.abc import Sequence
from getpass import getuser
from typing import Final, cast

import click

from fingerpost.errors import CallError, ConfigError, LimitReached
from fingerpost.surfaces.http.local_callers import is_started_by_tool

QUIET_SECONDS: Final = 0.05  # seconds without a key press; longer than the repeat interval of a held key
MAX_FLUSHES: Final = 200  # limits the wait for a user who keeps typing


def discard_typed_ahead() -> None:
    """Discard what was typed before now at a terminal. Lines from a pipe are kept."""
    if sys.stdin.isatty():
        _flush_terminal(sys.stdin.fileno())
        _replace_stdin()


def _flush_terminal(terminal: int) -> None:
    """Flush until the terminal is quiet, because a long paste arrives in pieces."""
    try:
        import termios
    except ImportError:  # not available on all platforms
        return
    try:
        for _ in range(MAX_FLUSHES):
            termios.tcflush(terminal, termios.TCIFLUSH)
            if not select.select([terminal], [], [], QUIET_SECONDS)[0]:
                return
    except termios.error:  # the terminal is gone: the next read reports it
        return


def _replace_stdin() -> None:
    """Replace `sys.stdin`, because the old reader may have buffered lines."""
    old = sys.stdin
    fresh = open(old.fileno(), encoding=old.encoding, errors=old.errors, closefd=False)  # noqa: SIM115
    sys.stdin = fresh


MAX_LINE_LENGTH: Final = 100_000  # characters
MAX_REQUEST_LENGTH: Final = 500_000


class InputLineTooLong(LimitReached):
    """A line was too long and was discarded."""

    def __init__(self) -> None:
        super().__init__(
            f"a line may have at most {MAX_LINE_LENGTH:,} characters; this one was ignored",
            hint="Write long text to a file and name the file, or send it to `fingerpost ask -`.",
        )


def get_person() -> str:
    """Return the name of the user for the audit trail."""
    try:
        return getuser()
    except (KeyError, OSError):  # a container without a user database
        return "unknown user"


def refuse_tools() -> None:
    """Raise `CallError` if a tool has started this command."""
    if is_started_by_tool():
        message = "this command was started by a tool; only people may decide"
        raise CallError(message, hint="run it in a terminal of your own")


def is_at_terminal() -> bool:
    """Return whether stdin is a terminal."""
    return sys.stdin.isatty()


def accept_any_text(*, line_end: str | None = None) -> None:
    """Replace undecodable bytes on stdin; `line_end` is the only line end if given."""
    stream: object = sys.stdin
    if isinstance(stream, io.TextIOWrapper):
        cast("io.TextIOWrapper", stream).reconfigure(errors="replace", newline=line_end)


def read_line() -> str | None:
    """Return the next line of stdin, or None at its end. Raises `InputLineTooLong`."""
    line = sys.stdin.readline(MAX_LINE_LENGTH + 1)
    if len(line) > MAX_LINE_LENGTH and not line.endswith("\n"):
        _skip_line()
        raise InputLineTooLong
    return line.rstrip("\r\n") if line else None


def _skip_line() -> None:
    """Skip the rest of a line, so that it is not taken for another line."""
    while (piece := sys.stdin.readline(MAX_LINE_LENGTH)) and not piece.endswith("\n"):
        pass


def ask_line(prompt: str, *, keep_typed_ahead: bool = False) -> str | None:
    """Prompt on stderr and return one line, or None at the end of stdin.

    What was typed before the prompt is discarded unless `keep_typed_ahead` is set.
    """
    while True:
        if not keep_typed_ahead:
            discard_typed_ahead()
        click.echo(prompt, nl=False, err=True)
        try:
            return read_line()
        except InputLineTooLong as refused:
            click.echo(f"{refused}.", err=True)


def confirm(question: str, *, err: bool = False, abort: bool = False) -> bool:
    """Ask a yes/no question and return the answer; discards what was typed before."""
    discard_typed_ahead()
    try:
        answer = click.confirm(question, err=err)
    except click.Abort as ended:
        if is_at_terminal() or not isinstance(ended.__context__, EOFError):
            raise
        click.echo(err=err)
        message = "no answer was given: stdin is not a terminal"
        raise ConfigError(message, hint="run it in a terminal, or add --yes") from None
    if abort and not answer:
        raise click.Abort
    return answer


def read_request() -> str:
    """Return all of stdin as one request. Raises `UsageError` if it is too long."""
    accept_any_text()
    text = sys.stdin.read(MAX_REQUEST_LENGTH + 1)
    if len(text) > MAX_REQUEST_LENGTH:
        raise click.UsageError(f"a request may have at most {MAX_REQUEST_LENGTH:,} characters")
    return text.strip()


PROMPT: Final = "› "


class LineReader:
    """Reads lines; at a terminal with editing and completion of commands."""

    def __init__(self, commands: Sequence[str]) -> None:
        # A carriage return inside a line must not split it: the second part could be a command.
        accept_any_text(line_end="\n")
        self.is_interactive = is_at_terminal() and sys.stdout.isatty()
        if self.is_interactive:
            _enable_editing(commands)

    def next(self) -> str | None:
        """Return the next line, or None at the end. Ctrl-C raises `KeyboardInterrupt`.

        Raises `InputLineTooLong` for a line that is too long.
        """
        if not self.is_interactive:
            return read_line()
        try:
            line = input(PROMPT)
        except EOFError:
            return None
        if len(line) > MAX_LINE_LENGTH:
            raise InputLineTooLong
        return line


def _enable_editing(commands: Sequence[str]) -> None:
    try:
        import readline  # not available on all platforms: lines are then typed without editing
    except ImportError:
        return

    def complete(prefix: str, number: int) -> str | None:
        found = [command for command in commands if command.startswith(prefix)]
        return found[number] if number < len(found) else None

    readline.set_completer(complete)
    readline.set_completer_delims(" ")
    readline.parse_and_bind("tab: complete")

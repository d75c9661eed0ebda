"""The lines a person types in a conversation: with editing at a terminal, plain from a pipe."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final

from fingerpost.surfaces.cli.person import LONGEST_LINE, LineTooLong, at_terminal, read_line, take_any_text

PROMPT: Final = "› "


class Lines:
    """Reads line by line. At a terminal the arrow keys work, and Tab completes commands."""

    def __init__(self, commands: Sequence[str]) -> None:
        # A carriage return inside of a line must not make two of it: the second could be a command.
        take_any_text(line_end="\n")
        self.typed = at_terminal() and sys.stdout.isatty()
        if self.typed:
            _edit_lines(commands)

    def next(self) -> str | None:
        """The next line; None at the end. Ctrl-C raises `KeyboardInterrupt`.

        A line too long to be taken raises `LineTooLong`; the one after it is next.
        """
        if not self.typed:
            return read_line()
        try:
            line = input(PROMPT)
        except EOFError:
            return None
        if len(line) > LONGEST_LINE:
            raise LineTooLong
        return line


def _edit_lines(commands: Sequence[str]) -> None:
    try:
        import readline  # not everywhere: then lines are typed without editing
    except ImportError:
        return

    def complete(begun: str, number: int) -> str | None:
        found = [command for command in commands if command.startswith(begun)]
        return found[number] if number < len(found) else None

    readline.set_completer(complete)
    readline.set_completer_delims(" ")
    readline.parse_and_bind("tab: complete")

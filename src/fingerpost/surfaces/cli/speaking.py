"""An answer as it is written, with what is going on shown before it and between its parts.

The answer goes to stdout and nothing else does; what goes on is for a terminal on
stderr and is gone when the answer begins.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

import click
from rich.text import Text

from fingerpost.catalog import visible
from fingerpost.events import AttemptStarted, CallProgressed, Event
from fingerpost.surfaces.cli.colour import styled
from fingerpost.surfaces.cli.screen import errors_to
from fingerpost.surfaces.cli.stages import Stages

if TYPE_CHECKING:
    from rich.status import Status

# Kept as they are: line ends, tabs, backslashes (code), and the joiners and marks that Hebrew, Persian
# and emoji need. Everything else one cannot see is written out.
_KEPT: Final = "\n\t\\\u200c\u200d\u200e\u200f\ufe0f"


def readable(text: str) -> str:
    """`text` for a terminal: its lines stay, control characters are made visible."""
    return visible(text.replace("\r", ""), keep=_KEPT)


def note(text: str) -> None:
    """A word beside the answer, on stderr."""
    click.echo(styled(text, dim=True), err=True)


class Speech:
    """One answer on its way to the person."""

    def __init__(self) -> None:
        self._stages = Stages()
        self._screen = errors_to()
        self._status: Status | None = None
        self._said: list[str] = []
        self._in_line = False  # something stands on the line without an end

    def hear(self, heard: str | Event) -> None:
        """A piece of the answer is written; of what happens, the person who waits is told."""
        if isinstance(heard, str):
            self._write(heard)
            return
        # Once the answer has begun only a tool at work is worth interrupting it for.
        if self._said and not isinstance(heard, AttemptStarted | CallProgressed):
            return
        if self._screen.is_terminal and (words := self._stages.words(heard)) is not None:
            self._show(words)

    def end(self, answer: str) -> None:
        """The answer is whole: what was not streamed of it is written now."""
        self.quiet()
        streamed = "".join(self._said).strip()
        if answer.strip() and not streamed.endswith(answer.strip()):
            self._end_line()
            self._write(answer)
        self._end_line()

    def quiet(self) -> None:
        """Nothing is shown as going on any more."""
        if self._status is not None:
            self._status.stop()
            self._status = None

    def stop(self) -> None:
        """The answer ends here, as far as it has come."""
        self.quiet()
        self._end_line()

    def _write(self, text: str) -> None:
        shown = readable(text)
        if not shown:
            return
        self.quiet()
        self._said.append(text)
        click.echo(shown, nl=False)
        sys.stdout.flush()
        self._in_line = not shown.endswith("\n")

    def _end_line(self) -> None:
        if self._in_line:
            click.echo()
            self._in_line = False

    def _show(self, words: str) -> None:
        said = Text(words)  # as text: a tool's name in brackets is no markup
        if self._status is not None:
            self._status.update(said)
            return
        self._end_line()
        self._status = self._screen.status(said)
        self._status.start()

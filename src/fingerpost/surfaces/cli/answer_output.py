"""Writes an answer to stdout as it arrives, and the progress before it to stderr."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import click

from fingerpost.catalog import escape_invisible_except
from fingerpost.events import (
    AttemptFinished,
    AttemptStarted,
    CallFinished,
    CallProgressed,
    Event,
    FallbackTaken,
    HistorySummarised,
    PacketReceived,
    RequestNarrowed,
    RouteBegan,
    SelectionReviewed,
    ShortlistWidened,
    SmartRoutingStart,
    ThoughtNoted,
    ToolSelected,
)
from fingerpost.records import ErrorKind, Mode
from fingerpost.surfaces.cli.screen import clean_text, format_count, open_error_terminal, shorten

if TYPE_CHECKING:
    from rich.console import Console
    from rich.status import Status
MAX_PROGRESS_LENGTH = 100


class ProgressText:
    """Turns events into progress text. Remembers which models select and answer."""

    def __init__(self) -> None:
        self._selecting_model = self._answering_model = "the model"
        self._has_model = False

    def describe(self, event: Event) -> str | None:
        """Return the text to show for the event, or None to keep the current one."""
        if isinstance(event, RouteBegan):
            self._has_model = bool(event.lite or event.prime) and event.mode is not Mode.KEYLESS
            self._selecting_model = event.lite or event.prime or self._selecting_model
            self._answering_model = event.prime or event.lite or self._answering_model
        describe = _PROGRESS_TEXTS.get(type(event))
        text = None if describe is None else describe(self, event)
        return None if text is None else shorten(clean_text(text), MAX_PROGRESS_LENGTH)

    def format_selecting(self) -> str:
        return f", asking {self._selecting_model}…" if self._has_model else ""

    def format_answering(self) -> str:
        return f", asking {self._answering_model}…" if self._has_model else ""


def _describe_narrowed(progress: ProgressText, event: RequestNarrowed) -> str:
    shortlist = event.narrowing.shortlist
    if not shortlist.offered:
        return f"no tool needed{progress.format_answering()}"
    fit = "fits" if len(shortlist.offered) == 1 else "fit"
    of = f"{len(shortlist.offered)} of {format_count(shortlist.considered, 'tool')} {fit}"
    return f"{of}{progress.format_selecting()}"


def _describe_selected(progress: ProgressText, event: ToolSelected) -> str:
    if event.selection is None:
        return f"no tool was chosen{progress.format_answering()}"
    return f"{event.selection.tool} was chosen, checking it"


def _describe_attempt(_: ProgressText, event: AttemptFinished) -> str | None:
    made = event.attempt
    return None if made.error is None else f"{made.tool} failed ({made.error})"


def _describe_finished(progress: ProgressText, event: CallFinished) -> str:
    if event.error is ErrorKind.AUTHORIZATION_REQUIRED:
        return f"{event.tool} needs approval"
    return f"{event.tool} {'answered' if event.success else 'failed'}{progress.format_answering()}"


_PROGRESS_TEXTS: Final[Mapping[type[Event], Callable[[ProgressText, Any], str | None]]] = {
    PacketReceived: lambda _, event: "reading the request",
    RouteBegan: lambda _, event: "reading the request",
    SmartRoutingStart: lambda _, event: f"choosing among {format_count(event.total_servers, 'server')}",
    RequestNarrowed: _describe_narrowed,
    ShortlistWidened: lambda progress, event: (
        f"looking at {format_count(len(event.tools), 'tool')}{progress.format_selecting()}"
    ),
    ToolSelected: _describe_selected,
    SelectionReviewed: lambda _, event: (
        f"the choice was {'approved' if event.review.approved else 'not approved'}"
    ),
    ThoughtNoted: lambda _, event: event.text,
    AttemptStarted: lambda _, event: (
        f"{event.tool}…" if event.number == 1 else f"{event.tool}, attempt {event.number}…"
    ),
    CallProgressed: lambda _, event: event.summary(),
    AttemptFinished: _describe_attempt,
    FallbackTaken: lambda _, event: f"{event.tool} instead…",
    CallFinished: _describe_finished,
    HistorySummarised: lambda _, event: f"{format_count(event.messages, 'earlier message')} summarised",
}


# Kept unchanged: line ends, tabs, backslashes (code), and the joiners and marks that Hebrew, Persian
# and emoji need. All other invisible characters are escaped.
_KEPT_CHARACTERS: Final = "\n\t\\\u200c\u200d\u200e\u200f\ufe0f"


def make_readable(text: str) -> str:
    """Return `text` with control characters made visible; line breaks are kept."""
    return escape_invisible_except(text.replace("\r", ""), keep=_KEPT_CHARACTERS)


class AnswerWriter:
    """Writes one answer to stdout and its progress to stderr."""

    def __init__(self) -> None:
        self._progress = ProgressText()
        self._screen = open_error_terminal()
        self._status: Status | None = None
        self._written: list[str] = []
        self._in_line = False  # the current line is not ended

    def handle(self, output: str | Event) -> None:
        """Write a piece of the answer, or show an event as progress."""
        if isinstance(output, str):
            self._write(output)
            return
        # Once the answer has started, only a running tool interrupts it.
        if self._written and not isinstance(output, AttemptStarted | CallProgressed):
            return
        if self._screen is not None and (words := self._progress.describe(output)) is not None:
            self._show(self._screen, words)

    def finish(self, answer: str) -> None:
        """End the answer: write what was not streamed."""
        self.clear_status()
        streamed = "".join(self._written).strip()
        if answer.strip() and not streamed.endswith(answer.strip()):
            self._end_line()
            self._write(answer)
        self._end_line()

    def clear_status(self) -> None:
        """Remove the progress text."""
        if self._status is not None:
            self._status.stop()
            self._status = None

    def stop(self) -> None:
        """End an answer that was interrupted."""
        self.clear_status()
        self._end_line()

    def _write(self, text: str) -> None:
        shown = make_readable(text)
        if not shown:
            return
        self.clear_status()
        self._written.append(text)
        self._in_line = not shown.endswith("\n")  # before the write: Ctrl-C can arrive right after it
        click.echo(shown, nl=False)
        sys.stdout.flush()

    def _end_line(self) -> None:
        if self._in_line:
            click.echo()
            self._in_line = False

    def _show(self, screen: Console, text: str) -> None:
        from rich.text import Text

        shown = Text(text)  # as plain text: brackets in a tool's name are not markup
        if self._status is not None:
            self._status.update(shown)
            return
        self._end_line()
        self._status = screen.status(shown)
        self._status.start()

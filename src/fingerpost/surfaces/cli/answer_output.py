"""Writes an answer to stdout as it arrives, and the progress before it to stderr."""

from __future__ import annotations

import sys
from functools import singledispatchmethod
from typing import TYPE_CHECKING, Final

import click
from rich.text import Text

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
from fingerpost.surfaces.cli.screen import clean_text, format_count, get_error_output
from fingerpost.surfaces.cli.streams import style_text

if TYPE_CHECKING:
    from rich.status import Status
MAX_PROGRESS_LENGTH = 100


class ProgressText:
    """Turns events into progress text. Remembers which models select and answer."""

    def __init__(self) -> None:
        self._selecting_model = self._answering_model = "the model"
        self._has_model = False

    def describe(self, event: Event) -> str | None:
        """Return the text to show for the event, or None to keep the current one."""
        text = self._describe(event)
        if text is None:
            return None
        text = clean_text(text)
        return text if len(text) <= MAX_PROGRESS_LENGTH else text[: MAX_PROGRESS_LENGTH - 1].rstrip() + "…"

    @singledispatchmethod
    def _describe(self, event: Event) -> str | None:
        return None

    @_describe.register
    def _(self, event: PacketReceived) -> str | None:
        return "reading the request"

    @_describe.register
    def _(self, event: RouteBegan) -> str | None:
        self._has_model = (event.lite or event.prime) is not None
        self._selecting_model = event.lite or event.prime or self._selecting_model
        self._answering_model = event.prime or event.lite or self._answering_model
        return "reading the request"

    @_describe.register
    def _(self, event: SmartRoutingStart) -> str | None:
        return f"choosing among {format_count(event.total_servers, 'server')}"

    @_describe.register
    def _(self, event: RequestNarrowed) -> str | None:
        shortlist = event.narrowing.shortlist
        if not shortlist.offered:
            return f"no tool is needed{self._format_next(self._answering_model)}"
        fit = "fits" if len(shortlist.offered) == 1 else "fit"
        of = f"{len(shortlist.offered)} of {format_count(shortlist.considered, 'tool')} {fit}"
        return f"{of}{self._format_next(self._selecting_model)}"

    @_describe.register
    def _(self, event: ShortlistWidened) -> str | None:
        return (
            f"looking at {format_count(len(event.tools), 'tool')}{self._format_next(self._selecting_model)}"
        )

    @_describe.register
    def _(self, event: ToolSelected) -> str | None:
        if event.selection is None:
            return f"no tool was chosen{self._format_next(self._answering_model)}"
        return f"{event.selection.tool} was chosen, checking it"

    @_describe.register
    def _(self, event: SelectionReviewed) -> str | None:
        return f"the choice was {'approved' if event.review.approved else 'not approved'}"

    @_describe.register
    def _(self, event: ThoughtNoted) -> str | None:
        return event.text

    @_describe.register
    def _(self, event: AttemptStarted) -> str | None:
        return f"{event.tool}…" if event.number == 1 else f"{event.tool}, attempt {event.number}…"

    @_describe.register
    def _(self, event: CallProgressed) -> str | None:
        return event.summary()

    @_describe.register
    def _(self, event: AttemptFinished) -> str | None:
        made = event.attempt
        return None if made.error is None else f"{made.tool} did not work ({made.error})"

    @_describe.register
    def _(self, event: FallbackTaken) -> str | None:
        return f"{event.tool} instead…"

    @_describe.register
    def _(self, event: CallFinished) -> str | None:
        done = f"{event.tool} {'answered' if event.success else 'did not work'}"
        return f"{done}{self._format_next(self._answering_model)}"

    @_describe.register
    def _(self, event: HistorySummarised) -> str | None:
        return f"{format_count(event.messages, 'earlier message')} put into fewer words"

    def _format_next(self, model: str) -> str:
        return f", asking {model}…" if self._has_model else ""


# Kept unchanged: line ends, tabs, backslashes (code), and the joiners and marks that Hebrew, Persian
# and emoji need. All other invisible characters are escaped.
_KEPT_CHARACTERS: Final = "\n\t\\\u200c\u200d\u200e\u200f\ufe0f"


def make_readable(text: str) -> str:
    """Return `text` with control characters made visible; line breaks are kept."""
    return escape_invisible_except(text.replace("\r", ""), keep=_KEPT_CHARACTERS)


def print_note(text: str) -> None:
    """Print a note to stderr."""
    click.echo(style_text(text, dim=True), err=True)


class AnswerWriter:
    """Writes one answer to stdout and its progress to stderr."""

    def __init__(self) -> None:
        self._progress = ProgressText()
        self._screen = get_error_output()
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
        if self._screen.is_terminal and (words := self._progress.describe(output)) is not None:
            self._show(words)

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
        click.echo(shown, nl=False)
        sys.stdout.flush()
        self._in_line = not shown.endswith("\n")

    def _end_line(self) -> None:
        if self._in_line:
            click.echo()
            self._in_line = False

    def _show(self, text: str) -> None:
        shown = Text(text)  # as plain text: brackets in a tool's name are not markup
        if self._status is not None:
            self._status.update(shown)
            return
        self._end_line()
        self._status = self._screen.status(shown)
        self._status.start()

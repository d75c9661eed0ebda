"""Terminal output: consoles, tables, JSON, and text without control characters."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import click

from fingerpost.catalog import escape_invisible_except
from fingerpost.redaction import scrub
from fingerpost.surfaces.cli.streams import is_colour_wanted, style_text

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from fingerpost.records import ToolCard

# A pipe has no width; this one is wide enough for tables and narrow enough for logs.
PIPE_WIDTH = 160


def get_output() -> Console:
    """Return a console for stdout; a pipe has a fixed width."""
    return _open_console(stderr=False)


def get_error_output() -> Console:
    """Return a console for stderr, for progress and warnings."""
    return _open_console(stderr=True)


def open_error_terminal() -> Console | None:
    """Return a console for stderr if it is a terminal. Nothing is loaded where it cannot be one."""
    variables = {"FORCE_COLOR", "TTY_COMPATIBLE"}  # with these, rich takes other outputs for terminals, too
    if not sys.stderr.isatty() and variables.isdisjoint(os.environ):
        return None
    screen = get_error_output()
    return screen if screen.is_terminal else None


def _open_console(*, stderr: bool) -> Console:
    from rich.console import Console

    styles = "auto" if is_colour_wanted() else None
    console = Console(stderr=stderr, color_system=styles, markup=False, highlight=False, emoji=False)
    if not console.is_terminal:
        console.width = PIPE_WIDTH
    return console


def clean_text(text: str) -> str:
    """Return `text` on one line, without secrets and control characters.

    Names and descriptions come from servers: an escape sequence in one could
    recolour, retitle or clear the person's terminal.
    """
    return escape_invisible_except(" ".join(scrub(text).split()))


def cut_sentence(text: str, limit: int = 100) -> str:
    """Return the first sentence of a description, cut to `limit`."""
    line = clean_text(text)
    sentence, dot, _ = line.partition(". ")
    return shorten(sentence + dot.strip(), limit)


def shorten(text: str, limit: int) -> str:
    """Return `text`, cut to `limit` characters."""
    return text if len(text) <= limit else text[: limit - 1].rstrip() + "…"


def format_count(number: int, noun: str) -> str:
    """`1 tool`, `2 tools`."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def format_effect(card: ToolCard) -> str:
    """ "read", or "read?" where it is not certain and a person is asked."""
    return card.effect.value if card.certain else f"{card.effect.value}?"


def build_table(title: str | None, *columns: str, right: Sequence[int] = ()) -> Table:
    """Build a table without box drawing characters. The columns numbered in `right` are aligned right."""
    from rich import box
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for number, column in enumerate(columns):
        table.add_column(column, overflow="fold", justify="right" if number in right else "left")
    return table


def print_table(
    title: str | None,
    columns: Sequence[str],
    rows: Iterable[Sequence[str | Text]],
    *,
    right: Sequence[int] = (),
) -> None:
    """Print a table to stdout. Cells of text are cleaned, a `Text` is printed as it is."""
    table = build_table(title, *columns, right=right)
    for row in rows:
        table.add_row(*(clean_text(cell) if isinstance(cell, str) else cell for cell in row))
    get_output().print(table)


def print_json(value: Any) -> None:
    """Print JSON to stdout."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


def print_lines(lines: Iterable[str]) -> None:
    for line in lines:
        click.echo(line)


def print_error(message: str, fix: str | None = None, *, label: str = "error", err: bool = True) -> None:
    """Print a message in red after its label, and below it how to fix it."""
    click.echo(style_text(f"{label}: ", fg="red", bold=True) + message, err=err)
    if fix:
        click.echo(style_text("  fix: ", fg="green") + fix, err=err)


def print_warning(message: str, *, label: str = "warning") -> None:
    """Print a message to stderr after its label in yellow."""
    click.echo(style_text(f"{label}: ", fg="yellow") + message, err=True)


def print_note(message: str) -> None:
    """Print a note to stderr."""
    print_warning(message, label="note")


def print_dim(message: str) -> None:
    """Print a remark to stderr in a dim colour."""
    click.echo(style_text(message, dim=True), err=True)


def style_change(line: str) -> str:
    """Return a line of a unified diff in the colour of its kind."""
    return style_text(line, fg={"+": "green", "-": "red", "@": "cyan"}.get(line[:1]))

"""Terminal output: consoles, tables, JSON, and text without control characters."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from fingerpost.catalog import escape_invisible_except
from fingerpost.redaction import scrub
from fingerpost.surfaces.cli.streams import is_colour_wanted

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from fingerpost.records import ToolCard

# A pipe has no width; this one is wide enough for tables and narrow enough for logs.
PIPE_WIDTH = 160


def get_output() -> Console:
    """Return a console for stdout; a pipe has a fixed width."""
    return _open_console(stderr=False)


def get_error_output() -> Console:
    """Return a console for stderr, for progress and warnings."""
    return _open_console(stderr=True)


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
    short = sentence + dot.strip()
    return short if len(short) <= limit else short[: limit - 1].rstrip() + "…"


def format_count(number: int, noun: str) -> str:
    """`1 tool`, `2 tools`."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def format_effect(card: ToolCard) -> str:
    """ "read", or "read?" where it is not certain and a person is asked."""
    return card.effect.value if card.certain else f"{card.effect.value}?"


def build_table(title: str | None, *columns: str) -> Table:
    """Build a table without box drawing characters."""
    from rich import box
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def print_json(value: Any) -> None:
    """Print JSON to stdout."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


def print_lines(lines: Sequence[str]) -> None:
    for line in lines:
        click.echo(line)

"""Running the queries of a set: progress on stderr, one line per query where it was asked for."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import click

from fingerpost.errors import ConfigError
from fingerpost.evals.predict import Scope, predictions
from fingerpost.evals.ready import ready_narrower, share_ready
from fingerpost.evals.records import QueryRecord
from fingerpost.evals.shelf import Shelf
from fingerpost.settings import Settings
from fingerpost.surfaces.cli.screen import count, errors_to, plain

if TYPE_CHECKING:
    from rich.progress import Progress

STDOUT = Path("-")
SHOWN = 3


def write_predictions(
    shelf: Shelf, queries: Sequence[QueryRecord], settings: Settings, out: Path, *, top: int, scope: Scope
) -> None:
    """Route every query; each line is on disk before the next query begins."""
    written = 0
    with _opened(out) as file, _progress() as bar:
        indexing = bar.add_task("indexing", total=1.0)
        with ready_narrower(
            shelf.snapshot, settings, progress=lambda done: bar.update(indexing, completed=done)
        ) as narrower:
            bar.update(indexing, completed=1.0)
            _note_missing(share_ready(narrower, settings))
            task = bar.add_task("routing", total=len(queries))
            try:
                for prediction in predictions(shelf, queries, narrower.narrow, top=top, scope=scope):
                    file.write(json.dumps(prediction.as_json()) + "\n")
                    file.flush()
                    written += 1
                    bar.advance(task)
            except KeyboardInterrupt:
                _note(f"stopped: {written:,} of {len(queries):,} predictions are written")
                raise


def note_left_out(shelf: Shelf, offered: int) -> None:
    """Say which tools could not be taken."""
    for line in shelf.left_out[:SHOWN]:
        _note(f"left out: {plain(line)}")
    if (more := len(shelf.left_out) - SHOWN) > 0:
        _note(f"left out: {more:,} more of {count(offered, 'tool')}")


def note_unknown(unknown: Mapping[str, int]) -> None:
    """Say which candidates are no tool of the set."""
    if unknown:
        named = ", ".join(plain(tool) for tool in list(unknown)[:SHOWN])
        more = " …" if len(unknown) > SHOWN else ""
        _note(f"passed over: {count(len(unknown), 'candidate id')} of no tool in the set: {named}{more}")


def _note_missing(share: float) -> None:
    if share < 1:
        _note(f"{1 - share:.0%} of the tools could not be compared by meaning; their words stand in")


def _note(text: str) -> None:
    click.echo(click.style("note: ", fg="yellow") + text, err=True)


@contextlib.contextmanager
def _opened(out: Path) -> Generator[TextIO]:
    if out == STDOUT:
        yield sys.stdout
        return
    try:
        file = out.open("w", encoding="utf-8")
    except OSError as error:
        message = f"{out} cannot be written: {error.strerror or error}"
        raise ConfigError(message, hint="Name another file with --out, or - for stdout.") from error
    with file:
        yield file


def _progress() -> Progress:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    screen = errors_to()
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=screen,
        transient=True,
        disable=not screen.is_terminal,
    )

"""Running the queries of a set: progress on stderr, one line per query where it was asked for."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import click
from anyio.from_thread import start_blocking_portal
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from fingerpost.errors import ConfigError
from fingerpost.evals.predict import Routing, Scope, routings
from fingerpost.evals.ready import ready_narrower, share_ready
from fingerpost.evals.records import Prediction, QueryRecord
from fingerpost.evals.selecting import Selector, with_selections
from fingerpost.evals.shelf import Shelf
from fingerpost.llm import ModelPool, Role
from fingerpost.settings import Settings
from fingerpost.surfaces.cli.colour import styled
from fingerpost.surfaces.cli.screen import count, errors_to, plain

if TYPE_CHECKING:
    from fingerpost.evals.selecting import Tally

STDOUT = Path("-")
SHOWN = 3

Selecting = Callable[[Iterable[Routing]], Iterator[Prediction]]


def write_predictions(
    shelf: Shelf,
    queries: Sequence[QueryRecord],
    settings: Settings,
    out: Path,
    *,
    top: int,
    scope: Scope,
    at_once: int = 0,
) -> None:
    """Route every query; each line is on disk as soon as it is known.

    With `at_once` a model also selects, that many questions at a time.
    """
    written = 0
    with _opened(out) as file, _progress() as bar, _selecting(shelf, settings, at_once) as select:
        indexing = bar.add_task("indexing", total=1.0)
        with ready_narrower(
            shelf.snapshot, settings, progress=lambda done: bar.update(indexing, completed=done)
        ) as narrower:
            bar.update(indexing, completed=1.0)
            _note_missing(share_ready(narrower, settings))
            task = bar.add_task("routing", total=len(queries))
            try:
                for prediction in select(routings(shelf, queries, narrower.narrow, top=top, scope=scope)):
                    file.write(json.dumps(prediction.as_json()) + "\n")
                    file.flush()
                    written += 1
                    bar.advance(task)
            except KeyboardInterrupt:
                _note(f"stopped: {written:,} of {len(queries):,} predictions are written")
                raise


@contextlib.contextmanager
def _selecting(shelf: Shelf, settings: Settings, at_once: int) -> Generator[Selecting]:
    """What makes lines of routed queries: as they are, or each with what a model selects."""
    if not at_once:
        yield lambda routed: (one.prediction for one in routed)
        return

    pool = ModelPool.of(settings.models)
    selector = Selector(pool, shelf, settings)
    _note(f"{plain(pool.name(Role.LITE))} selects for each query; --no-select leaves that out")
    with start_blocking_portal() as portal:
        try:
            yield lambda routed: with_selections(routed, selector, portal, at_once=at_once)
        finally:
            portal.call(pool.aclose)
            _note_tally(selector.tally)


def _note_tally(tally: Tally) -> None:
    tokens = f", {tally.tokens:,} tokens" if tally.tokens else ""
    _note(f"{count(tally.calls, 'question')} to the model{tokens}")
    if tally.failures:
        _note(f"{tally.failures:,} of them failed; the first: {plain(tally.first_failure)}")


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
    click.echo(styled("note: ", fg="yellow") + text, err=True)


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

"""`fingerpost eval`: how well requests find their tools, on a public set or on one's own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from fingerpost.evals.gate import bound
from fingerpost.evals.own import own_set
from fingerpost.evals.predict import settings_for, unknown_candidates
from fingerpost.evals.reading import read_queries, read_tools
from fingerpost.evals.shelf import shelve
from fingerpost.settings import load
from fingerpost.surfaces.cli.eval_own import compare_learning, show_learning, write_set
from fingerpost.surfaces.cli.eval_predict import note_left_out, note_unknown, write_predictions
from fingerpost.surfaces.cli.eval_report import judge
from fingerpost.surfaces.cli.eval_shadow import contrast, read_requests
from fingerpost.surfaces.cli.house import Asked, connect, open_router, read_settings, run
from fingerpost.surfaces.cli.pairs import read_pairs

if TYPE_CHECKING:
    from fingerpost.settings import Loaded, Settings


def write_set_predictions(
    *,
    tools_file: Path,
    queries_file: Path,
    out: Path,
    top: int,
    scope: Literal["catalog", "candidates"],
    limit: int | None,
    lexical: bool,
    select: bool | None,
    at_once: int,
    config: Path | None,
) -> int:
    """Route every query of a set and write one JSON line for each, as soon as it is known."""
    queries = read_queries(queries_file)[:limit]
    tools = read_tools(tools_file)
    given = read_settings(Asked(config, None, as_json=False)).settings
    settings = settings_for(given, queries, top=top, scope=scope, lexical=lexical)
    asked = at_once if _selects(settings, select) else 0
    shelf = shelve(tools, settings)
    note_left_out(shelf, len(tools))
    if scope == "candidates":
        note_unknown(unknown_candidates(shelf, queries))
    write_predictions(shelf, queries, settings, out, top=top, scope=scope, at_once=asked)
    return 0


def _selects(settings: Settings, wanted: bool | None) -> bool:
    """Whether a model selects, too: when there is one, unless told otherwise."""
    configured = settings.models.lite is not None or settings.models.prime is not None
    if wanted and not configured:
        message = "no model is configured that could select; set models.lite or models.prime"
        raise click.UsageError(message)
    return configured if wanted is None else wanted


def report_predictions(
    *,
    predictions: tuple[Path, ...],
    queries_file: Path,
    tools_file: Path | None,
    least: tuple[str, ...],
    most: tuple[str, ...],
    keep: str | None,
    as_json: bool,
) -> int:
    """Judge one run of predictions, or compare two."""
    if len(predictions) > 2:
        message = "give one file of predictions, or two to compare"
        raise click.UsageError(message)
    bounds = [*(bound(text, least=True) for text in least), *(bound(text, least=False) for text in most)]
    return judge(queries_file, tools_file, predictions, bounds, keep=keep, as_json=as_json)


def make_own_set(
    *,
    out: Path | None,
    compare: bool,
    limit: int,
    config: Path | None,
    servers: Path | None,
    as_json: bool,
    wait: float,
) -> int:
    """Make a set of your own tools, and of the requests for which one of them worked."""
    if (out is None) is not compare:
        message = "say either where the set goes (--out FOLDER), or --compare"
        raise click.UsageError(message)
    loaded = read_settings(Asked(config, servers, as_json))

    async def work() -> Any:
        async with open_router(loaded) as router:
            await connect(router, wait=wait)
            if compare:
                return await compare_learning(router, limit)
            return own_set(router.tools.cards, await router.store.choices.recent(limit))

    if out is None:
        return show_learning(run(work), as_json=as_json)
    made = run(work)
    write_set(made, out, as_json=as_json)
    return 0 if made.queries else 1


def compare_settings(
    *,
    requests_file: Path | None,
    changes: tuple[str, ...],
    config: Path | None,
    servers: Path | None,
    as_json: bool,
    wait: float,
) -> int:
    """Route the same requests under your settings and under changed ones, and show what differs."""
    if not changes:
        message = "nothing is changed; name what the new configuration sets with --set NAME=VALUE"
        raise click.UsageError(message)
    before = read_settings(Asked(config, servers, as_json))
    after = _changed(config, servers, changes)
    given = None if requests_file is None else read_requests(requests_file)
    return contrast(before, after.settings, given, wait=wait, as_json=as_json)


def _changed(config: Path | None, servers: Path | None, changes: tuple[str, ...]) -> Loaded:
    given = {name: _typed(value) for name, value in read_pairs(changes).items()}
    return load(config=config, servers=servers, overrides=given)


def _typed(value: Any) -> Any:
    """`8` is a number and `false` is no text: settings are typed, the shell is not."""
    try:
        return json.loads(value) if isinstance(value, str) else value
    except ValueError:
        return value

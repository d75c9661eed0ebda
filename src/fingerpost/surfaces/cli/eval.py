"""`fingerpost eval`: how well requests find their tools, on a public set or on one's own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from fingerpost.surfaces.cli.options import house_options, wait_option

if TYPE_CHECKING:
    from fingerpost.settings import Loaded, Settings

FILE = click.Path(path_type=Path, dir_okay=False)
OUT = click.Path(path_type=Path, dir_okay=False, allow_dash=True)
DIRECTORY = click.Path(path_type=Path, file_okay=False)

FORMAT = """\b
A set is two files with one JSON object per line:
  tools.jsonl    {"id", "server", "name", "description", "input_schema"}
  queries.jsonl  {"id", "query", "relevant": [tool ids], "needs_tool": true|false}
                 and, where there are some: "relevant_groups": [[ids that do equally well], ...],
                 "candidates": [tool ids], "scope": "candidates"|"world",
                 "history": [{"role", "content"}, ...], "lang"
"""


@click.group(name="eval", epilog=FORMAT)
def eval_() -> None:
    """Measure how well requests find their tools.

    `predict` writes what the router says, `report` judges it, `own` makes a set
    of your own tools and past choices, `shadow` compares two configurations.

    \b
    Examples:
      fingerpost eval own --out mine --servers mcp.json
      fingerpost eval predict --tools mine/tools.jsonl --queries mine/queries.jsonl --out now.jsonl
      fingerpost eval report --queries mine/queries.jsonl now.jsonl --least recall@5=0.8
    """


@eval_.command()
@click.option("--tools", "tools_file", type=FILE, required=True, metavar="FILE", help="The set's tools.")
@click.option(
    "--queries", "queries_file", type=FILE, required=True, metavar="FILE", help="The set's queries."
)
@click.option("--out", type=OUT, required=True, metavar="FILE", help="Where predictions go; - is stdout.")
@click.option(
    "--top",
    type=click.IntRange(1, 200),
    default=20,
    show_default=True,
    help="How many tools a ranking holds.",
)
@click.option(
    "--scope",
    type=click.Choice(["catalog", "candidates"]),
    default="catalog",
    show_default=True,
    help="Route over all tools, or a query that has candidates among those only.",
)
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Only the first N queries.")
@click.option("--lexical", is_flag=True, help="By words alone, without the encoder.")
@click.option(
    "--select/--no-select",
    default=None,
    help="Have the configured model select a tool for each query [default: when there is one].",
)
@click.option(
    "--at-once",
    type=click.IntRange(1, 64),
    default=4,
    show_default=True,
    metavar="N",
    help="Questions to the model at a time.",
)
@click.option("--config", type=FILE, metavar="FILE", help="The settings file, as for every command.")
def predict(
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
    """Route every query of a set and write one JSON line for each, as soon as it is known.

    A line is {"id", "need": {"verdict", "score"}, "fit", "ranking": [{"tool", "score"}, ...], "ms"}.
    With a model configured (models.lite or models.prime) it is asked which of the offered tools it
    takes, and the line has "selection": {"tool", "arguments", "confidence"}. Stopping it (Ctrl-C)
    loses nothing that was written.

    \b
    Examples:
      fingerpost eval predict --tools tools.jsonl --queries queries.jsonl --out predictions.jsonl
      fingerpost eval predict --tools tools.jsonl --queries queries.jsonl --out - --limit 100 --lexical
    """
    from fingerpost.evals.predict import settings_for, unknown_candidates
    from fingerpost.evals.reading import read_queries, read_tools
    from fingerpost.evals.shelf import shelve
    from fingerpost.surfaces.cli.eval_predict import note_left_out, note_unknown, write_predictions
    from fingerpost.surfaces.cli.house import Asked, read_settings

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


@eval_.command()
@click.argument("predictions", nargs=-1, required=True, type=FILE)
@click.option(
    "--queries", "queries_file", type=FILE, required=True, metavar="FILE", help="The set's queries."
)
@click.option("--tools", "tools_file", type=FILE, metavar="FILE", help="The set's tools, to check labels by.")
@click.option("--least", multiple=True, metavar="NAME=VALUE", help="Exit code 1 when the figure is below.")
@click.option("--most", multiple=True, metavar="NAME=VALUE", help="Exit code 1 when the figure is above.")
@click.option(
    "--keep", metavar="NAME", help="Keep the figures in the store; the console and the API show them."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON for programs instead of tables.")
def report(
    predictions: tuple[Path, ...],
    queries_file: Path,
    tools_file: Path | None,
    least: tuple[str, ...],
    most: tuple[str, ...],
    keep: str | None,
    as_json: bool,
) -> int:
    """Judge one run of predictions, or compare two.

    With two files the second is compared with the first, query by query, with
    95 % intervals; bounds (--least, --most) apply to the last.

    \b
    Examples:
      fingerpost eval report --queries queries.jsonl predictions.jsonl
      fingerpost eval report --queries queries.jsonl before.jsonl after.jsonl
      fingerpost eval report --queries queries.jsonl now.jsonl --least recall@5=0.8 --most ms_p50=10
      fingerpost eval report --queries queries.jsonl now.jsonl --keep "our tools"
    """
    from fingerpost.evals.gate import bound
    from fingerpost.surfaces.cli.eval_report import judge

    if len(predictions) > 2:
        message = "give one file of predictions, or two to compare"
        raise click.UsageError(message)
    bounds = [*(bound(text, least=True) for text in least), *(bound(text, least=False) for text in most)]
    return judge(queries_file, tools_file, predictions, bounds, keep=keep, as_json=as_json)


@eval_.command()
@click.option("--out", type=DIRECTORY, metavar="FOLDER", help="Where the two files go.")
@click.option("--compare", is_flag=True, help="Say whether learning from feedback would help.")
@click.option("--limit", type=click.IntRange(min=1), default=2000, show_default=True, help="Newest choices.")
@house_options
@wait_option
def own(
    out: Path | None,
    compare: bool,
    limit: int,
    config: Path | None,
    servers: Path | None,
    as_json: bool,
    wait: float,
) -> int:
    """Make a set of your own tools, and of the requests for which one of them worked.

    Requests are kept as the store holds them: masked and short. Exit code 1
    when there is no such request yet.

    With --compare your own requests are routed with and without what people said of the other ones
    (`flags.learn_from_feedback`), query by query with 95 % intervals. Exit code 1 when that loses
    something, or when there is too little to say.

    \b
    Examples:
      fingerpost eval own --out mine --servers mcp.json
      fingerpost eval own --compare --servers mcp.json
    """
    from fingerpost.evals.own import own_set
    from fingerpost.surfaces.cli.eval_own import compare_learning, write_set
    from fingerpost.surfaces.cli.house import Asked, connect, open_router, read_settings, run

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
        from fingerpost.surfaces.cli.eval_own import show_learning

        return show_learning(run(work), as_json=as_json)
    made = run(work)
    write_set(made, out, as_json=as_json)
    return 0 if made.queries else 1


@eval_.command()
@click.option(
    "--requests",
    "requests_file",
    type=FILE,
    metavar="FILE",
    help='One request per line, as text or as {"query"}; by default those recorded.',
)
@click.option(
    "--set", "changes", multiple=True, metavar="NAME=VALUE", help="A setting of the new configuration."
)
@house_options
@wait_option
def shadow(
    requests_file: Path | None,
    changes: tuple[str, ...],
    config: Path | None,
    servers: Path | None,
    as_json: bool,
    wait: float,
) -> int:
    """Route the same requests under your settings and under changed ones, and show what differs.

    Nothing is called. Exit code 1 when a request is offered other tools.

    \b
    Examples:
      fingerpost eval shadow --servers mcp.json --set narrow.max_tools=8
      fingerpost eval shadow --requests requests.txt --set flags.dense_scores=false
    """
    from fingerpost.surfaces.cli.eval_shadow import contrast, read_requests
    from fingerpost.surfaces.cli.house import Asked, read_settings

    if not changes:
        message = "nothing is changed; name what the new configuration sets with --set NAME=VALUE"
        raise click.UsageError(message)
    before = read_settings(Asked(config, servers, as_json))
    after = _changed(config, servers, changes)
    given = None if requests_file is None else read_requests(requests_file)
    return contrast(before, after.settings, given, wait=wait, as_json=as_json)


def _changed(config: Path | None, servers: Path | None, changes: tuple[str, ...]) -> Loaded:
    from fingerpost.settings import load
    from fingerpost.surfaces.cli.pairs import read_pairs

    given = {name: _typed(value) for name, value in read_pairs(changes).items()}
    return load(config=config, servers=servers, overrides=given)


def _typed(value: Any) -> Any:
    """`8` is a number and `false` is no text: settings are typed, the shell is not."""
    import json

    try:
        return json.loads(value) if isinstance(value, str) else value
    except ValueError:
        return value

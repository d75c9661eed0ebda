"""`fingerpost eval`: make predictions, judge them, build a set of past requests, compare settings."""

from __future__ import annotations

import contextlib
import json
import math
import signal
import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TextIO, cast

import anyio.to_thread
import click
from anyio.from_thread import start_blocking_portal
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from fingerpost.catalog import Snapshot
from fingerpost.errors import ConfigError
from fingerpost.evals.datasets import (
    EvalCatalog,
    OperatorSet,
    Prediction,
    QueryRecord,
    read_predictions,
    read_queries,
    read_tools,
)
from fingerpost.evals.feedback import OperatorHistory, build_own_queries, evaluate_feedback
from fingerpost.evals.metrics import (
    EvalMeasure,
    MeasureDifference,
    MetricBound,
    compare_runs,
    compute_measures,
    find_unmet_bounds,
)
from fingerpost.evals.predictions import (
    EvalSelector,
    RankingScope,
    RoutedQuery,
    ShadowReport,
    TuningReport,
    build_eval_settings,
    compare_offers,
    count_unknown_candidates,
    get_ready_share,
    iterate_routings,
    iterate_with_selections,
    open_ready_narrower,
    remove_repeated_requests,
    tune_meaning_weight,
)
from fingerpost.llm import ModelPool, Role
from fingerpost.records import JsonObject, utc_now
from fingerpost.records.codec import to_plain
from fingerpost.router.feedback import CHECK_NAME
from fingerpost.settings import Loaded, Settings, load
from fingerpost.surfaces.cli.common import (
    connect_servers,
    read_pairs,
    read_settings,
    run_on_router,
    run_on_store,
)
from fingerpost.surfaces.cli.options import CommonOptions
from fingerpost.surfaces.cli.screen import (
    build_table,
    clean_text,
    cut_sentence,
    format_count,
    get_error_output,
    get_output,
    print_error,
    print_json,
    print_lines,
    print_note,
    print_table,
)

if TYPE_CHECKING:
    from fingerpost.evals.feedback import FeedbackReport
    from fingerpost.evals.predictions import SelectionTally
    from fingerpost.router import Router
    from fingerpost.store import Store


def write_set(operator_set: OperatorSet, folder: Path, *, as_json: bool) -> None:
    """Write both files into the folder, with mode 0600."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _write_lines(folder / "tools.jsonl", operator_set.tools)
        _write_lines(folder / "queries.jsonl", operator_set.queries)
    except OSError as error:
        message = f"{folder} cannot be written: {error.strerror or error}"
        raise ConfigError(message, hint="Name another folder with --out.") from error
    if as_json:
        print_json(
            {
                "folder": str(folder),
                "tools": len(operator_set.tools),
                "queries": len(operator_set.queries),
                "gone": operator_set.gone,
            }
        )
        return
    tools, queries = len(operator_set.tools), len(operator_set.queries)
    written = f"{format_count(tools, 'tool')} and {format_count(queries, 'request')}"
    gone = (
        f"; {format_count(operator_set.gone, 'choice')} of tools that are gone left out"
        if operator_set.gone
        else ""
    )
    click.echo(f"{written} written to {folder}{gone}")
    if not operator_set.queries:
        click.echo("No tool has worked for a recorded request yet: use some, then run this again.", err=True)


async def compare_learning(router: Router, limit: int) -> FeedbackReport:
    """Compare routing with and without learning on recorded requests, and keep the report."""
    record = OperatorHistory(
        choices=await router.store.choices.list_recent(limit),
        feedback=await router.store.feedback.list_recent(limit),
    )
    snapshot = router.tools
    queries = build_own_queries(record, (card.key for card in snapshot.cards))
    report = await anyio.to_thread.run_sync(
        lambda: evaluate_feedback(snapshot, router.settings, queries, record, now=utc_now())
    )
    await router.store.evals.add(CHECK_NAME, report.as_json())
    return report


def show_learning(report: FeedbackReport, *, as_json: bool) -> int:
    """Print the report. Return 1 if learning loses, or if there is too little data."""
    if as_json:
        print_json(report.as_json())
    else:
        print_lines([f"learning from feedback: {report.verdict}", report.reason])
        if report.corrected:
            requests = format_count(report.corrected, "corrected request")
            first = f"{report.first_before} without it, for {report.first_after} with it"
            print_lines([f"of {requests} the right tool is first for {first}"])
        if report.differences:
            print_table(
                None,
                ("figure", "without", "with", "95 % of the change", ""),
                (
                    (
                        one.name,
                        f"{one.before:.3f}",
                        f"{one.after:.3f}",
                        f"{one.low:+.3f} … {one.high:+.3f}",
                        one.verdict,
                    )
                    for one in report.differences
                ),
            )
    return 0 if report.verdict in ("would help", "no loss") else 1


def _write_lines(path: Path, lines: Iterable[JsonObject]) -> None:
    path.touch(mode=0o600)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


STDOUT = Path("-")
MAX_SHOWN_NAMES = 3

SelectionStep = Callable[[Iterable[RoutedQuery]], Iterator[Prediction]]


def write_predictions(
    catalog: EvalCatalog,
    queries: Sequence[QueryRecord],
    settings: Settings,
    out: Path,
    *,
    top: int,
    scope: RankingScope,
    at_once: int = 0,
) -> None:
    """Route every query and write each prediction at once.

    With `at_once` a model also selects, that many questions at a time.
    """
    written = 0
    with (
        _open_output(out) as file,
        _build_progress() as bar,
        _open_selection(catalog, settings, at_once) as select,
    ):
        indexing = bar.add_task("indexing", total=1.0)
        with open_ready_narrower(
            catalog.snapshot, settings, progress=lambda done: bar.update(indexing, completed=done)
        ) as narrower:
            bar.update(indexing, completed=1.0)
            if (share := get_ready_share(narrower, settings)) < 1:
                print_note(f"{100 * (1 - share):.0f} % of the tools were compared by words alone")
            task = bar.add_task("routing", total=len(queries))
            try:
                for prediction in select(
                    iterate_routings(catalog, queries, narrower.narrow, top=top, scope=scope)
                ):
                    with defer_interrupt():
                        file.write(json.dumps(prediction.as_json()) + "\n")
                        file.flush()
                        written += 1
                    bar.advance(task)
            except KeyboardInterrupt:
                print_note(f"stopped: {written:,} of {len(queries):,} predictions are written")
                raise


@contextlib.contextmanager
def defer_interrupt() -> Generator[None]:
    """Raise an interrupt of this block after it, so that what is written and what is counted agree."""
    arrived: list[int] = []
    handler = signal.signal(signal.SIGINT, lambda number, _frame: arrived.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
    if arrived:
        signal.raise_signal(signal.SIGINT)


@contextlib.contextmanager
def _open_selection(catalog: EvalCatalog, settings: Settings, at_once: int) -> Generator[SelectionStep]:
    """Yield a function that turns routings into predictions, with a model's selection if `at_once`."""
    if not at_once:
        yield lambda routed: (one.prediction for one in routed)
        return

    pool = ModelPool.of(settings.models)
    selector = EvalSelector(pool, catalog, settings)
    print_note(f"{clean_text(pool.name(Role.LITE))} selects for each query; --no-select leaves that out")
    with start_blocking_portal() as portal:
        try:
            yield lambda routed: iterate_with_selections(routed, selector, portal, concurrency=at_once)
        finally:
            portal.call(pool.aclose)
            _note_tally(selector.tally)


def _note_tally(tally: SelectionTally) -> None:
    tokens = f", {tally.tokens:,} tokens" if tally.tokens else ""
    print_note(f"{format_count(tally.calls, 'question')} to the model{tokens}")
    if tally.failures:
        print_note(f"{tally.failures:,} of them failed; the first: {clean_text(tally.first_failure)}")


def note_left_out(catalog: EvalCatalog, offered: int) -> None:
    """Print which tools were left out."""
    for line in catalog.left_out[:MAX_SHOWN_NAMES]:
        print_note(f"left out: {clean_text(line)}")
    if (more := len(catalog.left_out) - MAX_SHOWN_NAMES) > 0:
        print_note(f"left out: {more:,} more of {format_count(offered, 'tool')}")


def note_unknown(unknown: Mapping[str, int]) -> None:
    """Print which candidates are not in the set."""
    if unknown:
        named = ", ".join(clean_text(tool) for tool in list(unknown)[:MAX_SHOWN_NAMES])
        more = " …" if len(unknown) > MAX_SHOWN_NAMES else ""
        print_note(
            f"passed over: {format_count(len(unknown), 'candidate id')} of no tool in the set: {named}{more}"
        )


@contextlib.contextmanager
def _open_output(out: Path) -> Generator[TextIO]:
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


def _build_progress() -> Progress:
    screen = get_error_output()
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=screen,
        transient=True,
        disable=not screen.is_terminal,
    )


def show_report(
    queries_file: Path,
    tools_file: Path | None,
    files: Sequence[Path],
    bounds: Sequence[MetricBound],
    *,
    keep: str | None = None,
    as_json: bool,
) -> int:
    """Print the report and keep it under a name if given. Return 1 if a bound is not met."""
    queries = read_queries(queries_file)
    if tools_file is not None:
        _note_unknown_labels(queries, tools_file)
    runs = [_measure_run(path, queries) for path in files]
    broken = find_unmet_bounds(bounds, runs[-1])
    compared = compare_runs(runs[0], runs[1]) if len(runs) == 2 else None
    report = _convert_report(runs[-1], compared, broken)
    if keep is not None:
        name = keep

        async def add_report(store: Store, _: Settings) -> None:
            await store.evals.add(name, report)

        run_on_store(CommonOptions(), add_report)
    if as_json:
        print_json(report)
    elif compared is not None:
        _show_differences(compared, files)
    else:
        _show_measures(runs[0], files[0])
    for text in broken:
        print_error(text, label="not met")
    return 1 if broken else 0


def _measure_run(path: Path, queries: Sequence[QueryRecord]) -> list[EvalMeasure]:
    predictions = read_predictions(path)
    if missing := sum(query.id not in predictions for query in queries):
        print_note(f"{path} has no line for {missing:,} of the {len(queries):,} queries; they are left out")
    found = compute_measures(queries, predictions)
    if not found:
        message = f"{path} holds no prediction for any of these queries"
        raise ConfigError(message, hint="Name the queries the predictions were made for.")
    return found


def _note_unknown_labels(queries: Sequence[QueryRecord], tools_file: Path) -> None:
    known = {tool.id for tool in read_tools(tools_file)}
    labels = {tool for query in queries for group in query.wanted_groups for tool in group}
    if unknown := sorted(labels - known):
        named = ", ".join(clean_text(tool) for tool in unknown[:3])
        more = " …" if len(unknown) > 3 else ""
        labels_text = format_count(len(unknown), "label")
        print_note(f"{labels_text} name no tool of the set and can never be found: {named}{more}")


def _show_measures(found: Sequence[EvalMeasure], path: Path) -> None:
    print_table(
        str(path),
        ("figure", "value", "queries", "what it is"),
        ((one.name, _format_number(one.name, one.value), f"{len(one.ids):,}", one.about) for one in found),
        right=(1, 2),
    )


def _show_differences(found: Sequence[MeasureDifference], files: Sequence[Path]) -> None:
    title = f"{files[1]} compared with {files[0]}"
    columns = ("figure", "before", "after", "change", "95 % interval", "queries", "")
    shown = build_table(title, *columns, right=range(1, 6))
    colours = {"better": "green", "worse": "red"}
    for one in found:
        low, high = (_format_number(one.name, value, signed=True) for value in (one.low, one.high))
        interval = f"{low} … {high}"
        shown.add_row(
            one.name,
            _format_number(one.name, one.before),
            _format_number(one.name, one.after),
            _format_number(one.name, one.change, signed=True),
            interval,
            f"{one.queries:,}",
            one.verdict,
            style=colours.get(one.verdict),
        )
    get_output().print(shown)


def _format_number(name: str, value: float, *, signed: bool = False) -> str:
    digits = 2 if name.startswith("ms_") else 4
    return f"{value:+.{digits}f}" if signed else f"{value:.{digits}f}"


def _convert_report(
    found: Sequence[EvalMeasure], compared: Sequence[MeasureDifference] | None, broken: Sequence[str]
) -> dict[str, Any]:
    report: dict[str, Any] = {
        "figures": {
            measure.name: {
                "value": _make_finite(measure.value),
                "queries": len(measure.ids),
                "about": measure.about,
            }
            for measure in found
        },
        "not_met": list(broken),
    }
    if compared is not None:
        report["compared"] = {
            one.name: {
                "before": _make_finite(one.before),
                "after": _make_finite(one.after),
                "change": _make_finite(one.change),
                "interval": [_make_finite(one.low), _make_finite(one.high)],
                "queries": one.queries,
                "verdict": one.verdict,
            }
            for one in compared
        }
    return report


def _make_finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


MAX_RECORDED_REQUESTS = 500
MAX_SHOWN_ROWS = 20


def read_requests(path: Path) -> Sequence[str]:
    """Read one request per line: text, or an object with a `query`."""
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeError) as error:
        message = f"{path} cannot be read: {error}"
        raise ConfigError(message, hint="Name a text file with one request per line.") from error
    return remove_repeated_requests(_parse_request(line) for line in lines)


def _parse_request(line: str) -> str:
    if line.lstrip().startswith("{"):
        try:
            value: object = json.loads(line)
        except ValueError:
            return line
        if isinstance(value, dict):
            query = cast("dict[str, object]", value).get("query")
            return query if isinstance(query, str) else line
    return line


def _compare_configurations(
    before: Loaded, after: Settings, given: Sequence[str] | None, wait: float
) -> ShadowReport:
    """Route the requests, or those recorded, under both settings."""

    async def gather(router: Router) -> tuple[Snapshot, Sequence[str]]:
        await connect_servers(router, wait=wait)
        if given is not None:
            return router.tools, given
        recorded = await router.store.choices.list_recent(MAX_RECORDED_REQUESTS)
        return router.tools, remove_repeated_requests(choice.request for choice in recorded)

    snapshot, requests = run_on_router(before, gather)
    if not requests:
        message = "there are no requests to compare"
        raise ConfigError(message, hint="Give some with --requests FILE; none are recorded in the store yet.")
    with open_ready_narrower(snapshot, before.settings) as old, open_ready_narrower(snapshot, after) as new:
        return compare_offers(requests, old.narrow, new.narrow)


def _show_shadow(found: ShadowReport) -> None:
    click.echo(
        f"{len(found.differing):,} of {format_count(len(found.contrasts), 'request')} "
        f"({100 * found.share:.0f} %) would be offered other tools"
    )
    if not found.differing:
        return
    print_table(
        None,
        ("tool", "newly offered", "no longer"),
        ((tool, str(gained), str(lost)) for tool, gained, lost in found.count_moved_tools()[:MAX_SHOWN_ROWS]),
    )
    print_table(
        None,
        ("request", "newly offered", "no longer"),
        (
            (Text(cut_sentence(one.request, 60)), ", ".join(one.gained), ", ".join(one.lost))
            for one in found.differing[:MAX_SHOWN_ROWS]
        ),
    )


def _convert_shadow(found: ShadowReport) -> dict[str, Any]:
    return {
        "requests": len(found.contrasts),
        "differing": len(found.differing),
        "share": round(found.share, 4),
        "tools": [
            {"tool": tool, "gained": gained, "lost": lost} for tool, gained, lost in found.count_moved_tools()
        ],
        "contrasts": [{**to_plain(one), "gained": one.gained, "lost": one.lost} for one in found.differing],
    }


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
    given = read_settings(CommonOptions(config)).settings
    settings = build_eval_settings(given, queries, top=top, scope=scope, lexical=lexical)
    concurrency = at_once if _should_select(settings, select) else 0
    catalog = EvalCatalog.from_tools(tools, settings)
    note_left_out(catalog, len(tools))
    if scope == "candidates":
        note_unknown(count_unknown_candidates(catalog, queries))
    write_predictions(catalog, queries, settings, out, top=top, scope=scope, at_once=concurrency)
    return 0


def tune_weights(
    *, tools_file: Path, queries_file: Path, limit: int | None, config: Path | None, as_json: bool
) -> int:
    """Find the share of meaning in the text score that ranks the tools of a set best. Nothing is changed."""
    queries = read_queries(queries_file)[:limit]
    tools = read_tools(tools_file)
    settings = build_eval_settings(
        read_settings(CommonOptions(config)).settings, queries, top=20, scope="catalog"
    )
    if not settings.flags.dense_scores:
        message = "meaning does not count: flags.dense_scores is false"
        raise ConfigError(message, hint="Switch it on to tune it: FINGERPOST_FLAGS__DENSE_SCORES=true.")
    catalog = EvalCatalog.from_tools(tools, settings)
    note_left_out(catalog, len(tools))
    with _build_progress() as bar, open_ready_narrower(catalog.snapshot, settings) as narrower:
        if (share := get_ready_share(narrower, settings)) < 1:
            message = f"{100 * (1 - share):.0f} % of the tools could not be compared by meaning"
            raise ConfigError(message, hint="Is the encoder there? See narrow.encoder.")
        task = bar.add_task("routing", total=len(queries))
        report = tune_meaning_weight(catalog, queries, narrower, settings, progress=lambda: bar.advance(task))
    if as_json:
        print_json(
            {
                "best": report.best,
                "better": report.is_better,
                "shares": {
                    f"{share:g}": {one.name: one.value for one in found if one.name in _TUNED_FIGURES}
                    for share, found in report.measures.items()
                },
            }
        )
    else:
        _show_tuning(report, settings.narrow.encoder)
    return 0


_TUNED_FIGURES = ("recall@1", "recall@5", "ndcg@10")


def _show_tuning(report: TuningReport, encoder: str) -> None:
    rows: list[tuple[str, ...]] = []
    for share, found in report.measures.items():
        figures = {one.name: f"{one.value:.3f}" for one in found}
        rows.append((f"{share:g}", *(figures[name] for name in _TUNED_FIGURES)))
    print_table(f"share of meaning, encoder {clean_text(encoder)}", ("share", *_TUNED_FIGURES), rows)
    for one in report.differences:
        figures = f"{one.before:.3f} today, {one.after:.3f} tuned ({one.low:+.3f} … {one.high:+.3f})"
        print_lines([f"{one.name} on queries not tuned on: {figures}"])
    if report.is_better:
        print_lines([f"Tuning helps. Add to your settings:\n\n[narrow]\nmeaning_weight = {report.best:g}"])
    else:
        print_lines(["Tuning shows no clear gain on queries it has not seen: leave the setting as it is."])


def _should_select(settings: Settings, wanted: bool | None) -> bool:
    """Return whether a model selects, too. Raises `UsageError` if there is none."""
    configured = settings.models.lite is not None or settings.models.prime is not None
    if wanted and not configured:
        raise click.UsageError("no model is configured that could select; set models.lite or models.prime")
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
        raise click.UsageError("give one file of predictions, or two to compare")
    bounds = [
        *(MetricBound.parse(text, is_minimum=True) for text in least),
        *(MetricBound.parse(text, is_minimum=False) for text in most),
    ]
    return show_report(queries_file, tools_file, predictions, bounds, keep=keep, as_json=as_json)


def make_own_set(*, out: Path | None, compare: bool, limit: int, common: CommonOptions, wait: float) -> int:
    """Make a set of your own tools, and of the requests for which one of them worked."""
    if (out is None) is not compare:
        raise click.UsageError("say either where the set goes (--out FOLDER), or --compare")

    async def compare_own(router: Router) -> FeedbackReport:
        await connect_servers(router, wait=wait)
        return await compare_learning(router, limit)

    async def collect_own(router: Router) -> OperatorSet:
        await connect_servers(router, wait=wait)
        return OperatorSet.from_choices(router.tools.cards, await router.store.choices.list_recent(limit))

    if out is None:
        return show_learning(run_on_router(common, compare_own), as_json=common.as_json)
    operator_set = run_on_router(common, collect_own)
    write_set(operator_set, out, as_json=common.as_json)
    return 0 if operator_set.queries else 1


def compare_settings(
    *, requests_file: Path | None, changes: tuple[str, ...], common: CommonOptions, wait: float
) -> int:
    """Route the same requests under your settings and under changed ones, and show what differs."""
    if not changes:
        message = "nothing is changed; name what the new configuration sets with --set NAME=VALUE"
        raise click.UsageError(message)
    before = read_settings(common)
    changed = {name: _parse_value(value) for name, value in read_pairs(changes).items()}
    after = load(config=common.config, servers=common.servers, overrides=changed).settings
    given = None if requests_file is None else read_requests(requests_file)
    found = _compare_configurations(before, after, given, wait)
    if common.as_json:
        print_json(_convert_shadow(found))
    else:
        _show_shadow(found)
    return 1 if found.differing else 0


def _parse_value(value: Any) -> Any:
    """Parse JSON such as `8` or `false`; other text is returned as it is."""
    try:
        return json.loads(value) if isinstance(value, str) else value
    except ValueError:
        return value

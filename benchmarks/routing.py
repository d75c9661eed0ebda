"""How well requests find their tools: one table over many sets, beside what others find on the same.

    python -m benchmarks routing --data FOLDER
    python -m benchmarks.routing --data FOLDER --encoder minilm.onnx --encoders FOLDER_OF_FAMILIES

A set in the folder is a folder with `tools.jsonl` and `queries.jsonl` (see `fingerpost eval --help`).
Without `--data`, our own requests are used: the tenth of them that training leaves out.

An encoder that has seen a set's source in training has an advantage there; such sets carry a star.
`--encoders` names a folder with one encoder per family of sources (`A.onnx` …), each trained without
that family: with it every figure is of a source the encoder has not seen, and there are no stars.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean

from rich.console import Console
from rich.table import Table

from benchmarks.baselines import best_of, bm25, fastmcp_search, vectors_alone
from benchmarks.routing_encoders import Encoders
from benchmarks.routing_sets import EIGHT, Set, sets_in
from fingerpost import Settings
from fingerpost.evals.datasets import EvalCatalog, Prediction, QueryRecord
from fingerpost.evals.metrics import compute_measures
from fingerpost.evals.predictions import (
    MAX_WAIT_S,
    RankingScope,
    build_eval_settings,
    iterate_routings,
    open_ready_narrower,
)
from fingerpost.narrow.components import build_default_components
from fingerpost.narrow.scorer import ScorerRequest, split_sentences
from fingerpost.narrow.signals.intents import is_only_asking
from fingerpost.records import Effect
from fingerpost.settings.model import FlagSettings

SAMPLE = 400
RECALLS = ("recall@1", "recall@5", "recall@10", "all@10", "question_writes")
JUDGED = ("need_accuracy", "need_false_positives", "fit_auc")
TITLES = {
    "recall@1": "R@1",
    "recall@5": "R@5",
    "recall@10": "R@10",
    "all@10": "all needed tools among the first ten",
    "question_writes": "questions whose first tool changes something, lower is better",
    "need_accuracy": "need: right",
    "need_false_positives": "need: false positives, lower is better",
    "fit_auc": "fit: AUC among candidates",
    "ms_p50": "milliseconds per query, median",
}

Answer = Callable[[Set, Sequence[QueryRecord], RankingScope], list[Prediction]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One way to route, and whether it has a say on need and fit."""

    name: str
    answer: Answer
    judges: bool = False


@dataclass
class RoutingFigures:
    """What every way came to on every set: figure → way → set → value."""

    values: dict[str, dict[str, dict[str, float]]] = field(
        default_factory=dict[str, dict[str, dict[str, float]]]
    )

    def take(self, way: str, name: str, found: Mapping[str, float], figures: Sequence[str]) -> None:
        for figure in figures:
            if not math.isnan(found.get(figure, math.nan)):
                self.values.setdefault(figure, {}).setdefault(way, {})[name] = found[figure]


def ours(encoders: Encoders, **off: bool) -> Answer:
    """The router itself, with some of its parts switched off."""

    def answer(source: Set, queries: Sequence[QueryRecord], scope: RankingScope) -> list[Prediction]:
        base = Settings()
        flags = base.flags.model_copy(update=off)
        settings = build_eval_settings(
            base.model_copy(update={"flags": flags}),
            queries,
            top=20,
            scope=scope,
            lexical=not flags.dense_scores,
        )
        shelf = EvalCatalog.from_tools(source.tools, settings)
        parts = encoders.parts(source.name, settings)
        with open_ready_narrower(shelf.snapshot, settings, parts=parts) as narrower:
            routings = iterate_routings(shelf, queries, narrower.narrow, scope=scope)
            return [routing.prediction for routing in routings]

    return answer


def score_by_meaning(encoders: Encoders) -> Answer:
    """The second witness of ours alone: best sentences and glosses included, nothing else."""

    def answer(source: Set, queries: Sequence[QueryRecord], _: RankingScope) -> list[Prediction]:
        settings = build_eval_settings(Settings(), queries, top=20, scope="catalog")
        shelf = EvalCatalog.from_tools(source.tools, settings)
        cards = shelf.snapshot.cards
        reader = build_default_components(
            settings.model_copy(update={"flags": FlagSettings(dense_scores=False)})
        ).reader
        with encoders.scorer(source.name, settings) as scorer:
            scorer.prepare(cards)
            scorer.wait(MAX_WAIT_S)
            return [
                best_of(
                    shelf,
                    query,
                    lambda text: scorer.scores(
                        ScorerRequest(text=text, sentences=split_sentences(text), signals=reader.read(text)),
                        cards,
                    ),
                )
                for query in queries
            ]

    return answer


def ways(encoders: Encoders) -> list[Way]:
    """Baselines first, then ours: each witness alone, both, and both without one of the other parts."""
    found = [
        Way(name="BM25 (bm25s)", answer=bm25),
        Way(name="FastMCP BM25 search", answer=fastmcp_search),
    ]
    if (untrained := encoders.untrained) is not None:
        plain = encoders.open(untrained)
        found.append(Way(name="MiniLM alone", answer=lambda s, q, _: vectors_alone(s, q, plain.encode)))
    found.append(Way(name="ours: words", answer=ours(encoders, dense_scores=False), judges=True))
    if not encoders.can_compare_meanings:
        return found
    found.append(Way(name="ours: meaning", answer=score_by_meaning(encoders)))
    return [
        *found,
        Way(name="ours", answer=ours(encoders), judges=True),
        Way(name="  without intent signals", answer=ours(encoders, intent_signals=False)),
        Way(name="  without splitting", answer=ours(encoders, split_needs=False)),
        Way(name="  without producers", answer=ours(encoders, producers=False)),
    ]


def measure(sets: Sequence[Set], tried: Sequence[Way], say: Callable[[str], None]) -> RoutingFigures:
    """Every way on every set."""
    figures = RoutingFigures()
    for source in sets:
        for way in tried:
            say(f"{source.name}: {way.name.strip()}")
            if source.found:
                answered = way.answer(source, source.found, "catalog")
                found = summary(source.found, answered) | measure_questions(source, answered)
                figures.take(way.name, source.name, found, (*RECALLS, "ms_p50"))
            if source.judged and way.judges:
                found = summary(source.judged, way.answer(source, source.judged, "candidates"))
                figures.take(way.name, source.name, found, JUDGED)
    return figures


def measure_questions(source: Set, answered: Sequence[Prediction]) -> dict[str, float]:
    """The share of requests that only ask and whose first tool changes something."""
    catalog = EvalCatalog.from_tools(source.tools, Settings())
    changing = {
        catalog.ids[card.key] for card in catalog.snapshot.cards if card.effect.value is not Effect.READ
    }
    asking = {query.id for query in source.found if is_only_asking(query.query)}
    firsts = [one.ranking[0].tool for one in answered if one.id in asking and one.ranking]
    if not firsts or not changing:
        return {}
    return {"question_writes": sum(tool in changing for tool in firsts) / len(firsts)}


def summary(queries: Sequence[QueryRecord], answered: Sequence[Prediction]) -> dict[str, float]:
    return {
        one.name: one.value
        for one in compute_measures(queries, {prediction.id: prediction for prediction in answered})
    }


def show(figures: RoutingFigures, sets: Sequence[Set], starred: frozenset[str], console: Console) -> None:
    """All figures in one table: a block for each, a line for each way, a column for each set."""
    eight = [source.name for source in sets if source.name in EIGHT]
    title = "Requests and their tools (%)" + ("; * the encoder has seen this source" if starred else "")
    table = Table(title=title, title_justify="left")
    table.add_column("", no_wrap=True)
    if eight:
        table.add_column(f"mean\nof {len(eight)}", justify="right", style="bold")
    for source in sets:
        star = "*" if source.name in starred else ""
        table.add_column(f"{source.name}{star}".replace("_", "\n").replace(", ", "\n"), justify="right")
    for figure, by_way in figures.values.items():
        table.add_section()
        table.add_row(TITLES[figure], style="bold")
        for way, by_set in by_way.items():
            scale = 1 if figure == "ms_p50" else 100
            cells = [_cell(by_set.get(source.name), scale) for source in sets]
            values = [by_set[name] for name in eight if name in by_set]
            average = [_cell(mean(values) if len(values) == len(eight) else None, scale)] if eight else []
            table.add_row(f"  {way}", *average, *cells)
    console.print(table)


def _cell(value: float | None, scale: int) -> str:
    return "" if value is None else f"{value * scale:.1f}"


def run(
    data: Path | None,
    *,
    sample: int = SAMPLE,
    encoder: Path | None = None,
    families: Path | None = None,
    only: Sequence[str] = (),
) -> None:
    """Measure and print."""
    console = Console(width=220)
    sets = [source for source in sets_in(data, sample) if not only or source.name in only]
    if not sets:
        console.print(f"no sets in {data or 'our own data'}")
        return
    with tempfile.TemporaryDirectory() as folder, console.status("measuring") as status:
        encoders = Encoders(folder=Path(folder), untrained=encoder, families=families)
        starred = frozenset(source.name for source in sets if encoders.has_seen(source.name))
        figures = measure(sets, ways(encoders), status.update)
    show(figures, sets, starred, console)


def main() -> None:
    reader = argparse.ArgumentParser(prog="python -m benchmarks.routing", description=__doc__)
    reader.add_argument("--data", type=Path, help="a folder of public routing sets")
    reader.add_argument("--encoder", type=Path, help="an untrained encoder (.onnx), as a baseline")
    reader.add_argument("--encoders", type=Path, help="a folder with an encoder per family (A.onnx …)")
    reader.add_argument("--sample", type=int, default=SAMPLE, help="queries per set")
    reader.add_argument("--only", nargs="*", default=(), help="only these sets")
    asked = reader.parse_args()
    run(
        asked.data,
        sample=asked.sample,
        encoder=asked.encoder,
        families=asked.encoders,
        only=asked.only,
    )


if __name__ == "__main__":
    main()

"""The router's answers to a set's queries, one by one, as they are found.

Every query is routed afresh: no answer comes from memory, and nothing learned
from past choices counts, or an operator's own set would be answered from its own
labels. The time that is reported is that of narrowing alone, the query's own
vectors included.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final, Literal

from fingerpost.evals.records import Prediction, QueryRecord, RankingEntry
from fingerpost.evals.shelf import EvalCatalog
from fingerpost.frozen import frozen
from fingerpost.narrow.request import NarrowRequest
from fingerpost.records import Narrowing
from fingerpost.settings import Settings

RankingScope = Literal["catalog", "candidates"]
NarrowFunction = Callable[[NarrowRequest], Narrowing]

MAX_RANKING_LENGTH: Final = 200  # as many as the settings allow
MAX_THREADS: Final = 8


@frozen
class RoutedQuery:
    """One query, what narrowing found for it, and the line that says so."""

    query: QueryRecord
    found: Narrowing
    prediction: Prediction


def build_eval_settings(
    settings: Settings,
    queries: Sequence[QueryRecord],
    *,
    top: int,
    scope: RankingScope,
    lexical: bool = False,
) -> Settings:
    """The same settings, without memory between queries and with rankings as long as asked for."""
    places = top
    if scope == "candidates":  # the ranking of a candidate list holds all of them
        places = max([top, *(len(query.candidates or ()) for query in queries)])
    threads = max(settings.narrow.threads, min(os.cpu_count() or 1, MAX_THREADS))  # to fill the index
    flags = {"narrow_cache": False} | ({"dense_scores": False} if lexical else {})
    return settings.model_copy(
        update={
            "narrow": settings.narrow.model_copy(
                update={"candidates": min(places, MAX_RANKING_LENGTH), "threads": threads}
            ),
            "flags": settings.flags.model_copy(update=flags),
        }
    )


def iterate_predictions(
    eval_catalog: EvalCatalog,
    queries: Sequence[QueryRecord],
    narrow: NarrowFunction,
    *,
    top: int = 20,
    scope: RankingScope = "catalog",
) -> Iterator[Prediction]:
    """One prediction per query, in order."""
    return (
        routed.prediction for routed in iterate_routings(eval_catalog, queries, narrow, top=top, scope=scope)
    )


def iterate_routings(
    eval_catalog: EvalCatalog,
    queries: Sequence[QueryRecord],
    narrow: NarrowFunction,
    *,
    top: int = 20,
    scope: RankingScope = "catalog",
) -> Iterator[RoutedQuery]:
    """The same, with what each prediction was made from."""
    for query in queries:
        among = query.candidates if scope == "candidates" else None
        request = NarrowRequest(
            text=query.query,
            history=query.history,
            allowed=None if among is None else eval_catalog.get_keys(among),
        )
        began = time.perf_counter()
        found = narrow(request)
        ms = (time.perf_counter() - began) * 1000
        prediction = Prediction(
            id=query.id,
            verdict=found.need.verdict.value,
            need=found.need.score,
            fit=found.shortlist.fit,
            ranking=_build_ranking(eval_catalog, found, top if among is None else MAX_RANKING_LENGTH),
            ms=ms,
        )
        yield RoutedQuery(query=query, found=found, prediction=prediction)


def _build_ranking(eval_catalog: EvalCatalog, found: Narrowing, max_length: int) -> tuple[RankingEntry, ...]:
    """The set's ids in the order of the shortlist; several cards of one id count once."""
    best: dict[str, float] = {}
    for candidate in found.shortlist.candidates:
        best.setdefault(eval_catalog.ids[candidate.tool], candidate.score)
    return tuple(RankingEntry(tool=tool, score=score) for tool, score in list(best.items())[:max_length])


def count_unknown_candidates(eval_catalog: EvalCatalog, queries: Sequence[QueryRecord]) -> dict[str, int]:
    """Candidate ids that are no tool of the set, and how many queries name each."""
    counts: dict[str, int] = {}
    for query in queries:
        for tool in query.candidates or ():
            if tool not in eval_catalog.keys:
                counts[tool] = counts.get(tool, 0) + 1
    return counts

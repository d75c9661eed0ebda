"""Evaluate whether learning from feedback would improve routing of an operator's own requests."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from fingerpost.catalog import Snapshot
from fingerpost.evals.datasets import Prediction, QueryRecord, build_prediction, build_request_id
from fingerpost.evals.metrics import MeasureDifference, compare_runs, compute_measures
from fingerpost.evals.predictions import build_eval_settings, open_ready_narrower
from fingerpost.frozen import frozen
from fingerpost.narrow.components import build_default_components
from fingerpost.narrow.feedback import MAX_KEPT_VECTORS, Corrections, RequestVectors
from fingerpost.narrow.history_scorer import HistoryScorer
from fingerpost.narrow.narrower import Narrower
from fingerpost.narrow.request import NarrowRequest
from fingerpost.records import Choice, Feedback, FeedbackVerdict, Json, JsonObject
from fingerpost.settings import Settings

FOLDS: Final = 5
MIN_REQUESTS: Final = 20
JUDGED_MEASURES: Final = ("recall@1", "recall@5", "mrr")
_RANKING_LENGTH: Final = 20
_REQUEST_WORD: Final = re.compile(r"[^\W_]+")


@frozen
class OperatorHistory:
    """The choices and feedback in an operator's store, newest first."""

    choices: Sequence[Choice]
    feedback: Sequence[Feedback]


@frozen
class FeedbackReport:
    """The effect of learning from feedback."""

    requests: int
    feedback: int
    differences: tuple[MeasureDifference, ...]
    corrected: int = 0  # requests with a correction
    first_before: int = 0  # of these, requests with the right tool first without learning
    first_after: int = 0  # the same with learning

    @property
    def verdict(self) -> str:
        """The verdict. It is `would help` or `loses` only if a whole confidence interval shows it."""
        if self.requests < MIN_REQUESTS or not self.feedback:
            return "too little to say"
        found = {one.verdict for one in self.differences}
        if "worse" in found:
            return "loses"
        return "would help" if "better" in found else "no loss"

    @property
    def reason(self) -> str:
        """One sentence with the figures."""
        if self.requests < MIN_REQUESTS or not self.feedback:
            return (
                f"{self.requests} requests and {self.feedback} words of people are recorded; "
                f"it takes {MIN_REQUESTS} requests and one word"
            )
        changes = ", ".join(f"{one.name} {one.before:.3f} → {one.after:.3f}" for one in self.differences)
        return f"on requests it was not told about: {changes}"

    def as_json(self) -> JsonObject:
        figures: list[Json] = [
            {
                "name": one.name,
                **{key: round(getattr(one, key), 4) for key in ("before", "after", "low", "high")},
                "verdict": one.verdict,
            }
            for one in self.differences
        ]
        return {
            "verdict": self.verdict,
            "reason": self.reason,
            "requests": self.requests,
            "feedback": self.feedback,
            "figures": figures,
            "corrected": {
                "requests": self.corrected,
                "first_before": self.first_before,
                "first_after": self.first_after,
            },
        }


def build_own_queries(record: OperatorHistory, tools: Iterable[str]) -> list[QueryRecord]:
    """Return each request once with its right tool, from feedback or else from a successful choice."""
    known = frozenset(tools)
    right: dict[str, tuple[str, str]] = {}
    wrong: set[tuple[str, str]] = set()
    for one in record.feedback:
        if one.right is not None and one.right in known:
            right.setdefault(normalize_request(one.request), (one.request, one.right))
        if one.wrong is not None:
            wrong.add((normalize_request(one.request), one.wrong))
    for choice in record.choices:
        words = normalize_request(choice.request)
        if choice.worked and choice.tool in known and (words, choice.tool) not in wrong:
            right.setdefault(words, (choice.request, choice.tool))
    return [
        QueryRecord(id=build_request_id(text, [tool]), query=text, relevant=(tool,), needs_tool=True)
        for words, (text, tool) in right.items()
        if words
    ]


def normalize_request(text: str) -> str:
    """Return the words of the request. Requests with the same words are equal."""
    return " ".join(_REQUEST_WORD.findall(text.casefold()))


def evaluate_feedback(
    snapshot: Snapshot,
    settings: Settings,
    queries: Sequence[QueryRecord],
    record: OperatorHistory,
    *,
    now: datetime,
) -> FeedbackReport:
    """Route every request with and without the feedback on the other requests. Blocks; no tool is called."""
    flags = settings.flags.model_copy(update={"learn_from_feedback": True})
    on = settings.model_copy(update={"flags": flags})
    on = build_eval_settings(on, queries, top=_RANKING_LENGTH, scope="catalog")
    history_scorer, corrections = HistoryScorer(), Corrections()
    half_life = timedelta(days=settings.learning.half_life_days)
    parts = build_default_components(on, history=history_scorer, corrections=corrections)
    with open_ready_narrower(snapshot, on, parts=parts) as narrower:
        vectors = None if narrower.parts.meaning is None else RequestVectors(narrower.encode)
        if vectors is not None:
            vectors.fill([one.request for one in (*record.feedback, *record.choices)], MAX_KEPT_VECTORS)

        def learn(left_out: frozenset[str], *, use_feedback: bool) -> None:
            """Learn from all requests except `left_out`. Use the feedback only if `use_feedback` is true."""
            choices = [one for one in record.choices if normalize_request(one.request) not in left_out]
            feedback = [one for one in record.feedback if normalize_request(one.request) not in left_out]
            feedback = feedback if use_feedback else []
            rows = None if vectors is None else vectors.get_rows([one.request for one in choices])
            history_scorer.learn(choices, vectors=rows)
            rows = None if vectors is None else vectors.get_rows([one.request for one in feedback])
            corrections.learn(feedback, now=now, half_life=half_life, vectors=rows)

        before: dict[str, Prediction] = {}
        after: dict[str, Prediction] = {}
        for part in _split_folds(queries):
            left_out = frozenset(normalize_request(query.query) for query in part)
            learn(left_out, use_feedback=False)
            before |= _predict_all(narrower, part)
            learn(left_out, use_feedback=True)
            after |= _predict_all(narrower, part)
        corrected = _find_corrected_queries(queries, record.feedback)
        learn(frozenset(), use_feedback=False)
        first_before = _count_first_right(_predict_all(narrower, corrected), corrected)
        learn(frozenset(), use_feedback=True)
        first_after = _count_first_right(_predict_all(narrower, corrected), corrected)
    measures = [compute_measures(queries, found) for found in (before, after)]
    compared = compare_runs(*measures) if queries else []
    return FeedbackReport(
        requests=len(queries),
        feedback=len(record.feedback),
        differences=tuple(one for one in compared if one.name in JUDGED_MEASURES),
        corrected=len(corrected),
        first_before=first_before,
        first_after=first_after,
    )


def _split_folds(queries: Sequence[QueryRecord]) -> Iterator[list[QueryRecord]]:
    """Split the requests into folds that are the same in every run."""
    for number in range(FOLDS):
        part = [query for query in queries if zlib.crc32(query.id.encode()) % FOLDS == number]
        if part:
            yield part


def _predict_all(narrower: Narrower, queries: Sequence[QueryRecord]) -> dict[str, Prediction]:
    found = {query.id: narrower.narrow(NarrowRequest(text=query.query)) for query in queries}
    return {
        id_: build_prediction(
            id_, one, ((it.tool, it.score) for it in one.shortlist.candidates), top=_RANKING_LENGTH
        )
        for id_, one in found.items()
    }


def _find_corrected_queries(
    queries: Sequence[QueryRecord], feedback: Sequence[Feedback]
) -> list[QueryRecord]:
    """Return the corrected requests with the tool of the latest correction."""
    bad = [one for one in reversed(feedback) if one.verdict is FeedbackVerdict.BAD]
    named = {normalize_request(one.request): one.should_have for one in bad if one.should_have is not None}
    right = [(query, named.get(normalize_request(query.query))) for query in queries]
    return [replace(query, relevant=(tool,)) for query, tool in right if tool is not None]


def _count_first_right(found: Mapping[str, Prediction], queries: Sequence[QueryRecord]) -> int:
    firsts = ((query, found[query.id].ranking[:1]) for query in queries)
    return sum(entry.tool in query.relevant for query, first in firsts for entry in first)

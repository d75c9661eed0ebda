"""Would learning from feedback help on one's own requests? Judged on requests it was not told about.

The requests are dealt into parts. Each part is routed twice, with what people said of all
other requests and without it; what was said of the requests of the part itself is left out
both times, and so is what came of them. So a gain is one on paraphrases and neighbours, and
a loss shows where a correction reaches further than it should. How the corrected requests
themselves fare is told apart: that they come out right is what the corrections are for.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final, Protocol

from fingerpost.catalog import Snapshot
from fingerpost.evals.compare import Difference, differences
from fingerpost.evals.measures import measures
from fingerpost.evals.own import request_id
from fingerpost.evals.predict import settings_for
from fingerpost.evals.ready import ready_narrower
from fingerpost.evals.records import Prediction, QueryRecord, Ranked
from fingerpost.frozen import frozen
from fingerpost.narrow.experience import Experience
from fingerpost.narrow.learning import Corrections, RequestVectors
from fingerpost.narrow.learning.vectors import KEPT
from fingerpost.narrow.narrower import Narrower
from fingerpost.narrow.parts import shipped
from fingerpost.narrow.request import NarrowRequest
from fingerpost.records import Choice, Feedback, FeedbackVerdict, Json, JsonObject
from fingerpost.settings import Settings

PARTS: Final = 5
ENOUGH: Final = 20  # requests
JUDGED: Final = ("recall@1", "recall@5", "mrr")
_TOP: Final = 20
_WORD: Final = re.compile(r"[^\W_]+")


@frozen
class OwnRecord:
    """What an operator's own store remembers, newest first."""

    choices: Sequence[Choice]
    said: Sequence[Feedback]


@frozen
class LearningReport:
    """What learning from feedback would change, and what to make of it."""

    requests: int
    feedback: int
    differences: tuple[Difference, ...]
    corrected: int = 0  # requests with a correction
    first_before: int = 0  # of them, the right tool is first without learning
    first_after: int = 0  # with it

    @property
    def verdict(self) -> str:
        """`would help` and `loses` only where a whole interval says so."""
        if self.requests < ENOUGH or not self.feedback:
            return "too little to say"
        found = {one.verdict for one in self.differences}
        if "worse" in found:
            return "loses"
        return "would help" if "better" in found else "no loss"

    @property
    def reason(self) -> str:
        """One sentence with the figures."""
        if self.requests < ENOUGH or not self.feedback:
            return (
                f"{self.requests} requests and {self.feedback} words of people are recorded; "
                f"it takes {ENOUGH} requests and one word"
            )
        told = ", ".join(f"{one.name} {one.before:.3f} → {one.after:.3f}" for one in self.differences)
        return f"on requests it was not told about: {told}"

    def as_json(self) -> JsonObject:
        figures: list[Json] = [
            {
                "name": one.name,
                "before": round(one.before, 4),
                "after": round(one.after, 4),
                "low": round(one.low, 4),
                "high": round(one.high, 4),
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


def own_queries(record: OwnRecord, tools: Iterable[str]) -> list[QueryRecord]:
    """Each request once, with the tool that is right for it: as people said, else as it worked."""
    known = frozenset(tools)
    right: dict[str, tuple[str, str]] = {}
    wrong: set[tuple[str, str]] = set()
    for one in record.said:
        if one.right is not None and one.right in known:
            right.setdefault(same_words(one.request), (one.request, one.right))
        if one.wrong is not None:
            wrong.add((same_words(one.request), one.wrong))
    for choice in record.choices:
        words = same_words(choice.request)
        if choice.worked and choice.tool in known and (words, choice.tool) not in wrong:
            right.setdefault(words, (choice.request, choice.tool))
    return [
        QueryRecord(id=request_id(text, [tool]), query=text, relevant=(tool,), needs_tool=True)
        for words, (text, tool) in right.items()
        if words
    ]


def same_words(text: str) -> str:
    """What makes two requests one: their words."""
    return " ".join(_WORD.findall(text.casefold()))


def judge_learning(
    snapshot: Snapshot,
    settings: Settings,
    queries: Sequence[QueryRecord],
    record: OwnRecord,
    *,
    now: datetime,
) -> LearningReport:
    """Route every request with and without what people said of the others. Blocks; nothing is called."""
    on = settings.model_copy(
        update={"flags": settings.flags.model_copy(update={"learn_from_feedback": True})}
    )
    on = settings_for(on, queries, top=_TOP, scope="catalog")
    experience, corrections = Experience(), Corrections()
    half_life = timedelta(days=settings.learning.half_life_days)
    parts = shipped(on, learned=experience, corrections=corrections)
    with ready_narrower(snapshot, on, parts=parts) as narrower:
        teach = _teacher(narrower, record, experience, corrections, now=now, half_life=half_life)
        before: dict[str, Prediction] = {}
        after: dict[str, Prediction] = {}
        for part in _dealt(queries):
            left_out = frozenset(same_words(query.query) for query in part)
            teach(left_out, heard=False)
            before |= _predicted(narrower, part)
            teach(left_out, heard=True)
            after |= _predicted(narrower, part)
        corrected = _corrected(queries, record.said)
        teach(frozenset(), heard=False)
        first_before = _first(_predicted(narrower, corrected), corrected)
        teach(frozenset(), heard=True)
        first_after = _first(_predicted(narrower, corrected), corrected)
    compared = differences(measures(queries, before), measures(queries, after)) if queries else []
    return LearningReport(
        requests=len(queries),
        feedback=len(record.said),
        differences=tuple(one for one in compared if one.name in JUDGED),
        corrected=len(corrected),
        first_before=first_before,
        first_after=first_after,
    )


class _Teach(Protocol):
    def __call__(self, left_out: frozenset[str], *, heard: bool) -> None: ...


def _teacher(
    narrower: Narrower,
    record: OwnRecord,
    experience: Experience,
    corrections: Corrections,
    *,
    now: datetime,
    half_life: timedelta,
) -> _Teach:
    vectors = None if narrower.parts.meaning is None else RequestVectors(narrower.vector)
    if vectors is not None:
        vectors.fill([one.request for one in (*record.said, *record.choices)], KEPT)

    def teach(left_out: frozenset[str], *, heard: bool) -> None:
        """What is remembered of all requests but these; and, if it is to be heard, what people said."""
        choices = [one for one in record.choices if same_words(one.request) not in left_out]
        said = [one for one in record.said if heard and same_words(one.request) not in left_out]
        rows = None if vectors is None else vectors.rows([one.request for one in choices])
        experience.learn(choices, vectors=rows)
        rows = None if vectors is None else vectors.rows([one.request for one in said])
        corrections.learn(said, now=now, half_life=half_life, vectors=rows)

    return teach


def _dealt(queries: Sequence[QueryRecord]) -> Iterator[list[QueryRecord]]:
    """The requests in parts, the same ones in every run."""
    for number in range(PARTS):
        part = [query for query in queries if zlib.crc32(query.id.encode()) % PARTS == number]
        if part:
            yield part


def _predicted(narrower: Narrower, queries: Sequence[QueryRecord]) -> dict[str, Prediction]:
    return {query.id: _prediction(narrower, query) for query in queries}


def _prediction(narrower: Narrower, query: QueryRecord) -> Prediction:
    found = narrower.narrow(NarrowRequest(text=query.query))
    return Prediction(
        id=query.id,
        verdict=found.need.verdict.value,
        need=found.need.score,
        fit=found.shortlist.fit,
        ranking=tuple(Ranked(tool=one.tool, score=one.score) for one in found.shortlist.candidates[:_TOP]),
    )


def _corrected(queries: Sequence[QueryRecord], said: Sequence[Feedback]) -> list[QueryRecord]:
    """The requests people corrected, to the tool the latest of them named."""
    corrections = [one for one in said if one.verdict is FeedbackVerdict.BAD and one.should_have is not None]
    named = {same_words(one.request): one.should_have for one in reversed(corrections)}
    return [
        replace(query, relevant=(tool,))
        for query in queries
        if (tool := named.get(same_words(query.query))) is not None
    ]


def _first(found: Mapping[str, Prediction], queries: Sequence[QueryRecord]) -> int:
    return sum(
        bool(found[query.id].ranking) and found[query.id].ranking[0].tool in query.relevant
        for query in queries
    )

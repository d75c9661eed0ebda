"""The components of the narrower, and scorers of programs and packages.

Such a scorer runs with a time limit, and is left out of a request if it fails.
"""

from __future__ import annotations

import inspect
import logging
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from numbers import Real
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from fingerpost.errors import ConfigError
from fingerpost.frozen import frozen
from fingerpost.llm.base import ChatModel
from fingerpost.narrow.dense import DenseScorer
from fingerpost.narrow.features import Rows, Scores, ToolColumns
from fingerpost.narrow.feedback import Corrections, Preferences
from fingerpost.narrow.fusion import ScoreContribution
from fingerpost.narrow.history_scorer import HistoryScorer
from fingerpost.narrow.lexical_scorer import LexicalScorer
from fingerpost.narrow.need.classifier import NeedClassifier
from fingerpost.narrow.remote_models import ModelReranker, open_endpoint_reranker
from fingerpost.narrow.scorer import (
    MAX_REQUEST_LENGTH,
    Scorer,
    ScorerRequest,
    ToolScore,
    build_tool_text,
    clean_line,
)
from fingerpost.narrow.signals.reader import SignalReader
from fingerpost.records import ScorerFailure, ToolCard
from fingerpost.settings import Settings
from fingerpost.settings.model import NarrowSettings

if TYPE_CHECKING:
    from fingerpost.narrow.scorer import ScoresByTool

Vector = NDArray[np.float32]


logger = logging.getLogger("fingerpost.narrow")

MAX_NOTE_LENGTH: Final = 200
MAX_LATE_RUNS: Final = 4  # unfinished runs of one scorer; with so many it is not started again


def build_scorer_contribution(
    scorer: Scorer, result: ScoresByTool, rows: Rows, columns: ToolColumns
) -> ScoreContribution | None:
    """Return the points of a scorer's result for these rows, or None if there are none.

    Scores are limited to -1..1. Raises `_BadResult` if the result is not scores.
    """
    values = np.zeros(columns.size, np.float64)
    notes: dict[int, str] = {}
    if isinstance(result, Mapping):
        keys = None if len(rows) == columns.size else {columns.cards[int(row)].key for row in rows}
        for key, score in result.items():
            if (row := columns.rows.get(key)) is not None and (keys is None or key in keys):
                values[row] = _read_score(score.value if isinstance(score, ToolScore) else score)
                if isinstance(score, ToolScore) and score.note:
                    notes[row] = clean_line(str(score.note), MAX_NOTE_LENGTH)
    else:
        values[rows] = _read_scores(result, len(rows))
    points = np.asarray(scorer.weight * np.clip(values, -1, 1), np.float32)
    return ScoreContribution(signal=scorer.label, points=points, notes=notes) if points.any() else None


class _BadResult(Exception):
    """A scorer gave no scores. The message says why, without any text of the scorer."""


def _read_score(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value):
        raise _BadResult(f"returned a score that is no finite number: {type(value).__name__}")
    return float(value)


def _read_scores(result: object, size: int) -> Scores:
    if isinstance(result, str | bytes) or not isinstance(result, Sequence | np.ndarray):
        raise _BadResult(f"returned {type(result).__name__}: neither a mapping nor a sequence of scores")
    values = np.asarray(cast("Sequence[Any]", result))
    if values.shape != (size,):
        raise _BadResult(f"returned scores of shape {values.shape} for {size} tools")
    if size and (values.dtype.kind not in "fiu" or not np.isfinite(values).all()):
        message = "returned scores that are no finite numbers"
        raise _BadResult(message)
    return values


class AddedScorers:
    """Runs scorers that are not our own, at the same time and each in a thread.

    One that raises, returns nonsense or takes longer than `seconds` is left out of the request.
    """

    def __init__(self, scorers: Iterable[Scorer] = (), *, seconds: float = 1.0) -> None:
        self._scorers = tuple(scorers)
        self._seconds = seconds
        self._lock = Lock()
        self._late: list[_ScorerRun] = []  # runs that took too long

    def __bool__(self) -> bool:
        return bool(self._scorers)

    def run(
        self, request: ScorerRequest, columns: ToolColumns, eligible: Rows
    ) -> tuple[list[ScoreContribution], tuple[ScorerFailure, ...]]:
        """Return the points for the eligible tools, the only ones shown, and the scorers that failed."""
        cards = columns.cards
        if len(eligible) < columns.size:
            cards = tuple(cards[int(row)] for row in eligible)
        deadline = time.monotonic() + self._seconds
        runs = [self._start(scorer, request, cards) for scorer in self._scorers]
        contributions: list[ScoreContribution] = []
        failures: list[ScorerFailure] = []
        for run in runs:
            try:
                result = self._wait(run, deadline)
                contribution = build_scorer_contribution(run.scorer, result, eligible, columns)
            except Exception as error:  # noqa: BLE001 - the code of others must not break routing
                failures.append(_note_failure(run.scorer, error))
            else:
                contributions += [] if contribution is None else [contribution]
        return contributions, tuple(failures)

    def _start(self, scorer: Scorer, request: ScorerRequest, cards: Sequence[ToolCard]) -> _ScorerRun:
        run = _ScorerRun(scorer, request, cards)
        with self._lock:
            self._late = [late for late in self._late if late.is_alive()]
            if sum(late.scorer is scorer for late in self._late) < MAX_LATE_RUNS:
                run.start()
        return run

    def _wait(self, run: _ScorerRun, deadline: float) -> ScoresByTool:
        if run.ident is None:
            message = "is busy with earlier requests"
            raise _BadResult(message)
        run.join(max(0.0, deadline - time.monotonic()))
        if run.is_alive():
            with self._lock:
                self._late.append(run)
            raise _BadResult(f"took longer than {self._seconds:g} s")
        if run.error is not None:
            raise _BadResult(f"raised {type(run.error).__name__}") from run.error
        return cast("ScoresByTool", run.result)


class _ScorerRun(Thread):
    """One scorer scoring for one request. A daemon, so that one that never ends does not keep the process."""

    def __init__(self, scorer: Scorer, request: ScorerRequest, cards: Sequence[ToolCard]) -> None:
        super().__init__(name=f"scorer {scorer.label}", daemon=True)
        self.scorer = scorer
        self.result: object = None
        self.error: BaseException | None = None
        self._request = request
        self._cards = cards

    def run(self) -> None:
        try:
            self.result = self.scorer.scores(self._request, self._cards)
            if inspect.iscoroutine(self.result):
                self.result.close()  # nothing would run it
        except BaseException as error:  # noqa: BLE001 - it is handled where the result is read
            self.error = error


def _note_failure(scorer: Scorer, error: Exception) -> ScorerFailure:
    """Log the failure with its cause, and return it without any text of the scorer."""
    reason = str(error) if isinstance(error, _BadResult) else f"raised {type(error).__name__}"
    cause = error.__cause__ if isinstance(error, _BadResult) else error
    logger.warning("the scorer %s was left out of a request: it %s", scorer.label, reason, exc_info=cause)
    return ScorerFailure(scorer=scorer.label, reason=reason)


class Reranker(Protocol):
    """Judges how well a few texts answer a query. May raise."""

    def rerank(self, query: str, texts: Sequence[str]) -> Sequence[float]:
        """Return the relevance of each text; only the order counts."""
        ...


RERANKED_TOOLS: Final = 10  # the first ones
CLOSE_GAP: Final = 0.1  # largest distance of the first two scores that is settled by a reranker
RERANKER_POINTS: Final = 0.15  # for the tool it puts first; the last one has none


def rerank_close_tools(
    reranker: Reranker, text: str, columns: ToolColumns, scores: Scores, eligible: Rows
) -> ScoreContribution | ScorerFailure | None:
    """Return points by the reranker's order of the first tools, or None if the first one is clear."""
    rows = eligible[np.argsort(-scores[eligible], kind="stable")[:RERANKED_TOOLS]]
    if len(rows) < 2 or scores[rows[0]] - scores[rows[1]] > CLOSE_GAP:
        return None
    texts = [build_tool_text(columns.cards[int(row)]).format_long() for row in rows]
    try:
        given = list(reranker.rerank(clean_line(text, MAX_REQUEST_LENGTH), texts))
        relevance = _read_scores(given, len(rows))
    except Exception as error:  # noqa: BLE001 - the order without it stays
        logger.warning("the reranker was left out of a request: %s", error)
        return ScorerFailure(scorer="reranker", reason=str(error))
    points = np.zeros(columns.size, np.float32)
    ranked = rows[np.argsort(-relevance, kind="stable")]
    points[ranked] = np.linspace(RERANKER_POINTS, 0.0, len(ranked), dtype=np.float32)
    notes = {int(row): f"the reranker puts it at place {place}" for place, row in enumerate(ranked, 1)}
    return ScoreContribution(signal="reranker", points=points, notes=notes)


@frozen
class NarrowComponents:
    """The components of a `Narrower`."""

    reader: SignalReader
    need_estimator: NeedClassifier
    words: LexicalScorer
    meaning: DenseScorer | None = None
    learned: Scorer | None = None
    added: AddedScorers = field(default_factory=AddedScorers)
    corrections: Corrections | None = None
    preferences: Preferences | None = None
    reranker: Reranker | None = None


def build_default_components(
    settings: Settings,
    *,
    history: HistoryScorer | None = None,
    corrections: Corrections | None = None,
    preferences: Preferences | None = None,
    scorers: Iterable[Scorer] = (),
    lite: ChatModel | None = None,
) -> NarrowComponents:
    """Build the default components for these settings. `scorers` are those of programs and packages; `lite`
    is the light model, if there is one. Raises `ConfigError` if a configured model cannot be used.
    """
    return NarrowComponents(
        reader=SignalReader(),
        need_estimator=NeedClassifier(settings.narrow),
        words=LexicalScorer(),
        meaning=DenseScorer.from_settings(settings.narrow, keep=settings.store.url is not None)
        if settings.flags.dense_scores
        else None,
        learned=history if settings.flags.learned_use else None,
        added=AddedScorers(scorers, seconds=settings.narrow.scorer_seconds),
        corrections=corrections if settings.flags.learn_from_feedback else None,
        preferences=preferences if settings.flags.preferences else None,
        reranker=_open_reranker(settings.narrow, lite),
    )


def _open_reranker(settings: NarrowSettings, lite: ChatModel | None) -> Reranker | None:
    if settings.reranker is None:
        return None
    if settings.reranker != "lite":
        return open_endpoint_reranker(settings)
    if lite is None:
        message = "narrow.reranker is lite, but there is no model"
        raise ConfigError(message, hint="Set models.lite, or remove narrow.reranker.")
    return ModelReranker(lite, seconds=settings.reranker_seconds)

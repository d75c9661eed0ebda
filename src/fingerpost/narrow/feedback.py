"""Feedback from people: corrections, preferences and decisions, and their score adjustments."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import islice
from types import MappingProxyType
from typing import Final

import numpy as np

from fingerpost.catalog.effects import STRONG_DESTROY_VERBS
from fingerpost.catalog.words import parse_word_set
from fingerpost.errors import FingerpostError
from fingerpost.frozen import frozen
from fingerpost.narrow.features import Rows, Scores, ToolColumns
from fingerpost.narrow.fusion import ScoreContribution
from fingerpost.narrow.history_scorer import MAX_PAST_REQUEST_LENGTH, Floats, PastRequests
from fingerpost.narrow.request import NarrowRequest
from fingerpost.narrow.scorer import ScorerRequest
from fingerpost.records import Choice, Feedback, FeedbackVerdict

MIN_WORD_SIMILARITY: Final = 0.5
MIN_MEANING_SIMILARITY: Final = 0.7
# Word similarity counts increasingly between these; below, the same words have another meaning.
MAX_UNRELATED_SIMILARITY: Final = 0.5
AGREED_SIMILARITY: Final = 0.75
SAME_REQUEST_SIMILARITY: Final = 0.6  # from here, two requests count as the same

_SIMILARITY_WORD: Final = re.compile(r"[^\W_]+")
_DESTROY_WORDS: Final = STRONG_DESTROY_VERBS | parse_word_set("cancel clear reset revoke undo trash")
_OPPOSITE_WORDS: Final = (
    ("on", "off"), ("in", "out"), ("up", "down"), ("before", "after"), ("first", "last"),
    ("open", "close"), ("add", "remove"), ("start", "stop"), ("enable", "disable"), ("lock", "unlock"),
    ("mute", "unmute"), ("buy", "sell"), ("follow", "unfollow"), ("subscribe", "unsubscribe"),
    ("archive", "unarchive"), ("pin", "unpin"), ("block", "unblock"), ("approve", "reject"),
    ("accept", "decline"), ("push", "pull"), ("upload", "download"), ("import", "export"),
    ("encrypt", "decrypt"), ("send", "receive"), ("sent", "received"), ("increase", "decrease"),
    ("deposit", "withdraw"), ("connect", "disconnect"), ("read", "write"), ("show", "hide"),
)  # fmt: skip


class RequestSimilarity:
    """Past requests and their similarity to a new one. `vectors` has a row for each; zeros: unknown."""

    def __init__(self, texts: Sequence[str], vectors: Floats | None = None) -> None:
        self._texts = tuple(texts)
        self._past = PastRequests(
            self._texts, by_rarity=False
        )  # many similar requests must not reduce the similarity
        self._vectors = vectors
        self._known = None if vectors is None else vectors.any(axis=1)

    def compute_weights(self, text: str, vector: Floats | None = None) -> Floats:
        """Return a weight for each past request: 0 for most, 1 for the same words."""
        if not self._texts:
            return np.zeros(0, np.float32)
        words = self._past.compute_similarity(text)
        weights = _rescale_between(words, MIN_WORD_SIMILARITY, 1.0)
        if vector is not None and self._vectors is not None and self._known is not None:
            meaning = self._vectors @ vector
            agreed = np.where(
                self._known, _rescale_between(meaning, MAX_UNRELATED_SIMILARITY, AGREED_SIMILARITY), 1.0
            )
            near = np.where(self._known, _rescale_between(meaning, MIN_MEANING_SIMILARITY, 1.0), 0.0)
            weights = np.maximum(weights * agreed, near).astype(np.float32, copy=False)
        for place in np.flatnonzero(weights):
            if are_opposed(self._texts[int(place)], text):
                weights[place] = 0.0
        return weights


def are_opposed(one: str, other: str) -> bool:
    """Return whether two similar requests ask for opposite things."""
    ours, theirs = _find_opposite_sides(one), _find_opposite_sides(other)
    if ours == theirs:
        return False
    if ("destroys" in ours) != ("destroys" in theirs):
        return True
    return any(
        (left in ours and right in theirs and right not in ours and left not in theirs)
        or (right in ours and left in theirs and left not in ours and right not in theirs)
        for left, right in _OPPOSITE_WORDS
    )


_OPPOSITE_SIDES: Final = frozenset(word for pair in _OPPOSITE_WORDS for word in pair)


@lru_cache(maxsize=4096)
def _find_opposite_sides(text: str) -> frozenset[str]:
    words = set(_SIMILARITY_WORD.findall(text[:MAX_PAST_REQUEST_LENGTH].casefold()))
    return frozenset(words & _OPPOSITE_SIDES | ({"destroys"} if words & _DESTROY_WORDS else set()))


def _rescale_between(values: Floats, low: float, high: float) -> Floats:
    """Rescale linearly: 0 up to `low`, 1 from `high`."""
    return np.clip((values - low) / (high - low), 0.0, 1.0).astype(np.float32, copy=False)


MAX_CORRECTIONS: Final = 2_000
SETTLED_COUNT: Final = 3  # corrections of the same request that agree
MIN_AGE_WEIGHT: Final = 0.25  # after two half-lives; older corrections do not count towards a settled one
NEGATIVE_WEIGHT: Final = 0.5
_CORRECTION_PRIOR: Final = 1.0
_MAX_NAMED_PEOPLE: Final = 3


@dataclass(slots=True)
class Correction:
    """The feedback on one tool for one request, weighted by similarity and age."""

    right: float = 0.0
    wrong: float = 0.0
    times: int = 0  # corrections to this tool
    praised: int = 0
    blamed: int = 0
    by: dict[str, None] = field(default_factory=dict[str, None])
    same: list[str] = field(default_factory=list[str])  # the same request, once per correction

    @property
    def settled(self) -> bool:
        return len(self.same) >= SETTLED_COUNT and self.right > self.wrong

    @property
    def settled_for(self) -> str:
        """The texts of the requests that settle it; for comparison only, never shown."""
        return "\n".join(dict.fromkeys(self.same)).casefold()

    @property
    def score(self) -> float:
        """The score from -`NEGATIVE_WEIGHT` (always wrong) to 1 (always right); 0 without evidence."""
        net = self.right - self.wrong
        score = net / (self.right + self.wrong + _CORRECTION_PRIOR)
        return score if score > 0 else NEGATIVE_WEIGHT * score

    def describe(self, reader: str | None) -> str:
        """Describe the correction for the explanation, without request texts. `reader` is the person who
        reads it and sees only their own name. With None, all names are shown.
        """
        parts = [
            f"{text} {_format_times(count)}"
            for count, text in ((self.times, "corrected"), (self.praised, "called right"))
            if count
        ]
        if self.blamed and not parts:
            parts = [f"called wrong {_format_times(self.blamed)}"]
        return f"{', '.join(parts)}{_format_names(tuple(self.by), reader)}" if parts else ""


def _format_times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _format_names(authors: Sequence[str], person: str | None) -> str:
    known = [name for name in authors if person in (None, name)]
    named = known[:_MAX_NAMED_PEOPLE]
    others = len(authors) - len(named)
    if others:
        named.append(f"{others} more" if named else "others")
    return f" by {', '.join(named)}" if named else ""


@frozen
class _CorrectionSnapshot:
    """All known feedback. It is replaced as a whole, so that readers never see a partial update."""

    feedback: tuple[Feedback, ...] = ()
    age_weights: Floats = field(default_factory=lambda: np.zeros(0, np.float32))  # by age
    similarity: RequestSimilarity = field(default_factory=lambda: RequestSimilarity(()))


class Corrections:
    """Adjusts tools by people's feedback. Can be read while it learns."""

    def __init__(self, *, shared: bool = True) -> None:
        """Create an empty set. With `shared`, feedback counts for all people, not only its author."""
        self._shared = shared
        self._memory = _CorrectionSnapshot()

    def learn(
        self,
        feedback: Sequence[Feedback],
        *,
        now: datetime,
        half_life: timedelta,
        vectors: Floats | None = None,
    ) -> None:
        """Replace the known feedback. `feedback` is sorted newest first."""
        kept = tuple(feedback[:MAX_CORRECTIONS])
        ages = [max(0.0, (now - one.at) / half_life) for one in kept]
        self._memory = _CorrectionSnapshot(
            feedback=kept,
            age_weights=np.exp2(-np.array(ages, np.float32)),
            similarity=RequestSimilarity(
                [one.request for one in kept], None if vectors is None else vectors[:MAX_CORRECTIONS]
            ),
        )

    def find_corrections(
        self, text: str, vector: Floats | None = None, *, person: str | None = None
    ) -> Mapping[str, Correction]:
        """Return the corrections for this request, by tool; of all people if `person` is None."""
        memory = self._memory
        only = None if self._shared else person
        found: defaultdict[str, Correction] = defaultdict(Correction)
        alike = memory.similarity.compute_weights(text, vector)
        for place in np.flatnonzero(alike):
            feedback = memory.feedback[int(place)]
            if only is None or feedback.by == only:
                _count_feedback(found, feedback, float(alike[place]), float(memory.age_weights[place]))
        return dict(found)


def _count_feedback(
    found: defaultdict[str, Correction], feedback: Feedback, similarity: float, age_weight: float
) -> None:
    if feedback.right is not None:
        tally = found[feedback.right]
        tally.right += similarity * age_weight
        tally.by[feedback.by] = None
        if feedback.verdict is FeedbackVerdict.GOOD:
            tally.praised += 1
        else:
            tally.times += 1
            if similarity >= SAME_REQUEST_SIMILARITY and age_weight >= MIN_AGE_WEIGHT:
                tally.same.append(feedback.request)
    if feedback.wrong is not None:
        tally = found[feedback.wrong]
        tally.wrong += similarity * age_weight
        tally.blamed += 1
        tally.by[feedback.by] = None


MAX_KEPT_VECTORS: Final = 4_000
BATCH_SIZE: Final = 32  # a request waits for them, a few milliseconds each


class RequestVectors:
    """Vectors by request text. Without a usable encoder there are none."""

    def __init__(self, encode: Callable[[str], Floats]) -> None:
        self._encode = encode
        self._known: dict[str, Floats] = {}
        self._broken = False

    def fill(self, texts: Iterable[str], max_count: int = BATCH_SIZE) -> bool:
        """Compute up to `most` missing vectors, in order. Return whether all are computed now."""
        wanted = list(dict.fromkeys(texts))[:MAX_KEPT_VECTORS]
        missing = [text for text in wanted if text not in self._known]
        for text in islice(missing, max_count):
            if self._broken:
                return True
            try:
                self._known[text] = self._encode(text)
            except FingerpostError:  # the scorer logs it once
                self._broken = True
        if len(self._known) > MAX_KEPT_VECTORS:
            kept = set(wanted)
            self._known = {text: vector for text, vector in self._known.items() if text in kept}
        return self._broken or len(missing) <= max_count

    @property
    def known(self) -> Mapping[str, Floats]:
        return self._known

    def get_rows(self, texts: Sequence[str]) -> Floats | None:
        """Return one row per text, zeros for unknown ones. Return None if all are unknown."""
        return build_rows(texts, self._known)


def build_rows(texts: Sequence[str], known: Mapping[str, Floats]) -> Floats | None:
    """Return one row per text, zeros for unknown ones. Return None if all are unknown."""
    found = next((known[text] for text in texts if text in known), None)
    if found is None:
        return None
    blank = np.zeros_like(found)
    return np.stack([known.get(text, blank) for text in texts]).astype(np.float32, copy=False)


MAX_DECISIONS: Final = 2_000
MIN_DECISION_SIMILARITY: Final = 0.8
MIN_USES: Final = 2  # successful uses without a failure; one correction counts as this many
MAX_REMEMBERED_TOOLS: Final = 3


@frozen
class RememberedDecision:
    """The tools that were right for a request, and how often."""

    tools: tuple[str, ...]
    times: int


@frozen(kw_only=False)
class _DecisionFact:
    request: str
    tool: str
    weight: int  # negative: it was wrong


@frozen
class _DecisionSnapshot:
    facts: tuple[_DecisionFact, ...] = ()
    similarity: RequestSimilarity = field(default_factory=lambda: RequestSimilarity(()))


class PastDecisions:
    """Remembered decisions. Can be read while it learns."""

    def __init__(self) -> None:
        self._memory = _DecisionSnapshot()

    @property
    def count(self) -> int:
        """The number of requests with a remembered decision."""
        return len({fact.request for fact in self._memory.facts if fact.weight > 0})

    def learn(
        self,
        choices: Sequence[Choice],
        feedback: Sequence[Feedback],
        *,
        since: datetime,
        vectors: Mapping[str, Floats] | None = None,
    ) -> None:
        """Learn from the choices and feedback after `since`."""
        facts = tuple(_collect_facts(choices, feedback, since))[:MAX_DECISIONS]
        texts = [fact.request for fact in facts]
        rows = None if vectors is None else build_rows(texts, vectors)
        self._memory = _DecisionSnapshot(facts=facts, similarity=RequestSimilarity(texts, rows))

    def recall(self, text: str, vector: Floats | None = None) -> RememberedDecision | None:
        """Return the tools that were right for nearly this request, often and never wrong, or None."""
        memory = self._memory
        alike = memory.similarity.compute_weights(text, vector)
        totals: dict[str, int] = {}
        wrong: set[str] = set()
        for place in np.flatnonzero(alike >= MIN_DECISION_SIMILARITY):
            fact = memory.facts[int(place)]
            if fact.weight < 0:
                wrong.add(fact.tool)
            else:
                totals[fact.tool] = totals.get(fact.tool, 0) + fact.weight
        found = [tool for tool, sum_of in totals.items() if sum_of >= MIN_USES and tool not in wrong]
        if not found:
            return None
        found.sort(key=lambda tool: (-totals[tool], tool))
        return RememberedDecision(tools=tuple(found[:MAX_REMEMBERED_TOOLS]), times=totals[found[0]])


def _collect_facts(
    choices: Iterable[Choice], feedback: Iterable[Feedback], since: datetime
) -> Iterable[_DecisionFact]:
    for one in feedback:
        if one.at > since and one.right is not None:
            yield _DecisionFact(one.request, one.right, MIN_USES)
        if one.at > since and one.wrong is not None:
            yield _DecisionFact(one.request, one.wrong, -1)
    for choice in choices:
        if choice.at > since:
            yield _DecisionFact(choice.request, choice.tool, 1 if choice.worked else -1)


MAX_PEOPLE: Final = 1_000
MAX_PREFERRED_TOOLS: Final = 200  # per person
_FEEDBACK_WEIGHT: Final = 3.0  # uses that one feedback counts for
_EARLIEST: Final = datetime.min.replace(tzinfo=UTC)
_NO_PREFERENCES: Final[Mapping[str, float]] = MappingProxyType({})


class Preferences:
    """How much each person uses each tool."""

    def __init__(self) -> None:
        self._habits: Mapping[str, Mapping[str, float]] = {}

    def learn(
        self,
        choices: Iterable[Choice],
        feedback: Iterable[Feedback],
        *,
        now: datetime,
        half_life: timedelta,
        marks: Mapping[str, datetime],
    ) -> None:
        """Learn from choices and feedback after the person's mark and the common one (key "")."""
        counted: dict[str, Counter[str]] = {}
        common_mark = marks.get("", _EARLIEST)

        def add(person: str | None, tool: str | None, at: datetime, weight: float) -> None:
            if person is None or tool is None or at <= max(common_mark, marks.get(person, _EARLIEST)):
                return
            habits = counted.setdefault(person, Counter())
            habits[tool] += weight * 0.5 ** max(0.0, (now - at) / half_life)

        for choice in choices:
            add(choice.caller, choice.tool, choice.at, 1.0 if choice.worked else -1.0)
        for one in feedback:
            add(one.by, one.right, one.at, _FEEDBACK_WEIGHT)
            add(one.by, one.wrong, one.at, -_FEEDBACK_WEIGHT)
        self._habits = {
            person: {tool: weight for tool, weight in habits.most_common(MAX_PREFERRED_TOOLS) if weight > 0}
            for person, habits in list(counted.items())[:MAX_PEOPLE]
        }

    def get_for(self, person: str | None) -> Mapping[str, float]:
        """Return the person's tools with their weights. Return nothing for None."""
        return _NO_PREFERENCES if person is None else self._habits.get(person, _NO_PREFERENCES)

    @property
    def people(self) -> tuple[str, ...]:
        return tuple(person for person, habits in self._habits.items() if habits)


CORRECTION_POINTS: Final = 0.25  # maximum; at most half of it is subtracted
PREFERENCE_POINTS: Final = 0.05
EQUAL_SCORE_MARGIN: Final = 0.05  # within this distance of the best score, a habit decides
_HABIT_PRIOR: Final = 2.0
_SCORE_STEP: Final = 0.001
_NO_CORRECTIONS: Final[Mapping[str, Correction]] = MappingProxyType({})
_NO_HABITS: Final[Mapping[str, float]] = MappingProxyType({})


@frozen
class FeedbackAdjustments:
    """The corrections and the person's habits, by row."""

    corrections: Mapping[int, Correction]
    habits: Mapping[int, float]
    person: str | None = None
    excluded_rows: frozenset[int] = frozenset()  # never put first: the server is not usable now
    mentioned_tools: tuple[str, ...] = ()  # tool names as the request writes them

    @classmethod
    def from_request(
        cls,
        query: ScorerRequest,
        request: NarrowRequest,
        columns: ToolColumns,
        corrections: Corrections | None,
        preferences: Preferences | None,
    ) -> FeedbackAdjustments:
        """Collect the feedback on this request for the current tools."""
        found = _NO_CORRECTIONS
        if corrections is not None:
            found = corrections.find_corrections(query.text, query.vector, person=request.person)
        habits = _NO_HABITS if preferences is None else preferences.get_for(request.person)
        rows = columns.rows
        unusable = (columns.by_server[name] for name in request.health if name in columns.by_server)
        return cls(
            corrections={rows[key]: one for key, one in found.items() if key in rows},
            habits={rows[key]: weight for key, weight in habits.items() if key in rows},
            person=request.person,
            excluded_rows=frozenset(int(row) for some in unusable for row in some),
            mentioned_tools=tuple(
                one.text.casefold() for one in query.signals.mentions if one.kind == "tool"
            ),
        )

    @property
    def settled_rows(self) -> frozenset[int]:
        """The tools on which enough corrections agree."""
        return frozenset(row for row, correction in self.corrections.items() if correction.settled)

    def compute_correction_points(self, columns: ToolColumns) -> Iterator[ScoreContribution]:
        """Compute the points from corrections, positive and negative."""
        points = np.zeros(columns.size, np.float32)
        for row, correction in self.corrections.items():
            points[row] = CORRECTION_POINTS * correction.score
        if points.any():
            notes = {row: correction.describe(self.person) for row, correction in self.corrections.items()}
            yield ScoreContribution(signal="corrected", points=points, notes=notes)

    def compute_decisive_points(
        self, columns: ToolColumns, scores: Scores, eligible: Rows
    ) -> Iterator[ScoreContribution]:
        """Compute points that override the scores: a settled correction, and a habit between equal tools."""
        yield from self._compute_settled_points(columns, scores, eligible)
        yield from self._compute_preference_points(columns, scores, eligible)

    def _compute_settled_points(
        self, columns: ToolColumns, scores: Scores, eligible: Rows
    ) -> Iterator[ScoreContribution]:
        agreed = [row for row in self.settled_rows if row not in self.excluded_rows and row in eligible]
        if not agreed:
            return
        first = max(agreed, key=lambda row: self.corrections[row].right - self.corrections[row].wrong)
        # A tool named in the request wins, unless the corrected requests contained the same name.
        if any(name not in self.corrections[first].settled_for for name in self.mentioned_tools):
            return
        others = eligible[eligible != first]
        gap = float(scores[others].max() - scores[first]) if len(others) else -1.0
        if gap >= 0:
            points = np.zeros(columns.size, np.float32)
            points[first] = gap + _SCORE_STEP
            note = f"comes first: {self.corrections[first].describe(self.person)}"
            yield ScoreContribution(signal="corrected", points=points, notes={first: note})

    def _compute_preference_points(
        self, columns: ToolColumns, scores: Scores, eligible: Rows
    ) -> Iterator[ScoreContribution]:
        if not self.habits or not len(eligible):
            return
        best = float(scores[eligible].max())
        equals = [row for row in self.habits if row in eligible and scores[row] >= best - EQUAL_SCORE_MARGIN]
        used = sum(self.habits[row] for row in equals)
        points = np.zeros(columns.size, np.float32)
        for row in equals:
            points[row] = PREFERENCE_POINTS * self.habits[row] / (used + _HABIT_PRIOR)
        if points.any():
            yield ScoreContribution(
                signal="preference", points=points, note=f"what {self.person} usually takes"
            )


NO_FEEDBACK: Final = FeedbackAdjustments(corrections={}, habits={})

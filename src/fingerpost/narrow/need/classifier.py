"""The need classifier: whether a request needs a tool."""

from __future__ import annotations

import math
from array import array
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from fingerpost.frozen import frozen
from fingerpost.narrow.need.features import CUE_POSITION, CUES, FEATURE_SLOTS, NeedFeatures

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Vector = NDArray[np.float32]
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from fingerpost.catalog.words import STOP_WORDS
from fingerpost.narrow.gloss.gloss import get_english_text, gloss_text
from fingerpost.narrow.need.features import cut_middle, extract_features
from fingerpost.narrow.need.rules import (
    LIKELY_SCORE,
    SURELY_NOT_SCORE,
    RuleFinding,
    apply_clear_rules,
    apply_tool_rules,
    find_continued_request,
    find_referred_request,
    is_about_wording,
    is_accepting_offer,
    is_already_answered,
    is_only_statement,
)
from fingerpost.narrow.request import Dependence, classify_dependence
from fingerpost.records import Message, Need, NeedVerdict, Signals
from fingerpost.settings import NarrowSettings

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
MIN_EXPLAINED_POINTS: Final = 0.15  # log odds; a smaller contribution is not a reason
WEIGHTS_FILE: Final = Path(__file__).with_name("weights.npz")


@frozen(kw_only=False)
class CueContribution:
    """The contribution of one cue or word to the score, in log odds."""

    cue: str  # "" for words, "vector" for the meaning
    text: str
    points: float


@frozen(kw_only=False)
class LinearHead:
    """One set of weights."""

    bias: float
    cues: tuple[float, ...]
    words: Sequence[float]
    vector: Vector | None = None
    centre: Vector | None = None

    def compute_contributions(
        self, reading: NeedFeatures, vector: Vector | None = None
    ) -> tuple[float, list[CueContribution]]:
        """Return the log odds that a tool is needed, and the contributions worth naming."""
        log_odds = self.bias
        contributions: list[CueContribution] = []
        for name, text in reading.cues.items():
            points = self.cues[CUE_POSITION[name]]
            log_odds += points
            contributions.append(CueContribution(name, text, points))
        scale = 1 / math.sqrt(len(reading.features) or 1)
        for slot, text in reading.features:
            points = self.words[slot] * scale
            log_odds += points
            if abs(points) >= MIN_EXPLAINED_POINTS:
                contributions.append(CueContribution("", text, points))
        if vector is not None and self.vector is not None and self.centre is not None:
            points = float(np.dot(vector - self.centre, self.vector))
            log_odds += points
            contributions.append(CueContribution("vector", "", points))
        return log_odds, contributions


@frozen(kw_only=False)
class NeedModel:
    """The weights for words and for meaning."""

    words: LinearHead
    meaning: LinearHead | None

    def compute_contributions(
        self, reading: NeedFeatures, vector: Vector | None = None
    ) -> tuple[float, list[CueContribution]]:
        if vector is None or self.meaning is None:
            return self.words.compute_contributions(reading)
        first, by_words = self.words.compute_contributions(reading)
        second, by_meaning = self.meaning.compute_contributions(reading, vector)
        halves = [
            CueContribution(share.cue, share.text, share.points / 2) for share in (*by_words, *by_meaning)
        ]
        return (first + second) / 2, halves


@cache
def load_need_model(path: Path = WEIGHTS_FILE) -> NeedModel:
    """Load the weights of the package. The result is cached."""
    with np.load(path, allow_pickle=False) as file:
        names = [str(name) for name in file["names"]]
        if names != [cue.name for cue in CUES] or file["words"].shape != (FEATURE_SLOTS,):
            raise ValueError(f"{path.name} was fitted for other cues; run `python -m training.fit_need`")

        def head(prefix: str) -> LinearHead:
            vector = file.get(f"{prefix}vector")
            return LinearHead(
                bias=float(file[f"{prefix}bias"]),
                cues=tuple(float(value) for value in file[f"{prefix}cues"]),
                words=array("f", file[f"{prefix}words"].astype(np.float32).tobytes()),
                vector=vector,
                centre=file[f"{prefix}centre"] if vector is not None else None,
            )

        return NeedModel(head(""), head("meaning_") if "meaning_bias" in file else None)


MAX_REASONS: Final = 4
_SUPPORTED_LANGUAGES: Final = frozenset(("en", "he", "und"))
# A fragment counts little by itself, unless it names something that needs a tool.
_FRAGMENT_WEIGHT: Final = 0.2
_MAX_FRAGMENT_LOG_ODDS: Final = 2.5
_STATEMENT_LOG_ODDS: Final = -1.4  # maximum for a statement about the person
_TOOL_CUES: Final = ("act", "command", "live", "file", "own", "seek")
# A question for knowledge needs no tool even if it refers to a result ("why is it called that?").
_KNOWLEDGE_CUES: Final = frozenset(
    ("explain", "fact", "opinion", "advice", "write", "rework", "people", "sum", "chat")
)
# Up to this sum of the log odds of need and fit, a verdict against tools is final.
_SURE_LOG_ODDS: Final = -3.3
_SURE_LOG_ODDS_FOR_MODEL_TASK: Final = -1.6  # for requests with a cue of a model task
_MODEL_TASK_CUES: Final = frozenset(
    ("explain", "write", "rework", "role", "opinion", "advice", "code", "life", "sum", "given text", "blank")
)
_CONTENTLESS_WORDS: Final = STOP_WORDS | {"", "i", "me", "my", "you", "it", "what", "how"}
_REASON_BY_CUE: Final = {cue.name: cue.reason for cue in CUES}


class NeedClassifier:
    """Decides whether a request needs a tool. The weights are loaded once, on creation."""

    def __init__(self, settings: NarrowSettings) -> None:
        self._tool_above = settings.tool_above
        self._none_below = settings.none_below
        self._model = load_need_model()
        extract_features("warm up", Signals())  # load the word lists now, not with the first request

    def classify(
        self,
        text: str,
        signals: Signals,
        history: Sequence[Message] = (),
        vector: NDArray[np.float32] | None = None,
    ) -> Need:
        """Return the verdict on one request. `vector` is that of the gloss, if there is one."""
        text = cut_middle(get_english_text(text, signals))
        reading = extract_features(text, signals)
        if history and (need := self._decide_by_conversation(text, reading, signals, history)) is not None:
            return need
        if (finding := apply_clear_rules(text, reading)) is not None:
            return self._build_need(finding.score, (finding.reason,), certain=True)
        log_odds, reasons = self._weigh(text, reading, signals, vector)
        if log_odds > _STATEMENT_LOG_ODDS and is_only_statement(text, reading):
            log_odds, reasons = _STATEMENT_LOG_ODDS, ("tells something about the person", *reasons)
        if history:
            log_odds, reasons = self._add_earlier_request(text, reading, signals, history, log_odds, reasons)
        return self._build_need(_to_probability(log_odds), reasons)

    def _add_earlier_request(
        self,
        text: str,
        reading: NeedFeatures,
        signals: Signals,
        history: Sequence[Message],
        log_odds: float,
        reasons: tuple[str, ...],
    ) -> tuple[float, tuple[str, ...]]:
        """Add the score of the request that this one continues, unless this one is complete."""
        wants = not reading.cues.keys().isdisjoint(_TOOL_CUES)
        if (earlier := find_continued_request(text, history)) is not None:
            before, why = self._weigh_alone(earlier, signals)
            itself = max(-_MAX_FRAGMENT_LOG_ODDS, min(_MAX_FRAGMENT_LOG_ODDS, log_odds))
            continued = before + _FRAGMENT_WEIGHT * itself
            return max(continued, log_odds) if wants else continued, ("continues what was asked before", *why)
        if (
            classify_dependence(text) is not Dependence.REFERS
            or log_odds >= 0
            or reading.cues.keys() & _KNOWLEDGE_CUES
        ):
            return log_odds, reasons
        if (earlier := find_referred_request(history)) is None:
            return log_odds, reasons
        before, _ = self._weigh_alone(earlier, signals)
        if before <= 0:
            return log_odds, reasons
        return min(0.0, log_odds + before), ("refers to what was asked before", *reasons)

    def adjust_to_tools(
        self, need: Need, text: str, signals: Signals, *, fit: float, can_recall: bool
    ) -> Need:
        """Adjust the verdict to the available tools: if one of them fits, only a certain NONE remains.

        `fit` is the probability that a tool suits the request. `can_recall` means that a tool searches notes
        or a memory.
        """
        if need.certain:
            return need
        if signals.recalls and can_recall and need.score < LIKELY_SCORE:
            return self._build_need(
                LIKELY_SCORE, ("asks for what was written down or remembered", *need.reasons)
            )
        if need.verdict is not NeedVerdict.NONE:
            return need
        text = cut_middle(get_english_text(text, signals))
        model_can = not extract_features(text, signals).cues.keys().isdisjoint(_MODEL_TASK_CUES)
        if _to_log_odds(need.score) + _to_log_odds(fit) <= (
            _SURE_LOG_ODDS_FOR_MODEL_TASK if model_can else _SURE_LOG_ODDS
        ):
            return need
        reasons = ("an available tool may have the answer", *need.reasons)
        return replace(need, verdict=NeedVerdict.UNCLEAR, reasons=reasons[:MAX_REASONS])

    def _decide_by_conversation(
        self, text: str, reading: NeedFeatures, signals: Signals, history: Sequence[Message]
    ) -> Need | None:
        """Return the verdict if the conversation alone decides it, else None."""
        if is_accepting_offer(text, history):
            return self._build_need(LIKELY_SCORE, ("agrees to what was offered",))
        if (
            apply_clear_rules(text, reading) is not None
            or apply_tool_rules(text, reading, signals) is not None
        ):
            return None
        if is_already_answered(reading, text, history):
            return self._build_need(
                SURELY_NOT_SCORE, ("the conversation already contains the answer",), certain=True
            )
        if is_about_wording(reading, text, history):
            return self._build_need(SURELY_NOT_SCORE, ("is about the last answer",), certain=True)
        return None

    def _weigh_alone(self, text: str, signals: Signals) -> tuple[float, tuple[str, ...]]:
        """Score an earlier request by its words. Of its signals, only the gloss is computed again."""
        text = cut_middle(text)
        alone = Signals(language=signals.language, gloss=gloss_text(text, signals.language))
        text = get_english_text(text, alone)
        reading = extract_features(text, alone)
        if (finding := apply_clear_rules(text, reading)) is not None:
            return _to_log_odds(finding.score), (finding.reason,)
        return self._weigh(text, reading, alone, None)

    def _weigh(
        self, text: str, reading: NeedFeatures, signals: Signals, vector: NDArray[np.float32] | None
    ) -> tuple[float, tuple[str, ...]]:
        log_odds, shares = self._model.compute_contributions(reading, vector)
        if signals.language not in _SUPPORTED_LANGUAGES and not signals.gloss:
            # The word lists and weights do not cover this language, so only language-independent cues count.
            shares = [share for share in shares if share.cue in ("path", "url", "email", "id")]
            log_odds = sum(share.points for share in shares)
        finding = apply_tool_rules(text.lower(), reading, signals)
        if finding is not None:
            log_odds = max(log_odds, _to_log_odds(finding.score))
        return log_odds, _explain_score(log_odds, shares, finding)

    def _build_need(self, score: float, reasons: tuple[str, ...], *, certain: bool = False) -> Need:
        if score >= self._tool_above:
            verdict = NeedVerdict.TOOL
        elif score <= self._none_below:
            verdict = NeedVerdict.NONE
        else:
            verdict = NeedVerdict.UNCLEAR
        return Need(verdict=verdict, score=score, reasons=reasons[:MAX_REASONS], certain=certain)


def _to_probability(log_odds: float) -> float:
    return 1 / (1 + math.exp(-max(-30.0, min(30.0, log_odds))))


def _to_log_odds(chance: float) -> float:
    chance = min(max(chance, 1e-6), 1 - 1e-6)
    return math.log(chance / (1 - chance))


def _explain_score(
    log_odds: float, shares: Sequence[CueContribution], finding: RuleFinding | None
) -> tuple[str, ...]:
    """Return the reasons with the largest effect on the score; both sides near the middle."""
    side = 0.0 if abs(log_odds) < 0.4 else math.copysign(1.0, log_odds)
    points: dict[str, float] = defaultdict(float)
    words: list[tuple[float, str]] = []
    for share in shares:
        if share.cue == "vector":
            points[
                "is like requests that need a tool" if share.points > 0 else "is like requests that need none"
            ] += share.points
        elif share.cue:
            shown = f' ("{share.text}")' if share.text else ""
            points[_REASON_BY_CUE[share.cue] + shown] += share.points
        elif share.text not in _CONTENTLESS_WORDS and share.points * (side or 1.0) > MIN_EXPLAINED_POINTS:
            words.append((abs(share.points), share.text))
    if words:
        examples = dict.fromkeys(text for _, text in sorted(words, reverse=True)[:2])
        shown = ", ".join(f'"{text}"' for text in examples)
        points[f"wording such as {shown}"] = (side or 1.0) * max(weight for weight, _ in words)
    ranked = sorted(
        (
            reason
            for reason, value in points.items()
            if abs(value) >= MIN_EXPLAINED_POINTS and value * side >= 0
        ),
        key=lambda reason: -abs(points[reason]),
    )
    first = (finding.reason,) if finding is not None else ()
    return (*first, *ranked)[:MAX_REASONS] or ("nothing speaks clearly for or against a tool",)

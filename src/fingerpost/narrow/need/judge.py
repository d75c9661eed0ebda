"""The judge: rules first, then the fitted weights, then what the conversation adds."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from fingerpost.catalog.words import STOP_WORDS
from fingerpost.narrow.followups import Dependence, dependence
from fingerpost.narrow.hebrew import gloss, telegram
from fingerpost.narrow.need import history as conversation
from fingerpost.narrow.need.cues import CUES
from fingerpost.narrow.need.model import WORTH_NAMING, Share, load
from fingerpost.narrow.need.reading import Reading, bounded, read
from fingerpost.narrow.need.rules import LIKELY, SURELY_NOT, Finding, insist, only_tells, settle
from fingerpost.records import Message, Need, NeedVerdict, Signals
from fingerpost.settings import NarrowSettings

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MOST_REASONS: Final = 4
_READ_LANGUAGES: Final = frozenset(("en", "he", "und"))
# A fragment says little itself, unless it names what only a tool can do or know.
_ITSELF_SAYS: Final = 0.2
_MOST_ITSELF: Final = 2.5  # log odds
_TOLD: Final = -1.4  # log odds that what a person tells calls for a tool, at most
_WANTS: Final = ("act", "command", "live", "file", "own", "seek")
# A question for knowledge or an opinion stays one when it refers to a result ("why is it called that?").
_KNOWN: Final = frozenset(
    ("explain", "fact", "opinion", "advice", "write", "rework", "people", "sum", "chat")
)
# Log odds of need and fit together, up to which a verdict against tools is final.
_SURE: Final = -3.3
_SURE_WHERE_A_MODEL_CAN: Final = -1.6  # for what the request says itself that a model can do
_MODEL_CAN: Final = frozenset(
    ("explain", "write", "rework", "role", "opinion", "advice", "code", "life", "sum", "given text", "blank")
)
_SAYS_LITTLE: Final = STOP_WORDS | {"", "i", "me", "my", "you", "it", "what", "how"}
_REASON_OF: Final = {cue.name: cue.reason for cue in CUES}


class NeedJudge:
    """Says whether a request needs a tool. Reads its weights once, when made."""

    def __init__(self, settings: NarrowSettings) -> None:
        self._tool_above = settings.tool_above
        self._none_below = settings.none_below
        self._model = load()
        read("warm up", Signals())  # the word lists are read here, not with the first request

    def judge(
        self,
        text: str,
        signals: Signals,
        history: Sequence[Message] = (),
        vector: NDArray[np.float32] | None = None,
    ) -> Need:
        """The verdict on one request. `vector` is the encoder's, of the gloss where there is one."""
        text = bounded(text)
        reading = read(text, signals)
        if history and (need := self._by_conversation(text, reading, signals, history)) is not None:
            return need
        if (finding := settle(text, reading)) is not None:
            return self._need(finding.score, (finding.reason,), certain=True)
        odds, reasons = self._weigh(text, reading, signals, vector)
        if odds > _TOLD and only_tells(text, reading):
            odds, reasons = _TOLD, ("tells something about the person", *reasons)
        if history:
            odds, reasons = self._with_earlier(text, reading, signals, history, odds, reasons)
        return self._need(_chance(odds), reasons)

    def _with_earlier(
        self,
        text: str,
        reading: Reading,
        signals: Signals,
        history: Sequence[Message],
        odds: float,
        reasons: tuple[str, ...],
    ) -> tuple[float, tuple[str, ...]]:
        """What the request it continues or refers to adds; a complete request is judged by itself."""
        wants = not reading.cues.keys().isdisjoint(_WANTS)
        if (earlier := conversation.continued(text, history)) is not None:
            before, why = self._weigh_alone(earlier, signals)
            itself = max(-_MOST_ITSELF, min(_MOST_ITSELF, odds))
            continued = before + _ITSELF_SAYS * itself
            return max(continued, odds) if wants else continued, ("continues what was asked before", *why)
        if dependence(text) is not Dependence.REFERS or odds >= 0 or reading.cues.keys() & _KNOWN:
            return odds, reasons
        if (earlier := conversation.referred_to(history)) is None:
            return odds, reasons
        before, _ = self._weigh_alone(earlier, signals)
        if before <= 0:
            return odds, reasons
        return min(0.0, odds + before), ("refers to what was asked before", *reasons)

    def among_tools(self, need: Need, text: str, signals: Signals, *, fit: float, can_recall: bool) -> Need:
        """The verdict in view of the tools there are: only a certain "none" holds where one of them suits.

        `fit`: how probably one suits the request. `can_recall`: one looks into what was written down.
        """
        if need.certain:
            return need
        if signals.recalls and can_recall and need.score < LIKELY:
            return self._need(LIKELY, ("asks for what was written down or remembered", *need.reasons))
        if need.verdict is not NeedVerdict.NONE:
            return need
        model_can = not read(bounded(text), signals).cues.keys().isdisjoint(_MODEL_CAN)
        if _odds(need.score) + _odds(fit) <= (_SURE_WHERE_A_MODEL_CAN if model_can else _SURE):
            return need
        reasons = ("a tool here may know it", *need.reasons)
        return replace(need, verdict=NeedVerdict.UNCLEAR, reasons=reasons[:MOST_REASONS])

    def _by_conversation(
        self, text: str, reading: Reading, signals: Signals, history: Sequence[Message]
    ) -> Need | None:
        """What the conversation decides by itself."""
        if conversation.accepts_offer(text, history):
            return self._need(LIKELY, ("agrees to what was offered",))
        if settle(text, reading) is not None or insist(text, reading, signals) is not None:
            return None
        if conversation.already_said(reading, text, history):
            return self._need(SURELY_NOT, ("the conversation already holds it",), certain=True)
        if conversation.about_wording(reading, text, history):
            return self._need(SURELY_NOT, ("is about the last answer",), certain=True)
        return None

    def _weigh_alone(self, text: str, signals: Signals) -> tuple[float, tuple[str, ...]]:
        """An earlier request, by its words: of its signals only the gloss is worked out again."""
        text = bounded(text)
        alone = Signals(
            language=signals.language,
            gloss=telegram(gloss(text)) if signals.language == "he" else "",
        )
        reading = read(text, alone)
        if (finding := settle(text, reading)) is not None:
            return _odds(finding.score), (finding.reason,)
        return self._weigh(text, reading, alone, None)

    def _weigh(
        self, text: str, reading: Reading, signals: Signals, vector: NDArray[np.float32] | None
    ) -> tuple[float, tuple[str, ...]]:
        odds, shares = self._model.shares(reading, vector)
        if signals.language not in _READ_LANGUAGES and not signals.gloss:
            # Neither our words nor our data know this language: only what needs no language counts.
            shares = [share for share in shares if share.cue in ("path", "url", "email", "id")]
            odds = sum(share.points for share in shares)
        finding = insist(text.lower(), reading, signals)
        if finding is not None:
            odds = max(odds, _odds(finding.score))
        return odds, _reasons(odds, shares, finding)

    def _need(self, score: float, reasons: tuple[str, ...], *, certain: bool = False) -> Need:
        if score >= self._tool_above:
            verdict = NeedVerdict.TOOL
        elif score <= self._none_below:
            verdict = NeedVerdict.NONE
        else:
            verdict = NeedVerdict.UNCLEAR
        return Need(verdict=verdict, score=score, reasons=reasons[:MOST_REASONS], certain=certain)


def _chance(odds: float) -> float:
    return 1 / (1 + math.exp(-max(-30.0, min(30.0, odds))))


def _odds(chance: float) -> float:
    chance = min(max(chance, 1e-6), 1 - 1e-6)
    return math.log(chance / (1 - chance))


def _reasons(odds: float, shares: Sequence[Share], finding: Finding | None) -> tuple[str, ...]:
    """What moved the score most, in words; for a score in the middle, from both sides."""
    side = 0.0 if abs(odds) < 0.4 else math.copysign(1.0, odds)
    points: dict[str, float] = defaultdict(float)
    words: list[tuple[float, str]] = []
    for share in shares:
        if share.cue == "vector":
            points[
                "is like requests that need a tool" if share.points > 0 else "is like requests that need none"
            ] += share.points
        elif share.cue:
            shown = f' ("{share.text}")' if share.text else ""
            points[_REASON_OF[share.cue] + shown] += share.points
        elif share.text not in _SAYS_LITTLE and share.points * (side or 1.0) > WORTH_NAMING:
            words.append((abs(share.points), share.text))
    if words:
        said = dict.fromkeys(text for _, text in sorted(words, reverse=True)[:2])
        shown = ", ".join(f'"{text}"' for text in said)
        points[f"wording such as {shown}"] = (side or 1.0) * max(weight for weight, _ in words)
    ranked = sorted(
        (reason for reason, value in points.items() if abs(value) >= WORTH_NAMING and value * side >= 0),
        key=lambda reason: -abs(points[reason]),
    )
    first = (finding.reason,) if finding is not None else ()
    return (*first, *ranked)[:MOST_REASONS] or ("nothing speaks clearly for or against a tool",)

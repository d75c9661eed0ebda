"""Results of narrowing a request, from whether a tool is needed to the offered tools."""

from __future__ import annotations

from dataclasses import field
from enum import StrEnum

from fingerpost.frozen import frozen


class NeedVerdict(StrEnum):
    """Would the language model alone do?"""

    TOOL = "tool"
    NONE = "none"
    UNCLEAR = "unclear"


class Effort(StrEnum):
    """What a person wants of answers."""

    QUICK = "quick"
    THOROUGH = "thorough"


@frozen
class Need:
    """Whether the request needs a tool at all. The score is the probability that it does.

    A verdict is `certain` where a rule settled it: a greeting, a sum, what the conversation holds.
    """

    verdict: NeedVerdict
    score: float
    reasons: tuple[str, ...] = ()
    certain: bool = False


@frozen
class IntentMatch:
    """One of the twelve categories, or an intent within one, that a request seems to have, and the words."""

    category: str
    score: float  # 0..1
    words: tuple[str, ...] = ()


class EntityKind(StrEnum):
    """Things in a request that tools take as arguments."""

    PATH = "path"
    URL = "url"
    EMAIL = "email"
    DATE = "date"
    TIME = "time"
    ID = "id"
    NUMBER = "number"
    QUOTED = "quoted"


@frozen
class Entity:
    """One such thing, as it stands in the request."""

    kind: EntityKind
    text: str


@frozen
class Mention:
    """A tool (by key) or a server the request names outright, and the words that name it."""

    kind: str  # "tool" or "server"
    name: str
    text: str


@frozen
class Signals:
    """What can be read off a request without knowing the tools' texts."""

    language: str = "en"  # en, he, zh, … by script and words; "und" if there are no letters
    gloss: str = ""  # the request's tool vocabulary in English, if it is in another language
    intents: tuple[IntentMatch, ...] = ()  # categories, best first; then intents narrower than a category
    urgent: bool = False
    mentions: tuple[Mention, ...] = ()
    entities: tuple[Entity, ...] = ()
    asks: bool = False  # whether the request asks to read something, not to change it
    recalls: bool = False  # whether the request asks for something stored or decided earlier


@frozen
class Part:
    """One signal's share of a candidate's score: `points` is what it added or took."""

    signal: str
    points: float
    note: str = ""


@frozen
class Candidate:
    """One tool that was considered, and why it stands where it stands."""

    tool: str
    score: float
    parts: tuple[Part, ...] = ()
    need: int = 0  # index in the shortlist's `needs`
    offered: bool = False
    lost: str = ""  # why it is not offered
    latency: str = ""  # the tool's latency tier
    confidence: str = ""  # confidence that it is suitable: high, medium or low


@frozen
class HiddenTool:
    """A tool that may not be found by this caller, and the rule that says so."""

    tool: str
    rule: str
    reason: str = ""
    personal: bool = False  # listed for other callers' keys, so its name is not shown


@frozen
class ServerChoice:
    """Which servers a turn of a conversation works with, and who decided."""

    servers: tuple[str, ...]
    left_out: tuple[str, ...] = ()
    by: str = "scores"  # "scores", "model", "remembered", or "off" (below the thresholds, or disabled)
    reasoning: str = ""
    # Those of `servers` that were added later, because a later turn needed them.
    widened: tuple[str, ...] = ()
    milliseconds: float = 0.0


@frozen
class Shortlist:
    """The few ranked tools, with scores, and how many were considered."""

    candidates: tuple[Candidate, ...] = ()  # best first; those with `offered` go to the model
    considered: int = 0
    hidden: tuple[HiddenTool, ...] = ()
    needs: tuple[str, ...] = ()  # the request, split into its separate needs
    fit: float = 0.0  # calibrated probability that a suitable tool exists, 0..1
    catalog_version: int = 0
    dense: bool = False  # whether embeddings were used in addition to words
    cached: bool = False
    exclusive: tuple[str, ...] = ()  # keys of tools whose exclusive intent the request has

    @property
    def offered(self) -> tuple[Candidate, ...]:
        return tuple(candidate for candidate in self.candidates if candidate.offered)


@frozen
class Narrowing:
    """All results of narrowing one request."""

    need: Need
    signals: Signals = field(default_factory=Signals)
    shortlist: Shortlist = field(default_factory=Shortlist)
    servers: ServerChoice | None = None
    milliseconds: float = 0.0
    packet_id: str | None = None

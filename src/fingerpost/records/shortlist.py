"""Results of narrowing a request, from whether a tool is needed to the offered tools."""

from __future__ import annotations

from dataclasses import field
from enum import StrEnum

from fingerpost.frozen import build_repr, frozen


class NeedVerdict(StrEnum):
    """Whether a tool is needed."""

    TOOL = "tool"
    NONE = "none"
    UNCLEAR = "unclear"


class Effort(StrEnum):
    """The effort that a user wants for answers."""

    QUICK = "quick"
    THOROUGH = "thorough"


@frozen
class Need:
    """Whether the request needs a tool. The score is the probability that it does.

    A verdict is `certain` if a rule decided it, for example for a greeting or a sum.
    """

    verdict: NeedVerdict
    score: float
    reasons: tuple[str, ...] = ()
    certain: bool = False


@frozen
class IntentMatch:
    """A category or a narrower intent that the request seems to have, and the matching words."""

    category: str
    score: float  # 0..1
    words: tuple[str, ...] = ()


class EntityKind(StrEnum):
    """Kinds of values in a request that tools take as arguments."""

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
    """One value in a request, as written there."""

    kind: EntityKind
    text: str


@frozen
class Mention:
    """A tool (by key) or a server that the request names, and the words that name it."""

    kind: str  # "tool" or "server"
    name: str
    text: str


@frozen
class Signals:
    """What can be derived from a request without the tools' texts."""

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
    """One signal's share of a candidate's score. `points` may be negative."""

    signal: str
    points: float
    note: str = ""


@frozen
class Candidate:
    """One tool that was considered, and the reasons for its rank."""

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
    """A tool that this caller must not see, and the rule for that."""

    tool: str
    rule: str
    reason: str = ""
    personal: bool = False  # listed for other callers' keys, so its name is not shown


@frozen
class ServerChoice:
    """The servers used in a turn of a conversation, and how they were chosen."""

    servers: tuple[str, ...]
    left_out: tuple[str, ...] = ()
    by: str = "scores"  # "scores", "model", "remembered", or "off" (below the thresholds, or disabled)
    reasoning: str = ""
    # Those of `servers` that were added later, because a later turn needed them.
    widened: tuple[str, ...] = ()
    milliseconds: float = 0.0


@frozen
class ScorerFailure:
    """A scorer that was left out of a request, and why."""

    scorer: str  # its label
    reason: str


@frozen
class Shortlist:
    """The ranked tools with their scores, and how many were considered."""

    candidates: tuple[Candidate, ...] = ()  # best first; those with `offered` go to the model
    considered: int = 0
    hidden: tuple[HiddenTool, ...] = ()
    needs: tuple[str, ...] = ()  # the request, split into its separate needs
    fit: float = 0.0  # calibrated probability that a suitable tool exists, 0..1
    catalog_version: int = 0
    dense: bool = False  # whether embeddings were used in addition to words
    cached: bool = False
    exclusive: tuple[str, ...] = ()  # keys of tools whose exclusive intent the request has
    failed_scorers: tuple[ScorerFailure, ...] = ()

    @property
    def offered(self) -> tuple[Candidate, ...]:
        return tuple(candidate for candidate in self.candidates if candidate.offered)


@frozen
class Narrowing:
    """All results of narrowing one request.

    Fields:
        need: whether a tool is needed, and why
        signals: what was found in the request: language, names, paths, dates, …
        shortlist: the offered tools with scores and reasons
        servers: the servers that were chosen first, if any
        milliseconds: time of narrowing
        packet_id: id of the request
    """

    need: Need
    signals: Signals = field(default_factory=Signals)
    shortlist: Shortlist = field(default_factory=Shortlist)
    servers: ServerChoice | None = None
    milliseconds: float = 0.0
    packet_id: str | None = None

    __repr__ = build_repr("need.verdict", "shortlist.candidates#", "milliseconds")

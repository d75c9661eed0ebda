"""What the router knows of one tool, and where each piece of that knowledge comes from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from datetime import datetime
from enum import StrEnum
from typing import Generic, TypeVar

from fingerpost.frozen import frozen
from fingerpost.records.json import Json, JsonObject

T = TypeVar("T")


class Effect(StrEnum):
    """What calling the tool does to the world."""

    READ = "read"
    WRITE = "write"
    DESTROY = "destroy"


class Source(StrEnum):
    """Where a piece of knowledge comes from, weakest first."""

    DEFAULT = "default"
    INFERRED = "inferred"
    ANNOTATION = "annotation"
    LEARNED = "learned"
    WRITTEN = "written"


@frozen(kw_only=False)
class Known(Generic[T]):
    """A value together with where it comes from, so that every figure can be explained."""

    value: T
    source: Source
    reason: str = ""


class LatencyTier(StrEnum):
    """How long a person will wait."""

    FAST = "fast"  # under 3 s
    MEDIUM = "medium"  # 3 to 15 s
    SLOW = "slow"  # 15 to 120 s
    VERY_SLOW = "very_slow"  # 2 to 5 min

    @classmethod
    def from_milliseconds(cls, milliseconds: float) -> LatencyTier:
        if milliseconds < 3_000:
            return cls.FAST
        if milliseconds < 15_000:
            return cls.MEDIUM
        return cls.SLOW if milliseconds < 120_000 else cls.VERY_SLOW


class AnswerSize(StrEnum):
    """How much a model has to read, in tokens."""

    SMALL = "small"  # under 500
    MEDIUM = "medium"  # 500 to 2,000
    LARGE = "large"  # 2,000 to 8,000
    VERY_LARGE = "very_large"  # 8,000 or more

    @classmethod
    def from_tokens(cls, tokens: int) -> AnswerSize:
        if tokens < 500:
            return cls.SMALL
        if tokens <= 2_000:
            return cls.MEDIUM
        return cls.LARGE if tokens < 8_000 else cls.VERY_LARGE


@frozen
class LatencyProfile:
    """How long the tool takes, in milliseconds, and when to show that it is at work."""

    typical: Known[int]
    timeout: Known[int]
    feedback_delay: Known[int]

    @property
    def tier(self) -> LatencyTier:
        return LatencyTier.from_milliseconds(self.typical.value)


@frozen
class ResponseProfile:
    """How much the tool answers, in tokens, and in what shape."""

    typical_tokens: Known[int]
    max_tokens: Known[int]
    structured: Known[bool]
    needs_summary: Known[bool]

    @property
    def size(self) -> AnswerSize:
        """How large an answer to expect: never more than the tool's answers are cut to."""
        return AnswerSize.from_tokens(min(self.typical_tokens.value, self.max_tokens.value))


@frozen
class IntentSignals:
    """Words in a request that speak for the tool."""

    keywords: Known[tuple[str, ...]]
    weight: Known[float]
    exclusive_intent: Known[str | None]


@frozen
class ParameterHints:
    """What a model needs to know to fill the arguments in."""

    required: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    examples: Mapping[str, Json] = field(default_factory=dict[str, Json])


@frozen
class Intelligence:
    """Everything known about a tool beyond its definition."""

    category: Known[str]
    priority: Known[int]
    hierarchy: Known[tuple[str, ...]]  # where to turn when this tool fails, best first
    conflicts: Known[tuple[str, ...]]  # tools not to offer beside this one
    latency: LatencyProfile
    response: ResponseProfile
    signals: IntentSignals
    parameters: ParameterHints


class RetryCondition(StrEnum):
    """A failure after which a call may be repeated; the words of `ErrorKind`."""

    UNAVAILABLE = "unavailable"  # the server could not be reached, or was busy
    TIMEOUT = "timeout"  # the tool did not answer in time: each repetition has the same time again
    EXECUTION_FAILED = "execution_failed"  # the tool itself reported an error


@frozen
class RetryRule:
    """How often and after what a call of the tool is repeated.

    A call that may have taken effect is repeated only where a person wrote that this does no harm.
    """

    retries: Known[int | None] = Known(None, Source.DEFAULT)  # None: `call.retries`
    conditions: Known[tuple[RetryCondition, ...]] = Known((RetryCondition.UNAVAILABLE,), Source.DEFAULT)
    repeatable: Known[bool] = Known(False, Source.DEFAULT)  # noqa: FBT003 - what is known, not a switch


@frozen
class Instructions:
    """When to use a tool and when not, in a person's words. Empty fields are written by Fingerpost."""

    purpose: str = ""
    when: tuple[str, ...] = ()
    when_not: tuple[str, ...] = ()
    examples: tuple[str, ...] = ()


@frozen
class ToolCard:
    """One tool: its identity, its definition unmodified, and what we know about it."""

    key: str  # server/tool: the identity, everywhere
    server: str
    name: str  # as its server calls it
    exposed_name: str  # as models see it: at most 64 characters, unique, stable
    definition: JsonObject
    description: str
    effect: Known[Effect]
    fingerprint: str  # over all that a model or a person decides by
    intelligence: Intelligence
    instructions: Instructions = field(default_factory=Instructions)  # what a person wrote about its use
    operations: Mapping[str, Effect] = field(default_factory=dict[str, Effect])  # where they differ, written
    cache_seconds: Known[float] = Known(0.0, Source.DEFAULT)  # how long a read may be answered from memory
    retry: RetryRule = field(default_factory=RetryRule)
    personal: bool = False  # listed only to callers with a key of their own: seen by those alone
    doubt: str = ""  # why it is not certain that it only reads; empty where it is, or where it does not read

    @property
    def certain(self) -> bool:
        """Whether its effect may be relied on: a read that is not certain counts as writing."""
        return not self.doubt

    def effect_of(self, operation: str | None) -> Effect:
        """What one operation of it counts as; the tool's own effect where nothing else is written."""
        own = Effect.WRITE if self.doubt else self.effect.value
        return own if operation is None else self.operations.get(operation, own)

    @property
    def effects(self) -> frozenset[Effect]:
        """All that calling it may do."""
        return frozenset((self.effect_of(None), *self.operations.values()))


@frozen
class Pin:
    """The definition of a tool a person trusts: the first one seen, or one accepted since."""

    key: str
    fingerprint: str
    definition: JsonObject
    pinned_at: datetime
    accepted_by: str | None = None  # None: seen first, accepted by nobody in particular
    only_reads: str | None = None  # who said of this definition that the tool only reads


@frozen
class Quarantined:
    """A tool that changed since it was pinned, or is new on a known server: not listed, not callable."""

    card: ToolCard
    pin: Pin  # of a new one: of nothing, with no fingerprint

    @property
    def new(self) -> bool:
        """Whether it was never accepted in any form."""
        return not self.pin.fingerprint


@frozen
class ChangedInstructions:
    """What a server says of itself, changed since it was pinned: it is not passed on."""

    server: str
    before: str
    after: str
    fingerprint: str  # of what it says now, to accept that


@frozen
class UsageSample:
    """One finished call, as the statistics see it."""

    tool: str
    milliseconds: float
    tokens: int
    success: bool
    at: datetime


@frozen
class UsageProfile:
    """What past calls of one tool teach."""

    tool: str
    calls: int
    failures: int
    typical_ms: float  # median
    slow_ms: float  # 95th percentile
    typical_tokens: int
    large_tokens: int
    last_used: datetime

"""Knowledge about one tool, and the source of each value."""

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
    """A value with its source and reason, so that it can be explained."""

    value: T
    source: Source
    reason: str = ""


class LatencyTier(StrEnum):
    """How long a user has to wait."""

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
    """How long the tool takes in milliseconds, and when to show progress."""

    typical: Known[int]
    timeout: Known[int]
    feedback_delay: Known[int]

    @property
    def tier(self) -> LatencyTier:
        return LatencyTier.from_milliseconds(self.typical.value)


@frozen
class ResponseProfile:
    """The size of the tool's results in tokens, and their form."""

    typical_tokens: Known[int]
    max_tokens: Known[int]
    structured: Known[bool]
    needs_summary: Known[bool]

    @property
    def size(self) -> AnswerSize:
        """The expected size of a result, limited to what results are shortened to."""
        return AnswerSize.from_tokens(min(self.typical_tokens.value, self.max_tokens.value))


@frozen
class IntentSignals:
    """Words in a request that indicate the tool."""

    keywords: Known[tuple[str, ...]]
    weight: Known[float]
    exclusive_intent: Known[str | None]


@frozen
class ParameterHints:
    """What a model needs to fill in the arguments."""

    required: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    examples: Mapping[str, Json] = field(default_factory=dict[str, Json])


@frozen
class Intelligence:
    """All metadata of a tool beyond its definition."""

    category: Known[str]
    priority: Known[int]
    hierarchy: Known[tuple[str, ...]]  # fallbacks for this tool, best first
    conflicts: Known[tuple[str, ...]]  # tools not to offer together with this one
    latency: LatencyProfile
    response: ResponseProfile
    signals: IntentSignals
    parameters: ParameterHints


class RetryCondition(StrEnum):
    """A failure after which a call may be retried; values of `ErrorKind`."""

    UNAVAILABLE = "unavailable"  # the server could not be reached or was busy
    TIMEOUT = "timeout"  # the tool timed out; each retry has the full timeout again
    EXECUTION_FAILED = "execution_failed"  # the tool reported an error


@frozen
class RetryRule:
    """How often and after which failures a call of the tool is retried.

    A call that may have taken effect is retried only if a person wrote that this is safe.
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
    """One tool: its identity, its unmodified definition, and its metadata."""

    key: str  # server/tool: the identity of the tool
    server: str
    name: str  # the name on its server
    exposed_name: str  # the name for models: at most 64 characters, unique, stable
    definition: JsonObject
    description: str
    effect: Known[Effect]
    fingerprint: str  # of everything that a model or a person decides by
    intelligence: Intelligence
    instructions: Instructions = field(default_factory=Instructions)  # written by a person
    # Written effects that differ from the tool's.
    operations: Mapping[str, Effect] = field(default_factory=dict[str, Effect])
    cache_seconds: Known[float] = Known(0.0, Source.DEFAULT)  # how long a read may be answered from the cache
    retry: RetryRule = field(default_factory=RetryRule)
    personal: bool = False  # listed only for callers' own keys, and visible only to those callers
    doubt: str = ""  # why it is not certain that the tool only reads; empty if it is certain or does not read

    @property
    def certain(self) -> bool:
        """Whether the effect is certain. An uncertain read counts as a write."""
        return not self.doubt

    def effect_of(self, operation: str | None) -> Effect:
        """Return the effect of one operation; the tool's effect if nothing else is written."""
        own = Effect.WRITE if self.doubt else self.effect.value
        return own if operation is None else self.operations.get(operation, own)

    @property
    def effects(self) -> frozenset[Effect]:
        """All effects that a call may have."""
        return frozenset((self.effect_of(None), *self.operations.values()))


@frozen
class Pin:
    """The definition of a tool a person trusts: the first one seen, or one accepted since."""

    key: str
    fingerprint: str
    definition: JsonObject
    pinned_at: datetime
    accepted_by: str | None = None  # None: pinned when first seen, without acceptance
    only_reads: str | None = None  # who marked this definition as read-only


@frozen
class Quarantined:
    """A tool that differs from its pin, or is new on a known server. It is not listed and cannot be
    called.
    """

    card: ToolCard
    pin: Pin  # for a new tool: empty, without a fingerprint

    @property
    def new(self) -> bool:
        """Whether no version of it was ever accepted."""
        return not self.pin.fingerprint


@frozen
class ChangedInstructions:
    """Instructions of a server that differ from the pinned ones. They are not forwarded."""

    server: str
    before: str
    after: str
    fingerprint: str  # of the current text, needed to accept it


@frozen
class UsageSample:
    """One finished call, for the statistics."""

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

"""Records of analytics: request lines, pages, details and figures."""

from __future__ import annotations

from dataclasses import field
from datetime import datetime
from typing import Literal

from fingerpost.frozen import frozen
from fingerpost.records import Packet
from fingerpost.store.journal import JournalEntry


@frozen
class PacketLine:
    """Summary of one request, or of one direct call of an MCP client. It is updated until the request
    ends.
    """

    packet_id: str
    kind: Literal["request", "call"]
    seq: int  # of its first event in the journal
    last_seq: int
    at: datetime
    last_at: datetime
    prompt: str = ""  # the beginning of the prompt; for a direct call the tool's name
    language: str = "und"
    caller: str | None = None
    conversation: str | None = None
    mode: str | None = None
    profile: str | None = None
    state: Literal["running", "waiting", "ended"] = "running"
    outcome: str | None = None  # a `RouteOutcome`; for a direct call "succeeded" or the error kind
    next_step: str = ""  # what to do about a request that is no longer processed
    need: str | None = None  # a `NeedVerdict`
    considered: int = 0
    offered: int = 0
    tools: tuple[str, ...] = ()  # in call order
    pending_id: str | None = None
    decision: str | None = None  # the last `Decision` of a person about one of its calls
    dry_run: bool = False  # nothing was called: only what would be
    model_calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    spared_tokens: int | None = None  # of definitions that were not offered; None: nothing was narrowed
    saved_tokens: int | None = None  # `spared_tokens` if a model read the offered ones; None: no model ran
    fallbacks: int = 0
    failures: int = 0  # failed attempts
    milliseconds: float | None = None
    parent: str | None = None  # for a subagent's request: the request that started it
    children: tuple[str, ...] = ()  # requests that it started, in order


@frozen
class PacketQuery:
    """A filter for packets. Empty fields set no condition; `before` continues before an older line's
    `seq`.
    """

    limit: int = 50
    before: int | None = None
    text: str = ""
    kind: Literal["request", "call"] | None = None
    outcome: str | None = None
    tool: str | None = None
    caller: str | None = None
    conversation: str | None = None
    mode: str | None = None


@frozen
class PacketPage:
    """One page of requests, newest first. `next` is the `before` of the next page, or null on the last
    page.
    """

    items: tuple[PacketLine, ...]
    next: int | None = None


@frozen
class PacketDetail:
    """All events of one packet."""

    line: PacketLine
    events: tuple[JournalEntry, ...]
    packet: Packet | None = None  # None: a direct call


@frozen
class Spread:
    """Distribution of durations in milliseconds. Percentiles are accurate to 2 %."""

    count: int = 0
    p50: float = 0.0
    p95: float = 0.0


@frozen
class Counted:
    """Counts over a period. A share is null if there is nothing to divide by."""

    requests: int = 0
    judged: int = 0  # requests with a need verdict
    no_tool: int = 0  # requests that need no tool
    unclear: int = 0  # requests with an unclear need
    no_tool_share: float | None = None
    narrowed: int = 0  # requests with narrowed tools
    considered: int = 0  # tools, summed over these requests
    offered: int = 0
    reduction: float | None = None  # share of tools not shown to the model
    tokens_saved: int = 0  # one model call per request with a model, compared with showing every tool
    outcomes: dict[str, int] = field(default_factory=dict[str, int])  # of requests

    model_calls: int = 0
    model_errors: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    syntax_stopped: int = 0

    calls: int = 0  # finished calls
    failed_calls: int = 0
    failed_share: float | None = None
    errors: dict[str, int] = field(default_factory=dict[str, int])  # of calls, by kind
    attempts: int = 0
    failed_attempts: int = 0
    cached: int = 0
    repaired: int = 0  # calls with repaired arguments
    fallbacks: int = 0  # calls that used a fallback
    recovered: int = 0  # of these, calls that succeeded
    recovered_share: float | None = None
    digested: int = 0
    truncated: int = 0
    truncated_share: float | None = None
    estimates: int = 0
    good_estimates: int = 0  # within 50 % of the actual duration
    good_estimates_share: float | None = None

    server_choices: int = 0  # by smart routing
    server_choices_failed: int = 0  # all servers were kept
    server_choices_success: float | None = None
    server_choices_all_stayed: int = 0  # by failure, or without a clear result
    server_fallback_rate: float | None = None  # share of choices that kept all servers
    server_choices_widened: int = 0  # later turns that added servers to a choice
    server_reduction: float | None = None  # share of tools left out by choices
    server_tokens_saved: int = 0

    exclusive_asked: int = 0  # requests with an intent that has an exclusive tool (official data)
    exclusive_offered: int = 0  # of these, requests where it was offered
    exclusive_taken: int = 0  # of these, requests where it was called
    exclusive_succeeded: int = 0

    breaker_openings: int = 0
    approvals_asked: int = 0
    approved: int = 0
    rejected: int = 0
    expired: int = 0
    refused_access: int = 0

    # narrow, servers, model, approval, call, attempt, whole
    stages: dict[str, Spread] = field(default_factory=dict[str, Spread])


@frozen
class Bucket(Counted):
    """Counts of one step of the period, which starts at `at`."""

    at: datetime


@frozen
class ToolCount:
    """How often a tool was called, and how often it failed."""

    tool: str
    calls: int
    failures: int


@frozen
class UserCount:
    """Requests and calls of one caller or one profile. `name` is empty for requests without one."""

    name: str
    requests: int
    calls: int


@frozen
class ArmFigures:
    """Counts of the requests in one arm of a rollout: `changed` or `usual`."""

    rollout: str
    arm: str
    figures: Counted


@frozen
class CalibrationPoint:
    """Selections with a similar claimed confidence, and the share of them that was right."""

    claimed: float
    right: float
    count: int


@frozen
class Figures:
    """Statistics over a period: totals, one bucket per step, and rankings."""

    since: datetime
    until: datetime
    step: Literal["minute", "hour", "day"]
    step_seconds: int
    complete: bool  # whether all events since `since` were counted, not only the newest
    counted_from: datetime
    totals: Counted
    before: Counted | None  # the period of equal length before; None: not fully counted
    buckets: tuple[Bucket, ...]  # one per step, including empty ones
    most_used: tuple[ToolCount, ...] = ()
    never_used: tuple[str, ...] = ()
    callers: tuple[UserCount, ...] = ()
    profiles: tuple[UserCount, ...] = ()
    calibration: tuple[CalibrationPoint, ...] = ()
    rollouts: tuple[ArmFigures, ...] = ()

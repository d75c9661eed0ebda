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
    """One request, or one bare call (of an MCP client), in one line. Grows while it is on its way."""

    packet_id: str
    kind: Literal["request", "call"]
    seq: int  # of its first event in the journal
    last_seq: int
    at: datetime
    last_at: datetime
    prompt: str = ""  # the beginning of the person's words; of a bare call: the tool's name
    language: str = "und"
    caller: str | None = None
    conversation: str | None = None
    mode: str | None = None
    profile: str | None = None
    state: Literal["running", "waiting", "ended"] = "running"
    outcome: str | None = None  # a `RouteOutcome`; of a bare call: "succeeded" or the kind of its error
    next_step: str = ""  # what to do about a request that nobody works on any more
    need: str | None = None  # a `NeedVerdict`
    considered: int = 0
    offered: int = 0
    tools: tuple[str, ...] = ()  # called, in order
    pending_id: str | None = None
    model_calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    saved_tokens: int | None = None  # against offering every tool; None: nothing was offered
    fallbacks: int = 0
    failures: int = 0  # attempts that failed
    milliseconds: float | None = None
    parent: str | None = None  # the request on whose behalf it was made: it is a subagent's
    children: tuple[str, ...] = ()  # the requests made on its behalf, in order


@frozen
class PacketQuery:
    """Which packets are wanted. Empty parts set no bound; `before` goes on from an older line's `seq`."""

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
    """Newest first. `next` is the `before` of the page behind this one; None: there is none."""

    items: tuple[PacketLine, ...]
    next: int | None = None


@frozen
class PacketDetail:
    """Everything that happened to one packet."""

    line: PacketLine
    events: tuple[JournalEntry, ...]
    packet: Packet | None = None  # None: a bare call


@frozen
class Spread:
    """How long something took, in milliseconds, within 2 %."""

    count: int = 0
    p50: float = 0.0
    p95: float = 0.0


@frozen
class Counted:
    """What was counted in some time. A share of nothing is None."""

    requests: int = 0
    judged: int = 0  # requests whose need was judged
    no_tool: int = 0  # requests the model alone can answer
    unclear: int = 0  # requests of which that is not certain
    no_tool_share: float | None = None
    narrowed: int = 0  # requests for which tools were looked for
    considered: int = 0  # tools, over all of these
    offered: int = 0
    reduction: float | None = None  # the share of tools the model was spared
    tokens_saved: int = 0  # for one question each, against showing every tool
    outcomes: dict[str, int] = field(default_factory=dict[str, int])  # of requests

    model_calls: int = 0
    model_errors: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    syntax_stopped: int = 0

    calls: int = 0  # that came to an end
    failed_calls: int = 0
    failed_share: float | None = None
    errors: dict[str, int] = field(default_factory=dict[str, int])  # of calls, by kind
    attempts: int = 0
    failed_attempts: int = 0
    cached: int = 0
    repaired: int = 0  # calls whose arguments were put right
    fallbacks: int = 0  # calls for which another tool stepped in
    recovered: int = 0  # and that succeeded then
    recovered_share: float | None = None
    digested: int = 0
    truncated: int = 0
    truncated_share: float | None = None
    estimates: int = 0
    good_estimates: int = 0  # within 50 % of what it took
    good_estimates_share: float | None = None

    server_choices: int = 0  # by smart routing
    server_choices_failed: int = 0  # all servers stayed
    server_choices_success: float | None = None
    server_choices_all_stayed: int = 0  # by failure, or because no server stood out
    server_fallback_rate: float | None = None  # the share of choices after which all servers stayed
    server_choices_widened: int = 0  # how often a later turn added servers to a choice
    server_reduction: float | None = None  # the share of tools left out by choices
    server_tokens_saved: int = 0

    exclusive_asked: int = 0  # requests with an intent for which only one tool is offered (official data)
    exclusive_offered: int = 0  # and it was offered
    exclusive_taken: int = 0  # and called
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
    """What was counted from `at` on, for one step."""

    at: datetime


@frozen
class ToolCount:
    """How often a tool was called."""

    tool: str
    calls: int
    failures: int


@frozen
class UserCount:
    """What one caller, or one profile, asked for. `name` is empty where nobody was named."""

    name: str
    requests: int
    calls: int


@frozen
class ArmFigures:
    """What was counted of the requests in one arm of a rollout: `changed`, or `usual`."""

    rollout: str
    arm: str
    figures: Counted


@frozen
class CalibrationPoint:
    """Selections of which about the same was claimed, and the share of them that was right."""

    claimed: float
    right: float
    count: int


@frozen
class Figures:
    """The whole answer."""

    since: datetime
    until: datetime
    step: Literal["minute", "hour", "day"]
    step_seconds: int
    complete: bool  # whether everything since `since` was counted, or the newest part alone
    counted_from: datetime
    totals: Counted
    before: Counted | None  # of the equally long time before; None: not counted in full
    buckets: tuple[Bucket, ...]  # one for each step, empty ones too
    most_used: tuple[ToolCount, ...] = ()
    never_used: tuple[str, ...] = ()
    callers: tuple[UserCount, ...] = ()
    profiles: tuple[UserCount, ...] = ()
    calibration: tuple[CalibrationPoint, ...] = ()
    rollouts: tuple[ArmFigures, ...] = ()

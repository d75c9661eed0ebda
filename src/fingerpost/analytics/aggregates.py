"""Aggregates of events by time step, and the figures built from them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal, NamedTuple, TypeVar, get_args

import anyio
import anyio.to_thread

from fingerpost.analytics.records import (
    ArmFigures,
    Bucket,
    CalibrationPoint,
    Counted,
    Figures,
    Spread,
    ToolCount,
    UserCount,
)
from fingerpost.events import (
    AccessRefused,
    ApprovalDecided,
    ApprovalRequested,
    AttemptFinished,
    BreakerMoved,
    CallFinished,
    CallPrepared,
    CallReceived,
    Event,
    FallbackTaken,
    ModelAnswered,
    PacketReceived,
    RequestNarrowed,
    ResultDigested,
    RouteBegan,
    RouteEnded,
    SmartRoutingEnd,
    SyntaxStopped,
)
from fingerpost.events.counts import count_event
from fingerpost.records import ConfidenceSample, Decision, ErrorKind, RouteOutcome, utc_now
from fingerpost.store import Store
from fingerpost.store.journal import JournalEntry
from fingerpost.store.learning import compute_quantile, get_bucket

MAX_NAMES: Final = 500  # tools, callers and profiles per step; further names are not counted
MAX_ARMS: Final = 100
TIMED_STAGES: Final = ("narrow", "servers", "model", "approval", "call", "attempt", "whole")


@dataclass(slots=True)
class Aggregate:
    """Counts by fields of `Counted`, sketches of durations, and counts by tool, caller and profile."""

    counts: Counter[str] = field(default_factory=Counter[str])
    outcomes: Counter[str] = field(default_factory=Counter[str])
    errors: Counter[str] = field(default_factory=Counter[str])
    durations: defaultdict[str, Counter[int]] = field(default_factory=lambda: defaultdict(Counter[int]))
    tools: Counter[str] = field(default_factory=Counter[str])
    tool_failures: Counter[str] = field(default_factory=Counter[str])
    requests_by: defaultdict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter[str]))
    calls_by: defaultdict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter[str]))
    # By rollout and arm.
    arms: dict[tuple[str, str], Aggregate] = field(default_factory=dict[tuple[str, str], "Aggregate"])

    def add_duration(self, stage: str, milliseconds: float) -> None:
        self.durations[stage][get_bucket(milliseconds)] += 1

    def add(self, other: Aggregate) -> None:
        self.counts.update(other.counts)
        self.outcomes.update(other.outcomes)
        self.errors.update(other.errors)
        self.tools.update(other.tools)
        self.tool_failures.update(other.tool_failures)
        for stage, sketch in other.durations.items():
            self.durations[stage].update(sketch)
        for ours, theirs in ((self.requests_by, other.requests_by), (self.calls_by, other.calls_by)):
            for kind, names in theirs.items():
                ours[kind].update(names)
        for arm, sums in other.arms.items():
            self.get_or_create_arm(arm).add(sums)

    def get_or_create_arm(self, arm: tuple[str, str]) -> Aggregate:
        """Return the aggregate of one rollout arm. Beyond `MAX_ARMS` it is a temporary one."""
        if arm not in self.arms and len(self.arms) < MAX_ARMS:
            self.arms[arm] = Aggregate()
        return self.arms.get(arm) or Aggregate()


def add_name(names: Counter[str], name: str) -> None:
    """Count this name, unless there are already too many names."""
    if name in names or len(names) < MAX_NAMES:
        names[name] += 1


def combine_aggregates(aggregates: Iterable[Aggregate]) -> Aggregate:
    whole = Aggregate()
    for part in aggregates:
        whole.add(part)
    return whole


def build_counted_fields(aggregate: Aggregate) -> dict[str, Any]:
    """Return the fields of a `Counted`."""
    counts, durations = aggregate.counts, aggregate.durations
    stages = [stage for stage in TIMED_STAGES if stage in durations]
    return {
        **{name: counts[name] for name in _PLAIN_COUNTS},
        "no_tool_share": _compute_share(counts["no_tool"], counts["judged"]),
        "reduction": _compute_remaining_share(counts["offered"], counts["considered"]),
        "failed_share": _compute_share(counts["failed_calls"], counts["calls"]),
        "recovered_share": _compute_share(counts["recovered"], counts["fallbacks"]),
        "truncated_share": _compute_share(counts["truncated"], counts["digested"]),
        "good_estimates_share": _compute_share(counts["good_estimates"], counts["estimates"]),
        "server_choices_success": _compute_remaining_share(
            counts["server_choices_failed"], counts["server_choices"]
        ),
        "server_fallback_rate": _compute_share(counts["server_choices_all_stayed"], counts["server_choices"]),
        "server_reduction": _compute_remaining_share(counts["server_tools_kept"], counts["server_tools"]),
        "outcomes": dict(sorted(aggregate.outcomes.items())),
        "errors": dict(sorted(aggregate.errors.items())),
        "stages": {stage: _build_spread(durations[stage]) for stage in stages},
    }


def build_arm_figures(aggregate: Aggregate) -> tuple[ArmFigures, ...]:
    return tuple(
        ArmFigures(rollout=rollout, arm=arm, figures=Counted(**build_counted_fields(found)))
        for (rollout, arm), found in sorted(aggregate.arms.items())
    )


def get_most_used(aggregate: Aggregate, limit: int) -> tuple[ToolCount, ...]:
    ranked = sorted(aggregate.tools.items(), key=lambda item: (-item[1], item[0]))[:limit]
    return tuple(
        ToolCount(tool=tool, calls=calls, failures=aggregate.tool_failures[tool]) for tool, calls in ranked
    )


def get_user_counts(aggregate: Aggregate, kind: str, limit: int) -> tuple[UserCount, ...]:
    requests, calls = aggregate.requests_by[kind], aggregate.calls_by[kind]
    ranked = sorted(requests.keys() | calls.keys(), key=lambda name: (-requests[name] - calls[name], name))
    return tuple(UserCount(name=name, requests=requests[name], calls=calls[name]) for name in ranked[:limit])


def _build_spread(sketch: Counter[int]) -> Spread:
    return Spread(count=sketch.total(), p50=compute_quantile(sketch, 0.5), p95=compute_quantile(sketch, 0.95))


def _compute_share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _compute_remaining_share(part: int, whole: int) -> float | None:
    return 1 - part / whole if whole else None


# Fields that are plain counts.
_PLAIN_COUNTS: Final = tuple(name for name, hint in Counted.__annotations__.items() if hint == "int")


GOOD_ESTIMATE_MARGIN: Final = 0.5
MIN_ESTIMATE_SAMPLES: Final = 5
_MAX_REMEMBERED: Final = 5_000

V = TypeVar("V")


class _OpenEnd(NamedTuple):
    """When a request began to wait for a person, how, and how long it had worked until then."""

    at: datetime
    outcome: str
    milliseconds: float


class EventCounter:
    """Aggregates by time step. Repeated events are counted once."""

    def __init__(self, step_seconds: int) -> None:
        self._step = step_seconds
        self.sums: dict[int, Aggregate] = {}  # by the Unix time at the start of the step
        self.last_seq = 0
        self.first_at: datetime | None = None
        self.pending_approvals: dict[str, datetime] = {}  # undecided approvals
        self._dry: dict[str, None] = {}
        self._fallen_back: dict[str, None] = {}
        self._narrowed: dict[str, None] = {}
        self._spared: dict[str, int] = {}  # tokens not offered, by packet without a model yet
        self._ran: dict[str, None] = {}  # calls that a tool or the cache answered
        self._received: dict[str, None] = {}  # a call that waited is received again
        self._open_ends: dict[str, _OpenEnd] = {}  # of requests that wait for a person, by packet
        self._arms: dict[str, tuple[tuple[str, str], ...]] = {}  # rollout arms by packet
        self._exclusive: dict[str, frozenset[str]] = {}  # exclusive tools by packet
        self._durations: dict[str, Counter[int]] = {}  # of earlier attempts, by tool

    def count(self, events: Iterable[JournalEntry]) -> None:
        """Count these events. They must be in the order of their sequence numbers."""
        for entry in events:
            if entry.seq <= self.last_seq:
                continue
            self.last_seq = entry.seq
            if self.first_at is None:
                self.first_at = entry.event.at
            handler = _COUNT_HANDLERS.get(type(entry.event))
            if handler is not None:
                self._count_event(handler, entry.event)

    def _count_event(self, handler: Callable[[EventCounter, Aggregate, Any], None], event: Event) -> None:
        """Count the event in total and for each rollout arm of its request."""
        sums = self._get_or_create_aggregate(event.at)
        if isinstance(event, RouteBegan | RequestNarrowed):
            self._assign_arms(sums, event)
        arms = self._arms.get(event.packet_id or "")
        if not arms:
            handler(self, sums, event)
            return
        made = Aggregate()
        handler(self, made, event)
        sums.add(made)
        for arm in arms:
            sums.get_or_create_arm(arm).add(made)

    def _assign_arms(self, aggregate: Aggregate, event: RouteBegan | RequestNarrowed) -> None:
        if not event.arms or event.packet_id is None or event.packet_id in self._arms:
            return
        for arm in _remember_value(self._arms, event.packet_id, tuple(event.arms.items())):
            aggregate.get_or_create_arm(arm).counts["requests"] += 1

    def count_expired(self, pending_id: str, at: datetime) -> None:
        """Count an approval that was not decided in time. There is no event for this."""
        if self.pending_approvals.pop(pending_id, None) is not None:
            self._get_or_create_aggregate(at).counts["expired"] += 1

    def discard_before(self, second: int) -> None:
        """Discard time steps that are no longer needed."""
        for old in [start for start in self.sums if start < second]:
            del self.sums[old]

    def _get_or_create_aggregate(self, moment: datetime) -> Aggregate:
        start = int(moment.timestamp()) // self._step * self._step
        found = self.sums.get(start)
        if found is None:
            found = self.sums[start] = Aggregate()
        return found

    def _count_received(self, aggregate: Aggregate, event: PacketReceived) -> None:
        aggregate.counts["requests"] += 1
        add_name(aggregate.requests_by["caller"], event.packet.header.caller or "")

    def _count_narrowing(self, aggregate: Aggregate, event: RequestNarrowed) -> None:
        """Count a narrowing. Of a request with several steps, only the first one counts for the request."""
        narrowing = event.narrowing
        aggregate.add_duration("narrow", narrowing.milliseconds)
        if event.packet_id is None or event.packet_id in self._narrowed:
            return
        _remember_value(self._narrowed, event.packet_id, None)
        counts, shortlist = aggregate.counts, narrowing.shortlist
        amounts = dict(count_event(event))
        spared = amounts.pop("tokens_saved")  # counts as saved when a model reads the offered tools
        counts.update(amounts)
        _remember_value(self._spared, event.packet_id, spared)
        if shortlist.exclusive:
            sole = _remember_value(self._exclusive, event.packet_id, frozenset(shortlist.exclusive))
            counts["exclusive_asked"] += 1
            counts["exclusive_offered"] += any(one.tool in sole for one in shortlist.offered)

    def _count_route_ended(self, aggregate: Aggregate, event: RouteEnded) -> None:
        """Count the end of a request. One that waited ends again; then only its last outcome counts."""
        packet_id = event.packet_id or ""
        earlier = self._open_ends.pop(packet_id, None)
        milliseconds = event.milliseconds
        if earlier is not None:
            milliseconds += earlier.milliseconds
            sums = self._get_or_create_aggregate(earlier.at)
            for one in (sums, *(sums.get_or_create_arm(arm) for arm in self._arms.get(packet_id, ()))):
                one.outcomes[earlier.outcome] -= 1
                one.outcomes += Counter[str]()  # drops what is zero
        aggregate.outcomes[event.outcome.value] += 1
        if event.outcome in (RouteOutcome.WAITING, RouteOutcome.ASKED):
            _remember_value(self._open_ends, packet_id, _OpenEnd(event.at, event.outcome.value, milliseconds))
        else:
            aggregate.add_duration("whole", milliseconds)

    def _count_model_answered(self, aggregate: Aggregate, event: ModelAnswered) -> None:
        aggregate.counts.update(count_event(event))
        aggregate.counts["tokens_saved"] += self._spared.pop(event.packet_id or "", 0)
        if event.error is None:
            aggregate.add_duration("model", event.milliseconds)

    def _count_servers_chosen(self, aggregate: Aggregate, event: SmartRoutingEnd) -> None:
        aggregate.counts.update(count_event(event))
        if not event.widened:
            aggregate.add_duration("servers", event.milliseconds)

    def _count_call_received(self, aggregate: Aggregate, event: CallReceived) -> None:
        if event.dry_run:
            _remember_value(self._dry, event.call_id, None)
        elif event.call_id not in self._received:
            _remember_value(self._received, event.call_id, None)
            add_name(aggregate.calls_by["caller"], event.caller or "")

    def _count_attempt_finished(self, aggregate: Aggregate, event: AttemptFinished) -> None:
        made, counts = event.attempt, aggregate.counts
        if made.error is not ErrorKind.DENIED and made.tool in self._exclusive.get(event.packet_id or "", ()):
            del self._exclusive[event.packet_id or ""]  # only the first attempt of a request counts
            counts["exclusive_taken"] += 1
            counts["exclusive_succeeded"] += made.error is None
        amounts = count_event(event)
        counts.update(amounts)
        if amounts:
            _remember_value(self._ran, event.call_id, None)
        if "attempts" not in amounts:
            return
        aggregate.add_duration("attempt", made.milliseconds)
        if made.error is None:
            self._compare_with_estimate(counts, made.tool, made.milliseconds)

    def _compare_with_estimate(self, counts: Counter[str], tool: str, milliseconds: float) -> None:
        """Compare the duration with the estimate, which is the median of the tool's earlier durations."""
        earlier = self._durations.get(tool)
        if earlier is None:
            earlier = _remember_value(self._durations, tool, Counter[int]())
        if earlier.total() >= MIN_ESTIMATE_SAMPLES:
            estimate = compute_quantile(earlier, 0.5)
            counts["estimates"] += 1
            margin = GOOD_ESTIMATE_MARGIN * max(estimate, 1.0)
            counts["good_estimates"] += abs(milliseconds - estimate) <= margin
        earlier[get_bucket(milliseconds)] += 1

    def _count_call_finished(self, aggregate: Aggregate, event: CallFinished) -> None:
        if event.call_id in self._dry:
            del self._dry[event.call_id]
            return
        amounts = count_event(event)
        if not amounts:  # the call waits for approval
            return
        counts = aggregate.counts
        counts.update(amounts)
        if event.error is not None:
            aggregate.errors[event.error.value] += 1
        if event.call_id in self._ran:  # a refused call did not use the tool
            del self._ran[event.call_id]
            add_name(aggregate.tools, event.tool)
            if amounts["failed_calls"]:
                add_name(aggregate.tool_failures, event.tool)
        if event.call_id in self._fallen_back:
            del self._fallen_back[event.call_id]
            counts["fallbacks"] += 1
            counts["recovered"] += event.success
        aggregate.add_duration("call", event.milliseconds)

    def _count_approval_requested(self, aggregate: Aggregate, event: ApprovalRequested) -> None:
        if event.pending_id in self.pending_approvals:  # another request waits for the same call
            return
        aggregate.counts["approvals_asked"] += 1
        _remember_value(self.pending_approvals, event.pending_id, event.at)

    def _count_approval_decided(self, aggregate: Aggregate, event: ApprovalDecided) -> None:
        asked = self.pending_approvals.pop(event.pending_id, None)
        if event.decision in (Decision.APPROVED, Decision.REJECTED):
            aggregate.counts[event.decision.value] += 1
            if asked is not None:
                aggregate.add_duration("approval", (event.at - asked).total_seconds() * 1000)

    handlers: Final[dict[type[Event], Callable[[EventCounter, Aggregate, Any], None]]] = {
        PacketReceived: _count_received,
        RouteBegan: lambda _, sums, event: add_name(sums.requests_by["profile"], event.profile or ""),
        RequestNarrowed: _count_narrowing,
        RouteEnded: _count_route_ended,
        ModelAnswered: _count_model_answered,
        SyntaxStopped: lambda _, sums, event: sums.counts.update(count_event(event)),
        SmartRoutingEnd: _count_servers_chosen,
        CallReceived: _count_call_received,
        CallPrepared: lambda self, sums, event: sums.counts.update(
            repaired=bool(event.repairs) and event.call_id not in self._dry
        ),
        AttemptFinished: _count_attempt_finished,
        FallbackTaken: lambda self, _, event: _remember_value(self._fallen_back, event.call_id, None),
        ResultDigested: lambda _, sums, event: sums.counts.update(count_event(event)),
        CallFinished: _count_call_finished,
        ApprovalRequested: _count_approval_requested,
        ApprovalDecided: _count_approval_decided,
        BreakerMoved: lambda _, sums, event: sums.counts.update(count_event(event)),
        AccessRefused: lambda _, sums, event: sums.counts.update(count_event(event)),
    }


_COUNT_HANDLERS: Final = EventCounter.handlers
COUNTED_KINDS: Final = tuple(event.kind for event in _COUNT_HANDLERS)  # event kinds used for figures


def _remember_value(memory: dict[str, V], key: str, value: V) -> V:
    memory[key] = value
    if len(memory) > _MAX_REMEMBERED:
        del memory[next(iter(memory))]
    return value


TimeStep = Literal["minute", "hour", "day"]

STEP_SECONDS: Final[dict[TimeStep, int]] = {"minute": 60, "hour": 3_600, "day": 86_400}
MAX_STEPS: Final = 750
MAX_COUNTED_EVENTS: Final = 100_000  # per query; older events are left out and `complete` is false
MAX_HOURS: Final = 24.0 * 366
MAX_NAMED: Final = 50
_COUNT_CHUNK: Final = 1_000
_CALIBRATION_BINS: Final = 10
_MAX_PENDING_CHECKED: Final = 200


class FiguresReader:
    """Reads figures from the journal. Keeps one running count per step length."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._counts: dict[TimeStep, _RunningCount] = {}
        self._counting = anyio.Lock()

    async def read_figures(self, *, hours: float, step: str, tools: Sequence[str]) -> Figures:
        """Return the figures of the last hours. Raises `ValueError` for an unknown step."""
        hours = min(max(hours, 0.1), MAX_HOURS)
        chosen = choose_step(hours, step)
        until = utc_now()
        since = _floor_moment(until - timedelta(hours=hours), STEP_SECONDS[chosen])
        earlier = since - (until - since)
        async with self._counting:  # concurrent readers read the journal once
            count = await self._catch_up(chosen, earlier)
            used = await self._store.usage.get_profiles()
            samples = await self._store.confidences.list_recent()
            never = tuple(sorted(key for key in tools if key not in used))
            return await anyio.to_thread.run_sync(_build_figures, count, chosen, since, until, never, samples)

    async def _catch_up(self, step: TimeStep, since: datetime) -> _RunningCount:
        journal = self._store.journal
        last = await journal.get_last_seq()
        count = self._counts.get(step)
        behind = count is not None and last - count.counter.last_seq > MAX_COUNTED_EVENTS
        if count is None or behind or (since < count.since and not count.is_truncated):
            wanted = await journal.find_last_before(since)
            first = max(wanted, last - MAX_COUNTED_EVENTS, 0)
            counter = EventCounter(STEP_SECONDS[step])
            counter.last_seq = first
            count = self._counts[step] = _RunningCount(counter, since=since, is_truncated=first > wanted)
        while count.counter.last_seq < last:
            await self._count_next_chunk(count.counter, last)
        for pending_id in list(count.counter.pending_approvals)[:_MAX_PENDING_CHECKED]:
            pending = await self._store.approvals.get(pending_id)
            if pending is None or pending.decision is Decision.EXPIRED:
                count.counter.count_expired(pending_id, utc_now() if pending is None else pending.expires)
        kept = 2 * MAX_STEPS * STEP_SECONDS[step]  # the longest range and the one before it
        count.counter.discard_before(int(utc_now().timestamp()) - kept)
        return count

    async def _count_next_chunk(self, counter: EventCounter, last: int) -> None:
        end = min(counter.last_seq + _COUNT_CHUNK, last)
        events = await self._store.journal.list_events(
            kinds=COUNTED_KINDS, after_seq=counter.last_seq, up_to_seq=end, limit=_COUNT_CHUNK
        )
        await anyio.to_thread.run_sync(counter.count, events)
        counter.last_seq = end


class _RunningCount:
    """A running count, and the time from which it is complete."""

    def __init__(self, counter: EventCounter, *, since: datetime, is_truncated: bool) -> None:
        self.counter = counter
        self.since = since
        self.is_truncated = is_truncated  # the journal has older events that were not counted

    @property
    def complete_from(self) -> datetime:
        if not self.is_truncated:
            return self.since
        return self.counter.first_at or self.since


def choose_step(hours: float, wanted: str) -> TimeStep:
    """Return the requested step, or a suitable one for `auto`. Use a coarser step if there would be too many.
    Raises `ValueError` for an unknown step.
    """
    steps: tuple[TimeStep, ...] = get_args(TimeStep)
    if wanted == "auto":
        return "minute" if hours <= 3 else "hour" if hours <= 96 else "day"
    if wanted not in steps:
        raise ValueError(f"there is no step {wanted!r}; the steps are auto, {', '.join(steps)}")
    return next(
        step
        for step in steps[steps.index(wanted) :]
        if hours * 3_600 <= STEP_SECONDS[step] * MAX_STEPS or step == steps[-1]
    )


def _build_figures(
    count: _RunningCount,
    step: TimeStep,
    since: datetime,
    until: datetime,
    never_used: tuple[str, ...],
    samples: list[ConfidenceSample],
) -> Figures:
    seconds = STEP_SECONDS[step]
    first, last = int(since.timestamp()), int(until.timestamp())
    starts = range(first, last + 1, seconds)
    by_start = count.counter.sums
    whole = combine_aggregates(by_start[start] for start in starts if start in by_start)
    earlier_from = since - (until - since)
    earlier = [by_start[s] for s in by_start if earlier_from.timestamp() <= s + seconds / 2 and s < first]
    before = Counted(**build_counted_fields(combine_aggregates(earlier)))
    buckets = (
        Bucket(at=datetime.fromtimestamp(one, UTC), **build_counted_fields(by_start.get(one) or Aggregate()))
        for one in starts
    )
    return Figures(
        since=since,
        until=until,
        step=step,
        step_seconds=seconds,
        complete=count.complete_from <= since,
        counted_from=max(since, count.complete_from),
        totals=Counted(**build_counted_fields(whole)),
        before=before if count.complete_from <= earlier_from else None,
        buckets=tuple(buckets),
        most_used=get_most_used(whole, MAX_NAMED),
        never_used=never_used,
        callers=get_user_counts(whole, "caller", MAX_NAMED),
        profiles=get_user_counts(whole, "profile", MAX_NAMED),
        calibration=compute_calibration(samples),
        rollouts=build_arm_figures(whole),
    )


def compute_calibration(samples: Sequence[ConfidenceSample]) -> tuple[CalibrationPoint, ...]:
    """Return the share of right selections by claimed confidence."""
    bins: defaultdict[int, list[ConfidenceSample]] = defaultdict(list)
    for sample in samples:
        bins[min(int(sample.raw * _CALIBRATION_BINS), _CALIBRATION_BINS - 1)].append(sample)
    return tuple(
        CalibrationPoint(
            claimed=sum(sample.raw for sample in held) / len(held),
            right=sum(sample.right for sample in held) / len(held),
            count=len(held),
        )
        for _, held in sorted(bins.items())
    )


def _floor_moment(moment: datetime, seconds: int) -> datetime:
    return datetime.fromtimestamp(int(moment.timestamp()) // seconds * seconds, UTC)

"""From events to sums, step by step. Nothing here reads or waits.

Some figures need two events: how long a person took to decide, whether a fallback
saved its call. What has begun is remembered until its end, and not for ever.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, Final, TypeVar

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
from fingerpost.insight.lines import get_saved_tokens
from fingerpost.insight.sums import Aggregate, add_name
from fingerpost.records import Decision, ErrorKind, NeedVerdict, RouteOutcome
from fingerpost.store.journal import JournalEntry
from fingerpost.store.quantiles import compute_quantile, get_bucket

# The tool itself, or the way to it, failed. Anything else was refused before it ran.
FAILURE_KINDS: Final = frozenset(
    {ErrorKind.EXECUTION_FAILED, ErrorKind.TIMEOUT, ErrorKind.UNAVAILABLE, ErrorKind.UNKNOWN}
)
GOOD_ESTIMATE_MARGIN: Final = 0.5
MIN_ESTIMATE_SAMPLES: Final = 5
_MAX_REMEMBERED: Final = 5_000

V = TypeVar("V")


class EventCounter:
    """Sums by step. Each event is counted once, however often it comes."""

    def __init__(self, step_seconds: int) -> None:
        self._step = step_seconds
        self.sums: dict[int, Aggregate] = {}  # by the first second of the step, since 1970
        self.last_seq = 0
        self.first_at: datetime | None = None
        self.pending_approvals: dict[str, datetime] = {}  # approvals nobody has decided
        self._dry: dict[str, None] = {}
        self._fallen_back: dict[str, None] = {}
        self._narrowed: dict[str, None] = {}
        self._arms: dict[str, tuple[tuple[str, str], ...]] = {}  # of rollouts, by packet
        self._exclusive: dict[str, frozenset[str]] = {}  # tools that alone were offered, by packet
        self._durations: dict[str, Counter[int]] = {}  # of earlier attempts, by tool

    def count(self, events: Iterable[JournalEntry]) -> None:
        """Count these events, which come in the order of their numbers."""
        for entry in events:
            if entry.seq <= self.last_seq:
                continue
            self.last_seq = entry.seq
            if self.first_at is None:
                self.first_at = entry.event.at
            meaning = _COUNT_HANDLERS.get(type(entry.event))
            if meaning is not None:
                self._count_event(meaning, entry.event)

    def _count_event(self, handler: Callable[[EventCounter, Aggregate, Any], None], event: Event) -> None:
        """For all requests together, and for each arm of a rollout the request is in."""
        sums = self._get_aggregate_at(event.at)
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
            sums.get_arm(arm).add(made)

    def _assign_arms(self, aggregate: Aggregate, event: RouteBegan | RequestNarrowed) -> None:
        if not event.arms or event.packet_id is None or event.packet_id in self._arms:
            return
        for arm in _remember_value(self._arms, event.packet_id, tuple(event.arms.items())):
            aggregate.get_arm(arm).counts["requests"] += 1

    def count_expired(self, pending_id: str, at: datetime) -> None:
        """Nobody decided in time. No event tells of it: it is so when the time has passed."""
        if self.pending_approvals.pop(pending_id, None) is not None:
            self._get_aggregate_at(at).counts["expired"] += 1

    def discard_before(self, second: int) -> None:
        """Let go of steps nobody asks for any more."""
        for old in [start for start in self.sums if start < second]:
            del self.sums[old]

    def _get_aggregate_at(self, moment: datetime) -> Aggregate:
        start = int(moment.timestamp()) // self._step * self._step
        found = self.sums.get(start)
        if found is None:
            found = self.sums[start] = Aggregate()
        return found

    # -- requests -----------------------------------------------------------------------------------

    def _count_received(self, aggregate: Aggregate, event: PacketReceived) -> None:
        aggregate.counts["requests"] += 1
        add_name(aggregate.requests_by["caller"], event.packet.header.caller or "")

    def _count_began(self, aggregate: Aggregate, event: RouteBegan) -> None:
        add_name(aggregate.requests_by["profile"], event.profile or "")

    def _count_narrowing(self, aggregate: Aggregate, event: RequestNarrowed) -> None:
        """A request of several steps is narrowed for each step; the first stands for the request."""
        narrowing = event.narrowing
        aggregate.add_duration("narrow", narrowing.milliseconds)
        if event.packet_id is None or event.packet_id in self._narrowed:
            return
        _remember_value(self._narrowed, event.packet_id, None)
        counts, shortlist = aggregate.counts, narrowing.shortlist
        counts["judged"] += 1
        counts["no_tool"] += narrowing.need.verdict is NeedVerdict.NONE
        counts["unclear"] += narrowing.need.verdict is NeedVerdict.UNCLEAR
        if shortlist.exclusive:
            sole = _remember_value(self._exclusive, event.packet_id, frozenset(shortlist.exclusive))
            counts["exclusive_asked"] += 1
            counts["exclusive_offered"] += any(one.tool in sole for one in shortlist.offered)
        if shortlist.considered:
            counts["narrowed"] += 1
            counts["considered"] += shortlist.considered
            counts["offered"] += len(shortlist.offered)
        counts["tokens_saved"] += get_saved_tokens(event) or 0

    def _count_route_ended(self, aggregate: Aggregate, event: RouteEnded) -> None:
        aggregate.outcomes[event.outcome.value] += 1
        if event.outcome not in (RouteOutcome.WAITING, RouteOutcome.ASKED):
            aggregate.add_duration("whole", event.milliseconds)

    def _count_model_answered(self, aggregate: Aggregate, event: ModelAnswered) -> None:
        counts = aggregate.counts
        counts["model_calls"] += 1
        if event.error is not None:
            counts["model_errors"] += 1
            return
        counts["prompt_tokens"] += event.prompt_tokens or 0
        counts["completion_tokens"] += event.completion_tokens or 0
        aggregate.add_duration("model", event.milliseconds)

    def _count_syntax_stopped(self, aggregate: Aggregate, event: SyntaxStopped) -> None:
        aggregate.counts["syntax_stopped"] += event.count

    def _count_servers_chosen(self, aggregate: Aggregate, event: SmartRoutingEnd) -> None:
        counts = aggregate.counts
        if event.widened:
            counts["server_choices_widened"] += 1
            return
        counts["server_choices"] += 1
        counts["server_choices_failed"] += not event.success
        counts["server_choices_all_stayed"] += event.filtered_tools >= event.total_tools
        counts["server_tools"] += event.total_tools
        counts["server_tools_kept"] += event.filtered_tools
        counts["server_tokens_saved"] += event.tokens_saved
        aggregate.add_duration("servers", event.milliseconds)

    # -- calls --------------------------------------------------------------------------------------

    def _count_call_received(self, aggregate: Aggregate, event: CallReceived) -> None:
        if event.dry_run:
            _remember_value(self._dry, event.call_id, None)
        else:
            add_name(aggregate.calls_by["caller"], event.caller or "")

    def _count_call_prepared(self, aggregate: Aggregate, event: CallPrepared) -> None:
        aggregate.counts["repaired"] += bool(event.repairs) and event.call_id not in self._dry

    def _count_attempt_finished(self, aggregate: Aggregate, event: AttemptFinished) -> None:
        made, counts = event.attempt, aggregate.counts
        if made.error is not ErrorKind.DENIED and made.tool in self._exclusive.get(event.packet_id or "", ()):
            del self._exclusive[event.packet_id or ""]  # the first attempt stands for the request
            counts["exclusive_taken"] += 1
            counts["exclusive_succeeded"] += made.error is None
        if made.cached:
            counts["cached"] += 1
            return
        if made.error is ErrorKind.DENIED:  # a fallback that was not even tried
            return
        counts["attempts"] += 1
        counts["failed_attempts"] += made.error is not None
        aggregate.add_duration("attempt", made.milliseconds)
        if made.error is None:
            self._compare_with_estimate(counts, made.tool, made.milliseconds)

    def _compare_with_estimate(self, counts: Counter[str], tool: str, milliseconds: float) -> None:
        """The estimate is the median of what the tool took before."""
        earlier = self._durations.get(tool)
        if earlier is None:
            earlier = _remember_value(self._durations, tool, Counter[int]())
        if earlier.total() >= MIN_ESTIMATE_SAMPLES:
            estimate = compute_quantile(earlier, 0.5)
            counts["estimates"] += 1
            counts["good_estimates"] += abs(milliseconds - estimate) <= GOOD_ESTIMATE_MARGIN * max(
                estimate, 1.0
            )
        earlier[get_bucket(milliseconds)] += 1

    def _count_fallback_taken(self, aggregate: Aggregate, event: FallbackTaken) -> None:
        _remember_value(self._fallen_back, event.call_id, None)

    def _count_result_digested(self, aggregate: Aggregate, event: ResultDigested) -> None:
        aggregate.counts["digested"] += 1
        aggregate.counts["truncated"] += bool(event.dropped)

    def _count_call_finished(self, aggregate: Aggregate, event: CallFinished) -> None:
        if event.call_id in self._dry:
            del self._dry[event.call_id]
            return
        if event.error is ErrorKind.AUTHORIZATION_REQUIRED:  # it waits for a person: not over yet
            return
        counts = aggregate.counts
        failed = event.error in FAILURE_KINDS
        counts["calls"] += 1
        counts["failed_calls"] += failed
        if event.error is not None:
            aggregate.errors[event.error.value] += 1
        if event.error is not ErrorKind.TOOL_NOT_FOUND:  # then `tool` is what somebody wrote
            add_name(aggregate.tools, event.tool)
            if failed:
                add_name(aggregate.tool_failures, event.tool)
        if event.call_id in self._fallen_back:
            del self._fallen_back[event.call_id]
            counts["fallbacks"] += 1
            counts["recovered"] += event.success
        aggregate.add_duration("call", event.milliseconds)

    # -- people and servers -------------------------------------------------------------------------

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

    def _count_breaker_moved(self, aggregate: Aggregate, event: BreakerMoved) -> None:
        aggregate.counts["breaker_openings"] += event.state == "open"

    def _count_access_refused(self, aggregate: Aggregate, event: AccessRefused) -> None:
        aggregate.counts["refused_access"] += 1

    handlers: Final[dict[type[Event], Callable[[EventCounter, Aggregate, Any], None]]] = {
        PacketReceived: _count_received,
        RouteBegan: _count_began,
        RequestNarrowed: _count_narrowing,
        RouteEnded: _count_route_ended,
        ModelAnswered: _count_model_answered,
        SyntaxStopped: _count_syntax_stopped,
        SmartRoutingEnd: _count_servers_chosen,
        CallReceived: _count_call_received,
        CallPrepared: _count_call_prepared,
        AttemptFinished: _count_attempt_finished,
        FallbackTaken: _count_fallback_taken,
        ResultDigested: _count_result_digested,
        CallFinished: _count_call_finished,
        ApprovalRequested: _count_approval_requested,
        ApprovalDecided: _count_approval_decided,
        BreakerMoved: _count_breaker_moved,
        AccessRefused: _count_access_refused,
    }


_COUNT_HANDLERS: Final = EventCounter.handlers
COUNTED_KINDS: Final = tuple(event.kind for event in _COUNT_HANDLERS)  # what figures are made of


def _remember_value(memory: dict[str, V], key: str, value: V) -> V:
    memory[key] = value
    if len(memory) > _MAX_REMEMBERED:
        del memory[next(iter(memory))]
    return value

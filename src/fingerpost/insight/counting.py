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
from fingerpost.insight.lines import saved_tokens
from fingerpost.insight.sums import Sums, count_name
from fingerpost.records import Decision, ErrorKind, NeedVerdict, RouteOutcome
from fingerpost.store.journal import Recorded
from fingerpost.store.quantiles import bucket_of, quantile

# The tool itself, or the way to it, failed. Anything else was refused before it ran.
FAILURES: Final = frozenset(
    {ErrorKind.EXECUTION_FAILED, ErrorKind.TIMEOUT, ErrorKind.UNAVAILABLE, ErrorKind.UNKNOWN}
)
WELL_ESTIMATED: Final = 0.5
SAMPLES_FOR_AN_ESTIMATE: Final = 5
_REMEMBERED: Final = 5_000

V = TypeVar("V")


class Counting:
    """Sums by step. Each event is counted once, however often it comes."""

    def __init__(self, step_seconds: int) -> None:
        self._step = step_seconds
        self.sums: dict[int, Sums] = {}  # by the first second of the step, since 1970
        self.last_seq = 0
        self.first_at: datetime | None = None
        self.asked: dict[str, datetime] = {}  # approvals nobody has decided
        self._dry: dict[str, None] = {}
        self._fallen_back: dict[str, None] = {}
        self._narrowed: dict[str, None] = {}
        self._arms: dict[str, tuple[tuple[str, str], ...]] = {}  # of rollouts, by packet
        self._exclusive: dict[str, frozenset[str]] = {}  # tools that alone were offered, by packet
        self._durations: dict[str, Counter[int]] = {}  # of earlier attempts, by tool

    def take(self, events: Iterable[Recorded]) -> None:
        """Count these events, which come in the order of their numbers."""
        for entry in events:
            if entry.seq <= self.last_seq:
                continue
            self.last_seq = entry.seq
            if self.first_at is None:
                self.first_at = entry.event.at
            meaning = _MEANING.get(type(entry.event))
            if meaning is not None:
                self._count(meaning, entry.event)

    def _count(self, meaning: Callable[[Counting, Sums, Any], None], event: Event) -> None:
        """For all requests together, and for each arm of a rollout the request is in."""
        sums = self._at(event.at)
        if isinstance(event, RouteBegan | RequestNarrowed):
            self._assign(sums, event)
        arms = self._arms.get(event.packet_id or "")
        if not arms:
            meaning(self, sums, event)
            return
        made = Sums()
        meaning(self, made, event)
        sums.add(made)
        for arm in arms:
            sums.of_arm(arm).add(made)

    def _assign(self, sums: Sums, event: RouteBegan | RequestNarrowed) -> None:
        if not event.arms or event.packet_id is None or event.packet_id in self._arms:
            return
        for arm in _remember(self._arms, event.packet_id, tuple(event.arms.items())):
            sums.of_arm(arm).counts["requests"] += 1

    def expired(self, pending_id: str, at: datetime) -> None:
        """Nobody decided in time. No event tells of it: it is so when the time has passed."""
        if self.asked.pop(pending_id, None) is not None:
            self._at(at).counts["expired"] += 1

    def forget_before(self, second: int) -> None:
        """Let go of steps nobody asks for any more."""
        for old in [start for start in self.sums if start < second]:
            del self.sums[old]

    def _at(self, moment: datetime) -> Sums:
        start = int(moment.timestamp()) // self._step * self._step
        found = self.sums.get(start)
        if found is None:
            found = self.sums[start] = Sums()
        return found

    # -- requests -----------------------------------------------------------------------------------

    def _received(self, sums: Sums, event: PacketReceived) -> None:
        sums.counts["requests"] += 1
        count_name(sums.requests_by["caller"], event.packet.header.caller or "")

    def _began(self, sums: Sums, event: RouteBegan) -> None:
        count_name(sums.requests_by["profile"], event.profile or "")

    def _narrowing(self, sums: Sums, event: RequestNarrowed) -> None:
        """A request of several steps is narrowed for each step; the first stands for the request."""
        narrowing = event.narrowing
        sums.took("narrow", narrowing.milliseconds)
        if event.packet_id is None or event.packet_id in self._narrowed:
            return
        _remember(self._narrowed, event.packet_id, None)
        counts, shortlist = sums.counts, narrowing.shortlist
        counts["judged"] += 1
        counts["no_tool"] += narrowing.need.verdict is NeedVerdict.NONE
        counts["unclear"] += narrowing.need.verdict is NeedVerdict.UNCLEAR
        if shortlist.exclusive:
            sole = _remember(self._exclusive, event.packet_id, frozenset(shortlist.exclusive))
            counts["exclusive_asked"] += 1
            counts["exclusive_offered"] += any(one.tool in sole for one in shortlist.offered)
        if shortlist.considered:
            counts["narrowed"] += 1
            counts["considered"] += shortlist.considered
            counts["offered"] += len(shortlist.offered)
        counts["tokens_saved"] += saved_tokens(event) or 0

    def _route_ended(self, sums: Sums, event: RouteEnded) -> None:
        sums.outcomes[event.outcome.value] += 1
        if event.outcome not in (RouteOutcome.WAITING, RouteOutcome.ASKED):
            sums.took("whole", event.milliseconds)

    def _model_answered(self, sums: Sums, event: ModelAnswered) -> None:
        counts = sums.counts
        counts["model_calls"] += 1
        if event.error is not None:
            counts["model_errors"] += 1
            return
        counts["prompt_tokens"] += event.prompt_tokens or 0
        counts["completion_tokens"] += event.completion_tokens or 0
        sums.took("model", event.milliseconds)

    def _syntax_stopped(self, sums: Sums, event: SyntaxStopped) -> None:
        sums.counts["syntax_stopped"] += event.count

    def _servers_chosen(self, sums: Sums, event: SmartRoutingEnd) -> None:
        counts = sums.counts
        if event.widened:
            counts["server_choices_widened"] += 1
            return
        counts["server_choices"] += 1
        counts["server_choices_failed"] += not event.success
        counts["server_choices_all_stayed"] += event.filtered_tools >= event.total_tools
        counts["server_tools"] += event.total_tools
        counts["server_tools_kept"] += event.filtered_tools
        counts["server_tokens_saved"] += event.tokens_saved
        sums.took("servers", event.milliseconds)

    # -- calls --------------------------------------------------------------------------------------

    def _call_received(self, sums: Sums, event: CallReceived) -> None:
        if event.dry_run:
            _remember(self._dry, event.call_id, None)
        else:
            count_name(sums.calls_by["caller"], event.caller or "")

    def _call_prepared(self, sums: Sums, event: CallPrepared) -> None:
        sums.counts["repaired"] += bool(event.repairs) and event.call_id not in self._dry

    def _attempt_finished(self, sums: Sums, event: AttemptFinished) -> None:
        made, counts = event.attempt, sums.counts
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
        sums.took("attempt", made.milliseconds)
        if made.error is None:
            self._compare_with_estimate(counts, made.tool, made.milliseconds)

    def _compare_with_estimate(self, counts: Counter[str], tool: str, milliseconds: float) -> None:
        """The estimate is the median of what the tool took before."""
        earlier = self._durations.get(tool)
        if earlier is None:
            earlier = _remember(self._durations, tool, Counter[int]())
        if earlier.total() >= SAMPLES_FOR_AN_ESTIMATE:
            estimate = quantile(earlier, 0.5)
            counts["estimates"] += 1
            counts["good_estimates"] += abs(milliseconds - estimate) <= WELL_ESTIMATED * max(estimate, 1.0)
        earlier[bucket_of(milliseconds)] += 1

    def _fallback_taken(self, sums: Sums, event: FallbackTaken) -> None:
        _remember(self._fallen_back, event.call_id, None)

    def _result_digested(self, sums: Sums, event: ResultDigested) -> None:
        sums.counts["digested"] += 1
        sums.counts["truncated"] += bool(event.dropped)

    def _call_finished(self, sums: Sums, event: CallFinished) -> None:
        if event.call_id in self._dry:
            del self._dry[event.call_id]
            return
        if event.error is ErrorKind.AUTHORIZATION_REQUIRED:  # it waits for a person: not over yet
            return
        counts = sums.counts
        failed = event.error in FAILURES
        counts["calls"] += 1
        counts["failed_calls"] += failed
        if event.error is not None:
            sums.errors[event.error.value] += 1
        if event.error is not ErrorKind.TOOL_NOT_FOUND:  # then `tool` is what somebody wrote
            count_name(sums.tools, event.tool)
            if failed:
                count_name(sums.tool_failures, event.tool)
        if event.call_id in self._fallen_back:
            del self._fallen_back[event.call_id]
            counts["fallbacks"] += 1
            counts["recovered"] += event.success
        sums.took("call", event.milliseconds)

    # -- people and servers -------------------------------------------------------------------------

    def _approval_requested(self, sums: Sums, event: ApprovalRequested) -> None:
        if event.pending_id in self.asked:  # another request waits for the same call
            return
        sums.counts["approvals_asked"] += 1
        _remember(self.asked, event.pending_id, event.at)

    def _approval_decided(self, sums: Sums, event: ApprovalDecided) -> None:
        asked = self.asked.pop(event.pending_id, None)
        if event.decision in (Decision.APPROVED, Decision.REJECTED):
            sums.counts[event.decision.value] += 1
            if asked is not None:
                sums.took("approval", (event.at - asked).total_seconds() * 1000)

    def _breaker_moved(self, sums: Sums, event: BreakerMoved) -> None:
        sums.counts["breaker_openings"] += event.state == "open"

    def _access_refused(self, sums: Sums, event: AccessRefused) -> None:
        sums.counts["refused_access"] += 1

    meaning: Final[dict[type[Event], Callable[[Counting, Sums, Any], None]]] = {
        PacketReceived: _received,
        RouteBegan: _began,
        RequestNarrowed: _narrowing,
        RouteEnded: _route_ended,
        ModelAnswered: _model_answered,
        SyntaxStopped: _syntax_stopped,
        SmartRoutingEnd: _servers_chosen,
        CallReceived: _call_received,
        CallPrepared: _call_prepared,
        AttemptFinished: _attempt_finished,
        FallbackTaken: _fallback_taken,
        ResultDigested: _result_digested,
        CallFinished: _call_finished,
        ApprovalRequested: _approval_requested,
        ApprovalDecided: _approval_decided,
        BreakerMoved: _breaker_moved,
        AccessRefused: _access_refused,
    }


_MEANING: Final = Counting.meaning
KINDS: Final = tuple(event.kind for event in _MEANING)  # what figures are made of


def _remember(memory: dict[str, V], key: str, value: V) -> V:
    memory[key] = value
    if len(memory) > _REMEMBERED:
        del memory[next(iter(memory))]
    return value

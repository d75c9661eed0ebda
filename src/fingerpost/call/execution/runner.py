"""Running a permitted call: the one place from which a tool is ever called.

    loop guard → duplicates → for each tool in line: cache → attempts with retries → fallback

`run` raises nothing but cancellation: whatever goes wrong is an `Execution`
with an error. A permit for another call is a mistake in our own code, and the
only thing that is refused with an exception.

Time: a tool has its own time-out over everything it takes (connecting, retries).
It counts from the moment there is a slot: waiting for one has the same time to
itself, and who waits longer was never sent, so nothing is said about the server.
Each fallback has its own; and the caller's patience, when given, is over all of
them together.
"""

from __future__ import annotations

import logging
import math
import random
import time
from collections.abc import Callable, Collection, Mapping, Sequence

import anyio

from fingerpost.call.execution.attempts import AttemptRunner
from fingerpost.call.execution.breaker import BreakerLimits, BreakerStatus
from fingerpost.call.execution.breakers import BreakerRegistry
from fingerpost.call.execution.cache import ResultCache
from fingerpost.call.execution.cascade import (
    ToolRunResult,
    choose_best_result,
    does_more,
    get_fallback_reason,
    iterate_candidates,
)
from fingerpost.call.execution.clock import ToolDeadline, loop_time
from fingerpost.call.execution.dialogue import is_input_required, watch_caller
from fingerpost.call.execution.door import (
    Alternatives,
    BeforeFallback,
    DurableAppend,
    GetLatency,
    PermitFallback,
    ProgressReporter,
    TimeSource,
    ToolUpstream,
    do_nothing_before_fallback,
    find_no_alternatives,
    permit_no_fallback,
)
from fingerpost.call.execution.duplicates import DuplicateGuard, build_duplicate_key
from fingerpost.call.execution.emptiness import is_empty_result
from fingerpost.call.execution.failure import Failure
from fingerpost.call.execution.imprint import hash_error, hash_result
from fingerpost.call.execution.journey import AttemptLog, ToolRun
from fingerpost.call.execution.loops import LoopGuard
from fingerpost.call.execution.parallel import ParallelJob, run_in_parallel
from fingerpost.call.execution.plan import CallPlan
from fingerpost.call.execution.retry import compute_retry_wait, may_retry
from fingerpost.call.execution.slots import SlotPool
from fingerpost.events import DeferredRecorder, EventSink, ImmediateRecorder
from fingerpost.records import (
    Call,
    CallContext,
    Effect,
    ErrorKind,
    Execution,
    JsonObject,
    LatencyProfile,
    Permit,
    Source,
)
from fingerpost.records.json import is_large_value
from fingerpost.servers.caller import RequestContext
from fingerpost.settings.model import CallSettings, FlagSettings
from fingerpost.tasks import run_in_thread

logger = logging.getLogger("fingerpost.call")

PROXIED_TOLERANCE = 4  # somebody else's agent that presses a key four times is in no loop


class CallRunner:
    """Runs permitted calls, and remembers what that teaches about servers and conversations."""

    def __init__(
        self,
        upstream: ToolUpstream,
        *,
        settings: CallSettings,
        flags: FlagSettings,
        events: EventSink,
        journal: DurableAppend,
        flush_soon: Callable[[], None] = lambda: None,
        check_tool: Callable[[Call], None] = lambda _: None,
        unbounded: Collection[str] = (),
        clock: TimeSource = time.monotonic,
        random_number: Callable[[], float] = random.random,
    ) -> None:
        self._settings = settings
        self._flags = flags
        # A sink that fails changes nothing about a call that is under way.
        self._events = events if isinstance(events, DeferredRecorder) else ImmediateRecorder(events)
        self._chance = random_number
        limits = BreakerLimits(
            failures=settings.breaker_failures,
            rate=settings.breaker_rate,
            window=settings.breaker_window,
            seconds=settings.breaker_seconds,
        )
        self._breakers = BreakerRegistry(limits, events=self._events, clock=clock)
        slots = SlotPool(per_server=settings.concurrency, unbounded=unbounded)
        self._attempts = AttemptRunner(
            upstream,
            slots=slots,
            breakers=self._breakers,
            journal=journal,
            flush_soon=flush_soon,
            check_tool=check_tool,
        )
        self._loops = LoopGuard(repeat_limit=settings.repeat_limit, clock=clock)
        self._duplicates = DuplicateGuard(clock=clock)
        entries = settings.cache_entries if flags.result_cache else 0
        self._cache = ResultCache(entries=entries, clock=clock)

    # -- breakers -----------------------------------------------------------------------------------

    @property
    def breakers(self) -> Mapping[str, BreakerStatus]:
        """The breaker of every server that was called, by the server's name."""
        return self._breakers.get_statuses()

    def reset_breaker(self, server: str) -> None:
        """A person says that the server is well: ask it again."""
        self._breakers.reset(server)

    def on_reconnected(self, server: str) -> None:
        """The server came back by itself: an open breaker may be tried at once."""
        self._breakers.allow_trial_now(server)

    # -- running ------------------------------------------------------------------------------------

    async def run(
        self,
        call: Call,
        permit: Permit,
        context: CallContext,
        *,
        latency: LatencyProfile,
        alternatives: Alternatives = find_no_alternatives,
        before_fallback: BeforeFallback = do_nothing_before_fallback,
        permitting: PermitFallback = permit_no_fallback,
        on_progress: ProgressReporter | None = None,
        latency_of: GetLatency | None = None,
        request_context: RequestContext | None = None,
    ) -> Execution:
        """Run the call, or what may stand in for it. `latency_of` gives a fallback its own time-out."""
        return await self.execute(
            CallPlan(
                call=call,
                permit=permit,
                context=context,
                latency=latency,
                alternatives=alternatives,
                before_fallback=before_fallback,
                permitting=permitting,
                on_progress=on_progress,
                latency_of=latency_of,
                request_context=request_context,
            )
        )

    async def run_many(self, plans: Sequence[CallPlan]) -> tuple[Execution, ...]:
        """Run independent calls side by side; results in the order given.

        Writes to one server keep their order: the second may rest on the first.
        """
        for plan in plans:
            _check_plan(plan)
        jobs = [
            ParallelJob(plan.call.server, plan.call.effect, lambda plan=plan: self.execute(plan))
            for plan in plans
        ]
        return await run_in_parallel(jobs)

    async def execute(self, plan: CallPlan) -> Execution:
        """Run one plan."""
        _check_plan(plan)
        # A model goes round within one request: who asks the same again in another wants it again.
        talk = plan.context.packet_id or plan.context.conversation
        # A further round is the same step, not one more of it; and where there are no sessions, all that
        # a key's holders ask would look like one conversation.
        # A key says which repetitions are meant.
        exempt = plan.is_continuation or plan.has_no_session or plan.context.idempotency_key is not None
        if talk is None or exempt or not self._flags.loop_guard:
            return await self._run_without_duplicate(plan)
        reason = self._loops.check(talk, plan.call, may_insist=plan.is_proxied)
        if reason is not None:
            return _build_loop_execution(plan.call, reason)
        self._loops.begin(talk, plan.call)
        try:
            execution = await self._run_without_duplicate(plan)
        finally:
            is_last = self._loops.end(talk, plan.call)
        if is_last and not (execution.result is not None and is_input_required(execution.result)):
            patience = PROXIED_TOLERANCE if plan.is_proxied else 1
            self._loops.record_result(talk, plan.call, await _hash_execution(execution), tolerance=patience)
        return execution

    async def _run_without_duplicate(self, plan: CallPlan) -> Execution:
        journey = AttemptLog(plan.context, events=self._events)
        until = math.inf if plan.context.seconds is None else loop_time() + plan.context.seconds
        key = build_duplicate_key(plan)
        if key is None:
            return await self._run_with_fallbacks(plan, journey, until)
        refused = self._duplicates.check_duplicate(key, plan.call)
        if refused is not None:
            return refused
        with self._duplicates.track_running(key, journey):
            return await self._run_with_fallbacks(plan, journey, until)

    async def _run_with_fallbacks(self, plan: CallPlan, attempt_log: AttemptLog, until: float) -> Execution:
        """The asked tool, then those in line behind it, until one has something to say."""
        leg = self._build_tool_run(plan, plan.call, plan.permit, plan.latency, until=until)
        turns = [await self._run_tool(attempt_log, leg)]
        reason = get_fallback_reason(turns[0])
        if reason is not None and self._may_fall_back(plan, leg):
            with anyio.move_on_at(until):
                await plan.before_fallback(plan.call)
            for call in iterate_candidates(plan.call, plan.alternatives):
                if loop_time() >= until:
                    break
                permit = await self._permit_fallback(plan, attempt_log, call)
                if permit is None:
                    continue
                attempt_log.emit_fallback(call, instead_of=turns[-1].call, reason=reason)
                latency = plan.latency_of(call) if plan.latency_of is not None else None
                leg = self._build_tool_run(plan, call, permit, latency, until=until, fallback=True)
                turns.append(await self._run_tool(attempt_log, leg))
                reason = get_fallback_reason(turns[-1])
                if reason is None or leg.has_begun_dialogue:
                    break
        return choose_best_result(turns).to_execution(attempt_log.attempts)

    def _may_fall_back(self, plan: CallPlan, tool_run: ToolRun) -> bool:
        return self._flags.fallback and plan.context.fallback and not tool_run.has_begun_dialogue

    async def _permit_fallback(self, plan: CallPlan, attempt_log: AttemptLog, call: Call) -> Permit | None:
        """Leave to make a fallback call. A fallback is policed like any call."""
        if does_more(call, than=plan.call):
            attempt_log.record_skipped(
                call, f"skipped: it could {call.effect}, which {plan.call.tool} would not"
            )
            return None
        try:
            permit = await plan.permitting(call)
        except Exception:
            logger.exception("no ruling on the fallback %s", call.tool)
            permit = None
        if permit is None or permit.call_fingerprint != call.fingerprint:
            attempt_log.record_skipped(call, "skipped: not permitted as a fallback")
            return None
        return permit

    async def _run_tool(self, attempt_log: AttemptLog, tool_run: ToolRun) -> ToolRunResult:
        """One tool, from the cache or with as many attempts as are safe."""
        call = tool_run.call
        cacheable = not tool_run.has_begun_dialogue and not tool_run.has_caller_credentials
        cached = self._cache.find(call, attempt_log.context) if cacheable else None
        if cached is not None:
            attempt_log.record_finished(call, attempt_log.begin(), None, cached=cached)
            return ToolRunResult(call, cached.result)
        epoch = self._cache.get_epoch(call.server)
        try:
            outcome = await self._attempt_with_retries(attempt_log, tool_run)
        finally:
            if call.effect is not Effect.READ:
                self._cache.invalidate(call.server)
        if not isinstance(outcome, Failure) and cacheable and not tool_run.has_begun_dialogue:
            await self._cache_result(call, attempt_log.context, outcome, epoch)
        return ToolRunResult(call, outcome)

    async def _attempt_with_retries(self, attempt_log: AttemptLog, tool_run: ToolRun) -> JsonObject | Failure:
        failures = 0
        pause = 0.0
        rule = tool_run.call.retry
        retries = self._settings.retries if rule.retries.value is None else rule.retries.value
        while True:
            outcome = await self._attempts.attempt_once(attempt_log, tool_run, waited=pause)
            if not isinstance(outcome, Failure):
                return outcome
            failures += 1
            pause = compute_retry_wait(failures, chance=self._chance(), retry_after=outcome.retry_after)
            repeatable = may_retry(outcome, rule, failures=failures, retries=retries, pause=pause)
            if not repeatable or tool_run.has_begun_dialogue:
                return outcome
            anew = outcome.cause is ErrorKind.TIMEOUT  # the tool has the same time again
            if pause >= (tool_run.time.until - loop_time() if anew else tool_run.time.remaining):
                return outcome
            await anyio.sleep(pause)
            if anew:
                tool_run = tool_run.renew_deadline()

    async def _cache_result(self, call: Call, context: CallContext, result: JsonObject, epoch: int) -> None:
        if self._cache.is_cacheable(call) and not is_input_required(result) and not is_empty_result(result):
            made = await run_in_thread(hash_result, result) if is_large_value(result) else hash_result(result)
            self._cache.keep(call, context, result, size=made.size, epoch=epoch)

    # -- time ---------------------------------------------------------------------------------------

    def _build_tool_run(
        self,
        plan: CallPlan,
        call: Call,
        permit: Permit,
        latency: LatencyProfile | None,
        *,
        until: float,
        fallback: bool = False,
    ) -> ToolRun:
        return ToolRun(
            call=call,
            permit=permit,
            time=ToolDeadline(self._get_timeout(latency), until=until),
            fallback=fallback,
            on_progress=plan.on_progress,
            request_context=plan.request_context,
            dialogue=watch_caller(plan.request_context),
        )

    def _get_timeout(self, latency: LatencyProfile | None) -> float:
        """A tool's time-out: what is known about it, or what is set for all."""
        if latency is None or latency.timeout.source is Source.DEFAULT:
            return self._settings.timeout
        return latency.timeout.value / 1000


def _check_plan(plan: CallPlan) -> None:
    if plan.permit.call_fingerprint != plan.call.fingerprint:
        message = f"the permit is not for this call of {plan.call.tool}"
        raise RuntimeError(message)
    if plan.context.dry_run:
        message = f"a dry run of {plan.call.tool} must not be executed"
        raise RuntimeError(message)


async def _hash_execution(execution: Execution) -> str:
    if execution.error is not None:
        return hash_error(execution.error, execution.detail)
    result = execution.result or {}
    made = await run_in_thread(hash_result, result) if is_large_value(result) else hash_result(result)
    return made.digest


def _build_loop_execution(call: Call, reason: str) -> Execution:
    return Execution(
        call=call,
        attempts=(),
        error=ErrorKind.LOOP,
        detail=reason,
        hint="nothing new will come of it: use what is known, change the arguments, or try another tool",
    )

"""Runs a permitted call: attempts, retries and fallbacks. Tools are called only from here."""

from __future__ import annotations

import logging
import math
import random
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice

import anyio

from fingerpost.call.execution.breaker import BreakerLimits, BreakerRegistry, BreakerStatus
from fingerpost.call.execution.concurrency import (
    NoSlotAvailable,
    ParallelJob,
    SlotClock,
    SlotPool,
    ToolDeadline,
    get_slot_owner,
    loop_time,
    run_in_parallel,
)
from fingerpost.call.execution.failure import (
    Failure,
    build_cancelled_failure,
    classify_result,
    compute_retry_wait,
    explain_exception,
    may_retry,
)
from fingerpost.call.execution.loops import DuplicateGuard, LoopGuard, build_duplicate_key
from fingerpost.call.execution.results import (
    ResultCache,
    hash_error,
    hash_result,
    is_empty_result,
    normalize_result,
)
from fingerpost.call.execution.run import AttemptLog, CallPlan, RunningAttempt, ToolRun
from fingerpost.call.execution.upstream import (
    Alternatives,
    BeforeFallback,
    DurableAppend,
    GetLatency,
    PermitFallback,
    ProgressReporter,
    TimeSource,
    ToolUpstream,
    WriteAnnouncer,
    announce_to_nobody,
    do_nothing_before_fallback,
    find_no_alternatives,
    is_input_required,
    permit_no_fallback,
    watch_caller,
)
from fingerpost.errors import StoreUnavailable, ToolTimeout
from fingerpost.events import DeferredRecorder, Event, EventSink, ImmediateRecorder
from fingerpost.frozen import frozen
from fingerpost.records import (
    Attempt,
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
from fingerpost.servers.errors import UNKNOWN_OUTCOME
from fingerpost.servers.requests import CALL_ID_META_KEY, RequestContext
from fingerpost.settings.model import CallSettings, FlagSettings
from fingerpost.tasks import create_cancel_scope, run_in_thread

GRACE_SECONDS = 1.0  # lets an upstream with its own deadline report the timeout itself


class AttemptRunner:
    """Runs attempts. Failures are returned as values; only cancellation is raised."""

    def __init__(
        self,
        upstream: ToolUpstream,
        *,
        slots: SlotPool,
        breakers: BreakerRegistry,
        journal: DurableAppend,
        flush_soon: Callable[[], None],
        check_tool: Callable[[Call], None],
        announce_write: WriteAnnouncer,
    ) -> None:
        """`check_tool` raises if a tool is no longer the one for which the call was permitted.
        `announce_write` runs before a call that may change something is sent.
        """
        self._upstream = upstream
        self._slots = slots
        self._breakers = breakers
        self._journal = journal
        self._flush_soon = flush_soon
        self._check_tool = check_tool
        self._announce_write = announce_write

    async def attempt_once(
        self, attempt_log: AttemptLog, tool_run: ToolRun, *, waited: float
    ) -> JsonObject | Failure:
        """Try the tool once and record the result. `waited` is the pause before this attempt."""
        attempt = attempt_log.begin(waited=waited)
        try:
            outcome = await self._attempt_in_slot(attempt_log, tool_run, attempt)
        except anyio.get_cancelled_exc_class():
            attempt_log.record_finished(
                tool_run.call, attempt, build_cancelled_failure(tool_run.call, sent=attempt.sent)
            )
            raise
        attempt_log.record_finished(tool_run.call, attempt, outcome if isinstance(outcome, Failure) else None)
        if tool_run.call.effect is not Effect.READ:
            self._flush_soon()  # until it is on disk, other processes must treat the call as lost
        return outcome

    async def _attempt_in_slot(
        self, attempt_log: AttemptLog, tool_run: ToolRun, attempt: RunningAttempt
    ) -> JsonObject | Failure:
        server = tool_run.call.server
        # Checked before waiting for a slot, so that an open breaker fails fast.
        if (refusal := self._breakers.get_refusal(server)) is not None:
            return refusal
        began = loop_time()
        if tool_run.time.expires_at <= began:
            return explain_exception(_build_no_time_error(tool_run), tool_run.call, sent=False)
        try:
            owner = get_slot_owner(attempt_log.context)
            await self._slots.acquire(server, owner, until=tool_run.time.get_wait_deadline(began))
        except NoSlotAvailable as none:
            attempt.waited += loop_time() - began
            return none.failure
        try:
            waited = loop_time() - began
            attempt.waited += waited
            tool_run.time.add_wait(waited)
            return await self._attempt_past_breaker(attempt_log, tool_run, attempt)
        finally:
            self._slots.release(server, owner)

    async def _attempt_past_breaker(
        self, attempt_log: AttemptLog, tool_run: ToolRun, attempt: RunningAttempt
    ) -> JsonObject | Failure:
        server = tool_run.call.server
        ticket = self._breakers.issue_ticket(server)
        if isinstance(ticket, Failure):
            return ticket
        attempt.asked_at = loop_time()
        try:
            outcome = await self._connect_and_call(attempt_log, tool_run, attempt)
        except BaseException:
            self._breakers.return_ticket(server, ticket)
            raise
        self._breakers.record_outcome(server, ticket, outcome if isinstance(outcome, Failure) else None)
        return outcome

    async def _connect_and_call(
        self, attempt_log: AttemptLog, tool_run: ToolRun, attempt: RunningAttempt
    ) -> JsonObject | Failure:
        try:
            await self._upstream.ensure(tool_run.call.server, timeout=tool_run.time.remaining)
            self._check_tool(tool_run.call)  # the server may have reconnected with another tool of this name
            await self._record_start(attempt_log, tool_run, attempt)
            result = normalize_result(await self._send(attempt_log, tool_run, attempt), tool_run.call)
        except Exception as error:  # noqa: BLE001 - every upstream error is a failed attempt
            failure = explain_exception(error, tool_run.call, sent=attempt.sent)
            return replace(failure, server_fault=False) if tool_run.time.is_cut_short else failure
        return (
            classify_result(result, tool_run.call, takes_rounds=_can_take_rounds(attempt_log, tool_run))
            or result
        )

    async def _record_start(
        self, attempt_log: AttemptLog, tool_run: ToolRun, attempt: RunningAttempt
    ) -> None:
        """Record that a call is about to be sent. For writes, return only when the record is on disk."""
        if tool_run.call.effect is Effect.READ:
            attempt_log.emit_started(tool_run, attempt)
            return
        event = attempt_log.build_started_event(tool_run, attempt)
        await self._announce_write(tool_run.call, attempt_log.context)
        await self._append_to_journal(tool_run, event)
        attempt_log.emit(event)

    async def _append_to_journal(self, tool_run: ToolRun, event: Event) -> None:
        with anyio.move_on_at(tool_run.time.expires_at):
            await self._journal(event)
            return
        message = "the store did not confirm in time that the call is about to be made, so it was not made"
        raise StoreUnavailable(message, hint="check the disk of the database, then try again")

    async def _send(self, attempt_log: AttemptLog, tool_run: ToolRun, attempt: RunningAttempt) -> JsonObject:
        seconds = tool_run.time.remaining
        if seconds <= 0:
            raise _build_no_time_error(tool_run)
        attempt_log.mark_sent(tool_run, attempt)
        call = tool_run.call
        grace = GRACE_SECONDS if tool_run.dialogue is None else 0.0
        scope = create_cancel_scope(min(loop_time() + seconds + grace, tool_run.time.until))
        owner = get_slot_owner(attempt_log.context)
        clock = SlotClock(
            scope, self._slots, call.server, owner, timeout=seconds + grace, until=tool_run.time.until
        )
        try:
            with scope:
                return await self._upstream.call(
                    call.server,
                    call.name,
                    call.arguments,
                    timeout=seconds,
                    on_progress=_wrap_progress(tool_run.on_progress, clock),
                    meta={CALL_ID_META_KEY: attempt_log.context.call_id},
                    context=tool_run.request_context
                    if tool_run.dialogue is None
                    else tool_run.dialogue.build_context(clock),
                )
        finally:
            clock.end()
        if clock.loss is not None:
            raise clock.loss
        message = clock.format_timeout(tool_run.call.tool, seconds)
        raise ToolTimeout(message, server=tool_run.call.server, hint=UNKNOWN_OUTCOME)


def _wrap_progress(report: ProgressReporter | None, clock: SlotClock) -> ProgressReporter | None:
    """Wrap the reporter so that reported progress extends the server's time."""
    if report is None:
        return None

    async def note_progress(progress: float, total: float | None, message: str | None) -> None:
        clock.note_progress(progress)
        await report(progress, total, message)

    return note_progress


def _build_no_time_error(tool_run: ToolRun) -> ToolTimeout:
    message = f"no time was left to call {tool_run.call.tool}; it was not called"
    return ToolTimeout(message, server=tool_run.call.server)


def _can_take_rounds(attempt_log: AttemptLog, tool_run: ToolRun) -> bool:
    """Return whether the caller, or the running request, can answer the server's questions."""
    if tool_run.dialogue is None:
        return attempt_log.context.packet_id is not None
    return tool_run.dialogue.accepts_input_required


logger = logging.getLogger("fingerpost.call")

MAX_FALLBACKS = 8
MAX_ALTERNATIVES = 100  # limit on alternatives, in case of an endless hierarchy

_FALLBACK_ERRORS = frozenset(
    {
        ErrorKind.TIMEOUT,
        ErrorKind.EXECUTION_FAILED,
        ErrorKind.UNAVAILABLE,
        ErrorKind.OPERATION_NOT_SUPPORTED,
    }
)
_STRENGTH = {Effect.READ: 0, Effect.WRITE: 1, Effect.DESTROY: 2}


@frozen(kw_only=False)
class ToolRunResult:
    """The result of one tool in a run."""

    call: Call
    outcome: JsonObject | Failure

    @property
    def failure(self) -> Failure | None:
        return self.outcome if isinstance(self.outcome, Failure) else None

    def to_execution(self, attempts: tuple[Attempt, ...]) -> Execution:
        if isinstance(self.outcome, Failure):
            failure = self.outcome
            return Execution(
                call=self.call,
                attempts=attempts,
                result=failure.result,
                error=failure.kind,
                detail=failure.detail,
                hint=failure.hint,
                code=failure.code,
                data=failure.data,
            )
        return Execution(call=self.call, attempts=attempts, result=self.outcome)


def get_fallback_reason(tool_result: ToolRunResult) -> str | None:
    """Return why another tool should be tried, or None if this result is final."""
    if isinstance(tool_result.outcome, Failure):
        failure = tool_result.outcome
        stands = failure.effect_possible or failure.kind not in _FALLBACK_ERRORS
        return None if stands else f"{failure.kind}: {failure.detail}"
    if tool_result.call.effect is Effect.READ and is_empty_result(tool_result.outcome):
        return "it found nothing"
    return None


def iterate_candidates(asked: Call, alternatives: Alternatives) -> Iterator[Call]:
    """Yield the possible fallbacks in order, each once, without the requested tool."""
    seen = {asked.tool}
    try:
        for call in islice(alternatives(asked), MAX_ALTERNATIVES):
            if call.tool in seen:
                continue
            seen.add(call.tool)
            yield call
            if len(seen) > MAX_FALLBACKS:
                return
    except Exception:
        # The requested call has failed already; an error here must not hide why.
        logger.exception("the alternatives of %s could not be found", asked.tool)


def does_more(call: Call, *, than: Call) -> bool:
    """Return whether `call` could change something that the requested call would not."""
    return _STRENGTH[call.effect] > _STRENGTH[than.effect]


def choose_best_result(results: list[ToolRunResult]) -> ToolRunResult:
    """Return the result to report: one that may have taken effect, else the first non-empty, else the first
    empty, else the first failure.
    """
    if len(results) == 1:
        return results[0]
    for result in results:
        if result.failure is not None and result.failure.effect_possible:
            return result
    full = [
        result
        for result in results
        if not isinstance(result.outcome, Failure) and not is_empty_result(result.outcome)
    ]
    empty = [result for result in results if result.failure is None]
    return next(iter(full or empty or results))


PROXIED_TOLERANCE = 4  # a proxied agent may repeat calls intentionally


class CallRunner:
    """Runs permitted calls and keeps the state of servers and conversations."""

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
        announce_write: WriteAnnouncer = announce_to_nobody,
        unbounded: Collection[str] = (),
        clock: TimeSource = time.monotonic,
        random_number: Callable[[], float] = random.random,
    ) -> None:
        self._settings = settings
        self._flags = flags
        # A failing sink must not affect a running call.
        self._events = events if isinstance(events, DeferredRecorder) else ImmediateRecorder(events)
        self._random_number = random_number
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
            announce_write=announce_write,
        )
        self._loops = LoopGuard(repeat_limit=settings.repeat_limit, clock=clock)
        self._duplicates = DuplicateGuard(clock=clock)
        entries = settings.cache_entries if flags.result_cache else 0
        self._cache = ResultCache(entries=entries, clock=clock)

    @property
    def breakers(self) -> Mapping[str, BreakerStatus]:
        """The breaker of every called server, by server name."""
        return self._breakers.get_statuses()

    def reset_breaker(self, server: str) -> None:
        """Close the server's breaker, because a person says that the server works."""
        self._breakers.reset(server)

    def on_reconnected(self, server: str) -> None:
        """Allow a trial at once if the breaker is open, because the server has reconnected."""
        self._breakers.allow_trial_now(server)

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
        """Run the call or its fallbacks. `latency_of` gives a fallback its own timeout."""
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
        """Run independent calls in parallel and return results in the given order.

        Writes to one server keep their order: one may depend on an earlier one.
        """
        for plan in plans:
            _check_plan(plan)
        jobs = [
            ParallelJob(plan.call.server, plan.call.effect, lambda plan=plan: self.execute(plan))
            for plan in plans
        ]
        return await run_in_parallel(jobs)

    async def execute(self, plan: CallPlan) -> Execution:
        """Run one plan, unless it repeats in a loop."""
        _check_plan(plan)
        # Loops are detected within one request: the same call in another request is intended.
        conversation = plan.context.packet_id or plan.context.conversation
        # A later round is the same step. Without sessions, all calls with one API key would look like one
        # conversation.
        # An idempotency key marks intended repetitions.
        exempt = plan.is_continuation or plan.has_no_session or plan.context.idempotency_key is not None
        if conversation is None or exempt or not self._flags.loop_guard:
            return await self._run_without_duplicate(plan)
        reason = self._loops.find_loop(conversation, plan.call, may_insist=plan.is_proxied)
        if reason is not None:
            return _build_loop_execution(plan.call, reason)
        self._loops.begin(conversation, plan.call)
        try:
            execution = await self._run_without_duplicate(plan)
        finally:
            is_last = self._loops.end(conversation, plan.call)
        if is_last and not (execution.result is not None and is_input_required(execution.result)):
            tolerance = PROXIED_TOLERANCE if plan.is_proxied else 1
            self._loops.record_result(
                conversation, plan.call, await _hash_execution(execution), tolerance=tolerance
            )
        return execution

    async def _run_without_duplicate(self, plan: CallPlan) -> Execution:
        attempt_log = AttemptLog(plan.context, events=self._events)
        until = math.inf if plan.context.seconds is None else loop_time() + plan.context.seconds
        key = build_duplicate_key(plan)
        if key is None:
            return await self._run_with_fallbacks(plan, attempt_log, until)
        refused = self._duplicates.refuse_duplicate(key, plan.call)
        if refused is not None:
            return refused
        with self._duplicates.track_running(key, attempt_log):
            return await self._run_with_fallbacks(plan, attempt_log, until)

    async def _run_with_fallbacks(self, plan: CallPlan, attempt_log: AttemptLog, until: float) -> Execution:
        """Run the requested tool, then its fallbacks, until one gives a usable result."""
        tool_run = self._build_tool_run(plan, plan.call, plan.permit, plan.latency, until=until)
        results = [await self._run_tool(attempt_log, tool_run)]
        reason = get_fallback_reason(results[0])
        if reason is not None and self._may_fall_back(plan, tool_run):
            with anyio.move_on_at(until):
                await plan.before_fallback(plan.call)
            for call in iterate_candidates(plan.call, plan.alternatives):
                if loop_time() >= until:
                    break
                permit = await self._permit_fallback(plan, attempt_log, call)
                if permit is None:
                    continue
                attempt_log.emit_fallback(call, instead_of=results[-1].call, reason=reason)
                latency = plan.latency_of(call) if plan.latency_of is not None else None
                tool_run = self._build_tool_run(plan, call, permit, latency, until=until, fallback=True)
                results.append(await self._run_tool(attempt_log, tool_run))
                reason = get_fallback_reason(results[-1])
                if reason is None or tool_run.has_started_dialogue:
                    break
        return choose_best_result(results).to_execution(attempt_log.attempts)

    def _may_fall_back(self, plan: CallPlan, tool_run: ToolRun) -> bool:
        return self._flags.fallback and plan.context.fallback and not tool_run.has_started_dialogue

    async def _permit_fallback(self, plan: CallPlan, attempt_log: AttemptLog, call: Call) -> Permit | None:
        """Return a permit for a fallback call, which the policy checks like any other."""
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
        """Return one tool's result from the cache, or run as many attempts as are safe."""
        call = tool_run.call
        cacheable = not tool_run.has_started_dialogue and not tool_run.has_caller_credentials
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
        if not isinstance(outcome, Failure) and cacheable and not tool_run.has_started_dialogue:
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
            pause = compute_retry_wait(
                failures, chance=self._random_number(), retry_after=outcome.retry_after
            )
            repeatable = may_retry(outcome, rule, failures=failures, retries=retries, pause=pause)
            if not repeatable or tool_run.has_started_dialogue:
                return outcome
            anew = outcome.cause is ErrorKind.TIMEOUT  # the tool gets its full timeout again
            if pause >= (tool_run.time.until - loop_time() if anew else tool_run.time.remaining):
                return outcome
            await anyio.sleep(pause)
            if anew:
                tool_run = tool_run.renew_deadline()

    async def _cache_result(self, call: Call, context: CallContext, result: JsonObject, epoch: int) -> None:
        if self._cache.is_cacheable(call) and not is_input_required(result) and not is_empty_result(result):
            made = await run_in_thread(hash_result, result) if is_large_value(result) else hash_result(result)
            self._cache.keep(call, context, result, size=made.size, epoch=epoch)

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
        """Return the tool's own timeout if known, else the default."""
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

"""Runs a permitted call: attempts, retries and fallbacks. Tools are called only from here."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any

import anyio

from fingerpost.call.execution.breaker import BreakerLimits, BreakerRegistry, BreakerStatus
from fingerpost.call.execution.concurrency import NoSlotAvailable, SlotClock, SlotPool, loop_time
from fingerpost.call.execution.failure import (
    AttemptRefused,
    Failure,
    build_cancelled_failure,
    classify_result,
    compute_retry_wait,
    explain_exception,
    may_retry,
)
from fingerpost.call.execution.loops import DuplicateGuard, LoopGuard
from fingerpost.call.execution.results import (
    ResultCache,
    hash_error,
    hash_result,
    is_empty_result,
    normalize_result,
)
from fingerpost.call.execution.run import CallRun
from fingerpost.call.execution.upstream import (
    DurableAppend,
    FallbackSource,
    TimeSource,
    ToolUpstream,
    WriteAnnouncer,
    is_input_required,
    skip_announcement,
)
from fingerpost.errors import StoreUnavailable, ToolTimeout
from fingerpost.events import (
    AttemptFinished,
    AttemptStarted,
    DeferredRecorder,
    Event,
    EventSink,
    FallbackTaken,
    ImmediateRecorder,
)
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
from fingerpost.servers.requests import CALL_ID_META_KEY
from fingerpost.settings.model import CallSettings, FlagSettings
from fingerpost.tasks import run_in_thread


class _SlotLease:
    """A slot of the server while an attempt uses it. Raises `AttemptRefused` if none is free in time."""

    __slots__ = ("_run", "_slots")

    def __init__(self, slots: SlotPool, run: CallRun) -> None:
        self._slots = slots
        self._run = run

    async def __aenter__(self) -> None:
        run, began = self._run, loop_time()
        if run.time.expires_at <= began:
            raise AttemptRefused(explain_exception(_build_no_time_error(run.tool), run.tool, sent=False))
        try:
            await self._slots.acquire(run.tool.server, run.owner, until=run.time.get_wait_deadline(began))
        except NoSlotAvailable:
            run.waited += loop_time() - began
            raise
        waited = loop_time() - began
        run.waited += waited
        run.time.add_wait(waited)

    async def __aexit__(self, *_: object) -> None:
        self._slots.release(self._run.tool.server, self._run.owner)


def _build_no_time_error(call: Call) -> ToolTimeout:
    return ToolTimeout(f"no time was left to call {call.tool}; it was not called", server=call.server)


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
                fix=failure.fix,
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


def iterate_candidates(asked: Call, fallbacks: FallbackSource) -> Iterator[Call]:
    """Yield the possible fallbacks in order, each once, without the requested tool."""
    seen = {asked.tool}
    try:
        for call in islice(fallbacks.find_alternatives(asked), MAX_ALTERNATIVES):
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
    """Return the result that may have taken effect, else the first non-empty, else empty, else failure."""
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
        hurry: Callable[[str], None] = lambda _: None,
        check_tool: Callable[[Call], None] = lambda _: None,
        announce_write: WriteAnnouncer = skip_announcement,
        unbounded: Collection[str] = (),
        clock: TimeSource = time.monotonic,
        random_number: Callable[[], float] = random.random,
    ) -> None:
        """`check_tool` raises if a tool is no longer the one for which the call was permitted.
        `announce_write` runs before a call that may change something is sent.
        """
        self._upstream = upstream
        self._journal = journal
        self._hurry = hurry
        self._check_tool = check_tool
        self._announce_write = announce_write
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
        self._slots = SlotPool(per_server=settings.concurrency, unbounded=unbounded)
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

    async def run(self, run: CallRun) -> Execution:
        """Run the call or its fallbacks, unless it repeats in a loop or is a duplicate."""
        _check_run(run)
        conversation = self._find_guarded_conversation(run)
        if conversation is not None:
            reason = self._loops.find_loop(conversation, run.call, may_insist=run.is_proxied)
            if reason is not None:
                return _build_loop_execution(run.call, reason)
        with self._loops.track(conversation, run.call) as step, self._duplicates.track(run) as refused:
            execution = refused or await self._run_with_fallbacks(run)
        asks = execution.result is not None and is_input_required(execution.result)
        if conversation is not None and step.is_last and not asks:
            tolerance = PROXIED_TOLERANCE if run.is_proxied else 1
            self._loops.record_result(
                conversation, run.call, await _hash_execution(execution), tolerance=tolerance
            )
        return execution

    def _find_guarded_conversation(self, run: CallRun) -> str | None:
        """Return the conversation within which loops are detected, or None.

        It is one request if there is one: the same call in another request is intended. A later round is the
        same step. Without sessions, all calls with one API key would look like one conversation. An
        idempotency key marks intended repetitions.
        """
        exempt = run.is_continuation or run.has_no_session or run.context.idempotency_key is not None
        if exempt or not self._flags.loop_guard:
            return None
        return run.context.packet_id or run.context.conversation

    async def _run_with_fallbacks(self, run: CallRun) -> Execution:
        """Run the requested tool, then its fallbacks, until one gives a usable result."""
        run.begin_tool(run.call, run.permit, seconds=self._get_timeout(run.latency))
        results = [await self._run_tool(run)]
        reason = get_fallback_reason(results[0])
        if reason is not None and self._may_fall_back(run):
            with anyio.move_on_at(run.until):
                await run.fallbacks.prepare_fallback(run.call)
            for call in iterate_candidates(run.call, run.fallbacks):
                if loop_time() >= run.until:
                    break
                permit = await self._permit_fallback(run, call)
                if permit is None:
                    continue
                self._emit_fallback(run, call, instead_of=results[-1].call, reason=reason)
                run.begin_tool(call, permit, seconds=self._get_timeout(run.fallbacks.get_latency(call)))
                results.append(await self._run_tool(run))
                reason = get_fallback_reason(results[-1])
                if reason is None or run.has_started_dialogue:
                    break
        return choose_best_result(results).to_execution(tuple(run.attempts))

    def _may_fall_back(self, run: CallRun) -> bool:
        return self._flags.fallback and run.context.fallback and not run.has_started_dialogue

    async def _permit_fallback(self, run: CallRun, call: Call) -> Permit | None:
        """Return a permit for a fallback call, which the policy checks like any other."""
        if does_more(call, than=run.call):
            reason = f"skipped: it could {call.effect}, which {run.call.tool} would not"
            self._record_finished(run, run.skip_fallback(call, reason))
            return None
        try:
            permit = await run.fallbacks.permit_fallback(call, run.context)
        except Exception:
            logger.exception("no ruling on the fallback %s", call.tool)
            permit = None
        if permit is None or permit.call_fingerprint != call.fingerprint:
            reason = "skipped: not permitted as a fallback"
            self._record_finished(run, run.skip_fallback(call, reason))
            return None
        return permit

    def _emit_fallback(self, run: CallRun, to: Call, *, instead_of: Call, reason: str) -> None:
        self._events.record(
            FallbackTaken,
            packet_id=run.packet_id,
            call_id=run.context.call_id,
            tool=to.tool,
            instead_of=instead_of.tool,
            reason=reason,
        )

    async def _run_tool(self, run: CallRun) -> ToolRunResult:
        """Return one tool's result from the cache, or run as many attempts as are safe."""
        call = run.tool
        cacheable = not run.has_started_dialogue and not run.has_caller_credentials
        cached = self._cache.find(call, run.context) if cacheable else None
        if cached is not None:
            run.begin_attempt()
            self._record_finished(run, run.finish_attempt(None, cached=cached))
            return ToolRunResult(call, cached.result)
        epoch = self._cache.get_epoch(call.server)
        failures, pause = 0, 0.0
        try:
            while isinstance(outcome := await self._attempt(run, waited=pause), Failure):
                failures += 1
                wait = self._find_retry_wait(run, outcome, failures)
                if wait is None:
                    return ToolRunResult(call, outcome)
                pause = wait
                await anyio.sleep(pause)
                if outcome.cause is ErrorKind.TIMEOUT:
                    run.time.renew()  # the tool gets its full timeout again
        finally:
            if call.effect is not Effect.READ:
                self._cache.invalidate(call.server)
        if cacheable and not run.has_started_dialogue:
            await self._cache_result(call, run.context, outcome, epoch)
        return ToolRunResult(call, outcome)

    async def _attempt(self, run: CallRun, *, waited: float) -> JsonObject | Failure:
        """Try the run's tool once and record the result. `waited` is the pause before this attempt."""
        call = run.tool
        run.begin_attempt(waited=waited)
        try:
            # Checked before waiting for a slot, so that an open breaker fails fast.
            self._breakers.check(call.server)
            async with _SlotLease(self._slots, run):
                with self._breakers.admit(call.server) as admission:
                    outcome = await self._connect_and_call(run)
                    admission.failure = outcome if isinstance(outcome, Failure) else None
        except AttemptRefused as refused:
            outcome = refused.failure
        except anyio.get_cancelled_exc_class():
            self._record_finished(run, run.finish_attempt(build_cancelled_failure(call, sent=run.sent)))
            raise
        self._record_finished(run, run.finish_attempt(outcome if isinstance(outcome, Failure) else None))
        if call.effect is not Effect.READ:
            self._hurry(run.packet_id)  # until it is on disk, other processes must treat the call as lost
        return outcome

    async def _connect_and_call(self, run: CallRun) -> JsonObject | Failure:
        """Connect the server, record the start, and send the call. The attempt owns the deadline."""
        call = run.tool
        run.asked_at = loop_time()
        try:
            with self._upstream.hold(call.server):  # it is not stopped as idle meanwhile
                await self._upstream.ensure(call.server, timeout=run.time.remaining)
                self._check_tool(call)  # the server may have reconnected with another tool of this name
                await self._record_start(run)
                # It may have been lost or replaced meanwhile. From here to sending, nothing waits.
                await self._upstream.ensure(call.server, timeout=run.time.remaining)
                self._check_tool(call)
                clock = self._start_clock(run)
                try:
                    with clock:
                        result = await self._upstream.call(
                            call.server,
                            call.name,
                            call.arguments,
                            clock=clock,
                            on_progress=run.on_progress,
                            meta={CALL_ID_META_KEY: run.context.call_id},
                            context=run.request_context,
                        )
                        normalized = normalize_result(result, call)
                        return classify_result(normalized, call, takes_rounds=run.takes_rounds) or normalized
                finally:
                    run.asked_caller = run.asked_caller or clock.was_paused
                raise clock.build_error(call.tool, server=call.server)
        except Exception as error:  # noqa: BLE001 - every upstream error is a failed attempt
            failure = explain_exception(error, call, sent=run.sent)
            return replace(failure, server_fault=False) if run.time.is_cut_short else failure

    def _start_clock(self, run: CallRun) -> SlotClock:
        """Return the deadline of the request that is sent now. Raises `ToolTimeout` if no time is left."""
        seconds = run.time.remaining
        if seconds <= 0:
            raise _build_no_time_error(run.tool)
        run.mark_sent()
        return SlotClock(self._slots, run.tool.server, run.owner, timeout=seconds, until=run.until)

    async def _record_start(self, run: CallRun) -> None:
        """Record that a call is about to be sent. For writes, return only when the record is on disk."""
        fields: dict[str, Any] = {
            "packet_id": run.packet_id,
            "call_id": run.context.call_id,
            "tool": run.tool.tool,
            "number": run.attempt_number,
            "call_fingerprint": run.tool.fingerprint,
            "permit": run.tool_permit.given_by,
            "fallback": run.is_fallback,
        }
        if run.tool.effect is Effect.READ:
            self._events.record(AttemptStarted, **fields)
            return
        event = AttemptStarted(**fields)
        await self._announce_write(run.tool, run.context)
        await self._append_to_journal(run, event)
        self._events.emit(event)

    async def _append_to_journal(self, run: CallRun, event: Event) -> None:
        with anyio.move_on_at(run.time.expires_at):
            await self._journal(event)
            return
        message = "the store did not confirm in time that the call is about to be made, so it was not made"
        raise StoreUnavailable(message, hint="check the disk of the database, then try again")

    def _record_finished(self, run: CallRun, attempt: Attempt) -> None:
        """Record an attempt that has ended."""
        self._events.record(
            AttemptFinished, packet_id=run.packet_id, call_id=run.context.call_id, attempt=attempt
        )

    def _find_retry_wait(self, run: CallRun, failure: Failure, failures: int) -> float | None:
        """Return the pause before the next attempt, or None if there is none."""
        rule = run.tool.retry
        retries = self._settings.retries if rule.retries.value is None else rule.retries.value
        pause = compute_retry_wait(failures, chance=self._random_number(), retry_after=failure.retry_after)
        repeatable = may_retry(failure, rule, failures=failures, retries=retries, pause=pause)
        if not repeatable or run.has_started_dialogue:
            return None
        anew = failure.cause is ErrorKind.TIMEOUT
        left = run.until - loop_time() if anew else run.time.remaining
        return pause if pause < left else None

    async def _cache_result(self, call: Call, context: CallContext, result: JsonObject, epoch: int) -> None:
        if self._cache.is_cacheable(call) and not is_input_required(result) and not is_empty_result(result):
            made = await run_in_thread(hash_result, result) if is_large_value(result) else hash_result(result)
            self._cache.keep(call, context, result, size=made.size, epoch=epoch)

    def _get_timeout(self, latency: LatencyProfile | None) -> float:
        """Return the tool's own timeout if known, else the default."""
        if latency is None or latency.timeout.source is Source.DEFAULT:
            return self._settings.timeout
        return latency.timeout.value / 1000


def _check_run(run: CallRun) -> None:
    if run.permit.call_fingerprint != run.call.fingerprint:
        raise RuntimeError(f"the permit is not for this call of {run.call.tool}")
    if run.context.dry_run:
        raise RuntimeError(f"a dry run of {run.call.tool} must not be executed")


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
        hint="repeating it gives nothing new: use the result, change the arguments, or use another tool",
    )

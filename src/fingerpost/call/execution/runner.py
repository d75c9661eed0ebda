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

from fingerpost.call.execution.attempts import Attempts
from fingerpost.call.execution.breaker import BreakerLimits, BreakerStatus
from fingerpost.call.execution.breakers import Breakers
from fingerpost.call.execution.cache import ResultCache
from fingerpost.call.execution.cascade import Turn, best, candidates, does_more, reason_to_fall_back
from fingerpost.call.execution.clock import Allowance, loop_time
from fingerpost.call.execution.dialogue import awaits_input, watched
from fingerpost.call.execution.door import (
    Alternatives,
    BeforeFallback,
    Clock,
    DurableAppend,
    LatencyOf,
    Permitting,
    Progress,
    ToolDoor,
    is_ready,
    no_alternatives,
    permit_none,
)
from fingerpost.call.execution.duplicates import Duplicates, duplicate_key
from fingerpost.call.execution.emptiness import is_empty
from fingerpost.call.execution.failure import Failure
from fingerpost.call.execution.imprint import imprint_of, imprint_of_error
from fingerpost.call.execution.journey import Journey, Leg
from fingerpost.call.execution.loops import LoopGuard
from fingerpost.call.execution.parallel import Job, in_parallel
from fingerpost.call.execution.plan import Plan
from fingerpost.call.execution.retry import may_repeat, wait_before
from fingerpost.call.execution.slots import Slots
from fingerpost.events import AtOnce, EventSink, Later
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
from fingerpost.records.json import holds_much
from fingerpost.servers.caller import Passage
from fingerpost.settings.model import CallSettings, FlagSettings
from fingerpost.tasks import aside

logger = logging.getLogger("fingerpost.call")

PASSED_ON_PATIENCE = 4  # somebody else's agent that presses a key four times is in no loop


class Runner:
    """Runs permitted calls, and remembers what that teaches about servers and conversations."""

    def __init__(
        self,
        door: ToolDoor,
        *,
        settings: CallSettings,
        flags: FlagSettings,
        events: EventSink,
        journal: DurableAppend,
        hasten: Callable[[], None] = lambda: None,
        assure: Callable[[Call], None] = lambda _: None,
        unbounded: Collection[str] = (),
        clock: Clock = time.monotonic,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._settings = settings
        self._flags = flags
        # A sink that fails changes nothing about a call that is under way.
        self._events = events if isinstance(events, Later) else AtOnce(events)
        self._chance = chance
        limits = BreakerLimits(
            failures=settings.breaker_failures,
            rate=settings.breaker_rate,
            window=settings.breaker_window,
            seconds=settings.breaker_seconds,
        )
        self._breakers = Breakers(limits, events=self._events, clock=clock)
        slots = Slots(each=settings.concurrency, unbounded=unbounded)
        self._attempts = Attempts(
            door, slots=slots, breakers=self._breakers, journal=journal, hasten=hasten, assure=assure
        )
        self._loops = LoopGuard(repeat_limit=settings.repeat_limit, clock=clock)
        self._duplicates = Duplicates(clock=clock)
        entries = settings.cache_entries if flags.result_cache else 0
        self._cache = ResultCache(entries=entries, clock=clock)

    # -- breakers -----------------------------------------------------------------------------------

    @property
    def breakers(self) -> Mapping[str, BreakerStatus]:
        """The breaker of every server that was called, by the server's name."""
        return self._breakers.statuses()

    def reset_breaker(self, server: str) -> None:
        """A person says that the server is well: ask it again."""
        self._breakers.reset(server)

    def reconnected(self, server: str) -> None:
        """The server came back by itself: an open breaker may be tried at once."""
        self._breakers.hasten(server)

    # -- running ------------------------------------------------------------------------------------

    async def run(
        self,
        call: Call,
        permit: Permit,
        context: CallContext,
        *,
        latency: LatencyProfile,
        alternatives: Alternatives = no_alternatives,
        before_fallback: BeforeFallback = is_ready,
        permitting: Permitting = permit_none,
        on_progress: Progress | None = None,
        latency_of: LatencyOf | None = None,
        passage: Passage | None = None,
    ) -> Execution:
        """Run the call, or what may stand in for it. `latency_of` gives a fallback its own time-out."""
        return await self.execute(
            Plan(
                call=call,
                permit=permit,
                context=context,
                latency=latency,
                alternatives=alternatives,
                before_fallback=before_fallback,
                permitting=permitting,
                on_progress=on_progress,
                latency_of=latency_of,
                passage=passage,
            )
        )

    async def run_many(self, plans: Sequence[Plan]) -> tuple[Execution, ...]:
        """Run independent calls side by side; results in the order given.

        Writes to one server keep their order: the second may rest on the first.
        """
        for plan in plans:
            _check(plan)
        jobs = [
            Job(plan.call.server, plan.call.effect, lambda plan=plan: self.execute(plan)) for plan in plans
        ]
        return await in_parallel(jobs)

    async def execute(self, plan: Plan) -> Execution:
        """Run one plan."""
        _check(plan)
        # A model goes round within one request: who asks the same again in another wants it again.
        talk = plan.context.packet_id or plan.context.conversation
        # A further round is the same step, not one more of it; and where there are no sessions, all that
        # a key's holders ask would look like one conversation.
        # A key says which repetitions are meant.
        exempt = plan.continues or plan.has_no_session or plan.context.idempotency_key is not None
        if talk is None or exempt or not self._flags.loop_guard:
            return await self._once(plan)
        reason = self._loops.check(talk, plan.call, may_insist=plan.is_passed_on)
        if reason is not None:
            return _loop(plan.call, reason)
        self._loops.begin(talk, plan.call)
        try:
            execution = await self._once(plan)
        finally:
            is_last = self._loops.end(talk, plan.call)
        if is_last and not (execution.result is not None and awaits_input(execution.result)):
            patience = PASSED_ON_PATIENCE if plan.is_passed_on else 1
            self._loops.note(talk, plan.call, await _imprint(execution), patience=patience)
        return execution

    async def _once(self, plan: Plan) -> Execution:
        journey = Journey(plan.context, events=self._events)
        until = math.inf if plan.context.seconds is None else loop_time() + plan.context.seconds
        key = duplicate_key(plan)
        if key is None:
            return await self._cascade(plan, journey, until)
        refused = self._duplicates.refusal(key, plan.call)
        if refused is not None:
            return refused
        with self._duplicates.running(key, journey):
            return await self._cascade(plan, journey, until)

    async def _cascade(self, plan: Plan, journey: Journey, until: float) -> Execution:
        """The asked tool, then those in line behind it, until one has something to say."""
        leg = self._leg(plan, plan.call, plan.permit, plan.latency, until=until)
        turns = [await self._turn(journey, leg)]
        reason = reason_to_fall_back(turns[0])
        if reason is not None and self._may_fall_back(plan, leg):
            with anyio.move_on_at(until):
                await plan.before_fallback(plan.call)
            for call in candidates(plan.call, plan.alternatives):
                if loop_time() >= until:
                    break
                permit = await self._permit(plan, journey, call)
                if permit is None:
                    continue
                journey.falls_back(call, instead_of=turns[-1].call, reason=reason)
                latency = plan.latency_of(call) if plan.latency_of is not None else None
                leg = self._leg(plan, call, permit, latency, until=until, fallback=True)
                turns.append(await self._turn(journey, leg))
                reason = reason_to_fall_back(turns[-1])
                if reason is None or leg.in_dialogue:
                    break
        return best(turns).execution(journey.attempts)

    def _may_fall_back(self, plan: Plan, leg: Leg) -> bool:
        return self._flags.fallback and plan.context.fallback and not leg.in_dialogue

    async def _permit(self, plan: Plan, journey: Journey, call: Call) -> Permit | None:
        """Leave to make a fallback call. A fallback is policed like any call."""
        if does_more(call, than=plan.call):
            journey.skipped(call, f"skipped: it could {call.effect}, which {plan.call.tool} would not")
            return None
        try:
            permit = await plan.permitting(call)
        except Exception:
            logger.exception("no ruling on the fallback %s", call.tool)
            permit = None
        if permit is None or permit.call_fingerprint != call.fingerprint:
            journey.skipped(call, "skipped: not permitted as a fallback")
            return None
        return permit

    async def _turn(self, journey: Journey, leg: Leg) -> Turn:
        """One tool, from the cache or with as many attempts as are safe."""
        call = leg.call
        cacheable = not leg.in_dialogue and not leg.brings_credentials
        cached = self._cache.find(call, journey.context) if cacheable else None
        if cached is not None:
            journey.finished(call, journey.begin(), None, cached=cached)
            return Turn(call, cached.result)
        epoch = self._cache.epoch(call.server)
        try:
            outcome = await self._attempt_repeatedly(journey, leg)
        finally:
            if call.effect is not Effect.READ:
                self._cache.spoil(call.server)
        if not isinstance(outcome, Failure) and cacheable and not leg.in_dialogue:
            await self._keep(call, journey.context, outcome, epoch)
        return Turn(call, outcome)

    async def _attempt_repeatedly(self, journey: Journey, leg: Leg) -> JsonObject | Failure:
        failures = 0
        pause = 0.0
        rule = leg.call.retry
        retries = self._settings.retries if rule.retries.value is None else rule.retries.value
        while True:
            outcome = await self._attempts.once(journey, leg, waited=pause)
            if not isinstance(outcome, Failure):
                return outcome
            failures += 1
            pause = wait_before(failures, chance=self._chance(), asked=outcome.retry_after)
            repeatable = may_repeat(outcome, rule, failures=failures, retries=retries, pause=pause)
            if not repeatable or leg.in_dialogue:
                return outcome
            anew = outcome.cause is ErrorKind.TIMEOUT  # the tool has the same time again
            if pause >= (leg.time.until - loop_time() if anew else leg.time.remaining):
                return outcome
            await anyio.sleep(pause)
            if anew:
                leg = leg.with_new_time()

    async def _keep(self, call: Call, context: CallContext, result: JsonObject, epoch: int) -> None:
        if self._cache.serves(call) and not awaits_input(result) and not is_empty(result):
            made = await aside(imprint_of, result) if holds_much(result) else imprint_of(result)
            self._cache.keep(call, context, result, size=made.size, epoch=epoch)

    # -- time ---------------------------------------------------------------------------------------

    def _leg(
        self,
        plan: Plan,
        call: Call,
        permit: Permit,
        latency: LatencyProfile | None,
        *,
        until: float,
        fallback: bool = False,
    ) -> Leg:
        return Leg(
            call=call,
            permit=permit,
            time=Allowance(self._seconds(latency), until=until),
            fallback=fallback,
            on_progress=plan.on_progress,
            passage=plan.passage,
            dialogue=watched(plan.passage),
        )

    def _seconds(self, latency: LatencyProfile | None) -> float:
        """A tool's time-out: what is known about it, or what is set for all."""
        if latency is None or latency.timeout.source is Source.DEFAULT:
            return self._settings.timeout
        return latency.timeout.value / 1000


def _check(plan: Plan) -> None:
    if plan.permit.call_fingerprint != plan.call.fingerprint:
        message = f"the permit is not for this call of {plan.call.tool}"
        raise RuntimeError(message)
    if plan.context.dry_run:
        message = f"a dry run of {plan.call.tool} must not be executed"
        raise RuntimeError(message)


async def _imprint(execution: Execution) -> str:
    if execution.error is not None:
        return imprint_of_error(execution.error, execution.detail)
    result = execution.result or {}
    made = await aside(imprint_of, result) if holds_much(result) else imprint_of(result)
    return made.digest


def _loop(call: Call, reason: str) -> Execution:
    return Execution(
        call=call,
        attempts=(),
        error=ErrorKind.LOOP,
        detail=reason,
        hint="nothing new will come of it: use what is known, change the arguments, or try another tool",
    )

"""One try of one tool: a slot, the breaker, the connection, the journal, the call.

The order is what makes it safe. Whatever fails before the last step was surely
not sent. A call that is not a read is on disk before it is sent: when the
process dies, the journal shows a start without an end, and nobody repeats it.

A slot is for the server's work: while a call waits for a person it is somebody
else's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import anyio

from fingerpost.call.execution.breakers import BreakerRegistry
from fingerpost.call.execution.clock import loop_time
from fingerpost.call.execution.door import DurableAppend, ProgressReporter, ToolUpstream
from fingerpost.call.execution.failure import (
    Failure,
    build_cancelled_failure,
    classify_result,
    explain_exception,
)
from fingerpost.call.execution.journey import AttemptLog, RunningAttempt, ToolRun
from fingerpost.call.execution.shape import normalize_result
from fingerpost.call.execution.slots import NoSlotAvailable, SlotClock, SlotPool, get_slot_owner
from fingerpost.errors import StoreUnavailable, ToolTimeout
from fingerpost.events import Event
from fingerpost.records import Call, Effect, JsonObject
from fingerpost.servers.caller import CALL_ID
from fingerpost.servers.failures import UNKNOWN_OUTCOME
from fingerpost.tasks import create_cancel_scope

GRACE_SECONDS = 1.0  # for a door that keeps its own deadline, to say so in its own words


class AttemptRunner:
    """Makes attempts. Failures come back as values; only cancellation is raised."""

    def __init__(
        self,
        upstream: ToolUpstream,
        *,
        slots: SlotPool,
        breakers: BreakerRegistry,
        journal: DurableAppend,
        flush_soon: Callable[[], None],
        check_tool: Callable[[Call], None],
    ) -> None:
        """`assure` raises where a tool is no longer the one that a call was permitted for."""
        self._door = upstream
        self._slots = slots
        self._breakers = breakers
        self._journal = journal
        self._hasten = flush_soon
        self._assure = check_tool

    async def attempt_once(
        self, attempt_log: AttemptLog, tool_run: ToolRun, *, waited: float
    ) -> JsonObject | Failure:
        """Try the tool once, and record how it went. `waited` is the pause that went before."""
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
            self._hasten()  # until it is on disk, another process has to take it for lost
        return outcome

    async def _attempt_in_slot(
        self, attempt_log: AttemptLog, tool_run: ToolRun, attempt: RunningAttempt
    ) -> JsonObject | Failure:
        server = tool_run.call.server
        # Asked before waiting, so that a server that is left alone fails fast.
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
            await self._door.ensure(tool_run.call.server, timeout=tool_run.time.remaining)
            self._assure(tool_run.call)  # its server may have come back with another tool of that name
            await self._record_start(attempt_log, tool_run, attempt)
            result = normalize_result(await self._send(attempt_log, tool_run, attempt), tool_run.call)
        except Exception as error:  # noqa: BLE001 - whatever a door does to us is a failed attempt
            failure = explain_exception(error, tool_run.call, sent=attempt.sent)
            return replace(failure, server_fault=False) if tool_run.time.is_cut_short else failure
        return (
            classify_result(result, tool_run.call, takes_rounds=_can_take_rounds(attempt_log, tool_run))
            or result
        )

    async def _record_start(
        self, attempt_log: AttemptLog, tool_run: ToolRun, attempt: RunningAttempt
    ) -> None:
        """Say that a call is about to be sent. For anything but a read: returns when that is on disk."""
        if tool_run.call.effect is Effect.READ:
            attempt_log.emit_started(tool_run, attempt)
            return
        event = attempt_log.build_started_event(tool_run, attempt)
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
                return await self._door.call(
                    call.server,
                    call.name,
                    call.arguments,
                    timeout=seconds,
                    on_progress=_wrap_progress(tool_run.on_progress, clock),
                    meta={CALL_ID: attempt_log.context.call_id},
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
    """What the server says of its progress, which gives it time."""
    if report is None:
        return None

    async def noticed(progress: float, total: float | None, message: str | None) -> None:
        clock.note_progress(progress)
        await report(progress, total, message)

    return noticed


def _build_no_time_error(tool_run: ToolRun) -> ToolTimeout:
    message = f"no time was left to call {tool_run.call.tool}; it was not called"
    return ToolTimeout(message, server=tool_run.call.server)


def _can_take_rounds(attempt_log: AttemptLog, tool_run: ToolRun) -> bool:
    """Whether somebody comes back with the answers: the caller themselves, or the request on its way."""
    if tool_run.dialogue is None:
        return attempt_log.context.packet_id is not None
    return tool_run.dialogue.accepts_input_required

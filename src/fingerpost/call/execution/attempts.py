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

from fingerpost.call.execution.breakers import Breakers
from fingerpost.call.execution.clock import loop_time
from fingerpost.call.execution.door import DurableAppend, Progress, ToolDoor
from fingerpost.call.execution.failure import Failure, cancelled, explain, judge
from fingerpost.call.execution.journey import Journey, Leg, Try
from fingerpost.call.execution.shape import as_mcp
from fingerpost.call.execution.slots import NoSlot, SlotClock, Slots, owner_of
from fingerpost.errors import StoreUnavailable, ToolTimeout
from fingerpost.events import Event
from fingerpost.records import Call, Effect, JsonObject
from fingerpost.servers.caller import CALL_ID
from fingerpost.servers.failures import UNKNOWN_OUTCOME
from fingerpost.tasks import cancel_scope

GRACE_SECONDS = 1.0  # for a door that keeps its own deadline, to say so in its own words


class Attempts:
    """Makes attempts. Failures come back as values; only cancellation is raised."""

    def __init__(
        self,
        door: ToolDoor,
        *,
        slots: Slots,
        breakers: Breakers,
        journal: DurableAppend,
        hasten: Callable[[], None],
        assure: Callable[[Call], None],
    ) -> None:
        """`assure` raises where a tool is no longer the one that a call was permitted for."""
        self._door = door
        self._slots = slots
        self._breakers = breakers
        self._journal = journal
        self._hasten = hasten
        self._assure = assure

    async def once(self, journey: Journey, leg: Leg, *, waited: float) -> JsonObject | Failure:
        """Try the tool once, and record how it went. `waited` is the pause that went before."""
        attempt = journey.begin(waited=waited)
        try:
            outcome = await self._in_slot(journey, leg, attempt)
        except anyio.get_cancelled_exc_class():
            journey.finished(leg.call, attempt, cancelled(leg.call, sent=attempt.sent))
            raise
        journey.finished(leg.call, attempt, outcome if isinstance(outcome, Failure) else None)
        if leg.call.effect is not Effect.READ:
            self._hasten()  # until it is on disk, another process has to take it for lost
        return outcome

    async def _in_slot(self, journey: Journey, leg: Leg, attempt: Try) -> JsonObject | Failure:
        server = leg.call.server
        # Asked before waiting, so that a server that is left alone fails fast.
        if (refusal := self._breakers.refusal(server)) is not None:
            return refusal
        began = loop_time()
        if leg.time.deadline <= began:
            return explain(_no_time(leg), leg.call, sent=False)
        try:
            owner = owner_of(journey.context)
            await self._slots.take(server, owner, until=leg.time.may_wait_until(began))
        except NoSlot as none:
            attempt.waited += loop_time() - began
            return none.failure
        try:
            waited = loop_time() - began
            attempt.waited += waited
            leg.time.has_waited(waited)
            return await self._past_breaker(journey, leg, attempt)
        finally:
            self._slots.give_back(server, owner)

    async def _past_breaker(self, journey: Journey, leg: Leg, attempt: Try) -> JsonObject | Failure:
        server = leg.call.server
        ticket = self._breakers.admit(server)
        if isinstance(ticket, Failure):
            return ticket
        attempt.asked_at = loop_time()
        try:
            outcome = await self._ask(journey, leg, attempt)
        except BaseException:
            self._breakers.abandon(server, ticket)
            raise
        self._breakers.settle(server, ticket, outcome if isinstance(outcome, Failure) else None)
        return outcome

    async def _ask(self, journey: Journey, leg: Leg, attempt: Try) -> JsonObject | Failure:
        try:
            await self._door.ensure(leg.call.server, timeout=leg.time.remaining)
            self._assure(leg.call)  # its server may have come back with another tool of that name
            await self._announce(journey, leg, attempt)
            result = as_mcp(await self._send(journey, leg, attempt), leg.call)
        except Exception as error:  # noqa: BLE001 - whatever a door does to us is a failed attempt
            failure = explain(error, leg.call, sent=attempt.sent)
            return replace(failure, server_fault=False) if leg.time.is_cut_short else failure
        return judge(result, leg.call, takes_rounds=_takes_rounds(journey, leg)) or result

    async def _announce(self, journey: Journey, leg: Leg, attempt: Try) -> None:
        """Say that a call is about to be sent. For anything but a read: returns when that is on disk."""
        if leg.call.effect is Effect.READ:
            journey.tell_started(leg, attempt)
            return
        event = journey.started(leg, attempt)
        await self._write_down(leg, event)
        journey.tell(event)

    async def _write_down(self, leg: Leg, event: Event) -> None:
        with anyio.move_on_at(leg.time.deadline):
            await self._journal(event)
            return
        message = "the store did not confirm in time that the call is about to be made, so it was not made"
        raise StoreUnavailable(message, hint="check the disk of the database, then try again")

    async def _send(self, journey: Journey, leg: Leg, attempt: Try) -> JsonObject:
        seconds = leg.time.remaining
        if seconds <= 0:
            raise _no_time(leg)
        journey.sending(leg, attempt)
        call = leg.call
        grace = GRACE_SECONDS if leg.dialogue is None else 0.0
        scope = cancel_scope(min(loop_time() + seconds + grace, leg.time.until))
        owner = owner_of(journey.context)
        clock = SlotClock(
            scope, self._slots, call.server, owner, patience=seconds + grace, until=leg.time.until
        )
        try:
            with scope:
                return await self._door.call(
                    call.server,
                    call.name,
                    call.arguments,
                    timeout=seconds,
                    on_progress=_noticed(leg.on_progress, clock),
                    meta={CALL_ID: journey.context.call_id},
                    passage=leg.passage if leg.dialogue is None else leg.dialogue.timed_by(clock),
                )
        finally:
            clock.end()
        if clock.loss is not None:
            raise clock.loss
        message = clock.complaint(leg.call.tool, seconds)
        raise ToolTimeout(message, server=leg.call.server, hint=UNKNOWN_OUTCOME)


def _noticed(report: Progress | None, clock: SlotClock) -> Progress | None:
    """What the server says of its progress, which gives it time."""
    if report is None:
        return None

    async def noticed(progress: float, total: float | None, message: str | None) -> None:
        clock.moved(progress)
        await report(progress, total, message)

    return noticed


def _no_time(leg: Leg) -> ToolTimeout:
    message = f"no time was left to call {leg.call.tool}; it was not called"
    return ToolTimeout(message, server=leg.call.server)


def _takes_rounds(journey: Journey, leg: Leg) -> bool:
    """Whether somebody comes back with the answers: the caller themselves, or the request on its way."""
    if leg.dialogue is None:
        return journey.context.packet_id is not None
    return leg.dialogue.takes_rounds

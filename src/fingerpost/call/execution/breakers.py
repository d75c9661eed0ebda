"""The breakers of all servers. Every change of one is an event."""

from __future__ import annotations

from fingerpost.call.execution.breaker import (
    Breaker,
    BreakerLimits,
    BreakerState,
    BreakerStatus,
    BreakerTicket,
)
from fingerpost.call.execution.door import TimeSource
from fingerpost.call.execution.failure import Failure
from fingerpost.events import BreakerMoved, EventSink
from fingerpost.records import ErrorKind

_STATE_WORDS = {
    BreakerState.OPEN: "too many failures",
    BreakerState.HALF_OPEN: "trying whether it is well again",
    BreakerState.CLOSED: "it answers again",
}


class BreakerRegistry:
    """One breaker for each server, made when first needed."""

    def __init__(self, limits: BreakerLimits, *, events: EventSink, clock: TimeSource) -> None:
        self._limits = limits
        self._events = events
        self._clock = clock
        self._all: dict[str, Breaker] = {}

    def get_statuses(self) -> dict[str, BreakerStatus]:
        return {server: breaker.status for server, breaker in self._all.items()}

    def get_refusal(self, server: str) -> Failure | None:
        """Why nothing is asked of this server now."""
        breaker = self._get_breaker(server)
        return self._build_refusal(breaker) if breaker.is_refusing() else None

    def issue_ticket(self, server: str) -> BreakerTicket | Failure:
        breaker = self._get_breaker(server)
        before = breaker.state
        ticket = breaker.issue_ticket()
        self._emit_change(breaker, before)
        return ticket or self._build_refusal(breaker)

    def record_outcome(self, server: str, ticket: BreakerTicket, failure: Failure | None) -> None:
        """Tell what became of an admitted call; no failure means a good result."""
        breaker = self._get_breaker(server)
        before = breaker.state
        if failure is None or failure.answered:
            breaker.record_success(ticket)
        elif failure.server_fault:
            breaker.record_failure(ticket, failure.detail)
        else:
            breaker.return_ticket(ticket)
        self._emit_change(breaker, before)

    def return_ticket(self, server: str, ticket: BreakerTicket) -> None:
        self._get_breaker(server).return_ticket(ticket)

    def reset(self, server: str) -> None:
        """A person says that the server is well."""
        breaker = self._get_breaker(server)
        before = breaker.state
        breaker.close()
        self._emit_change(breaker, before, "reset by hand")

    def allow_trial_now(self, server: str) -> None:
        """The server has reconnected."""
        if (breaker := self._all.get(server)) is not None:
            breaker.allow_trial_now()

    def _get_breaker(self, server: str) -> Breaker:
        if server not in self._all:
            self._all[server] = Breaker(server, self._limits, clock=self._clock)
        return self._all[server]

    def _emit_change(self, breaker: Breaker, before: BreakerState, word: str | None = None) -> None:
        if breaker.state is not before:
            status = breaker.status
            reason = word or status.reason or _STATE_WORDS[status.state]
            self._events.emit(BreakerMoved(server=status.server, state=status.state, reason=reason))

    def _build_refusal(self, breaker: Breaker) -> Failure:
        status = breaker.status
        when = "a trial is under way" if status.retry_in is None else f"next trial in {status.retry_in:.0f} s"
        return Failure(
            kind=ErrorKind.UNAVAILABLE,
            detail=f"{status.server} failed too often and is left alone for now ({when}): {status.reason}",
            hint="it is tried again by itself; use another tool meanwhile. A person who knows that it is "
            "well can close the breaker of a running gateway: in its console, under Servers, or with "
            f"POST /api/servers/{status.server}/breaker/reset",
        )

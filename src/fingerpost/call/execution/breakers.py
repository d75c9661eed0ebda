"""The breakers of all servers. Every change of one is an event."""

from __future__ import annotations

from fingerpost.call.execution.breaker import Breaker, BreakerLimits, BreakerState, BreakerStatus, Ticket
from fingerpost.call.execution.door import Clock
from fingerpost.call.execution.failure import Failure
from fingerpost.events import BreakerMoved, EventSink
from fingerpost.records import ErrorKind

_WORDS = {
    BreakerState.OPEN: "too many failures",
    BreakerState.HALF_OPEN: "trying whether it is well again",
    BreakerState.CLOSED: "it answers again",
}


class Breakers:
    """One breaker for each server, made when first needed."""

    def __init__(self, limits: BreakerLimits, *, events: EventSink, clock: Clock) -> None:
        self._limits = limits
        self._events = events
        self._clock = clock
        self._all: dict[str, Breaker] = {}

    def statuses(self) -> dict[str, BreakerStatus]:
        return {server: breaker.status for server, breaker in self._all.items()}

    def refusal(self, server: str) -> Failure | None:
        """Why nothing is asked of this server now."""
        breaker = self._of(server)
        return self._refused(breaker) if breaker.refuses() else None

    def admit(self, server: str) -> Ticket | Failure:
        breaker = self._of(server)
        before = breaker.state
        ticket = breaker.admit()
        self._tell(breaker, before)
        return ticket or self._refused(breaker)

    def settle(self, server: str, ticket: Ticket, failure: Failure | None) -> None:
        """Tell what became of an admitted call; no failure means a good result."""
        breaker = self._of(server)
        before = breaker.state
        if failure is None or failure.answered:
            breaker.succeeded(ticket)
        elif failure.server_fault:
            breaker.failed(ticket, failure.detail)
        else:
            breaker.abandoned(ticket)
        self._tell(breaker, before)

    def abandon(self, server: str, ticket: Ticket) -> None:
        self._of(server).abandoned(ticket)

    def reset(self, server: str) -> None:
        """A person says that the server is well."""
        breaker = self._of(server)
        before = breaker.state
        breaker.close()
        self._tell(breaker, before, "reset by hand")

    def hasten(self, server: str) -> None:
        """The server has reconnected."""
        if (breaker := self._all.get(server)) is not None:
            breaker.hasten()

    def _of(self, server: str) -> Breaker:
        if server not in self._all:
            self._all[server] = Breaker(server, self._limits, clock=self._clock)
        return self._all[server]

    def _tell(self, breaker: Breaker, before: BreakerState, word: str | None = None) -> None:
        if breaker.state is not before:
            status = breaker.status
            reason = word or status.reason or _WORDS[status.state]
            self._events.emit(BreakerMoved(server=status.server, state=status.state, reason=reason))

    def _refused(self, breaker: Breaker) -> Failure:
        status = breaker.status
        when = "a trial is under way" if status.retry_in is None else f"next trial in {status.retry_in:.0f} s"
        return Failure(
            kind=ErrorKind.UNAVAILABLE,
            detail=f"{status.server} failed too often and is left alone for now ({when}): {status.reason}",
            hint="it is tried again by itself; use another tool meanwhile. A person who knows that it is "
            "well can close the breaker of a running gateway: in its console, under Servers, or with "
            f"POST /api/servers/{status.server}/breaker/reset",
        )

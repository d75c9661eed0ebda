"""Circuit breakers: stop calls to a failing server, and test with few calls whether it works again."""

from __future__ import annotations

from bisect import insort
from enum import StrEnum
from itertools import takewhile
from typing import Self

from fingerpost.call.execution.failure import AttemptRefused, Failure
from fingerpost.call.execution.upstream import TimeSource
from fingerpost.events import BreakerMoved, EventSink
from fingerpost.frozen import frozen
from fingerpost.records import ErrorKind

MAX_TRIALS = 2  # concurrent, while half-open


class BreakerState(StrEnum):
    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


@frozen
class BreakerStatus:
    """The state of a breaker for display."""

    server: str
    state: BreakerState
    failures: int  # consecutive
    reason: str = ""  # why it is not closed
    retry_in: float | None = None  # seconds until the next trial, while open


@frozen
class BreakerLimits:
    """When a breaker opens, for how long, and how many trials run at once."""

    failures: int
    rate: float
    window: int
    seconds: float
    trials: int = MAX_TRIALS


@frozen(kw_only=False, eq=False)
class BreakerTicket:
    """Permission for one call to the server. It is returned with the call's outcome."""

    period: int
    number: int


class Breaker:
    """The breaker of one server."""

    def __init__(self, server: str, limits: BreakerLimits, *, clock: TimeSource) -> None:
        self._server = server
        self._limits = limits
        self._clock = clock
        self._state = BreakerState.CLOSED
        self._period = 0  # increases with every change of state
        self._admitted = 0
        self._ended: list[tuple[int, bool]] = []  # ticket number and whether it failed, sorted by number
        self._failures = 0
        self._opened_at = 0.0
        self._reason = ""
        self._running_trials: set[BreakerTicket] = set()  # running trials

    @property
    def state(self) -> BreakerState:
        return self._state

    @property
    def status(self) -> BreakerStatus:
        return BreakerStatus(
            server=self._server,
            state=self._state,
            failures=self._failures,
            reason=self._reason,
            retry_in=self._get_remaining_seconds() if self._state is BreakerState.OPEN else None,
        )

    def is_refusing(self) -> bool:
        """Return whether `issue_ticket` would return None now."""
        if self._state is BreakerState.OPEN:
            return self._get_remaining_seconds() > 0
        return self._state is BreakerState.HALF_OPEN and len(self._running_trials) >= self._limits.trials

    def issue_ticket(self) -> BreakerTicket | None:
        """Return a ticket for one call, or None to fail fast."""
        if self.is_refusing():
            return None
        if self._state is BreakerState.OPEN:
            self._set_state(BreakerState.HALF_OPEN)
        self._admitted += 1
        ticket = BreakerTicket(self._period, self._admitted)
        if self._state is BreakerState.HALF_OPEN:
            self._running_trials.add(ticket)
        return ticket

    def record_success(self, ticket: BreakerTicket) -> None:
        """Record that the server answered, even with a tool error."""
        if not self._retire_ticket(ticket):
            return
        if self._state is BreakerState.HALF_OPEN:
            self.close()
        else:
            self._record(ticket, failed=False)

    def record_failure(self, ticket: BreakerTicket, reason: str) -> None:
        """Record that the server did not answer, or sent an invalid answer."""
        if not self._retire_ticket(ticket):
            return
        if self._state is BreakerState.HALF_OPEN:
            self._failures += 1
        else:
            self._record(ticket, failed=True)
        if self._state is BreakerState.HALF_OPEN or self._should_open():
            self._reason = reason
            self._opened_at = self._clock()
            self._set_state(BreakerState.OPEN)

    def return_ticket(self, ticket: BreakerTicket) -> None:
        """Return a ticket without a result: the call was cancelled or never sent."""
        self._retire_ticket(ticket)

    def close(self) -> None:
        """Close the breaker and forget past failures."""
        self._reason = ""
        self._failures = 0
        if self._state is not BreakerState.CLOSED:
            self._set_state(BreakerState.CLOSED)
        self._ended.clear()

    def allow_trial_now(self) -> None:
        """Allow a trial at once if the breaker is open, because the server has reconnected."""
        if self._state is BreakerState.OPEN:
            self._opened_at = self._clock() - self._limits.seconds

    def _retire_ticket(self, ticket: BreakerTicket) -> bool:
        self._running_trials.discard(ticket)
        return ticket.period == self._period

    def _record(self, ticket: BreakerTicket, *, failed: bool) -> None:
        ended = self._ended
        in_order = not ended or ended[-1][0] < ticket.number
        if in_order:
            ended.append((ticket.number, failed))
        else:
            insort(ended, (ticket.number, failed))
        kept = max(self._limits.window, self._limits.failures)
        if len(ended) > kept:
            del ended[:-kept]
        if in_order and not failed:
            self._failures = 0
            return
        latest = (ended_badly for _, ended_badly in reversed(self._ended))
        self._failures = sum(1 for _ in takewhile(bool, latest))

    def _should_open(self) -> bool:
        if self._failures >= self._limits.failures:
            return True
        latest = self._ended[-self._limits.window :]
        failed = sum(ended_badly for _, ended_badly in latest)
        return len(latest) == self._limits.window and failed >= self._limits.rate * self._limits.window

    def _get_remaining_seconds(self) -> float:
        return max(0.0, self._opened_at + self._limits.seconds - self._clock())

    def _set_state(self, state: BreakerState) -> None:
        self._state = state
        self._period += 1
        self._running_trials.clear()
        self._ended.clear()


_STATE_WORDS = {
    BreakerState.OPEN: "too many failures",
    BreakerState.HALF_OPEN: "testing whether it works again",
    BreakerState.CLOSED: "it answers again",
}


class Admission:
    """One attempt that a breaker admitted. Set `failure` if it failed; interrupted counts as neither."""

    __slots__ = ("_breakers", "_server", "_ticket", "failure")

    def __init__(self, breakers: BreakerRegistry, server: str, ticket: BreakerTicket) -> None:
        self._breakers = breakers
        self._server = server
        self._ticket = ticket
        self.failure: Failure | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._breakers.record_outcome(self._server, self._ticket, self.failure)
        else:
            self._breakers.return_ticket(self._server, self._ticket)


class BreakerRegistry:
    """One breaker for each server, created on first use."""

    def __init__(self, limits: BreakerLimits, *, events: EventSink, clock: TimeSource) -> None:
        self._limits = limits
        self._events = events
        self._clock = clock
        self._breakers: dict[str, Breaker] = {}

    def get_statuses(self) -> dict[str, BreakerStatus]:
        return {server: breaker.status for server, breaker in self._breakers.items()}

    def check(self, server: str) -> None:
        """Raise `AttemptRefused` if this server is not called now."""
        breaker = self._get_breaker(server)
        if breaker.is_refusing():
            raise AttemptRefused(self._build_refusal(breaker))

    def admit(self, server: str) -> Admission:
        """Return the admission of one attempt; enter it with `with`. Raises `AttemptRefused`."""
        breaker = self._get_breaker(server)
        before = breaker.state
        ticket = breaker.issue_ticket()
        self._emit_change(breaker, before)
        if ticket is None:
            raise AttemptRefused(self._build_refusal(breaker))
        return Admission(self, server, ticket)

    def record_outcome(self, server: str, ticket: BreakerTicket, failure: Failure | None) -> None:
        """Record the outcome of an admitted call. No failure means success."""
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
        """Close the server's breaker, because a person says that the server works."""
        breaker = self._get_breaker(server)
        before = breaker.state
        breaker.close()
        self._emit_change(breaker, before, "reset by a person")

    def allow_trial_now(self, server: str) -> None:
        """Allow a trial at once, because the server has reconnected."""
        if (breaker := self._breakers.get(server)) is not None:
            breaker.allow_trial_now()

    def _get_breaker(self, server: str) -> Breaker:
        if server not in self._breakers:
            self._breakers[server] = Breaker(server, self._limits, clock=self._clock)
        return self._breakers[server]

    def _emit_change(self, breaker: Breaker, before: BreakerState, explanation: str | None = None) -> None:
        if breaker.state is not before:
            status = breaker.status
            reason = explanation or status.reason or _STATE_WORDS[status.state]
            self._events.emit(BreakerMoved(server=status.server, state=status.state, reason=reason))

    def _build_refusal(self, breaker: Breaker) -> Failure:
        status = breaker.status
        when = "a trial is running" if status.retry_in is None else f"next trial in {status.retry_in:.0f} s"
        return Failure(
            kind=ErrorKind.UNAVAILABLE,
            detail=f"{status.server} failed too often and is not called now ({when}): {status.reason}",
            hint="it is tried again by itself; use another tool meanwhile. A person who knows that it is "
            "well can close the breaker of a running gateway: in its console, under Servers, or with "
            f"POST /api/servers/{status.server}/breaker/reset",
        )

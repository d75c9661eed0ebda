"""The circuit breaker by itself: a state machine with a clock in hand."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from fingerpost.call.execution.breaker import Breaker, BreakerLimits, BreakerState, BreakerTicket
from tests.kit.call_runner import HandClock
from tests.requirements import proves

LIMITS = BreakerLimits(failures=5, rate=0.5, window=10, seconds=30.0, trials=2)


def a_breaker(limits: BreakerLimits = LIMITS) -> tuple[Breaker, HandClock]:
    clock = HandClock()
    return Breaker("notes", limits, clock=clock), clock


def fail(breaker: Breaker, times: int = 1) -> None:
    for _ in range(times):
        ticket = breaker.issue_ticket()
        assert ticket is not None
        breaker.record_failure(ticket, "it does not answer")


def succeed(breaker: Breaker, times: int = 1) -> None:
    for _ in range(times):
        ticket = breaker.issue_ticket()
        assert ticket is not None
        breaker.record_success(ticket)


@proves("D9")
def test_it_opens_after_so_many_failures_in_a_row_and_not_before():
    breaker, _ = a_breaker()
    fail(breaker, 4)
    assert breaker.state is BreakerState.CLOSED
    fail(breaker)
    assert breaker.state is BreakerState.OPEN
    assert breaker.issue_ticket() is None
    assert breaker.status.reason == "it does not answer"
    assert breaker.status.retry_in == 30.0


@proves("D9")
def test_it_opens_when_half_of_the_last_calls_failed_though_never_many_in_a_row():
    breaker, _ = a_breaker()
    for _ in range(4):
        succeed(breaker)
        fail(breaker)
    assert breaker.state is BreakerState.CLOSED
    succeed(breaker)
    fail(breaker)
    assert breaker.state is BreakerState.OPEN


@proves("D9")
def test_after_its_time_a_few_trials_are_admitted_and_no_more():
    breaker, clock = a_breaker()
    fail(breaker, 5)
    clock.turn(29.9)
    assert breaker.issue_ticket() is None
    clock.turn(0.1)
    assert breaker.issue_ticket() is not None
    assert breaker.state is BreakerState.HALF_OPEN
    assert breaker.issue_ticket() is not None
    assert [breaker.issue_ticket() for _ in range(98)] == [None] * 98


@proves("D9")
def test_a_trial_that_succeeds_closes_it_and_one_that_fails_opens_it_for_as_long_again():
    breaker, clock = a_breaker()
    fail(breaker, 5)
    clock.turn(30)
    fail(breaker)
    assert breaker.state is BreakerState.OPEN
    assert breaker.status.retry_in == 30.0
    clock.turn(30)
    succeed(breaker)
    assert breaker.state is BreakerState.CLOSED
    fail(breaker, 4)
    assert breaker.state is BreakerState.CLOSED


@proves("D9")
def test_calls_that_hang_while_others_are_answered_do_not_look_like_a_dead_server():
    breaker, _ = a_breaker()
    for _ in range(5):
        tickets = [breaker.issue_ticket() for _ in range(20)]
        hanging = [ticket for index, ticket in enumerate(tickets) if index % 4 == 0 and ticket is not None]
        for ticket in tickets:
            assert ticket is not None
            if ticket not in hanging:
                breaker.record_success(ticket)
        for ticket in hanging:  # their time is over last, one after the other
            breaker.record_failure(ticket, "no answer")
    assert breaker.state is BreakerState.CLOSED


def test_a_trial_given_up_makes_room_for_the_next():
    breaker, clock = a_breaker()
    fail(breaker, 5)
    clock.turn(30)
    for _ in range(10):
        ticket = breaker.issue_ticket()
        assert ticket is not None
        breaker.return_ticket(ticket)
    assert breaker.state is BreakerState.HALF_OPEN


def test_a_call_from_before_it_opened_says_nothing_about_the_server_of_today():
    breaker, clock = a_breaker()
    old = breaker.issue_ticket()
    assert old is not None
    fail(breaker, 5)
    clock.turn(30)
    trial = breaker.issue_ticket()
    assert trial is not None
    breaker.record_success(old)
    assert breaker.state is BreakerState.HALF_OPEN
    breaker.record_failure(trial, "still ill")
    breaker.record_success(old)
    breaker.record_failure(old, "it was already ill")
    assert (breaker.state, breaker.status.reason) == (BreakerState.OPEN, "still ill")


def test_a_server_that_reconnected_is_tried_at_once():
    breaker, _ = a_breaker()
    fail(breaker, 5)
    breaker.allow_trial_now()
    assert breaker.issue_ticket() is not None
    assert breaker.state is BreakerState.HALF_OPEN


@settings(deadline=None)
@given(st.lists(st.booleans(), max_size=60))
def test_it_opens_exactly_when_the_run_or_the_share_of_failures_says_so(failures: list[bool]):
    breaker, _ = a_breaker()
    for index, failed in enumerate(failures):
        ticket = breaker.issue_ticket()
        assert ticket is not None
        _ = breaker.record_failure(ticket, "ill") if failed else breaker.record_success(ticket)
        seen = failures[: index + 1]
        in_a_row = len(seen) >= 5 and all(seen[-5:])
        share = len(seen) >= 10 and sum(seen[-10:]) >= 5
        # A success is never what opens it.
        assert (breaker.state is BreakerState.OPEN) == (failed and (in_a_row or share))
        if breaker.state is BreakerState.OPEN:
            return


class BreakerLife(RuleBasedStateMachine):
    """Any calls in any order, ending in any way at any time."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = HandClock()
        self.breaker = Breaker("notes", LIMITS, clock=self.clock)
        self.out: list[BreakerTicket] = []
        self.trials: list[BreakerTicket] = []

    @rule()
    def ask(self) -> None:
        refused = self.breaker.is_refusing()
        ticket = self.breaker.issue_ticket()
        assert (ticket is None) == refused
        if ticket is not None:
            self.out.append(ticket)
            if self.breaker.state is BreakerState.HALF_OPEN:
                self.trials.append(ticket)

    @precondition(lambda self: bool(self.out))
    @rule(data=st.data(), end=st.sampled_from(["succeeded", "failed", "abandoned"]))
    def end(self, data: st.DataObject, end: str) -> None:
        ticket = self.out.pop(data.draw(st.integers(0, len(self.out) - 1)))
        before = self.breaker.state
        trial = ticket in self.trials and before is BreakerState.HALF_OPEN
        if end == "failed":
            self.breaker.record_failure(ticket, "ill")
        elif end == "succeeded":
            self.breaker.record_success(ticket)
        else:
            self.breaker.return_ticket(ticket)
        self.trials = [other for other in self.trials if other is not ticket]
        after = self.breaker.state
        if before is BreakerState.HALF_OPEN and after is not before:
            assert trial
            assert after is {"succeeded": BreakerState.CLOSED, "failed": BreakerState.OPEN}[end]
        if before is BreakerState.OPEN:
            assert after is BreakerState.OPEN
        if after is not BreakerState.HALF_OPEN:
            self.trials = []

    @rule(seconds=st.floats(0, 40))
    def time_passes(self, seconds: float) -> None:
        self.clock.turn(seconds)

    @invariant()
    def never_more_trials_than_allowed(self) -> None:
        assert len(self.trials) <= LIMITS.trials

    @invariant()
    def open_means_refusing_until_its_time(self) -> None:
        status = self.breaker.status
        if status.state is BreakerState.OPEN:
            assert status.retry_in is not None
            assert self.breaker.is_refusing() == (status.retry_in > 0)

    def teardown(self) -> None:
        """The breaker never stays open: when all calls have ended and time has passed, a call is admitted."""
        for ticket in self.out:
            self.breaker.return_ticket(ticket)
        self.clock.turn(LIMITS.seconds + 1)
        assert self.breaker.issue_ticket() is not None


TestBreakerLife = pytest.mark.slow(BreakerLife.TestCase)
TestBreakerLife.settings = settings(max_examples=30, stateful_step_count=30, deadline=None)

"""The loop guard by itself: what goes round in circles, and what only looks like it."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from fingerpost.call.execution.loops import LoopGuard, TrackedStep
from fingerpost.records import Call, Effect
from tests.kit.call_runner import HandClock, a_call
from tests.requirements import proves

WRITE = a_call("notes/append", effect=Effect.WRITE)
OTHER = a_call("notes/delete", effect=Effect.WRITE)
READ = a_call("notes/read")
POLL = a_call("jobs/get_status")


def a_guard(limit: int = 3) -> tuple[LoopGuard, HandClock]:
    clock = HandClock()
    return LoopGuard(repeat_limit=limit, clock=clock), clock


def steps_until_stopped(guard: LoopGuard, calls: list[Call], *, most: int = 200) -> int:
    """How many calls of this endless round are let through, all with the same results."""
    for made in range(most):
        call = calls[made % len(calls)]
        if guard.find_loop("talk", call) is not None:
            return made
        guard.record_result("talk", call, f"result of {call.tool}")
    return most


@proves("D9", "F47")
def test_the_same_write_with_the_same_result_is_stopped_at_the_limit():
    guard, _ = a_guard()
    assert steps_until_stopped(guard, [WRITE]) == 3
    reason = guard.find_loop("talk", WRITE)
    assert reason == "notes/append was called 3 times with the same arguments and gave the same result"
    assert guard.find_loop("talk", OTHER) is None
    assert guard.find_loop("other talk", WRITE) is None


@proves("D9")
def test_taking_turns_is_a_loop_too():
    assert steps_until_stopped(a_guard()[0], [WRITE, OTHER]) == 4
    third = a_call("notes/rename", effect=Effect.WRITE)
    assert steps_until_stopped(a_guard()[0], [WRITE, OTHER, third]) == 6
    guard, _ = a_guard()
    steps_until_stopped(guard, [WRITE, OTHER])
    assert "notes/append and notes/delete were called in turn 2 times" in (
        guard.find_loop("talk", WRITE) or ""
    )


@proves("D9")
def test_who_only_reads_may_ask_more_often_and_who_polls_more_often_still():
    assert steps_until_stopped(a_guard()[0], [READ]) == 6
    assert steps_until_stopped(a_guard()[0], [POLL]) == 30


@proves("D9")
def test_a_poll_whose_result_changes_is_never_a_loop():
    guard, _ = a_guard()
    for percent in range(300):
        assert guard.find_loop("talk", POLL) is None
        guard.record_result("talk", POLL, f"{percent} percent")


def test_a_pause_begins_a_new_count():
    guard, clock = a_guard()
    for _ in range(20):
        assert guard.find_loop("talk", WRITE) is None
        guard.record_result("talk", WRITE, "same")
        clock.turn(61)


def test_a_pause_in_the_middle_is_seen():
    guard, clock = a_guard()
    for _ in range(2):
        guard.record_result("talk", WRITE, "same")
    clock.turn(61)
    for _ in range(2):
        assert guard.find_loop("talk", WRITE) is None
        guard.record_result("talk", WRITE, "same")
    assert guard.find_loop("talk", WRITE) is None
    guard.record_result("talk", WRITE, "same")
    assert guard.find_loop("talk", WRITE) is not None


def test_other_arguments_are_another_call():
    guard, _ = a_guard()
    for page in range(50):
        call = a_call("notes/append", {"page": page}, effect=Effect.WRITE)
        assert guard.find_loop("talk", call) is None
        guard.record_result("talk", call, "same")


def test_memory_is_bounded_by_conversations():
    guard = LoopGuard(repeat_limit=3, clock=HandClock(), conversations=2)
    for talk in ("first", "second", "third"):
        for _ in range(3):
            guard.record_result(talk, WRITE, "same")
    assert guard.find_loop("first", WRITE) is None
    assert guard.find_loop("third", WRITE) is not None


def count_refused(guard: LoopGuard, clock: HandClock, *turn: Call, after: float, times: int) -> int:
    """How many of these calls in turn, each `after` seconds behind the answer before, are refused."""
    refused = 0
    for number in range(times):
        call = turn[number % len(turn)]
        if guard.find_loop("talk", call, may_insist=True) is not None:
            refused += 1
        else:
            guard.record_result("talk", call, "same")
        clock.turn(after)
    return refused


@proves("D9")
def test_a_program_that_reads_faster_than_any_model_is_told_once_where_it_may_insist():
    guard, clock = a_guard()
    assert count_refused(guard, clock, READ, after=0.01, times=500) == 1
    clock.turn(1)  # long enough for a model: it is refused again
    assert count_refused(guard, clock, READ, after=0.01, times=500) == 1


@proves("D9", "F47")
def test_who_takes_their_time_is_refused_again_and_again():
    guard, clock = a_guard()
    assert count_refused(guard, clock, READ, after=0.2, times=100) == 100 - 6


@proves("D9")
def test_repeating_does_not_force_a_write_or_a_call_in_a_conversation_of_ours():
    guard, clock = a_guard()
    assert count_refused(guard, clock, WRITE, after=0.01, times=100) == 100 - 3
    guard, _ = a_guard()
    steps_until_stopped(guard, [READ])
    assert all(guard.find_loop("talk", READ) for _ in range(50))


def test_who_insists_on_one_call_is_told_of_another():
    guard, clock = a_guard()
    count_refused(guard, clock, READ, after=0.01, times=20)
    assert count_refused(guard, clock, POLL, after=0.01, times=100) == 1


def test_a_program_may_also_take_turns():
    guard, clock = a_guard()
    assert 1 <= count_refused(guard, clock, READ, POLL, after=0.01, times=1000) <= 2


calls = st.sampled_from([WRITE, OTHER, READ])


@settings(deadline=None)
@given(st.integers(2, 6), st.lists(calls, min_size=1, max_size=4, unique_by=id))
def test_every_endless_round_of_up_to_four_calls_is_stopped_but_never_a_first_round(
    limit: int, turn: list[Call]
):
    made = steps_until_stopped(a_guard(limit)[0], turn)
    assert len(turn) <= made <= len(turn) * limit * 2


@settings(deadline=None)
@given(st.lists(st.tuples(calls, st.integers(0, 3)), max_size=40))
def test_a_call_is_only_stopped_when_it_was_just_made_often_with_one_result(steps: list[tuple[Call, int]]):
    guard, _ = a_guard()
    for call, result in steps:
        guard.record_result("talk", call, str(result))
    for call in (WRITE, OTHER, READ):
        if guard.find_loop("talk", call) is not None:
            made = [(other.tool, result) for other, result in steps]
            tail = [step for step in made[-20:] if step[0] == call.tool]
            assert max(tail.count(step) for step in tail) >= 2
    assert guard.find_loop("talk", a_call("notes/new")) is None


@settings(deadline=None)
@given(st.lists(calls, max_size=40))
def test_results_that_are_all_new_never_stop_anything(made: list[Call]):
    guard, _ = a_guard(2)
    for index, call in enumerate(made):
        assert guard.find_loop("talk", call) is None
        guard.record_result("talk", call, str(index))


@proves("D9")
def test_the_same_call_made_many_times_at_once_is_one_step():
    guard, _ = a_guard()
    for _ in range(3):
        assert guard.find_loop("talk", WRITE) is None
        steps: list[TrackedStep] = []
        for _ in range(10):
            assert guard.find_loop("talk", WRITE) is None
            steps.append(guard.track("talk", WRITE).__enter__())
        for step in steps:
            step.__exit__(None, None, None)
        assert [step.is_last for step in steps] == [False] * 9 + [True]
        guard.record_result("talk", WRITE, "same")
    assert guard.find_loop("talk", WRITE) is not None

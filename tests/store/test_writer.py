"""The backlog's bookkeeping, against a model that keeps everything it was ever given."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from sqlalchemy import Connection

from fingerpost.errors import StoreUnavailable
from fingerpost.store.writer import LossPolicy, WriteJob, WriteQueue

LIMIT, KEPT_LIMIT, BATCH = 5, 8, 4


def write(_connection: Connection, items: Sequence[Any]) -> list[Any]:
    return list(items)


class BacklogMachine(RuleBasedStateMachine):
    """Items are numbers in order of arrival; a stand-in is ("lost", count)."""

    def __init__(self) -> None:
        super().__init__()
        self.backlog = WriteQueue(gather_seconds=0.0, limit=LIMIT, kept_limit=KEPT_LIMIT, batch_size=BATCH)
        self.loss = LossPolicy(stand_in=lambda count: ("lost", count))
        self.given = 0
        self.kept: set[int] = set()
        self.written: list[int] = []
        self.marked = 0
        self.in_hand: list[WriteJob] = []

    @rule(keep=st.booleans())
    def put(self, keep: bool) -> None:
        try:
            self.backlog.add(WriteJob(write=write, item=self.given, loss=None if keep else self.loss))
        except StoreUnavailable:
            assert keep, "what may be lost is never refused"
            return
        if keep:
            self.kept.add(self.given)
        self.given += 1

    @precondition(lambda self: len(self.backlog) > 0 and not self.in_hand)
    @rule()
    def take(self) -> None:
        self.in_hand = self.backlog.take_batch(idle=5.0) or []
        assert self.in_hand

    @precondition(lambda self: bool(self.in_hand))
    @rule()
    def commit(self) -> None:
        for job in self.in_hand:
            if job.stands_for:
                assert job.item == ("lost", job.stands_for)
                self.marked += job.stands_for
            else:
                assert isinstance(job.item, int)
                self.written.append(job.item)
        self.in_hand = []

    @precondition(lambda self: bool(self.in_hand))
    @rule()
    def fail(self) -> None:
        self.backlog.give_back(self.in_hand, pause=0.0)
        self.in_hand = []

    @invariant()
    def it_is_bounded(self) -> None:
        assert len(self.backlog) <= LIMIT + KEPT_LIMIT + BATCH

    @invariant()
    def order_is_kept(self) -> None:
        assert self.written == sorted(set(self.written))

    def teardown(self) -> None:
        """In the end everything kept was written, and everything else was written or counted."""
        while self.in_hand or len(self.backlog):
            if not self.in_hand:
                self.take()
            self.commit()
        assert self.kept <= set(self.written)
        unmarked = self.backlog.dropped - self.marked  # stays uncounted only until the next batch
        assert len(self.written) + self.marked + unmarked == self.given
        assert unmarked == 0


TestBacklog = pytest.mark.slow(BacklogMachine.TestCase)
TestBacklog.settings = settings(max_examples=30, stateful_step_count=40, deadline=None)


def test_a_closed_backlog_hands_out_what_is_left_and_then_ends() -> None:
    backlog = WriteQueue(gather_seconds=60.0, limit=LIMIT, kept_limit=KEPT_LIMIT, batch_size=BATCH)
    for number in range(5):
        backlog.add(WriteJob(write=write, item=number))
    backlog.close()
    assert [job.item for job in backlog.take_batch() or []] == [0, 1, 2, 3]
    assert [job.item for job in backlog.take_batch() or []] == [4]
    assert backlog.take_batch() is None
    with pytest.raises(StoreUnavailable, match="closed"):
        backlog.add(WriteJob(write=write, item=5))


def test_an_idle_backlog_hands_out_nothing_after_the_given_time() -> None:
    assert (
        WriteQueue(gather_seconds=0.0, limit=LIMIT, kept_limit=KEPT_LIMIT, batch_size=BATCH).take_batch(
            idle=0.01
        )
        == []
    )

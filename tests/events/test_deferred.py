"""Events that are emitted after the answer: all of them, in order, with the time they happened."""

from __future__ import annotations

import time
from collections.abc import Sequence
from threading import Thread

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fingerpost.events import (
    CallRefused,
    DeferredRecorder,
    Event,
    EventRecorder,
    EventsDropped,
    Fanout,
    ImmediateRecorder,
    MemorySink,
)
from fingerpost.events.sinks import DEFER_SECONDS, MAX_DEFERRED
from fingerpost.records import ErrorKind, utc_now


class Together:
    """Remembers what was handed to it together."""

    def __init__(self) -> None:
        self.handed: list[list[int]] = []

    def emit(self, event: Event) -> None:
        self.emit_all([event])

    def emit_all(self, events: Sequence[Event]) -> None:
        self.handed.append([event.count for event in events if isinstance(event, EventsDropped)])


class FailingSink:
    def emit(self, event: Event) -> None:
        raise OSError


def _counts(sink: MemorySink) -> list[int]:
    return [event.count for event in sink.events if isinstance(event, EventsDropped)]


async def test_an_event_is_built_after_its_emitter_has_continued() -> None:
    sink = MemorySink()
    later = DeferredRecorder(sink)
    before = utc_now()
    later.record(EventsDropped, count=1)
    told_at = utc_now()
    later.emit(made := EventsDropped(count=2))
    assert sink.events == ()
    await anyio.sleep(0.05)
    first, second = sink.events
    assert isinstance(first, EventsDropped)
    assert (first.count, second) == (1, made)
    assert before <= first.at <= told_at


async def test_what_must_not_wait_is_handed_on_now_and_once() -> None:
    sink = MemorySink()
    later = DeferredRecorder(sink)
    later.record(EventsDropped, count=1)
    later.flush()
    assert len(sink.events) == 1
    later.record(EventsDropped, count=2)
    await anyio.sleep(5 * DEFER_SECONDS)
    assert [event.count for event in sink.events if isinstance(event, EventsDropped)] == [1, 2]


async def test_events_of_a_moment_are_handed_on_together() -> None:
    for _ in range(20):
        together = Together()
        later = DeferredRecorder(together)
        began = time.monotonic()
        later.record(EventsDropped, count=1)
        await anyio.lowlevel.checkpoint()
        later.record(EventsDropped, count=2)
        within = time.monotonic() - began < DEFER_SECONDS  # a busy machine may take longer for a turn
        await anyio.sleep(5 * DEFER_SECONDS)
        if within:
            assert together.handed == [[1, 2]]
            return
    pytest.fail("not one turn of the event loop was quick enough")


async def test_many_do_not_wait_for_the_moment_to_be_over() -> None:
    together = Together()
    later = DeferredRecorder(together)
    for count in range(MAX_DEFERRED):
        later.record(EventsDropped, count=count)
    await anyio.lowlevel.checkpoint()
    assert together.handed == [list(range(MAX_DEFERRED))]
    later.record(EventsDropped, count=7)
    await anyio.sleep(5 * DEFER_SECONDS)
    assert together.handed[1:] == [[7]]


async def test_what_others_tell_comes_behind_what_waits() -> None:
    sink = MemorySink()
    everybody = Fanout(sink)
    later = DeferredRecorder(everybody)
    later.record(EventsDropped, count=1)
    everybody.emit(EventsDropped(count=2))
    assert _counts(sink) == [1, 2]
    later.record(EventsDropped, count=3)
    await anyio.sleep(5 * DEFER_SECONDS)
    assert _counts(sink) == [1, 2, 3]


async def test_another_thread_does_not_hand_on_what_waits_here() -> None:
    sink = MemorySink()
    everybody = Fanout(sink)
    later = DeferredRecorder(everybody)
    later.record(EventsDropped, count=1)
    for act in (later.flush_in_own_thread, lambda: everybody.emit(EventsDropped(count=2))):
        other = Thread(target=act)
        other.start()
        other.join()  # no turn of the event loop, in which the moment could be over
    later.flush()
    assert _counts(sink) == [2, 1]


async def test_a_sink_that_fails_costs_only_itself() -> None:
    sink = MemorySink()
    later = DeferredRecorder(FailingSink())
    later.record(EventsDropped, count=1)
    later.flush()
    later = DeferredRecorder(Fanout(FailingSink(), sink))
    later.record(EventsDropped, count=2)
    later.flush()
    assert _counts(sink) == [2]


@given(st.lists(st.sampled_from(["tell", "emit", "other", "flush", "turn", "moment"]), max_size=40))
def test_the_order_is_kept_across_threads(steps: list[str]) -> None:
    async def read_counts() -> tuple[list[int], int]:
        sink = MemorySink()
        everybody = Fanout(sink)
        later = DeferredRecorder(everybody)
        count = 0
        for step in steps:
            if step == "flush":
                later.flush()
            elif step in ("turn", "moment"):
                await anyio.sleep(0 if step == "turn" else 1.2 * DEFER_SECONDS)
            else:
                count += 1
                if step == "tell":
                    later.record(EventsDropped, count=count)
                else:
                    (later if step == "emit" else everybody).emit(EventsDropped(count=count))
        later.flush()
        return _counts(sink), count

    order, count = anyio.run(read_counts)
    assert order == list(range(1, count + 1))


@pytest.mark.parametrize("kind", [ImmediateRecorder, DeferredRecorder])
async def test_secrets_are_masked_however_an_event_is_told(
    kind: type[ImmediateRecorder] | type[DeferredRecorder],
) -> None:
    sink = MemorySink()
    teller: EventRecorder = kind(sink)
    reason = "wrong password=correct-horse-battery"
    teller.record(CallRefused, call_id="cal_1", error=ErrorKind.DENIED, reason=reason, parameter_errors=())
    await anyio.sleep(5 * DEFER_SECONDS)
    (event,) = sink.events
    assert isinstance(event, CallRefused)
    assert "correct-horse" not in event.reason

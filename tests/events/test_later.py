"""Events that are told after the answer: all of them, in order, with the time they happened."""

from __future__ import annotations

import anyio
import anyio.lowlevel
import pytest

from fingerpost.events import AtOnce, CallRefused, EventsDropped, Later, MemorySink, Teller
from fingerpost.records import ErrorKind, utc_now


async def test_an_event_is_made_when_whoever_tells_of_it_has_gone_on() -> None:
    sink = MemorySink()
    later = Later(sink)
    before = utc_now()
    later.tell(EventsDropped, count=1)
    told = utc_now()
    later.emit(made := EventsDropped(count=2))
    assert sink.events == ()
    await anyio.sleep(0.05)
    first, second = sink.events
    assert isinstance(first, EventsDropped)
    assert (first.count, second) == (1, made)
    assert before <= first.at <= told


async def test_what_must_not_wait_is_handed_on_now_and_once() -> None:
    sink = MemorySink()
    later = Later(sink)
    later.tell(EventsDropped, count=1)
    later.flush()
    assert len(sink.events) == 1
    later.tell(EventsDropped, count=2)
    await anyio.lowlevel.checkpoint()
    await anyio.sleep(0.01)
    assert [event.count for event in sink.events if isinstance(event, EventsDropped)] == [1, 2]


@pytest.mark.parametrize("kind", [AtOnce, Later])
async def test_secrets_are_masked_however_an_event_is_told(kind: type[AtOnce] | type[Later]) -> None:
    sink = MemorySink()
    teller: Teller = kind(sink)
    reason = "wrong password=correct-horse-battery"
    teller.tell(CallRefused, call_id="cal_1", error=ErrorKind.DENIED, reason=reason, parameter_errors=())
    await anyio.sleep(0.01)
    (event,) = sink.events
    assert isinstance(event, CallRefused)
    assert "correct-horse" not in event.reason

"""Where events go, and what a slow or broken reader costs: itself."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import anyio
import anyio.lowlevel
import pytest

from fingerpost.events import (
    Event,
    EventsDropped,
    Fanout,
    LiveFeed,
    LogSink,
    MemorySink,
    PacketReceived,
    ToolDropped,
)
from fingerpost.records import Packet
from tests.requirements import proves


def create_numbered_event(number: int) -> ToolDropped:
    return ToolDropped(server="s", tool=str(number), reason="test")


def number_of(event: Event) -> int:
    assert isinstance(event, ToolDropped)
    return int(event.tool)


@proves("H22")
async def test_a_slow_reader_loses_its_oldest_events_and_is_told_how_many() -> None:
    feed = LiveFeed()
    with feed.subscribe(limit=10) as reader:
        for number in range(25):
            feed.emit(create_numbered_event(number))  # no reader meanwhile, and nothing waits
        marker = await anext(reader)
        assert isinstance(marker, EventsDropped)
        assert marker.count == 15
        assert [number_of(await anext(reader)) for _ in range(10)] == list(range(15, 25))


@proves("H22")
async def test_one_slow_reader_takes_nothing_from_another() -> None:
    feed = LiveFeed()
    seen: list[int] = []
    with feed.subscribe(limit=2) as _slow, feed.subscribe(limit=100) as quick:

        async def read() -> None:
            async for event in quick:
                seen.append(number_of(event))
                if len(seen) == 50:
                    return

        with anyio.fail_after(30):
            async with anyio.create_task_group() as group:
                group.start_soon(read)
                for number in range(50):
                    feed.emit(create_numbered_event(number))
                    await anyio.lowlevel.checkpoint()
    assert seen == list(range(50))


async def test_a_reader_waits_for_what_comes_later() -> None:
    feed = LiveFeed()
    with feed.subscribe() as reader, anyio.fail_after(30):
        async with anyio.create_task_group() as group:

            async def later() -> None:
                await anyio.sleep(0.01)
                feed.emit(create_numbered_event(7))

            group.start_soon(later)
            assert number_of(await anext(reader)) == 7


def test_a_reader_that_left_is_forgotten() -> None:
    feed = LiveFeed()
    with feed.subscribe():
        pass
    feed.emit(create_numbered_event(1))


def test_a_sink_that_fails_costs_only_itself(caplog: pytest.LogCaptureFixture) -> None:
    class Broken:
        def emit(self, event: Event) -> None:
            raise OSError("disk gone")

    memory = MemorySink()
    fanout = Fanout(Broken(), memory)
    with caplog.at_level(logging.CRITICAL):
        fanout.emit(create_numbered_event(1))
    assert [number_of(event) for event in memory.events] == [1]
    assert fanout.failures == 1


def test_memory_keeps_the_newest() -> None:
    memory = MemorySink(limit=3)
    for number in range(5):
        memory.emit(create_numbered_event(number))
    assert [number_of(event) for event in memory.events] == [2, 3, 4]


def test_the_log_gets_one_line_an_event(caplog: pytest.LogCaptureFixture) -> None:
    packet = Packet.start("hello there")
    with caplog.at_level(logging.INFO, logger="fingerpost.events"):
        LogSink().emit(PacketReceived.from_packet(packet))
    assert caplog.messages == [f"packet_received {packet.packet_id} hello there"]


class RefusingSink:
    """A sink that does not take the second event of any kind of telling."""

    def __init__(self) -> None:
        self.taken: list[int] = []

    def emit(self, event: Event) -> None:
        if number_of(event) == 2:
            raise OSError("no room")
        self.taken.append(number_of(event))


class BatchRefusingSink(RefusingSink):
    def emit_all(self, events: Sequence[Event]) -> None:
        raise OSError("no room at all")


@proves("H22")
async def test_several_events_at_once_reach_every_sink_and_one_that_fails_costs_only_itself() -> None:
    single, gathering, memory, feed = RefusingSink(), BatchRefusingSink(), MemorySink(), LiveFeed()
    fanout = Fanout(single, gathering, memory, feed)
    with feed.subscribe() as reader:
        fanout.emit_all([create_numbered_event(number) for number in (1, 2, 3)])
        assert [number_of(await anext(reader)) for _ in range(3)] == [1, 2, 3]
    assert single.taken == [1, 3]
    assert gathering.taken == []
    assert [number_of(event) for event in memory.events] == [1, 2, 3]
    assert fanout.failures == 2

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing
from typing import Any

import anyio
import anyio.to_thread
import pytest
from sqlalchemy import create_engine

from fingerpost.errors import StoreUnavailable
from fingerpost.events import (
    CallReceived,
    DeferredRecorder,
    Event,
    ExecutionStatusChanged,
    IntentDetected,
    PacketReceived,
    PacketReinjected,
    UnknownEvent,
    rebuild_packet,
)
from fingerpost.records import ExecutionStatus, Intent, Packet
from fingerpost.store.database import resolve_location
from fingerpost.store.journal import select_session_packets
from tests.kit.store_samples import create_audited_event, eventually, ordinary
from tests.kit.stores import OpenStore
from tests.requirements import proves


@proves("H4")
async def test_appended_events_come_back_as_they_were_in_the_order_they_were_written(
    open_store: OpenStore,
) -> None:
    packet = Packet.start("שלום \x00 world")
    events = [PacketReceived.from_packet(packet), ordinary("a\\b\x00c"), create_audited_event("עברית/כלי")]
    async with open_store() as store:
        await store.journal.append(*events[:2])
        await store.journal.append(events[2])
        recorded = await store.journal.list_events()
    assert [item.event for item in recorded] == events
    assert [item.seq for item in recorded] == sorted({item.seq for item in recorded})


@proves("H4")
async def test_what_was_acknowledged_is_there_after_a_restart(open_store: OpenStore) -> None:
    event = ordinary()
    async with open_store() as store:
        await store.journal.append(event)
    async with open_store() as store:
        assert [item.event for item in await store.journal.list_events()] == [event]


@proves("H5")
async def test_emitting_returns_at_once_and_flushing_puts_it_on_disk(open_store: OpenStore) -> None:
    events = [ordinary(str(number)) for number in range(50)]
    async with open_store(flush_ms=60_000) as store:
        for event in events:
            store.journal.emit(event)
        assert await store.journal.list_events() == []
        await store.journal.flush()
        assert [item.event for item in await store.journal.list_events()] == events


async def test_what_was_emitted_is_written_soon_without_a_waiter(open_store: OpenStore) -> None:
    async with open_store(flush_ms=1) as store:
        store.journal.emit(ordinary())
        await eventually(lambda: store.statistics.commits == 1)
        assert len(await store.journal.list_events()) == 1


async def test_leaving_the_block_writes_what_was_emitted(open_store: OpenStore) -> None:
    event = ordinary()
    async with open_store(flush_ms=60_000) as store:
        store.journal.emit(event)
    async with open_store() as store:
        assert [item.event for item in await store.journal.list_events()] == [event]


async def test_leaving_the_block_by_cancellation_writes_what_was_emitted(open_store: OpenStore) -> None:
    event = ordinary()
    with anyio.CancelScope() as scope:
        async with open_store(flush_ms=60_000) as store:
            store.journal.emit(event)
            scope.cancel()
            await anyio.sleep(1)
    async with open_store() as store:
        assert [item.event for item in await store.journal.list_events()] == [event]


@pytest.mark.parametrize("how", ["flush", "hasten", "leave"])
async def test_what_waits_elsewhere_is_taken_along(open_store: OpenStore, how: str) -> None:
    event = ordinary()
    async with open_store(flush_ms=60_000) as store:
        later = DeferredRecorder(store.journal)
        store.journal.add_pending_source(later.flush_in_own_thread)
        later.emit(event)
        if how == "flush":
            await store.journal.flush()
        elif how == "hasten":
            store.journal.flush_soon()
        if how != "leave":
            await eventually(lambda: store.statistics.commits == 1)
    async with open_store() as store:
        assert [item.event for item in await store.journal.list_events()] == [event]


async def test_events_can_be_emitted_from_other_threads(open_store: OpenStore) -> None:
    async with open_store() as store:
        threads = [threading.Thread(target=store.journal.emit, args=(ordinary(),)) for _ in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            await anyio.to_thread.run_sync(thread.join)
        await store.journal.flush()
        assert len(await store.journal.list_events()) == 5


@proves("H5")
async def test_many_writes_share_few_commits(open_store: OpenStore) -> None:
    async with open_store() as store:
        before = store.statistics.commits
        async with anyio.create_task_group() as tasks:
            for number in range(300):
                tasks.start_soon(store.journal.append, create_audited_event(str(number)))
        statistics = store.statistics
        assert statistics.written == 300
        assert statistics.commits - before <= 100  # far fewer on a machine with nothing else to do
        assert len(await store.journal.list_events()) == 300


async def test_events_are_found_by_packet_by_kind_and_page_by_page(open_store: OpenStore) -> None:
    one, two = Packet.start("one"), Packet.start("two")
    intent = IntentDetected(packet_id=one.packet_id, intent=Intent(name="search"), needs_tool=True)
    async with open_store() as store:
        await store.journal.append(
            PacketReceived.from_packet(one), PacketReceived.from_packet(two), intent, ordinary()
        )

        async def kinds_of(**filters: object) -> list[str]:
            found = await store.journal.list_events(**filters)  # pyright: ignore[reportArgumentType] - by name
            return [item.event.kind for item in found]

        assert await kinds_of(packet_id=one.packet_id) == ["packet_received", "intent_detected"]
        assert await kinds_of(kinds={"packet_received"}) == ["packet_received", "packet_received"]
        assert await kinds_of(kinds=()) == []
        first, second, *_ = await store.journal.list_events(limit=2)
        assert first.event == PacketReceived.from_packet(one) or first.event.packet_id == one.packet_id
        assert await kinds_of(after_seq=second.seq) == ["intent_detected", "server_state_changed"]


async def test_requests_are_listed_newest_first(open_store: OpenStore) -> None:
    packets = [Packet.start(f"question {number}") for number in range(3)]
    async with open_store() as store:
        await store.journal.append(*(PacketReceived.from_packet(packet) for packet in packets), ordinary())
        await store.journal.append(PacketReinjected(packet_id=packets[0].packet_id))

        listed = await store.journal.list_beginnings(kinds=("packet_received",), limit=2)
        assert [item.event.packet_id for item in listed] == [packets[2].packet_id, packets[1].packet_id]
        (oldest,) = await store.journal.list_beginnings(kinds=("packet_received",), before=listed[-1].seq)
        assert oldest.event.packet_id == packets[0].packet_id


async def test_events_of_one_row_are_numbered_and_found_one_by_one(open_store: OpenStore) -> None:
    packet = Packet.start("hello")
    intent = IntentDetected(packet_id=packet.packet_id, intent=Intent(name="search"), needs_tool=True)
    again = PacketReinjected(packet_id=packet.packet_id)
    events = [PacketReceived.from_packet(packet), intent, again]
    async with open_store() as store:
        await store.journal.append(ordinary())
        await store.journal.append(*events)
        await store.journal.append(ordinary())
        assert await store.journal.get_last_seq() == 5
        for after in range(6):
            for up_to in range(after, 7):
                found = await store.journal.list_events(after_seq=after, up_to_seq=up_to)
                assert [item.seq for item in found] == [seq for seq in range(1, 6) if after < seq <= up_to]
        found = await store.journal.list_events(kinds=("packet_reinjected",))
        assert [(item.seq, item.event) for item in found] == [(4, again)]


async def test_a_packet_is_rebuilt_from_its_stored_events(open_store: OpenStore) -> None:
    packet = Packet.start("push it")
    events: list[Event] = [
        PacketReceived.from_packet(packet),
        ExecutionStatusChanged(packet_id=packet.packet_id, status=ExecutionStatus.PENDING),
        PacketReinjected(packet_id=packet.packet_id),
    ]
    async with open_store() as store:
        await store.journal.append(*events)
        stored = await store.journal.list_events(packet_id=packet.packet_id)
    assert rebuild_packet(item.event for item in stored) == rebuild_packet(events)


async def test_appending_an_event_again_changes_nothing(open_store: OpenStore) -> None:
    event = create_audited_event()
    async with open_store() as store:
        await store.journal.append(event, event)
        await store.journal.append(event)
        assert len(await store.journal.list_events()) == 1
        assert len(await store.audit.list_entries()) == 1


async def test_a_spoilt_row_does_not_hide_the_others(
    open_store: OpenStore, tamper: Callable[[str], None]
) -> None:
    spoilt, sound = ordinary("spoilt"), ordinary("sound")
    async with open_store() as store:
        await store.journal.append(spoilt, sound)
        tamper(f"UPDATE journal SET payload = 'not json' WHERE event_id = '{spoilt.event_id}'")
        first, second = [item.event for item in await store.journal.list_events()]
    assert isinstance(first, UnknownEvent)
    assert first.event_id == spoilt.event_id
    assert second == sound


async def test_an_event_that_cannot_be_written_fails_its_own_caller_only(open_store: OpenStore) -> None:
    nothing: Any = object()
    impossible = CallReceived(call_id="cal_1", packet_id="cal_1", name="x", arguments={"a": nothing})
    outcomes: dict[str, str] = {}

    async def append(name: str, event: Event) -> None:
        try:
            await store.journal.append(event)
            outcomes[name] = "written"
        except ValueError:
            outcomes[name] = "refused"

    async with open_store() as store:
        store.journal.emit(ordinary())
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(append, "before", ordinary())
            tasks.start_soon(append, "impossible", impossible)
            tasks.start_soon(append, "after", create_audited_event())
        assert outcomes == {"before": "written", "impossible": "refused", "after": "written"}
        assert len(await store.journal.list_events()) == 3
        assert store.statistics.rejected == 1


async def test_a_closed_store_says_so(open_store: OpenStore) -> None:
    async with open_store() as store:
        pass
    with pytest.raises(StoreUnavailable, match="closed"):
        await store.journal.append(ordinary())


@proves("B12")
async def test_the_packets_of_one_conversation_come_newest_first_and_no_others(open_store: OpenStore) -> None:
    async with open_store() as store:
        for name in ("hall", "50% of_it", 'a "quoted" \\ name', "שיחה", "a/b"):
            mine = [Packet.start(f"request {number}", session_id=name) for number in range(3)]
            others = [
                Packet.start(f'"session_id":"{name}"', session_id="another"),
                Packet.start("x", session_id=name.upper() + "!"),
                Packet.start("x", session_id=name.replace("_", "-").replace("%", "x") + "x"),
            ]
            for packet in (*others, *mine):
                await store.journal.append(PacketReceived.from_packet(packet), ordinary())
            found = await store.journal.list_session_packets(name)
            assert found == list(reversed(mine))
            assert await store.journal.list_session_packets(name, limit=1) == [mine[-1]]
        assert await store.journal.list_session_packets("nobody") == []


@proves("B12")
async def test_the_packets_of_a_conversation_are_found_by_an_index(url: str, open_store: OpenStore) -> None:
    async with open_store() as store:
        for number in range(50):
            packet = Packet.start("x", session_id=f"hall {number}")
            await store.journal.append(PacketReceived.from_packet(packet), ordinary())

    def explain() -> str:
        engine = create_engine(resolve_location(url).url)
        query = select_session_packets("hall 7", limit=20).compile(
            engine, compile_kwargs={"literal_binds": True}
        )
        with closing(engine.connect()) as connection:
            if url.startswith("sqlite"):
                plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {query}").all()
            else:
                for way in ("seqscan", "bitmapscan"):  # of fifty rows it would read all
                    connection.exec_driver_sql(f"SET enable_{way} = off")
                plan = connection.exec_driver_sql(f"EXPLAIN {query}").all()
        engine.dispose()
        return str(plan)

    plan = await anyio.to_thread.run_sync(explain)
    assert "journal_conversation" in plan
    assert "TEMP B-TREE" not in plan  # nor sorted
    assert "Sort" not in plan


@proves("B12")
async def test_conversations_whose_names_differ_in_case_alone_are_two(open_store: OpenStore) -> None:
    small, large = Packet.start("a", session_id="hall"), Packet.start("b", session_id="HALL")
    async with open_store() as store:
        await store.journal.append(PacketReceived.from_packet(small), PacketReceived.from_packet(large))
        assert await store.journal.list_session_packets("hall") == [small]
        assert await store.journal.list_session_packets("HALL") == [large]

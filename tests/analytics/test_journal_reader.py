"""The ledger on a real store: lines, pages, streams that lose nothing, other processes included."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from fingerpost.analytics.journal_reader import GATHER_INTERVAL_S, MAX_LINES, JournalReader
from fingerpost.analytics.records import PacketLine, PacketQuery
from fingerpost.events import Event, LiveFeed
from fingerpost.records import ErrorKind, RouteOutcome
from fingerpost.store import Store
from fingerpost.store.journal import JournalEntry
from tests.kit.journal_events import call, request
from tests.kit.server_pools import all_blocked
from tests.kit.stores import place_empty_store
from tests.requirements import proves

pytestmark = pytest.mark.anyio


class OpenJournal:
    """A store, its live feed and a ledger, as a process has them."""

    def __init__(self, store: Store, live: LiveFeed, ledger: JournalReader) -> None:
        self.store = store
        self.live = live
        self.ledger = ledger

    async def record(self, *events: Event) -> None:
        for event in events:
            self.live.emit(event)
        await self.store.journal.append(*events)


@asynccontextmanager
async def open_journal(folder: Path) -> AsyncGenerator[OpenJournal]:
    live = LiveFeed()
    async with (
        Store.open(place_empty_store(folder), flush_ms=1.0, audit=False) as store,
        JournalReader.open(store, live) as ledger,
    ):
        yield OpenJournal(store, live, ledger)


@pytest.fixture
async def journal(tmp_path: Path) -> AsyncGenerator[OpenJournal]:
    async with open_journal(tmp_path) as opened:
        yield opened


async def lines_until(frames: AsyncIterator[tuple[PacketLine, ...]], *wanted: str) -> dict[str, PacketLine]:
    found: dict[str, PacketLine] = {}
    with anyio.fail_after(30):
        while not found.keys() >= set(wanted):
            found |= {line.packet_id: line for line in await anext(frames)}
    return found


async def take(events: AsyncIterator[JournalEntry], count: int) -> list[JournalEntry]:
    with anyio.fail_after(30):
        return [await anext(events) for _ in range(count)]


@proves("I2")
async def test_lines_come_while_it_happens(journal: OpenJournal) -> None:
    await journal.record(*request("pkt_old"))
    with journal.ledger.follow_lines() as frames:
        await lines_until(frames, "pkt_old")
        assert [line.packet_id for line in journal.ledger.get_newest_lines()] == ["pkt_old"]
        events = request("pkt_new")
        await journal.record(*events[:3])
        assert (await lines_until(frames, "pkt_new"))["pkt_new"].state == "running"
        await journal.record(*events[3:])
        assert (await lines_until(frames, "pkt_new"))["pkt_new"].outcome == "answered"
        assert [line.packet_id for line in journal.ledger.get_newest_lines(1)] == ["pkt_new"]


async def test_an_error_of_its_user_comes_out_as_it_is(tmp_path: Path) -> None:
    with pytest.raises(LookupError, match="mine"):
        async with open_journal(tmp_path) as journal:
            with journal.ledger.follow_lines():
                await anyio.sleep(0.001)
                raise LookupError("mine")


async def test_what_another_process_writes_is_seen(tmp_path: Path) -> None:
    async with open_journal(tmp_path) as watching, open_journal(tmp_path) as working:
        with watching.ledger.follow_lines() as frames:
            await working.record(*call("cal_1"))
            assert (await lines_until(frames, "cal_1"))["cal_1"].kind == "call"


@pytest.mark.slow
async def test_frames_are_gathered_and_bounded(journal: OpenJournal) -> None:
    with journal.ledger.follow_lines() as frames:
        await journal.record(*request("pkt_0"))
        await lines_until(frames, "pkt_0")
        began = anyio.current_time()
        await journal.record(*(event for number in range(700) for event in call(f"cal_{number}")[:2]))
        await lines_until(frames, "cal_699")
        sizes = [len(journal.ledger.get_newest_lines(10_000)), len(journal.ledger.get_newest_lines())]
        assert sizes == [701, 200]
        assert anyio.current_time() - began >= GATHER_INTERVAL_S / 2


async def test_a_request_that_waited_for_long_comes_back_whole(journal: OpenJournal) -> None:
    events = request("pkt_1", within=call("cal_1", packet_id="pkt_1"))
    await journal.record(*events[:-1])
    await journal.record(*(event for number in range(250) for event in call(f"cal_b{number}")[:1]))
    with journal.ledger.follow_lines() as frames:
        await lines_until(frames, "cal_b249")
        assert "pkt_1" not in {line.packet_id for line in journal.ledger.get_newest_lines(1000)}
        await journal.record(events[-1])
        line = (await lines_until(frames, "pkt_1"))["pkt_1"]
    assert (line.prompt, line.tools, line.outcome) == ("what time is it in Tokyo?", ("time/now",), "answered")


@proves("I2")
async def test_pages_go_back_through_everything(journal: OpenJournal) -> None:
    for number in range(7):
        await journal.record(
            *request(f"pkt_{number}", within=call(f"cal_in_{number}", packet_id=f"pkt_{number}")),
            *call(f"cal_{number}"),
        )
    seen: list[str] = []
    before: int | None = None
    while True:
        page = await journal.ledger.get_page(PacketQuery(limit=5, before=before))
        seen += [line.packet_id for line in page.items]
        if page.next is None:
            break
        before = page.next
    assert seen == [name for number in reversed(range(7)) for name in (f"cal_{number}", f"pkt_{number}")]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        (PacketQuery(), ["cal_2", "cal_1", "pkt_3", "pkt_2", "pkt_1"]),
        (PacketQuery(kind="call"), ["cal_2", "cal_1"]),
        (PacketQuery(text="TOKYO"), ["pkt_1"]),
        (PacketQuery(text="file"), ["cal_2", "pkt_2"]),
        (PacketQuery(text="pkt_3"), ["pkt_3"]),
        (PacketQuery(outcome="failed"), ["pkt_2"]),
        (PacketQuery(outcome="timeout"), ["cal_1"]),
        (PacketQuery(outcome="running"), ["pkt_3"]),
        (PacketQuery(tool="files/read"), ["cal_2"]),
        (PacketQuery(tool="time/now"), ["cal_1", "pkt_1"]),
        (PacketQuery(caller="noa"), ["pkt_2"]),
        (PacketQuery(caller="noa", text="pkt_1"), []),
        (PacketQuery(conversation="ses_pkt_1"), ["pkt_1"]),
        (PacketQuery(mode="staged", caller="noa"), ["pkt_2"]),
        (PacketQuery(mode="react"), []),
    ],
    ids=repr,
)
async def test_pages_are_filtered(journal: OpenJournal, query: PacketQuery, found: list[str]) -> None:
    await journal.record(
        *request("pkt_1", within=call("cal_in", packet_id="pkt_1")),
        *request("pkt_2", "find my file", caller="noa", outcome=RouteOutcome.FAILED),
        *request("pkt_3", "hello", outcome=None),
        *call("cal_1", error=ErrorKind.TIMEOUT),
        *call("cal_2", "files/read"),
    )
    page = await journal.ledger.get_page(query)
    assert [line.packet_id for line in page.items] == found
    assert page.next is None


async def test_one_packet_with_everything(journal: OpenJournal) -> None:
    events = request("pkt_1", within=call("cal_1", packet_id="pkt_1"))
    await journal.record(*events, *call("cal_2"))
    detail = await journal.ledger.get_packet("pkt_1")
    assert detail is not None
    assert [entry.event for entry in detail.events] == events
    assert detail.packet is not None
    assert detail.packet.content.original_prompt == detail.line.prompt
    bare = await journal.ledger.get_packet("cal_2")
    assert bare is not None
    assert (bare.packet, bare.line.kind) == (None, "call")
    assert await journal.ledger.get_packet("pkt_nobody") is None


@proves("I2")
async def test_a_stream_of_events_goes_on_after_a_break(journal: OpenJournal) -> None:
    first, second, third = request("pkt_1"), call("cal_1"), request("pkt_2")
    await journal.record(*first)
    with journal.ledger.follow_events(after=0) as events:
        seen = await take(events, len(first))
        await journal.record(*second)
        seen += await take(events, 3)
    await journal.record(*third)
    with journal.ledger.follow_events(after=seen[-1].seq) as events:
        seen += await take(events, len(second) - 3 + len(third))
        await journal.record(*call("cal_2"))
        seen += await take(events, 1)
    assert [entry.event for entry in seen][:-1] == [*first, *second, *third]
    assert [entry.seq for entry in seen] == sorted({entry.seq for entry in seen})


@pytest.mark.slow
async def test_a_stream_of_one_packet_begins_with_its_past(journal: OpenJournal) -> None:
    events = request("pkt_1", within=call("cal_1", packet_id="pkt_1"))
    await journal.record(*events[:5], *call("cal_2"))
    with journal.ledger.follow_events(packet_id="pkt_1") as stream:
        seen = await take(stream, 5)
        await journal.record(*events[5:])
        seen += await take(stream, len(events) - 5)
    assert [entry.event for entry in seen] == events


async def test_a_stream_of_some_kinds_from_now_on(journal: OpenJournal) -> None:
    await journal.record(*call("cal_1"))
    with journal.ledger.follow_events(kinds=["call_finished"]) as stream:
        seen: list[JournalEntry] = []
        async with anyio.create_task_group() as tasks:

            async def read() -> None:
                seen.extend(await take(stream, 1))

            tasks.start_soon(read)
            await all_blocked()
            await anyio.sleep(0.05)  # it asks where the journal stands
            await journal.record(*call("cal_2"))
    assert [(entry.event.kind, entry.event.packet_id) for entry in seen] == [("call_finished", "cal_2")]


@pytest.mark.slow
async def test_a_slow_reader_loses_nothing(journal: OpenJournal) -> None:
    with journal.ledger.follow_events(after=0, kinds=["call_received"]) as slow:
        await journal.record(*call("cal_first"))
        await take(slow, 1)
        calls = [call(f"cal_{number}")[0] for number in range(2_200)]
        for start in range(0, len(calls), 200):
            await journal.record(*calls[start : start + 200])
        await journal.ledger.refresh()
        assert len(journal.ledger.get_newest_lines(10_000)) == MAX_LINES
        seen = await take(slow, len(calls))
    assert [entry.event for entry in seen] == calls

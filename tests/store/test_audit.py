from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fingerpost.errors import StoreUnavailable
from fingerpost.events import (
    Event,
    ExecutionStatusChanged,
    PacketReceived,
    SelectionReviewed,
    ToolResultInjected,
    ToolSelected,
    decode,
)
from fingerpost.records import ExecutionStatus, Packet, Review, Selection, ToolResult
from fingerpost.store import Store
from fingerpost.store.audit import GENESIS, ChainFact, hash_fact
from tests.kit.store_samples import create_audited_event, ordinary
from tests.kit.stores import OpenStore
from tests.requirements import proves

Tamper = Callable[[str], None]


@proves("A12")
async def test_selection_review_decision_and_execution_are_in_the_trail_and_nothing_else(
    open_store: OpenStore,
) -> None:
    packet = Packet.start("push it")
    name = packet.packet_id
    facts: list[Event] = [
        ToolSelected(packet_id=name, selection=Selection(tool="git/push", confidence=0.9)),
        SelectionReviewed(packet_id=name, review=Review(approved=True, confidence=0.8)),
        ExecutionStatusChanged(packet_id=name, status=ExecutionStatus.PENDING),
        ToolResultInjected(packet_id=name, result=ToolResult(success=True, output="done")),
    ]
    async with open_store() as store:
        await store.journal.append(PacketReceived.from_packet(packet), ordinary(), *facts)
        entries = await store.audit.list_entries()
    assert [decode(entry.payload) for entry in reversed(entries)] == facts
    assert [entry.seq for entry in entries] == [4, 3, 2, 1]
    assert {entry.packet_id for entry in entries} == {name}


@proves("H6")
async def test_an_untouched_trail_verifies(open_store: OpenStore) -> None:
    async with open_store() as store:
        empty = await store.audit.verify()
        assert (empty.rows, empty.intact, empty.head) == (0, True, GENESIS)
        await store.journal.append(*(create_audited_event(str(number)) for number in range(2500)))
        store.journal.emit(create_audited_event())
        await store.journal.flush()
    async with open_store() as store:
        report = await store.audit.verify()
        (newest,) = await store.audit.list_entries(limit=1)
    assert (report.rows, report.intact, report.first_bad, report.reason) == (2501, True, None, None)
    assert report.head == newest.hash
    assert report.anchors == 1  # written on closing


@pytest.mark.parametrize(
    ("statement", "first_bad", "reason"),
    [
        ("UPDATE audit SET payload = '{}' WHERE seq = 3", 3, "changed"),
        ("UPDATE audit SET kind = 'harmless' WHERE seq = 1", 1, "changed"),
        ("UPDATE audit SET at = at + 1 WHERE seq = 5", 5, "changed"),
        ("UPDATE audit SET packet_id = 'other' WHERE seq = 2", 2, "changed"),
        ("UPDATE audit SET event_id = 'other' WHERE seq = 2", 2, "changed"),
        (f"UPDATE audit SET hash = '{'1' * 64}' WHERE seq = 4", 4, "changed"),
        (f"UPDATE audit SET prev_hash = '{'1' * 64}' WHERE seq = 4", 4, "does not follow"),
        ("DELETE FROM audit WHERE seq = 1", 1, "row 1 is missing"),
        ("DELETE FROM audit WHERE seq = 3", 3, "row 3 is missing"),
        ("DELETE FROM audit WHERE seq = 5", 5, "rows after 4 are missing"),
        ("DELETE FROM audit", 1, "rows after 0 are missing"),
        ("DELETE FROM audit_head", 6, "head is missing"),
        ("UPDATE audit_head SET seq = 9", 6, "its recorded head is row 9"),
    ],
)
@proves("F39", "H6")
async def test_an_edited_or_deleted_row_is_found(
    open_store: OpenStore, tamper: Tamper, statement: str, first_bad: int, reason: str
) -> None:
    async with open_store() as store:
        await store.journal.append(*(create_audited_event(str(number)) for number in range(5)))
    tamper(statement)
    async with open_store() as store:
        report = await store.audit.verify()
    assert not report.intact
    assert report.first_bad == first_bad
    assert reason in (report.reason or "")


@proves("F39")
async def test_deleting_the_newest_rows_and_mending_the_head_is_found_by_the_anchor(
    open_store: OpenStore, tamper: Tamper, tmp_path: Path
) -> None:
    async with open_store() as store:
        await store.journal.append(*(create_audited_event(str(number)) for number in range(5)))
    tamper("DELETE FROM audit WHERE seq > 3")
    tamper("UPDATE audit_head SET seq = 3, hash = (SELECT hash FROM audit WHERE seq = 3)")
    async with open_store() as store:
        report = await store.audit.verify()
        assert (report.intact, report.first_bad) == (False, 4)
        assert "anchor file remembers row 5" in (report.reason or "")
        with pytest.raises(StoreUnavailable, match="open for reading only"):
            await store.journal.append(create_audited_event())
    # Writing on where the anchor is not known does not hide it: the old line contradicts the new row.
    async with open_store(anchor=tmp_path / "other.anchor") as store:
        await store.journal.append(*(create_audited_event(str(number)) for number in range(4)))
    async with open_store() as store:
        report = await store.audit.verify()
    assert (report.intact, report.first_bad) == (False, 5)


@proves("F39")
async def test_a_chain_recomputed_from_another_beginning_is_found_by_the_anchor(
    open_store: OpenStore, tamper: Tamper, tmp_path: Path
) -> None:
    async with open_store() as store:
        await store.journal.append(*(create_audited_event("true story") for _ in range(3)))
    tamper("DELETE FROM audit")
    tamper(f"UPDATE audit_head SET seq = 0, hash = '{GENESIS}'")
    async with open_store(anchor=tmp_path / "other.anchor") as store:
        await store.journal.append(*(create_audited_event("another story") for _ in range(3)))
    async with open_store() as store:
        report = await store.audit.verify()
    assert (report.intact, report.first_bad) == (False, 3)
    assert "anchor" in (report.reason or "")


@proves("F39")
async def test_a_new_database_at_an_old_anchor_is_found_and_says_what_else_to_move(
    sqlite_url: str, tmp_path: Path
) -> None:
    file = anyio.Path(sqlite_url.removeprefix("sqlite:///"))
    async with Store.open(sqlite_url) as store:
        await store.journal.append(*(create_audited_event(str(number)) for number in range(5)))
    await file.rename(tmp_path / "old.db")
    with pytest.raises(StoreUnavailable, match="open for reading only"):
        async with Store.open(sqlite_url) as store:
            await store.journal.append(create_audited_event())
    async with Store.open(sqlite_url) as store:
        report = await store.audit.verify()
    anchor = file.with_suffix(".audit.anchor")
    assert not report.intact
    assert f"move {anchor} away" in (report.reason or "")
    await anchor.rename(tmp_path / "old.audit.anchor")
    async with Store.open(sqlite_url) as store:
        assert (await store.audit.verify()).intact


async def test_a_row_spoilt_beyond_its_type_is_found_too(sqlite_url: str, anchor: Path) -> None:
    async with Store.open(sqlite_url, anchor=anchor) as store:
        await store.journal.append(*(create_audited_event() for _ in range(3)))
        with closing(sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))) as other, other:
            other.execute("UPDATE audit SET payload = x'00ff', kind = x'ff', at = 'noon' WHERE seq = 2")
        report = await store.audit.verify()
    assert (report.intact, report.first_bad) == (False, 2)


async def test_the_anchor_is_written_while_the_store_is_open(open_store: OpenStore) -> None:
    async with open_store() as store:
        await store.journal.append(create_audited_event())
        with anyio.fail_after(20):
            while (await store.audit.verify()).anchors == 0:  # noqa: ASYNC110 - another thread writes it
                await anyio.sleep(0.05)


async def test_a_torn_anchor_line_spoils_neither_itself_nor_the_next(
    open_store: OpenStore, anchor: Path
) -> None:
    async with open_store() as store:
        await store.journal.append(create_audited_event())
    async with await anyio.Path(anchor).open("a") as file:
        await file.write("2 abc")
    async with open_store() as store:
        await store.journal.append(create_audited_event())
    async with open_store() as store:
        report = await store.audit.verify()
    assert (report.intact, report.rows, report.anchors) == (True, 2, 2)


async def test_a_lost_anchor_file_shows_in_the_report(open_store: OpenStore, anchor: Path) -> None:
    async with open_store() as store:
        await store.journal.append(create_audited_event())
    await anyio.Path(anchor).unlink()
    async with open_store() as store:
        report = await store.audit.verify()
    assert (report.intact, report.anchors) == (True, 0)


async def test_two_stores_extend_one_chain(open_store: OpenStore) -> None:
    async with open_store() as one, open_store() as two:
        for number in range(10):
            await (one if number % 2 else two).journal.append(create_audited_event(str(number)))
        report = await one.audit.verify()
    assert (report.rows, report.intact) == (10, True)


async def test_the_trail_can_be_switched_off(open_store: OpenStore, anchor: Path) -> None:
    async with open_store(audit=False) as store:
        await store.journal.append(create_audited_event())
        assert await store.audit.list_entries() == []
        assert len(await store.journal.list_events()) == 1
    assert not await anyio.Path(anchor).exists()


@proves("A12")
async def test_a_fact_appended_again_among_new_ones_is_in_the_trail_once(open_store: OpenStore) -> None:
    first, second = create_audited_event("first"), create_audited_event("second")
    async with open_store() as store:
        await store.journal.append(first)
        await store.journal.append(first, second)
        await store.journal.append(second, first)
        assert [entry.event_id for entry in await store.audit.list_entries()] == [
            second.event_id,
            first.event_id,
        ]
        assert (await store.audit.verify()).intact


@proves("H6")
@given(
    texts=st.lists(
        st.text(st.characters(codec="utf-8") | st.sampled_from('"\\\x7f\n'), max_size=20), min_size=3
    ),
    at=st.integers(),
)
def test_a_hash_does_not_depend_on_how_fast_it_was_written(texts: list[str], at: int) -> None:
    kind, packet_id, payload = texts[:3]
    fact = ChainFact(seq=1, event_id="evt_1", at=at, kind=kind, packet_id=packet_id or None, payload=payload)
    parts = [GENESIS, fact.seq, fact.event_id, fact.at, fact.kind, fact.packet_id, fact.payload]
    written = json.dumps(parts, separators=(",", ":")).encode()
    assert hash_fact(fact, GENESIS) == hashlib.sha256(written).hexdigest()

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
from fingerpost.store.audit import GENESIS, hash_parts
from tests.kit.store_samples import create_audited_event, ordinary
from tests.kit.stores import ON_SQLITE, OpenStore
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
    assert {entry.seq for entry in entries} == {1}  # one row holds what belongs together
    assert {entry.packet_id for entry in entries} == {name}


@pytest.mark.slow
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
@ON_SQLITE
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


@pytest.mark.slow
@proves("H6", "H27")
async def test_each_writer_has_a_chain_and_a_later_one_continues_a_free_chain(open_store: OpenStore) -> None:
    async with open_store() as one, open_store() as two, open_store() as three:
        for number in range(12):
            await (one, two, three)[number % 3].journal.append(create_audited_event(str(number)))
        report = await one.audit.verify()
        entries = await one.audit.list_entries()
    assert (report.rows, report.intact, report.chains) == (12, True, 3), report.reason
    assert [entry.seq for entry in entries] == [*range(12, 0, -1)]
    assert sorted((entry.chain, entry.number) for entry in entries) == [
        (chain, number) for chain in (1, 2, 3) for number in (1, 2, 3, 4)
    ]
    for _ in range(5):  # as the commands do: one process after the other
        async with open_store() as store:
            await store.journal.append(create_audited_event())
            report = await store.audit.verify()
    assert (report.rows, report.intact, report.chains) == (17, True, 3)


@proves("H27")
async def test_a_writer_that_was_silent_takes_another_chain_if_its_own_was_continued(
    open_store: OpenStore, tamper: Tamper
) -> None:
    async with open_store() as one, open_store() as two:
        await one.journal.append(create_audited_event("one"))
        tamper("UPDATE audit_head SET leased_until = 0")  # as after a long silence
        await two.journal.append(create_audited_event("two"))
        await one.journal.append(create_audited_event("three"))
        await two.journal.append(create_audited_event("four"))
        report = await one.audit.verify()
        entries = await one.audit.list_entries()
    assert (report.intact, report.chains) == (True, 2), report.reason
    assert [(entry.chain, entry.number) for entry in entries] == [(1, 3), (2, 1), (1, 2), (1, 1)]


@pytest.mark.parametrize(
    ("statements", "reason"),
    [
        (["DELETE FROM audit WHERE chain = 2 AND number = 2"], "chain 2: row 2 is missing"),
        (["DELETE FROM audit WHERE chain = 2 AND number = 3"], "chain 2: the chain ends at row 2"),
        (["DELETE FROM audit WHERE chain = 2"], "chain 2: the chain ends at row 0"),
        (["DELETE FROM audit_head WHERE chain = 2"], "chain 2: the record of the chain's head is missing"),
        (
            ["DELETE FROM audit WHERE chain = 2", "DELETE FROM audit_head WHERE chain = 2"],
            "chain 2: the record of the chain's head is missing",
        ),
        (["UPDATE audit SET payload = '{}' WHERE chain = 3 AND number = 1"], "chain 3: row 1 was changed"),
        (
            [
                "UPDATE audit SET number = 9 WHERE chain = 2 AND number = 2",
                "UPDATE audit SET number = 2 WHERE chain = 2 AND number = 3",
                "UPDATE audit SET number = 3 WHERE chain = 2 AND number = 9",
            ],
            "chain 2: row 2 does not follow",
        ),
        (
            [
                "UPDATE audit SET chain = 9 WHERE chain = 2",
                "UPDATE audit SET chain = 2 WHERE chain = 3",
                "UPDATE audit SET chain = 3 WHERE chain = 9",
            ],
            "chain 2: row 1 does not follow",
        ),
        (
            ["INSERT INTO pruned (chain, seq, hash) SELECT chain, number, hash FROM audit WHERE seq = 1"],
            "row 2",
        ),
        (
            [
                (
                    "INSERT INTO pruned (chain, seq, hash) "
                    "SELECT chain, number, hash FROM audit WHERE chain = 2 AND number = 1"
                ),
                "DELETE FROM audit WHERE chain = 2 AND number = 1",
            ],
            "rows of chain 2 up to 1 were removed, and the trail does not say so",
        ),
    ],
)
@proves("F39", "H27")
@ON_SQLITE
async def test_tampering_with_one_chain_of_several_is_found_without_an_anchor(
    open_store: OpenStore, tamper: Tamper, anchor: Path, statements: list[str], reason: str
) -> None:
    async with open_store() as one, open_store() as two, open_store() as three:
        for number in range(9):
            await (one, two, three)[number % 3].journal.append(create_audited_event(str(number)))
    await anyio.Path(anchor).unlink()
    for statement in statements:
        tamper(statement)
    async with open_store() as store:
        report = await store.audit.verify()
    assert not report.intact
    assert reason in (report.reason or "")


@proves("F39", "H27")
async def test_the_last_chain_removed_as_a_whole_is_found_by_the_anchor(
    open_store: OpenStore, tamper: Tamper
) -> None:
    async with open_store() as one, open_store() as two:
        for store in (one, two):
            await store.journal.append(create_audited_event())
    tamper("DELETE FROM audit WHERE chain = 2")
    tamper("DELETE FROM audit_head WHERE chain = 2")
    async with open_store() as store:
        report = await store.audit.verify()
        with pytest.raises(StoreUnavailable, match="open for reading only"):
            await store.journal.append(create_audited_event())
    assert (report.intact, report.chain, report.first_bad) == (False, 2, 1)
    assert "chain 2: rows after 0 are missing: the anchor file remembers row 1" in (report.reason or "")


@proves("F39")
async def test_rows_listed_in_another_order_are_found(sqlite_url: str) -> None:
    async with Store.open(sqlite_url) as store:
        await store.journal.append(*(create_audited_event(str(number)) for number in range(3)))
    with closing(sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))) as other, other:
        other.execute("UPDATE audit SET seq = 7 - seq WHERE seq > 1")
    async with Store.open(sqlite_url) as store:
        report = await store.audit.verify()
    assert not report.intact
    assert "row 3 was moved" in (report.reason or "")


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
    parts = (1, "evt_1", at, kind, packet_id or None, payload)
    written = json.dumps([GENESIS, *parts], separators=(",", ":")).encode()
    assert hash_parts(GENESIS, *parts) == hashlib.sha256(written).hexdigest()

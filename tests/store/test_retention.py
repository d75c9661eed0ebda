"""Old rows are removed in small steps, and what is left can be verified."""

from __future__ import annotations

import os
import random
import sqlite3
import stat
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import psycopg
import pytest

from fingerpost.errors import ConfigError
from fingerpost.events import CallFinished, CallReceived, Event, RouteBegan, StorePruned, decode
from fingerpost.records import DataLabel, DataSource, Decision, Mode, utc_now
from fingerpost.store import RetentionLimits, Store
from fingerpost.store.retention import BATCH_ROWS, CLAIM
from tests.kit.store_samples import create_audited_event, create_pending, exact_grant, ordinary
from tests.kit.stores import OpenStore, get_postgres_programs
from tests.requirements import proves
from tests.store.processes import lines, start_process

Tamper = Callable[[str], None]
MONTH = RetentionLimits(keep_days=30, audit_days=30)
ME = "ins_test"


def days_ago(days: float) -> datetime:
    return utc_now() - timedelta(days=days)


def age(event: Event, days: float) -> Event:
    return replace(event, at=days_ago(days))


async def prune(store: Store, limits: RetentionLimits = MONTH) -> Any:
    await store.instances.renew_lease(ME)
    return await store.retention.prune(limits, instance=ME, by="anna")


def ids(events: Iterable[Event], *, younger_than: float) -> set[str]:
    return {event.event_id for event in events if event.at >= days_ago(younger_than)}


async def read_trail(store: Store) -> set[str]:
    entries = await store.audit.list_entries(limit=100_000)
    return {entry.event_id for entry in entries if entry.kind != StorePruned.kind}


async def read_journal(store: Store) -> set[str]:
    entries = await store.journal.list_events(limit=100_000)
    return {entry.event.event_id for entry in entries if not isinstance(entry.event, StorePruned)}


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
@proves("H29", "H4", "H27")
async def test_what_is_old_goes_what_is_young_stays_and_the_trail_verifies(
    open_store: OpenStore, seed: int
) -> None:
    chance = random.Random(seed)
    written: list[Event] = []
    days = 100.0
    journal_days = audit_days = 100
    async with open_store() as one, open_store() as two, open_store() as three:
        stores = (one, two, three)
        for _ in range(chance.randrange(10, 30)):
            days -= chance.random() * min(days, 5)
            make = chance.choice([create_audited_event, ordinary])
            events = [age(make(), days) for _ in range(chance.randrange(1, 20))]
            written += events
            await chance.choice(stores).journal.append(*events)
        for _ in range(3):
            limits = RetentionLimits(keep_days=chance.randrange(1, 90), audit_days=chance.randrange(1, 90))
            await prune(chance.choice(stores), limits)
            journal_days = min(journal_days, round(limits.keep_days))
            audit_days = min(audit_days, round(limits.audit_days))
            report = await one.audit.verify()
            assert report.intact, report.reason
            assert await read_journal(one) == ids(written, younger_than=journal_days)
            audited = [event for event in written if event.audited]
            assert await read_trail(one) == ids(audited, younger_than=audit_days)
        assert (await prune(one, RetentionLimits(keep_days=90, audit_days=90))).total == 0
    async with open_store() as store:
        await store.journal.append(create_audited_event())
        report = await store.audit.verify()
        assert report.intact and report.anchors, report.reason


@proves("H29")
async def test_nothing_younger_is_removed(open_store: OpenStore) -> None:
    old = [age(create_audited_event(str(number)), 40) for number in range(2 * BATCH_ROWS + 7)]
    young = [age(create_audited_event(str(number)), 20) for number in range(30)]
    async with open_store() as store:
        await store.journal.append(*old)
        await store.journal.append(*young)
        removed = await prune(store)
        assert (removed.journal, removed.audit) == (len(old), len(old))
        assert await read_journal(store) == {event.event_id for event in young}
        trail = await store.audit.list_entries(limit=1000)
        assert {entry.event_id for entry in trail if entry.kind != StorePruned.kind} == {
            event.event_id for event in young
        }
        report = await store.audit.verify()
        assert (report.intact, report.pruned) == (True, len(old)), report.reason
        (record,) = [entry for entry in trail if entry.kind == StorePruned.kind]
        event = decode(record.payload)
        assert isinstance(event, StorePruned)
        assert (event.by, event.reason, event.chains[0].until) == ("anna", "age", len(old))


@proves("H29")
async def test_a_wrong_clock_costs_no_young_row(open_store: OpenStore) -> None:
    events = [age(create_audited_event(str(days)), days) for days in (60, 50, 3, 70, 2, 80, 1)]
    async with open_store() as store:
        for event in events:
            await store.journal.append(event)
        await prune(store)
        assert await read_journal(store) == ids(events, younger_than=30)
        assert await read_trail(store) >= ids(events, younger_than=30)
        assert (await store.audit.verify()).intact


@proves("H29")
async def test_what_waits_or_is_not_finished_stays(open_store: OpenStore) -> None:
    def call(packet: str) -> list[Event]:
        received = CallReceived(packet_id=packet, call_id=packet, name="git/log", arguments={})
        finished = CallFinished(packet_id=packet, call_id=packet, tool="git/log", success=True)
        return [age(received, 50), age(finished, 50)]

    waits = create_pending("waits", packet_id="waits", created=days_ago(50), expires=days_ago(-50))
    expired = create_pending("expired", packet_id="expired", created=days_ago(50), expires=days_ago(49))
    decided = replace(waits, pending_id="decided", call_fingerprint="call-2", packet_id="decided")
    async with open_store() as store:
        for pending in (waits, expired, decided):
            await store.approvals.add(pending)
        await store.approvals.decide("decided", Decision.APPROVED, by="anna")
        await store.grants.add(exact_grant("old", granted_at=days_ago(50), expires=days_ago(40)))
        await store.grants.add(exact_grant("new", granted_at=days_ago(50), expires=days_ago(-40)))
        for packet in ("waits", "expired", "over"):
            await store.journal.append(*call(packet))
        await store.journal.append(
            call("under way")[0], age(RouteBegan(packet_id="route", mode=Mode.SINGLE), 45)
        )
        await store.journal.append(call("goes on")[0])
        await store.journal.append(*(ordinary() for _ in range(3)))
        await store.journal.append(replace(call("goes on")[1], at=utc_now()))
        removed = await prune(store)
        kept = {entry.event.packet_id for entry in await store.journal.list_events()} - {None}
        assert kept == {"waits", "under way", "route", "goes on"}
        assert [pending.pending_id for pending in await store.approvals.list_recent()] == ["waits"]
        assert [grant.call_fingerprint for grant in await store.grants.list_active()] == ["new"]
        assert (removed.approvals, removed.grants) == (2, 1)
        assert (await store.audit.verify()).intact


@proves("H29", "X18")
async def test_sources_of_conversations_that_are_not_used_go(open_store: OpenStore) -> None:
    async with open_store() as store:
        for trail, days in (("old", 31), ("young", 29), ("used", 31)):
            for tool in ("web/read", "mail/read"):
                source = DataSource(tool=tool, label=DataLabel.UNTRUSTED, call_id="cal_1", at=days_ago(days))
                await store.data_flow.add_source(trail, source)
        await store.data_flow.touch_sources("used", utc_now())
        assert (await prune(store, RetentionLimits())).data_sources == 0
        assert (await prune(store)).data_sources == 2
        left = {trail: len(await store.data_flow.list_sources(trail)) for trail in ("old", "young", "used")}
        assert left == {"old": 0, "young": 2, "used": 2}


@proves("H29")
async def test_one_process_prunes_at_a_time_and_others_do_not_wait(open_store: OpenStore) -> None:
    async with open_store() as store:
        await store.journal.append(age(ordinary(), 40))
        await store.instances.renew_lease("ins_other")
        assert await store.instances.claim(CLAIM, "ins_other")
        assert await prune(store) is None
        await store.instances.end("ins_other")
        assert (await prune(store)).journal == 1


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("DELETE FROM audit WHERE number = 11", "row 11 is missing"),
        ("UPDATE pruned SET seq = 11 WHERE chain = 1", "row 12 is missing"),
        ("UPDATE pruned SET hash = 'f' WHERE chain = 1", "row 11 does not follow"),
        ("DELETE FROM pruned WHERE chain = 1", "row 1 is missing"),
        ("DELETE FROM audit WHERE kind = 'store_pruned'", "rows after 15 are missing"),
    ],
)
@proves("H29", "F39")
async def test_rows_removed_by_others_are_told_from_pruned_ones(
    open_store: OpenStore, tamper: Tamper, statement: str, reason: str
) -> None:
    async with open_store() as store:
        await store.journal.append(*(age(create_audited_event(str(number)), 40) for number in range(10)))
        await store.journal.append(*(create_audited_event(str(number)) for number in range(5)))
        await prune(store)
        assert (await store.audit.verify()).intact
    tamper(statement)
    async with open_store() as store:
        report = await store.audit.verify()
    assert not report.intact
    assert reason in (report.reason or "")


@proves("H29")
async def test_the_trail_is_pruned_only_with_a_record_even_if_it_is_switched_off(
    open_store: OpenStore,
) -> None:
    async with open_store() as store:
        await store.journal.append(*(age(create_audited_event(str(number)), 40) for number in range(10)))
    async with open_store(audit=False) as store:
        await store.journal.append(create_audited_event())
        assert (await prune(store)).audit == 10
        report = await store.audit.verify()
        assert (report.intact, report.rows) == (True, 1), report.reason


@proves("H29")
async def test_the_anchor_file_does_not_keep_lines_of_what_is_gone(
    open_store: OpenStore, anchor: Path
) -> None:
    for number in range(6):
        async with open_store() as store:
            await store.journal.append(age(create_audited_event(str(number)), 40))
    async with open_store() as store:
        before = await anyio.Path(anchor).read_text()
        await prune(store)
        after = await anyio.Path(anchor).read_text()
        assert before.count("journal") == 6
        assert after.count("journal") <= 1  # of the record itself
        assert (await store.audit.verify()).intact
    assert stat.S_IMODE((await anyio.Path(anchor).stat()).st_mode) == 0o600


@pytest.mark.slow
@proves("H29")
async def test_a_file_that_is_pruned_stops_growing_and_shrinks(sqlite_url: str) -> None:
    file = anyio.Path(sqlite_url.removeprefix("sqlite:///"))
    limits = RetentionLimits(keep_days=1 / 24)
    sizes: list[int] = []
    async with Store.open(sqlite_url) as store:
        await store.instances.renew_lease(ME)
        for _ in range(6):
            await store.journal.append(*(age(ordinary("x" * 20_000), 1) for _ in range(100)))
            await store.retention.prune(limits, instance=ME, by="anna")
            sizes.append((await file.stat()).st_size)
        assert max(sizes) < 3 * sizes[0], sizes  # six times as much was written
        await store.journal.append(*(age(ordinary("x" * 20_000), 1) for _ in range(140)))
        full = (await store.retention.get_status(limits)).bytes
        await store.retention.prune(limits, instance=ME, by="anna")
    assert (await file.stat()).st_size < full / 2


@pytest.mark.slow
@proves("H29")
async def test_a_store_beyond_its_size_loses_its_oldest_journal_rows(sqlite_url: str) -> None:
    async with Store.open(sqlite_url) as store:
        for _ in range(10):
            await store.journal.append(*(age(ordinary("x" * 20_000), 1) for _ in range(30)))
        await store.journal.append(*(ordinary("y") for _ in range(50)))
        status = await store.retention.get_status(RetentionLimits(max_bytes=2_000_000))
        counts = {table.name: table for table in status.tables}
        removed = await prune(store, RetentionLimits(max_bytes=2_000_000))
        assert 200 < removed.journal < 300
        assert counts["journal"].prunable == removed.journal
        after = await store.retention.get_status(RetentionLimits(max_bytes=2_000_000))
        assert {table.name: table.prunable for table in after.tables}["journal"] == 0
        # Down to nothing: what is younger than an hour stays.
        await prune(store, RetentionLimits(max_bytes=1))
        assert len(await store.journal.list_events(limit=1000)) >= 50


@proves("H29")
async def test_an_older_file_is_rewritten_once_and_gives_space_back_from_then_on(sqlite_url: str) -> None:
    file = Path(sqlite_url.removeprefix("sqlite:///"))
    async with Store.open(sqlite_url) as store:
        await store.journal.append(ordinary())
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute("PRAGMA auto_vacuum=NONE")
        connection.execute("VACUUM")
    async with Store.open(sqlite_url) as store:
        assert not (await store.retention.get_status(MONTH)).gives_back
        await store.retention.compact()
    async with Store.open(sqlite_url) as store:
        assert (await store.retention.get_status(MONTH)).gives_back


@proves("H30")
async def test_a_backup_is_whole_and_verifies(
    open_store: OpenStore, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = get_postgres_programs()
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    target = tmp_path / "copies" / "backup.db"
    async with open_store() as store:
        await store.journal.append(*(create_audited_event(str(number)) for number in range(20)))
        await store.retention.back_up(target)
        with pytest.raises(ConfigError, match="exists already"):
            await store.retention.back_up(target)
        await store.journal.append(create_audited_event())
    assert stat.S_IMODE((await anyio.Path(target).stat()).st_mode) == 0o600
    if url.startswith("sqlite"):
        async with Store.open(f"sqlite:///{target}") as copy:
            report = await copy.audit.verify()
            assert (report.rows, report.intact) == (20, True)
            await copy.journal.append(create_audited_event())
        return
    name = f"{url.partition('?')[0].rpartition('/')[2]}_restored"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")  # pyright: ignore[reportArgumentType, reportCallIssue] - psycopg wants a literal
    restored = url.replace(url.partition("?")[0].rpartition("/")[2], name, 1)
    await anyio.run_process([f"{programs}/pg_restore", f"--dbname={restored}", str(target)])
    async with Store.open(restored, anchor=tmp_path / "restored.anchor") as copy:
        report = await copy.audit.verify()
        assert (report.rows, report.intact) == (20, True)


@pytest.mark.process
@proves("H29", "H5")
async def test_no_acknowledged_row_is_lost_when_a_process_is_killed_while_it_prunes(
    url: str, anchor: Path, open_store: OpenStore
) -> None:
    acknowledged: list[str] = []
    for count in (20, 150, 60):
        acknowledged += await kill_while_pruning(url, anchor, count)
    async with open_store() as store:
        report = await store.audit.verify()
        assert report.intact, report.reason
        assert set(acknowledged) <= await read_journal(store)
        trail = {entry.event_id for entry in await store.audit.list_entries(limit=100_000)}
        assert set(acknowledged) <= trail


async def kill_while_pruning(url: str, anchor: Path, count: int) -> list[str]:
    """Ids a program acknowledged that also prunes all the time, killed after `count` of them."""
    received: list[str] = []
    with anyio.fail_after(50):
        async with start_process("append_and_prune", url, anchor) as process:
            async for line in lines(process):
                received.append(line)
                if len(received) == count:
                    process.kill()
    return received

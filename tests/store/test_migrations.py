from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import psycopg
import pytest
from sqlalchemy import Connection, Engine, create_engine, inspect, text

from fingerpost.errors import StoreTooNew
from fingerpost.events import PacketReceived, PacketReinjected, encode
from fingerpost.records import Packet
from fingerpost.records.codec import to_json
from fingerpost.store import Store
from fingerpost.store.audit import GENESIS, hash_parts
from fingerpost.store.database import Database, resolve_location
from fingerpost.store.schema import MIGRATION_STEPS, MigrationStep, metadata, migrate
from tests.kit.store_samples import create_audited_event, ordinary, pin
from tests.kit.stores import OpenStore, Postgres, get_postgres_programs
from tests.requirements import proves


@pytest.fixture
def postgres_url(postgres: Postgres) -> Iterator[str]:
    url = postgres.new_database(empty=True)
    yield url
    postgres.drop_database(url)


@pytest.fixture
def engine(url: str, tmp_path: Path) -> Engine:
    (tmp_path / "store").mkdir()
    return create_engine(resolve_location(url).url)


def versions(connection: Connection) -> list[int]:
    return list(connection.execute(text("SELECT version FROM fingerpost_schema ORDER BY version")).scalars())


@proves("H7", "H4")
def test_the_migrated_tables_are_those_the_code_uses(engine: Engine) -> None:
    with closing(engine.connect()) as connection, connection.begin():
        migrate(connection)
        found = inspect(connection)
        assert set(found.get_table_names()) == {*metadata.tables, "fingerpost_schema"}
        for table in metadata.tables.values():
            columns = {column["name"]: column for column in found.get_columns(table.name)}
            assert list(columns) == [column.name for column in table.columns]
            for column in table.columns:
                assert columns[column.name]["nullable"] == column.nullable, f"{table.name}.{column.name}"
            keys = found.get_pk_constraint(table.name)["constrained_columns"]
            assert keys == [column.name for column in table.primary_key]
            indexes = {
                index["name"]: index["column_names"]
                for index in found.get_indexes(table.name)
                if "duplicates_constraint" not in index
            }
            assert indexes == {
                str(index.name): [column.name for column in index.columns] for index in table.indexes
            }
            assert found.get_unique_constraints(table.name) or table.name != "journal"
    engine.dispose()


@proves("H7")
def test_an_older_database_is_brought_forward_and_keeps_its_rows(engine: Engine) -> None:
    def add_colour(connection: Connection) -> None:
        connection.execute(text("ALTER TABLE pins ADD COLUMN colour TEXT DEFAULT 'grey'"))

    def paint(connection: Connection) -> None:
        connection.execute(text("UPDATE pins SET colour = 'green'"))

    now = MIGRATION_STEPS[-1].number
    newer = (*MIGRATION_STEPS, MigrationStep(now + 1, add_colour), MigrationStep(now + 2, paint))
    with engine.connect() as connection:
        with connection.begin():
            assert migrate(connection) == now
            connection.execute(text("INSERT INTO pins (entry, key, record) VALUES ('', 'git/log', '{}')"))
        with connection.begin():
            assert migrate(connection, newer) == now + 2
        with connection.begin():
            assert migrate(connection, newer) == now + 2
            assert versions(connection) == [*range(1, now + 3)]
            assert connection.execute(text("SELECT key, colour FROM pins")).all() == [("git/log", "green")]
        with connection.begin(), pytest.raises(StoreTooNew):
            migrate(connection)
    engine.dispose()


@proves("H7", "B12")
async def test_requests_from_before_are_found_by_their_conversation(
    engine: Engine, open_store: OpenStore
) -> None:
    """Step 13 gives the journal a column for it."""
    packet = Packet.start("water the roses", session_id='the "hall" \\ שיחה')
    event = PacketReceived.from_packet(packet)
    row = {"id": event.event_id, "payload": encode(event).decode()}

    def write_as_before() -> None:
        with engine.connect() as connection, connection.begin():
            migrate(connection, MIGRATION_STEPS[:12])
            add = (
                "INSERT INTO journal (event_id, at, kind, payload) "
                "VALUES (:id, 1, 'packet_received', :payload)"
            )
            connection.execute(text(add), [row, {"id": "spoilt", "payload": "{"}])
        engine.dispose()

    await anyio.to_thread.run_sync(write_as_before)
    async with open_store() as store:
        assert await store.journal.list_session_packets('the "hall" \\ שיחה') == [packet]
        # Step 14: rows hold several events, and numbers go on. Rows with one event are read as before.
        later = [PacketReinjected(packet_id=packet.packet_id) for _ in range(2)]
        await store.journal.append(*later)
        read = [(item.seq, item.event.kind) for item in await store.journal.list_events()]
        again = [(3, "packet_reinjected"), (4, "packet_reinjected")]
        assert read == [(1, "packet_received"), (2, "unknown_event"), *again]


@proves("H7", "S8")
async def test_pins_from_before_belong_to_the_entries_that_were_known(
    engine: Engine, open_store: OpenStore
) -> None:
    """Step 17 keys pins by the entry of their server."""

    def write_as_before() -> None:
        with engine.connect() as connection, connection.begin():
            migrate(connection, MIGRATION_STEPS[:16])
            for key in ("git/log", "git/", "files/read", "gitx/log"):
                record = to_json(pin(key)).decode()
                add = text("INSERT INTO pins (key, record) VALUES (:key, :record)")
                connection.execute(add, {"key": key, "record": record})
            for entry in ("e1", "e2"):
                known = "INSERT INTO known_servers VALUES ('git', :e, 1, '{}')"
                connection.execute(text(known), {"e": entry})
        engine.dispose()

    await anyio.to_thread.run_sync(write_as_before)
    async with open_store() as store:
        await store.pins.use_entries({"git": "e2", "files": "f1"})
        assert list(await store.pins.list_all()) == ["files/read", "git/", "git/log", "gitx/log"]
        assert await store.pins.use_entries({"git": "e3", "files": "f1"}) == {"git"}
        assert list(await store.pins.list_all()) == ["files/read", "gitx/log"]
        assert await store.pins.use_entries({"git": "e1", "files": "f2"}) == {"files"}
        assert list(await store.pins.list_all()) == ["git/", "git/log", "gitx/log"]


@proves("H7", "H27")
async def test_the_chain_from_before_goes_on_as_the_first(engine: Engine, open_store: OpenStore) -> None:
    """Step 15 gives each process a chain of its own."""

    def write_as_before() -> None:
        with engine.connect() as connection, connection.begin():
            migrate(connection, MIGRATION_STEPS[:14])
            before = GENESIS
            for number in range(1, 6):
                event = create_audited_event(str(number))
                row: dict[str, Any] = {
                    "seq": number,
                    "event_id": event.event_id,
                    "at": number,
                    "kind": event.kind,
                    "packet_id": event.packet_id,
                    "payload": encode(event).decode(),
                }
                digest = hash_parts(before, *row.values())
                columns = ", ".join(row)
                marks = ", ".join(f":{name}" for name in row)
                connection.execute(
                    text(
                        f"INSERT INTO audit ({columns}, prev_hash, hash) VALUES ({marks}, :before, :digest)"
                    ),
                    {**row, "before": before, "digest": digest},
                )
                before = digest
            connection.execute(text("UPDATE audit_head SET seq = 5, hash = :hash"), {"hash": before})
        engine.dispose()

    await anyio.to_thread.run_sync(write_as_before)
    async with open_store() as store:
        assert (await store.audit.verify()).rows == 5
        await store.journal.append(create_audited_event())
        report = await store.audit.verify()
        (newest, *_) = await store.audit.list_entries()
    assert (report.rows, report.intact, report.chains) == (6, True, 1), report.reason
    assert (newest.seq, newest.chain, newest.number) == (6, 1, 6)


@proves("H7")
async def test_a_database_from_the_future_is_refused_and_left_as_it_is(
    open_store: OpenStore, tamper: Callable[[str], None]
) -> None:
    async with open_store() as store:
        await store.journal.append(ordinary())
    tamper("INSERT INTO fingerpost_schema (version, applied) VALUES (999, 0)")
    with pytest.raises(StoreTooNew, match="version 999") as caught:
        async with open_store():
            pass
    assert "Upgrade Fingerpost" in (caught.value.hint or "")
    tamper("DELETE FROM fingerpost_schema WHERE version = 999")
    async with open_store() as store:
        assert len(await store.journal.list_events()) == 1


@pytest.mark.process
@proves("H7")
async def test_an_upgrade_is_rolled_back_with_the_backup_and_can_be_made_again(
    open_store: OpenStore, url: str, anchor: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As docs/how-to/deploy/backup.md says."""
    programs = get_postgres_programs()
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    backup, engine = tmp_path / "backup" / "copy.db", create_engine(resolve_location(url).url)

    def add_table(connection: Connection) -> None:
        connection.execute(text("CREATE TABLE colours (name TEXT PRIMARY KEY)"))

    def upgrade() -> None:
        newer = (*MIGRATION_STEPS, MigrationStep(MIGRATION_STEPS[-1].number + 1, add_table))
        with engine.connect() as connection, connection.begin():
            migrate(connection, newer)
        engine.dispose()

    async with open_store() as store:
        await store.journal.append(create_audited_event())
        await store.retention.back_up(backup)
        await store.journal.append(create_audited_event())
    await anyio.to_thread.run_sync(upgrade)
    with pytest.raises(StoreTooNew):
        async with open_store():
            pass

    await anyio.Path(anchor).unlink()
    if url.startswith("sqlite"):
        shutil.copy(backup, url.removeprefix("sqlite:///"))
        for copy in backup.parent.glob("*.anchor"):  # there is one if it was written before the backup
            shutil.copy(copy, anchor)
    else:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("DROP SCHEMA public CASCADE")
            connection.execute("CREATE SCHEMA public")
        await anyio.run_process([f"{programs}/pg_restore", f"--dbname={url}", str(backup)])
    async with open_store() as store:
        await store.journal.append(create_audited_event())
        report = await store.audit.verify()
        assert (report.rows, report.intact) == (2, True), report.reason
    await anyio.to_thread.run_sync(upgrade)


@proves("H7", "H4")
async def test_a_new_database_can_be_opened_many_times_at_once(open_store: OpenStore) -> None:
    async def use() -> None:
        async with open_store() as store:
            await store.journal.append(create_audited_event())

    async with anyio.create_task_group() as tasks:
        for _ in range(6):
            tasks.start_soon(use)
    async with open_store() as store:
        report = await store.audit.verify()
    assert (report.rows, report.intact) == (6, True)


@proves("H5")
def test_a_commit_waits_for_the_disk(url: str) -> None:
    database = Database.open(resolve_location(url), lock_wait=5)
    question = "PRAGMA synchronous" if url.startswith("sqlite") else "SHOW synchronous_commit"
    answer = database.read_blocking(lambda connection: connection.exec_driver_sql(question).scalar())
    database.close()
    assert answer in (2, "on")  # 2 is SQLite's FULL


async def test_the_files_are_readable_by_their_owner_only(
    sqlite_url: str, tmp_path: Path, anchor: Path
) -> None:
    async with Store.open(sqlite_url, anchor=anchor) as store:
        await store.tokens.put("github", b"secret")
        await store.journal.append(create_audited_event())
        folder = tmp_path / "store"
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {"fingerpost.db", "fingerpost.db-wal"} <= set(modes)
    assert set(modes.values()) == {0o600}
    assert stat.S_IMODE(anchor.stat().st_mode) == 0o600  # noqa: ASYNC240

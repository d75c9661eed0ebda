"""A database that is locked, damaged, full, unwritable or gone: a bounded wait and a clear error."""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Generator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import anyio
import psycopg
import pytest
from sqlalchemy.exc import OperationalError

from fingerpost.errors import StoreUnavailable
from fingerpost.events import Event, EventsDropped, decode
from fingerpost.store import Store
from fingerpost.store.database import Database, explain, resolve_location
from tests.kit.store_samples import NOON, create_audited_event, eventually, exact_grant, ordinary
from tests.kit.stores import OpenStore
from tests.requirements import proves
from tests.store.processes import read_output


def file_of(url: str) -> Path:
    return Path(url.removeprefix("sqlite:///"))


@contextmanager
def lock_database(url: str) -> Generator[None]:
    """Another program that is in the middle of writing."""
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(file_of(url), isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            yield
            other.execute("ROLLBACK")
    else:
        with psycopg.connect(url) as connection:
            connection.execute("LOCK TABLE journal, audit_head, grants IN ACCESS EXCLUSIVE MODE")
            yield
            connection.rollback()


@proves("H4")
def test_a_write_transaction_holds_the_lock_from_its_beginning(url: str) -> None:
    database = Database.open(resolve_location(url), lock_wait=0.2)
    with database.connect_to_write() as one, database.connect_to_write() as two:
        with one.begin(), pytest.raises(OperationalError):
            two.begin()
        with two.begin():
            pass
    database.close()


@proves("F38", "H4")
async def test_a_locked_database_fails_the_write_after_a_bounded_wait_and_heals(
    url: str, open_store: OpenStore
) -> None:
    async with open_store(lock_wait=0.3) as store:
        await store.grants.add(exact_grant("call-1"))
        with lock_database(url), anyio.fail_after(10):
            with pytest.raises(StoreUnavailable, match="locked") as caught:
                await store.journal.append(create_audited_event())
            with pytest.raises(StoreUnavailable):  # fail closed: no permission without a record of it
                await store.grants.spend(call_fingerprint="call-1", now=NOON)
        assert caught.value.hint
        assert await store.grants.spend(call_fingerprint="call-1", now=NOON)
        await store.journal.append(create_audited_event())
        assert len(await store.journal.list_events()) == 1


async def test_events_emitted_while_the_database_is_locked_are_written_afterwards(
    url: str, open_store: OpenStore
) -> None:
    events = [ordinary("one"), create_audited_event(), ordinary("two")]
    async with open_store(lock_wait=0.2) as store:
        with lock_database(url):
            for event in events:
                store.journal.emit(event)
            await eventually(lambda: store.statistics.failed_commits >= 1)
        await eventually(lambda: store.statistics.backlog == 0 and store.statistics.commits >= 1)
        await store.journal.flush()
        assert [item.event for item in await store.journal.list_events()] == events


def emit(store: Store, events: Sequence[Event], *, together: int) -> None:
    """One by one, or so many at once."""
    for begin in range(0, len(events), together):
        if together == 1:
            store.journal.emit(events[begin])
        else:
            store.journal.emit_all(events[begin : begin + together])


@proves("H5")
@pytest.mark.parametrize("together", [1, 4])
async def test_a_stuck_disk_costs_the_oldest_ordinary_events_with_a_marker_and_no_audited_one(
    url: str, open_store: OpenStore, together: int
) -> None:
    async with open_store(lock_wait=0.2, backlog=50) as store:
        with lock_database(url):
            made = [(ordinary if number % 10 else create_audited_event)(str(number)) for number in range(300)]
            emit(store, made, together=together)
            assert store.statistics.backlog <= 50 + 30
            await eventually(lambda: store.statistics.failed_commits >= 2)
        await store.journal.flush()
        events = [item.event for item in await store.journal.list_events()]
        dropped = store.statistics.dropped
        trail = await store.audit.list_entries()
    markers = [event for event in events if isinstance(event, EventsDropped)]
    kept = [event for event in events if event.kind == "server_state_changed"]
    assert dropped > 0
    assert sum(marker.count for marker in markers) == dropped
    assert len(kept) + dropped == 270
    assert kept[-1].summary().startswith("299:")
    assert [decode(entry.payload).summary().split(":")[0] for entry in reversed(trail)] == [
        str(number) for number in range(0, 300, 10)
    ]


@pytest.mark.parametrize("together", [1, 4])
async def test_when_even_audited_events_cannot_be_held_new_ones_are_refused_to_the_callers_face(
    url: str, open_store: OpenStore, together: int
) -> None:
    async with open_store(lock_wait=0.2, backlog=5) as store:
        with lock_database(url), pytest.raises(StoreUnavailable, match="refused"):
            emit(store, [create_audited_event() for _ in range(200)], together=together)


async def test_closing_a_store_that_could_not_write_says_so(url: str, open_store: OpenStore) -> None:
    with ExitStack() as other, pytest.raises(StoreUnavailable, match="locked"):
        async with open_store(lock_wait=0.2) as store:
            other.enter_context(lock_database(url))
            store.journal.emit(create_audited_event())


@proves("F38")
async def test_opening_a_locked_sqlite_file_ends_after_a_bounded_wait(sqlite_url: str) -> None:
    async with Store.open(sqlite_url):
        pass
    with (
        lock_database(sqlite_url),
        anyio.fail_after(10),
        pytest.raises(StoreUnavailable, match="locked") as caught,
    ):
        async with Store.open(sqlite_url, lock_wait=0.2):
            pass
    assert str(file_of(sqlite_url)) in str(caught.value)
    assert "Close the program" in (caught.value.hint or "")


@pytest.mark.parametrize(
    "content", [b"This is not a database, it is a letter. " * 100, b"SQLite format 3\x00junk" * 500]
)
@proves("F38")
async def test_a_file_that_is_not_a_database_is_named_and_left_alone(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "letter.db"
    await anyio.Path(file).write_bytes(content)
    with pytest.raises(StoreUnavailable, match="damaged or not a database") as caught:
        async with Store.open(f"sqlite:///{file}"):
            pass
    assert str(file) in str(caught.value)
    assert "Move the file away" in (caught.value.hint or "")
    assert str(file.with_suffix(".audit.anchor")) in (caught.value.hint or "")  # or it would raise an alarm
    assert await anyio.Path(file).read_bytes() == content


@proves("F38")
async def test_a_file_damaged_in_the_middle_gives_a_clear_error(sqlite_url: str) -> None:
    async with Store.open(sqlite_url) as store:
        await store.journal.append(*(ordinary("x" * 500) for _ in range(500)))
    file = anyio.Path(file_of(sqlite_url))
    content = bytearray(await file.read_bytes())
    content[4096:] = b"\xab" * (len(content) - 4096)
    await file.write_bytes(bytes(content))
    with pytest.raises(StoreUnavailable, match="damaged"):
        async with Store.open(sqlite_url) as store:
            await store.journal.list_events()


@pytest.mark.process
@proves("F38")
async def test_a_full_disk_fails_the_waiting_write_loses_nothing_acknowledged_and_heals(
    sqlite_url: str, anchor: Path
) -> None:
    lines = await read_output("fill_the_disk", sqlite_url, anchor)
    acknowledged = [line.split()[1] for line in lines if line.startswith("acknowledged")]
    (error,) = [line for line in lines if line.startswith("error")]
    assert "cannot be written" in error
    async with Store.open(sqlite_url, anchor=anchor) as store:
        stored = [item.event.event_id for item in await store.journal.list_events()]
        report = await store.audit.verify()
    assert len(acknowledged) >= 2
    assert stored == acknowledged
    assert report.intact


@proves("F38")
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_called_so_when_the_system_says_it(tmp_path: Path, code: int) -> None:
    error = explain(
        OSError(code, "no room", str(tmp_path)), resolve_location(f"sqlite:///{tmp_path}/fingerpost.db")
    )
    assert "the disk is full" in str(error)
    assert "Free some space" in (error.hint or "")


@proves("F38")
@pytest.mark.parametrize(("folder", "full"), [("/proc", True), ("/tmp", False)])
def test_an_input_output_error_of_sqlite_is_a_full_disk_where_there_is_no_room(
    folder: str, full: bool
) -> None:
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorname = "SQLITE_IOERR_SHMSIZE"  # as on a full disk: it has no room for its shared memory
    text = explain(error, resolve_location(f"sqlite:///{folder}/fingerpost.db"))
    assert ("the disk is full" in str(text)) is full


@proves("F38")
async def test_who_asks_is_not_told_where_the_database_is_and_the_log_is(
    url: str, open_store: OpenStore, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_store(lock_wait=0.2) as store:
        with lock_database(url), pytest.raises(StoreUnavailable, match="locked") as caught:
            await store.journal.append(create_audited_event())
        label = store.location.label
    assert label not in f"{caught.value} {caught.value.hint}"
    assert label in caplog.text


async def test_the_statistics_say_whether_the_database_takes_what_is_written(
    url: str, open_store: OpenStore
) -> None:
    async with open_store(lock_wait=0.2) as store:
        await store.journal.append(create_audited_event())
        assert not store.statistics.refused
        with lock_database(url):
            store.journal.emit(create_audited_event())
            await eventually(lambda: store.statistics.refused)
        await eventually(lambda: not store.statistics.refused)


@pytest.mark.process
@proves("F38")
async def test_a_folder_one_may_not_write_to_is_explained(tmp_path: Path, anchor: Path) -> None:
    folder = anyio.Path(tmp_path / "closed")
    await folder.mkdir(mode=0o500)
    (line,) = await read_output("open_unprivileged", f"sqlite:///{folder}/fingerpost.db", anchor)
    assert "cannot be written" in line
    assert "Check the owner" in line


async def test_a_folder_that_is_a_file_is_explained(tmp_path: Path) -> None:
    await anyio.Path(tmp_path / "file").write_text("I am not a folder")
    with pytest.raises(StoreUnavailable, match="cannot be written"):
        async with Store.open(f"sqlite:///{tmp_path}/file/fingerpost.db"):
            pass


@proves("F38")
async def test_an_unreachable_postgresql_server_is_explained_without_its_password(tmp_path: Path) -> None:
    url = f"postgresql://dana:hunter2hunter2@/db?host={tmp_path}"
    with anyio.fail_after(20), pytest.raises(StoreUnavailable, match="cannot be reached") as caught:
        async with Store.open(url, lock_wait=1, anchor=tmp_path / "anchor"):
            pass
    assert "hunter2" not in str(caught.value)


@pytest.mark.process
async def test_without_psycopg_postgresql_says_what_to_install(anchor: Path) -> None:
    (line,) = await read_output("open_without_psycopg", "postgresql://somewhere/db", anchor)
    assert "pip install 'fingerpost[postgres]'" in line


@proves("H4")
async def test_a_connection_cut_by_the_server_is_replaced_unnoticed(postgres_url: str, anchor: Path) -> None:
    async with Store.open(postgres_url, anchor=anchor) as store:
        await store.journal.append(ordinary())
        with psycopg.connect(postgres_url, autocommit=True) as other:
            other.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        await store.journal.append(ordinary())
        assert len(await store.journal.list_events()) == 2

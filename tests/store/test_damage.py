"""A damaged database is found at the start: it is refused, or opened for reading alone."""

from __future__ import annotations

import shutil
import sqlite3
import zipfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread
import pytest

from fingerpost.errors import StoreError, StoreUnavailable
from fingerpost.store import Store
from tests.kit.store_samples import create_audited_event, ordinary, pin
from tests.requirements import proves

Damage = Callable[[Path], None]
ROWS: Final = 60


def truncate(share: float) -> Damage:
    def damage(file: Path) -> None:
        with file.open("r+b") as opened:
            opened.truncate(int(file.stat().st_size * share))

    return damage


def overwritten(offset: int, data: bytes) -> Damage:
    def damage(file: Path) -> None:
        with file.open("r+b") as opened:
            opened.seek(offset)
            opened.write(data)

    return damage


def page_of(file: Path, table: str) -> tuple[int, int]:
    """Where a table or index begins, and how long a page is."""
    with closing(sqlite3.connect(file)) as connection:
        (size,) = connection.execute("PRAGMA page_size").fetchone()
        (root,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", [table]).fetchone()
    return (root - 1) * size, size


def zero_pages(table: str) -> Damage:
    def damage(file: Path) -> None:
        offset, size = page_of(file, table)
        overwritten(offset, bytes(size))(file)

    return damage


def scramble(table: str) -> Damage:
    """Bytes inside of a page are flipped, as a bad disk does."""

    def damage(file: Path) -> None:
        offset, size = page_of(file, table)
        data = bytearray(file.read_bytes())
        for place in range(offset + 8, offset + size, 7):
            data[place] ^= 0xFF
        file.write_bytes(data)

    return damage


def execute_sql(*statements: str) -> Damage:
    def damage(file: Path) -> None:
        with closing(sqlite3.connect(file, isolation_level=None)) as connection:
            for statement in statements:
                connection.execute(statement)

    return damage


def replace_file(data: bytes) -> Damage:
    def damage(file: Path) -> None:
        file.write_bytes(data)

    return damage


def as_archive(file: Path) -> None:
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("a.txt", "a" * 5000)


def as_folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


def of_another_program(file: Path) -> None:
    file.unlink()
    execute_sql("CREATE TABLE bookmarks (id INTEGER PRIMARY KEY, url TEXT)")(file)


def with_strange_log(file: Path) -> None:
    """The write-ahead log of another database beside it."""
    other = file.with_name("other.db")
    with closing(sqlite3.connect(other, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("CREATE TABLE t (a TEXT)")
        connection.execute(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 60) "
            "INSERT INTO t SELECT hex(randomblob(2000)) FROM n"
        )
        shutil.copy(f"{other}-wal", f"{file}-wal")


def without_log(file: Path) -> None:
    """What was only in the log is lost: as if the newest rows had never been written."""
    execute_sql(
        "DELETE FROM audit WHERE seq > 40",
        "UPDATE audit_head SET seq = 40, hash = (SELECT hash FROM audit WHERE seq = 40)",
    )(file)


TEXT: Final = "UPDATE audit SET payload = replace(payload, 'git/log', 'git/lag')"
WAYS: Final[dict[str, Damage]] = {
    "cut to nothing": truncate(0),
    "cut in the header": lambda file: truncate(50 / file.stat().st_size)(file),
    "cut in the middle of the first page": lambda file: truncate(2000 / file.stat().st_size)(file),
    "cut to a quarter": truncate(0.25),
    "cut to a half": truncate(0.5),
    "the last page cut off": truncate(0.98),
    "no magic word": overwritten(0, b"\0" * 16),
    "another page size": overwritten(16, b"\x02\x00"),
    "another format of the schema": overwritten(44, b"\x00\x00\x00\x09"),
    "another text encoding": overwritten(56, b"\x00\x00\x00\x02"),
    "another application's number": overwritten(68, b"\x0f\x05\x51\x12"),
    "another user version": overwritten(60, b"\x00\x00\x00\x07"),
    "the schema's page emptied": overwritten(100, bytes(900)),
    "a table's page emptied": zero_pages("journal"),
    "an index's page emptied": zero_pages("journal_kind"),
    "the audit trail's page emptied": zero_pages("audit"),
    "a table's page scrambled": scramble("pins"),
    "an index's page scrambled": scramble("journal_packet"),
    "a table dropped": execute_sql("DROP TABLE grants"),
    "the head's table dropped": execute_sql("DROP TABLE audit_head"),
    "the table of versions dropped": execute_sql("DROP TABLE fingerpost_schema"),
    "a column dropped": execute_sql("ALTER TABLE grants DROP COLUMN spent_at"),
    "an index dropped": execute_sql("DROP INDEX grants_call"),
    "a trigger added": execute_sql("CREATE TRIGGER t AFTER INSERT ON audit BEGIN DELETE FROM audit; END"),
    "the head emptied": execute_sql("DELETE FROM audit_head"),
    "the last audit rows removed": execute_sql("DELETE FROM audit WHERE seq > 50"),
    "rows and head put back": without_log,
    "an audit row edited": execute_sql(f"{TEXT} WHERE seq = 58"),
    "an older audit row edited": execute_sql(f"{TEXT} WHERE seq = 3"),
    "an audit row removed from the middle": execute_sql("DELETE FROM audit WHERE seq = 30"),
    "the log of another database": with_strange_log,
    "a picture": replace_file(b"\x89PNG\r\n\x1a\n" + bytes(5000)),
    "a text": replace_file(b"hello\n" * 1000),
    "an archive": as_archive,
    "a folder": as_folder,
    "a database of another program": of_another_program,
}


@pytest.fixture(scope="module")
def used_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a store that was used and closed."""
    folder = tmp_path_factory.mktemp("used")

    async def use() -> None:
        async with Store.open(f"sqlite:///{folder}/store.db") as store:
            for number in range(ROWS):
                await store.journal.append(create_audited_event(f"git/log-{number}"))
                await store.journal.append(ordinary())
                await store.pins.put(pin(f"git/tool-{number}"))

    anyio.run(use)
    return folder


@pytest.fixture
def file(used_store: Path, tmp_path: Path) -> Path:
    """The file of a store that was used and closed, for this test alone."""
    shutil.copytree(used_store, tmp_path, dirs_exist_ok=True)
    return tmp_path / "store.db"


@pytest.fixture
def url(file: Path) -> str:
    return f"sqlite:///{file}"


@pytest.mark.slow
@proves("X12", "F38")
@pytest.mark.parametrize("way", WAYS)
async def test_a_damaged_database_takes_no_write(file: Path, url: str, way: str):
    await anyio.to_thread.run_sync(WAYS[way], file)
    with pytest.raises(StoreError) as caught:
        async with Store.open(url) as store:
            await store.journal.append(create_audited_event("git/after"))
    assert caught.value.hint, caught.value
    assert "backup" in caught.value.hint or way == "a folder", caught.value.hint


@proves("X12")
async def test_what_contradicts_itself_can_still_be_read_and_verified(file: Path, url: str):
    await anyio.to_thread.run_sync(WAYS["an audit row edited"], file)
    async with Store.open(url) as store:
        report = await store.audit.verify()
        assert not report.intact and report.first_bad == 58
        assert len(await store.pins.list_all()) == ROWS
        with pytest.raises(StoreUnavailable, match="open for reading only"):
            await store.pins.put(pin("git/after"))


@pytest.mark.slow
@proves("X12")
async def test_damage_in_a_large_file_is_found_beside_the_work(file: Path, url: str):
    """A start does not wait for the whole file; once damage is found nothing more is written."""
    many = (
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100000) "
        "INSERT INTO choices (at, request, tool, worked) SELECT i, hex(randomblob(100)), 'git/log', 1 FROM n"
    )
    await anyio.to_thread.run_sync(execute_sql("PRAGMA synchronous=OFF", many), file)
    await anyio.to_thread.run_sync(scramble("usage_buckets"), file)
    await anyio.to_thread.run_sync(scramble("choices_conversation"), file)
    with anyio.fail_after(50), pytest.raises(StoreUnavailable, match="damaged"):
        async with Store.open(url) as store:
            while True:
                await store.pins.put(pin("git/after"))
                await anyio.sleep(0.02)


@proves("X12")
async def test_a_whole_database_opens_as_before(url: str):
    for _ in range(2):
        async with Store.open(url) as store:
            await store.journal.append(create_audited_event("git/after"))
            assert (await store.audit.verify()).intact

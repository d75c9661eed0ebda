"""The connection to SQLite or PostgreSQL, set up so that both keep the same promises.

Both: a commit is on disk when it returns; one write transaction at a time,
among all processes; nothing waits longer than `lock_wait` for a lock. The one
write at a time is SQLite's nature. On PostgreSQL an advisory lock gives the
same, and with it rows that become visible in the order of their numbers, so a
reader that asks for "everything after row n" never misses one.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sqlite3
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import anyio
import anyio.to_thread
from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.exc import DBAPIError

from fingerpost.errors import StoreUnavailable
from fingerpost.store.faults import explain, explain_without_location
from fingerpost.store.integrity import IntegrityCheck, check_schema
from fingerpost.store.locations import StoreLocation
from fingerpost.store.migrations import migrate
from fingerpost.store.rows import execute_directly

R = TypeVar("R")

logger = logging.getLogger("fingerpost.store")

MAX_READERS = 4
_WRITES_OPTION = "fingerpost_writes"
_WRITE_LOCK = 0x46696E676572  # "Finger", the number of our advisory lock
_STATEMENT_SECONDS = 30.0


class Database:
    """An opened, migrated database."""

    def __init__(self, engine: Engine, location: StoreLocation) -> None:
        self.location = location
        self._engine = engine
        self._readers = anyio.CapacityLimiter(MAX_READERS)
        self._damage: StoreUnavailable | None = None
        self._check: IntegrityCheck | None = None

    @classmethod
    def open(cls, location: StoreLocation, *, lock_wait: float) -> Database:
        """Create what is missing, migrate, and be ready. Blocks; raises `StoreError`."""
        try:
            make = _create_postgresql_engine if location.file is None else _create_sqlite_engine
            database = cls(make(location, lock_wait), location)
            database._check_and_migrate()
        except (DBAPIError, OSError, sqlite3.Error) as error:
            raise explain(error, location) from error
        return database

    def _check_and_migrate(self) -> None:
        """Nothing is written to a file that is damaged, or another program's."""
        try:
            if self.location.file is not None:
                self._check = IntegrityCheck(self.location, self.refuse_writes)
                self._check.check_quickly()
            with self.connect_to_write() as connection, connection.begin():
                migrate(connection)
                if self.location.file is not None:
                    check_schema(_get_driver_connection(connection), self.location)
            if self._check is not None:
                self._check.continue_in_background()
        except BaseException:
            self.close()
            raise

    def refuse_writes(self, damage: StoreUnavailable) -> None:
        """From now on it is read only: what is there can be looked at and saved."""
        self._damage = damage

    def check_writable(self) -> None:
        """Raises `StoreUnavailable` where the database is damaged."""
        if self._damage is not None:
            raise StoreUnavailable(str(self._damage), hint=self._damage.hint)

    def connect_to_write(self) -> Connection:
        """A connection whose transactions hold the write lock from their beginning."""
        return self._engine.connect().execution_options(**{_WRITES_OPTION: True})

    async def read(self, query: Callable[[Connection], R]) -> R:
        """What `query` finds in one snapshot of the database, off the event loop."""
        return await anyio.to_thread.run_sync(self.read_blocking, query, limiter=self._readers)

    def read_blocking(self, query: Callable[[Connection], R]) -> R:
        """The same, for a thread that may block."""
        try:
            with self._engine.connect() as connection:
                if self.location.file is None:  # SQLite reads from one snapshot by nature
                    connection.execution_options(isolation_level="REPEATABLE READ")
                return query(connection)
        except DBAPIError as error:
            logger.warning("%s", explain(error, self.location))
            raise explain_without_location(error, self.location) from error

    def close(self) -> None:
        if self._check is not None:
            self._check.close()
        self._engine.dispose()


def _create_sqlite_engine(location: StoreLocation, lock_wait: float) -> Engine:
    assert location.file is not None
    _create_private_file(location)
    engine = create_engine(
        location.url,
        connect_args={"timeout": lock_wait, "check_same_thread": False, "isolation_level": None},
        pool_size=MAX_READERS + 1,
        hide_parameters=True,
    )

    def prepare(connection: sqlite3.Connection, _record: object) -> None:
        _switch_to_wal(connection, lock_wait)
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("PRAGMA foreign_keys=ON")
        # What a statement of many rows may have to take back went to a file, page for page.
        connection.execute("PRAGMA temp_store=MEMORY")

    def begin(connection: Connection) -> None:
        writes = connection.get_execution_options().get(_WRITES_OPTION, False)
        # A transaction that starts by reading and writes later cannot wait for the lock; IMMEDIATE can.
        execute_directly(connection, "BEGIN IMMEDIATE" if writes else "BEGIN")

    event.listen(engine, "connect", prepare)
    event.listen(engine, "begin", begin)
    return engine


def _get_driver_connection(connection: Connection) -> sqlite3.Connection:
    found = connection.connection.driver_connection
    assert isinstance(found, sqlite3.Connection)
    return found


def _create_private_file(location: StoreLocation) -> None:
    """The file, readable by its owner only: it will hold tokens and arguments."""
    assert location.file is not None
    location.file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.close(os.open(location.file, os.O_CREAT | os.O_RDWR, 0o600))
    for file in (*(Path(f"{location.file}{end}") for end in ("", "-wal", "-shm")), location.anchor):
        make_private(file)


def make_private(file: Path) -> None:
    """Take from all but its owner what an older version, a copy or a hand let them do with the file."""
    try:
        mode = file.stat().st_mode
        if mode & (stat.S_IRWXG | stat.S_IRWXO):
            file.chmod(stat.S_IMODE(mode) & stat.S_IRWXU)
    except FileNotFoundError:
        pass
    except OSError as error:
        logger.warning(
            "%s can be read by others, and that cannot be changed: %s. Run: chmod 600 %s", file, error, file
        )


def read_secret(file: Path, size: int) -> bytes:
    """The secret in this file, made when there is none, readable by its owner alone. Raises `OSError`."""
    if file.exists():
        make_private(file)
        return file.read_bytes()
    made = os.urandom(size)
    draft = file.with_name(f"{file.name}.{os.getpid()}.{made[:4].hex()}")
    descriptor = os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as writing:
            writing.write(made)
            writing.flush()
            os.fsync(descriptor)
        with contextlib.suppress(FileExistsError):
            os.link(draft, file)  # whole or not at all, and only the first one
    finally:
        draft.unlink()
    return file.read_bytes()


def _switch_to_wal(connection: sqlite3.Connection, lock_wait: float) -> None:
    """Write-ahead logging. SQLite does not always wait for the lock this switch needs, so we do."""
    deadline = time.monotonic() + lock_wait
    while True:
        try:
            (mode,) = connection.execute("PRAGMA journal_mode=WAL").fetchone()
        except sqlite3.OperationalError as error:
            busy = error.sqlite_errorname.startswith(("SQLITE_BUSY", "SQLITE_LOCKED"))
            if not busy or time.monotonic() >= deadline:
                raise
            time.sleep(0.02)
        else:
            if mode != "wal":
                message = f"SQLite keeps its log in {mode!r} mode here; write-ahead logging is not possible"
                raise StoreUnavailable(message, hint="Put the database on a local disk.")
            return


def _create_postgresql_engine(location: StoreLocation, lock_wait: float) -> Engine:
    try:
        engine = create_engine(
            location.url,
            connect_args={"connect_timeout": max(2, round(lock_wait)), "tcp_user_timeout": 30_000},
            pool_size=MAX_READERS + 1,
            pool_pre_ping=True,
            hide_parameters=True,
        )
    except ModuleNotFoundError as error:
        message = "PostgreSQL needs the psycopg library, which is not installed"
        raise StoreUnavailable(message, hint="pip install 'fingerpost[postgres]'") from error

    def prepare(connection: Any, _record: object) -> None:
        connection.autocommit = True
        connection.execute("SET synchronous_commit = on")
        connection.execute(f"SET lock_timeout = {round(lock_wait * 1000)}")
        connection.execute(f"SET statement_timeout = {round(max(_STATEMENT_SECONDS, 2 * lock_wait) * 1000)}")
        connection.autocommit = False

    def begin(connection: Connection) -> None:
        if connection.get_execution_options().get(_WRITES_OPTION, False):
            connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_WRITE_LOCK})")

    event.listen(engine, "connect", prepare)
    event.listen(engine, "begin", begin)
    return engine

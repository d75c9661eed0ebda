"""The connection to SQLite or PostgreSQL: location, error messages and integrity checks."""

from __future__ import annotations

import errno
import hashlib
import logging
import os
import re
import shutil
import socket
import sqlite3
import stat
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import field, replace
from functools import cache, lru_cache
from itertools import chain
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, TypeVar, cast

import anyio
import anyio.to_thread
from sqlalchemy import (
    URL,
    Column,
    ColumnElement,
    Connection,
    Engine,
    Table,
    create_engine,
    event,
    make_url,
    select,
)
from sqlalchemy.dialects import registry, sqlite
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from sqlalchemy.exc import ArgumentError, DataError, DBAPIError, IntegrityError, StatementError
from sqlalchemy.util import LRUCache

from fingerpost.errors import ConfigError, StoreUnavailable
from fingerpost.frozen import frozen
from fingerpost.records import create_id
from fingerpost.redaction import scrub
from fingerpost.settings.sources import get_data_directory, get_default_store_file
from fingerpost.settings.validation import STORE_HINT, find_store_url_fault
from fingerpost.store.schema import metadata, migrate

if TYPE_CHECKING:
    from sqlalchemy.dialects import postgresql


@frozen
class StoreLocation:
    """The location of one database. `label` names it in messages, without a password."""

    url: URL
    label: str
    anchor: Path
    file: Path | None = None  # of an SQLite database on disk
    secret_file: Path | None = None  # as in the settings
    secret_value: bytes | None = field(default=None, repr=False)  # the secret itself, from the settings

    @property
    def identity(self) -> str:
        """Identifies the database at this location. It changes when the database is moved or copied."""
        # A PostgreSQL database is shared by several hosts.
        host = socket.gethostname() if self.file is not None else ""
        where = self.file if self.file is not None else self.anchor.name
        return hashlib.sha256(f"{host}\n{where}".encode()).hexdigest()[:16]

    @property
    def gateway_sockets(self) -> Path:
        """Where gateways of this store listen for commands. Each adds a suffix of its own."""
        return get_data_directory() / "gateways" / self.identity[:12]

    @property
    def logs(self) -> Path:
        """Where processes that use this store write log files."""
        return get_data_directory() / "logs" / self.identity[:12]

    @property
    def secret(self) -> Path | None:
        """The file of the installation's secret, or None if it is in a database shared by several hosts."""
        beside = None if self.file is None else self.file.with_suffix(".secret")
        return self.secret_file or beside

    @property
    def is_sqlite(self) -> bool:
        return self.url.get_backend_name() == "sqlite"

    @classmethod
    def in_memory(cls) -> StoreLocation:
        """Return a new location in memory. The database ends with its last connection."""
        # The file system `memdb` of SQLite is shared by the connections of this process, unlike `:memory:`.
        query = {"vfs": "memdb", "uri": "true"}
        url = URL.create("sqlite", database=f"file:/{create_id('sto')}", query=query)
        return cls(url=url, label="in memory", anchor=Path(os.devnull))

    @classmethod
    def from_sqlite_file(cls, file: Path) -> StoreLocation:
        return cls(
            url=URL.create("sqlite", database=str(file)),
            label=str(file),
            file=file,
            anchor=file.with_suffix(".audit.anchor"),
        )

    @classmethod
    def from_postgresql_url(cls, url: URL) -> StoreLocation:
        # Each host has its own anchor. The digest distinguishes databases with similar readable names.
        where = f"{url.host or url.query.get('host', '')}:{url.port or 5432}/{url.database or ''}"
        readable = re.sub(r"[^A-Za-z0-9.-]+", "-", f"{url.host or 'local'}-{url.database or 'default'}")[:60]
        digest = hashlib.sha256(f"{where}?{sorted(url.query.items())}".encode()).hexdigest()[:8]
        return cls(
            url=url.set(drivername="postgresql+psycopg"),
            label=scrub(url.render_as_string(hide_password=True)),
            anchor=get_data_directory() / f"{readable}-{digest}.audit.anchor",
        )


def resolve_location(
    url: str | None = None,
    *,
    anchor: Path | None = None,
    secret: str | None = None,
    secret_file: str | Path | None = None,
) -> StoreLocation:
    """Return the location for `url`, or the default one. Does not access the disk.

    `secret_file` is relative to the working directory, `~` is the home folder.
    """
    location = StoreLocation.from_sqlite_file(get_default_store_file()) if url is None else _parse_url(url)
    return replace(
        location,
        anchor=anchor or location.anchor,
        secret_file=None if secret_file is None else Path(secret_file).expanduser().absolute(),
        secret_value=None if secret is None else secret.encode(),
    )


def _parse_url(text: str) -> StoreLocation:
    if (reason := find_store_url_fault(text)) is not None:
        raise ConfigError(reason, hint=STORE_HINT)
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        message = "the store's URL cannot be read"  # without the URL, which may contain a password
        raise ConfigError(message, hint=STORE_HINT) from None
    return (
        StoreLocation.from_sqlite_file(_get_file(url))
        if url.get_backend_name() == "sqlite"
        else StoreLocation.from_postgresql_url(url)
    )


def _get_file(url: URL) -> Path:
    return Path(url.database or "").expanduser().absolute()


_LOCKED = (
    "is locked by another program",
    "Close the program that holds it (a database browser, a backup) and try again.",
)
_DAMAGED = (
    "is damaged or not a database",
    "Move the file away to start empty, together with its anchor {anchor}, or restore it from a backup.",
)
_FULL = ("cannot be written: the disk is full", "Free some space; the store then continues by itself.")
_UNWRITABLE = (
    "cannot be written",
    "Check the owner of the file and its folder, and whether the disk is read-only.",
)
_UNREACHABLE = ("cannot be reached", "Check that the database server runs and that the URL is right.")
_REFUSED = ("refused the operation", "The store tries again by itself; see the reason.")

# Error names of SQLite, by their first part.
_SQLITE_ERRORS = {
    "SQLITE_BUSY": _LOCKED,
    "SQLITE_LOCKED": _LOCKED,
    "SQLITE_PROTOCOL": _LOCKED,
    "SQLITE_CORRUPT": _DAMAGED,
    "SQLITE_NOTADB": _DAMAGED,
    "SQLITE_FULL": _FULL,
    "SQLITE_IOERR": _UNWRITABLE,
    "SQLITE_READONLY": _UNWRITABLE,
    "SQLITE_CANTOPEN": _UNWRITABLE,
    "SQLITE_PERM": _UNWRITABLE,
}

# SQLSTATE codes of PostgreSQL: the full code or its class (the first two characters).
_POSTGRESQL_ERRORS = {
    "55P03": _LOCKED,
    "57014": _LOCKED,  # statement_timeout: a lock was held too long
    "53100": _FULL,
    "25006": _UNWRITABLE,  # read-only transaction, for example on a standby
    "08": _UNREACHABLE,
    "28": _UNREACHABLE,
    "3D": _UNREACHABLE,
    "57": _UNREACHABLE,
}


def is_database_failure(error: BaseException) -> bool:
    """Return whether the database failed, and not only a single write."""
    if isinstance(error, StoreUnavailable):
        return True
    return isinstance(error, DBAPIError) and not isinstance(error, DataError | IntegrityError)


def get_cause(error: BaseException) -> BaseException:
    """Return the error inside SQLAlchemy's wrapper, whose text contains the statement and its values."""
    return error.orig if isinstance(error, StatementError) and error.orig is not None else error


def explain(error: BaseException, location: StoreLocation) -> StoreUnavailable:
    """Build the error for operators: it names the database and its error."""
    if isinstance(error, StoreUnavailable):
        return error
    what, hint = _find_meaning(get_cause(error), location)
    message = f"the database {location.label} {what} ({_describe_cause(error)})"
    return StoreUnavailable(message, hint=hint.format(anchor=location.anchor))


def explain_without_location(error: BaseException, location: StoreLocation) -> StoreUnavailable:
    """Build the error for callers, who may not be allowed to see the database's location."""
    if isinstance(error, StoreUnavailable):
        return error
    what, hint = _find_meaning(get_cause(error), location)
    reason = "" if what in _SELF_EXPLAINING else f" ({_describe_cause(error)})"
    return StoreUnavailable(f"the database {what}{reason}", hint=hint.format(anchor=location.anchor.name))


# For these the database's own message would name files or hosts.
_SELF_EXPLAINING = frozenset({_FULL[0], _UNREACHABLE[0]})


def _describe_cause(error: BaseException) -> str:
    return scrub(" ".join(str(get_cause(error)).split()))[:300]


def _find_meaning(cause: BaseException, location: StoreLocation) -> tuple[str, str]:
    if isinstance(cause, OSError):
        return _FULL if cause.errno in (errno.ENOSPC, errno.EDQUOT) else _UNWRITABLE
    name: str | None = getattr(cause, "sqlite_errorname", None)
    if name is not None:
        # SQLITE_IOERR_WRITE is more specific than SQLITE_IOERR but has the same remedy.
        found = _SQLITE_ERRORS.get("_".join(name.split("_")[:2]), _REFUSED)
        return _FULL if found is _UNWRITABLE and _is_full(location) else found
    if type(cause).__module__.startswith("psycopg"):
        state: str | None = getattr(cause, "sqlstate", None)
        if state is None:  # the server did not respond
            return _UNREACHABLE
        return _POSTGRESQL_ERRORS.get(state) or _POSTGRESQL_ERRORS.get(state[:2]) or _REFUSED
    return _REFUSED


def _is_full(location: StoreLocation) -> bool:
    """Return whether the disk is full: SQLite then reports only an I/O error."""
    if location.file is None:
        return False
    try:
        return shutil.disk_usage(location.file.parent).free < _MIN_FREE_BYTES
    except OSError:
        return False


_MIN_FREE_BYTES = 64 * 1024  # less than SQLite needs to open a database


logger = logging.getLogger("fingerpost.store")

QUICK_CHECK_SECONDS = 0.15  # at every start; enough for about 5 MiB
_STEPS_BETWEEN_CHECKS = 2000  # SQLite instructions between two time checks
# Out of time, or the database is in use by another program.
_RETRY_ERRORS = ("INTERRUPT", "BUSY", "LOCKED", "PROTOCOL")
_DISK_ERRORS = ("IOERR", "READONLY", "CANTOPEN", "PERM", "FULL", "NOMEM")
RESTORE_HINT = (
    "Restore it from a backup, or move the file away together with its -wal file and its anchor {anchor} "
    "to start afresh. `fingerpost audit verify` says how far a copy can be trusted."
)


def build_damaged_error(location: StoreLocation, reason: str) -> StoreUnavailable:
    """Build the error for a database that must not be used."""
    message = f"the database {location.label} is damaged: {reason}"
    return StoreUnavailable(message, hint=RESTORE_HINT.format(anchor=location.anchor))


class IntegrityCheck:
    """Checks the whole file once. `on_damage` gets later findings, from another thread."""

    def __init__(self, location: StoreLocation, on_damage: Callable[[StoreUnavailable], None]) -> None:
        assert location.file is not None
        self._location = location
        self._file: Path = location.file
        self._on_damage = on_damage
        self._stop = Event()
        self._thread: Thread | None = None

    def check_quickly(self) -> None:
        """Check within a short time. Raises `StoreUnavailable`, or `OSError` for an unusable file."""
        if self._file.stat().st_size == 0:
            return  # a new file
        until = time.monotonic() + QUICK_CHECK_SECONDS
        if self._run_check(lambda: time.monotonic() > until):
            return
        self._thread = Thread(target=self._run_rest, name="fingerpost-integrity", daemon=True)

    def continue_in_background(self) -> None:
        """Check in the background what `check_quickly` did not finish."""
        if self._thread is not None:
            self._thread.start()

    def close(self) -> None:
        self._stop.set()
        if self._thread is not None and self._thread.is_alive():
            self._thread.join()

    def _run_rest(self) -> None:
        try:
            self._run_check(self._stop.is_set)
        except StoreUnavailable as error:
            logger.error("%s; it takes no more writes", error)
            self._on_damage(error)
        except sqlite3.Error as error:  # cannot be read now; normal use will report it
            logger.debug("the integrity check was not completed: %s", error)

    def _run_check(self, is_over: Callable[[], bool]) -> bool:
        """Return whether the check completed. Raises `StoreUnavailable` if the file is damaged."""
        try:
            with closing(
                sqlite3.connect(self._file, timeout=QUICK_CHECK_SECONDS, isolation_level=None)
            ) as connection:
                self._check_owner(connection)
                connection.set_progress_handler(is_over, _STEPS_BETWEEN_CHECKS)
                rows = connection.execute("PRAGMA integrity_check(1)").fetchall()
        except sqlite3.DatabaseError as error:
            name = str(getattr(error, "sqlite_errorname", "")).removeprefix("SQLITE_")
            if name.startswith(_RETRY_ERRORS):
                return False
            if name.startswith(_DISK_ERRORS):
                raise
            if name.startswith(("CORRUPT", "NOTADB")):
                raise explain(error, self._location) from error
            raise build_damaged_error(self._location, str(error)) from error
        if rows != [("ok",)]:
            raise build_damaged_error(
                self._location, " ".join(str(rows[0][0]).split())[:200] if rows else "it is empty"
            )
        return True

    def _check_owner(self, connection: sqlite3.Connection) -> None:
        names = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
        numbers = [
            connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")
        ]
        if any(numbers) or (names and "fingerpost_schema" not in names):
            label = self._location.label
            message = f"the database {label} was made by another program, or lost its identification"
            hint = (
                "Name another file in store.url. If it was Fingerpost's: "
                f"{RESTORE_HINT[0].lower()}{RESTORE_HINT[1:]}"
            )
            raise StoreUnavailable(message, hint=hint.format(anchor=self._location.anchor))


def check_schema(connection: sqlite3.Connection, location: StoreLocation) -> None:
    """Check after migration that the schema is complete, without triggers or views."""
    reason = next(_iterate_schema_faults(connection), None)
    if reason is not None:
        raise build_damaged_error(location, reason)


def _iterate_schema_faults(connection: sqlite3.Connection) -> Iterator[str]:
    found: dict[str, set[str]] = {}
    for kind, name in connection.execute("SELECT type, name FROM sqlite_master"):
        found.setdefault(kind, set()).add(name)
    for kind in ("trigger", "view"):
        for name in sorted(found.get(kind, ())):
            yield f"the {kind} {name} is not Fingerpost's"
    for table in metadata.sorted_tables:
        if table.name not in found.get("table", ()):
            yield f"the table {table.name} is missing"
            continue
        columns = {row[1] for row in connection.execute(f"PRAGMA table_info({table.name})")}
        for column in table.columns:
            if column.name not in columns:
                yield f"the column {column.name} of {table.name} is missing"
        for index in table.indexes:
            if index.name not in found.get("index", ()):
                yield f"the index {index.name} is missing"


RowValues = tuple[Any, ...]
_ROWS_PER_STATEMENT = 32  # rows in one statement


def execute_directly(
    connection: Connection, statement: str, values: RowValues = ()
) -> tuple[list[RowValues], int]:
    """Execute a statement with the driver's placeholders. Return the rows and the number of changed rows."""
    if connection.dialect.name != "sqlite":
        result = connection.exec_driver_sql(statement, values)
        return [tuple(row) for row in result] if result.returns_rows else [], result.rowcount
    driver = cast("sqlite3.Connection", connection.connection.dbapi_connection)
    try:
        cursor = driver.execute(statement, values)
        return cursor.fetchall(), cursor.rowcount
    except sqlite3.Error as error:
        known = DBAPIError.instance(
            statement, None, error, sqlite3.Error, hide_parameters=True, dialect=connection.dialect
        )
        raise known from error


class RowInserter:
    """INSERT into some columns of one table. Optionally skips existing rows."""

    def __init__(self, table: Table, *columns: str, skip_existing: bool = False) -> None:
        self._table = table.name
        self._columns = tuple(table.c[column].name for column in columns)  # fails here if a name is wrong
        self._tail = " ON CONFLICT DO NOTHING" if skip_existing else ""

    def add(self, connection: Connection, rows: Sequence[RowValues]) -> int:
        """Insert the rows and return how many were added."""
        # With one statement per row, SQLite would release and reacquire the GIL for each, and PostgreSQL
        # would answer each.
        mark = "?" if connection.dialect.name == "sqlite" else "%s"
        added = 0
        for begin in range(0, len(rows), _ROWS_PER_STATEMENT):
            some = rows[begin : begin + _ROWS_PER_STATEMENT]
            values = tuple(chain.from_iterable(some))
            added += execute_directly(connection, self._build_statement(mark, len(some)), values)[1]
        return added

    @lru_cache(maxsize=2 * _ROWS_PER_STATEMENT)  # noqa: B019 - made once for each table, and as long-lived as the program
    def _build_statement(self, mark: str, rows: int) -> str:
        marks = ", ".join([f"({', '.join([mark] * len(self._columns))})"] * rows)
        return f"INSERT INTO {self._table} ({', '.join(self._columns)}) VALUES {marks}{self._tail}"  # noqa: S608 - names of our own


R = TypeVar("R")


MAX_READERS = 4
_WRITES_OPTION = "fingerpost_writes"
_WRITE_LOCK = 0x46696E676572  # "Finger", the number of the advisory lock
_STATEMENT_SECONDS = 30.0
_LISTEN_SECONDS = 2.0


class Database:
    """An open, migrated database."""

    def __init__(self, engine: Engine, location: StoreLocation) -> None:
        self.location = location
        self._engine = engine
        self._readers = anyio.CapacityLimiter(MAX_READERS)
        self._damage: StoreUnavailable | None = None
        self._check: IntegrityCheck | None = None
        self.dialect = engine.dialect.name

    @classmethod
    def open(cls, location: StoreLocation, *, lock_wait: float) -> Database:
        """Create, migrate and open the database. Blocks; raises `StoreError`."""
        try:
            make = _create_sqlite_engine if location.is_sqlite else _create_postgresql_engine
            database = cls(make(location, lock_wait), location)
            database._check_and_migrate()
        except (DBAPIError, OSError, sqlite3.Error) as error:
            raise explain(error, location) from error
        return database

    def _check_and_migrate(self) -> None:
        """Check, then migrate. Nothing is written to a file that is damaged or belongs to another program."""
        try:
            if self.location.file is not None:
                self._check = IntegrityCheck(self.location, self.refuse_writes)
                self._check.check_quickly()
            if self.location.file is None and self.location.is_sqlite:
                with self._engine.connect() as connection:
                    _get_empty_database().backup(_get_driver_connection(connection))
            with self.connect_to_write() as connection, connection.begin():
                migrate(connection)
                if self.location.is_sqlite:
                    check_schema(_get_driver_connection(connection), self.location)
            if self._check is not None:
                self._check.continue_in_background()
        except BaseException:
            self.close()
            raise

    def refuse_writes(self, damage: StoreUnavailable) -> None:
        """Make the database read-only, so that its content can still be read and saved."""
        self._damage = damage

    def check_writable(self) -> None:
        """Raise `StoreUnavailable` if the database is damaged."""
        if self._damage is not None:
            raise StoreUnavailable(str(self._damage), hint=self._damage.hint)

    def connect_to_write(self) -> Connection:
        """Return a connection whose transactions hold the write lock from the start."""
        return self._engine.connect().execution_options(**{_WRITES_OPTION: True})

    async def read(self, query: Callable[[Connection], R]) -> R:
        """Run `query` on one snapshot of the database in a thread and return its result."""
        return await anyio.to_thread.run_sync(self.read_blocking, query, limiter=self._readers)

    def read_blocking(self, query: Callable[[Connection], R]) -> R:
        """Like `read`, but blocking."""
        try:
            with self._engine.connect() as connection:
                if not self.location.is_sqlite:  # SQLite always reads from one snapshot
                    connection.execution_options(isolation_level="REPEATABLE READ")
                return query(connection)
        except DBAPIError as error:
            logger.warning("%s", explain(error, self.location))
            raise explain_without_location(error, self.location) from error

    def listen(self, channel: str, on_notified: Callable[[], None], stopped: Event) -> None:
        """Call `on_notified` for each notification of PostgreSQL, until stopped. Blocks; raises `DBAPIError`
        or an error of the driver when the connection is lost.
        """
        pooled = self._engine.raw_connection()
        driver: Any = pooled.driver_connection
        pooled.detach()  # it takes no place in the pool
        try:
            driver.autocommit = True
            driver.execute(f"LISTEN {channel}")
            on_notified()  # what was written before
            while not stopped.is_set():
                for _ in driver.notifies(timeout=_LISTEN_SECONDS, stop_after=1):
                    on_notified()
                driver.execute("SELECT 1")  # finds a connection that the network lost
        finally:
            driver.close()

    def close(self) -> None:
        if self._check is not None:
            self._check.close()
        self._engine.dispose()


class _SharedSqliteDialect(SQLiteDialect_pysqlite):
    """Equal for all engines, so that they share compiled statements: a process may open many stores."""

    supports_statement_cache = True

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other)

    def __hash__(self) -> int:
        return hash(type(self))


registry.register("sqlite.fingerpost", __name__, _SharedSqliteDialect.__name__)
_COMPILED_STATEMENTS: LRUCache[Any, Any] = LRUCache(500)


def _create_sqlite_engine(location: StoreLocation, lock_wait: float) -> Engine:
    if location.file is not None:
        _create_private_file(location.file, location.anchor)
    engine = create_engine(
        location.url.set(drivername="sqlite+fingerpost"),
        execution_options={"compiled_cache": _COMPILED_STATEMENTS},
        connect_args={"timeout": lock_wait, "check_same_thread": False, "isolation_level": None},
        pool_size=MAX_READERS + 1,
        hide_parameters=True,
    )

    def prepare(connection: sqlite3.Connection, _record: object) -> None:
        # Takes effect in a new file only: space of removed rows can be given back.
        connection.execute("PRAGMA auto_vacuum=INCREMENTAL")
        if location.file is not None:
            _switch_to_wal(connection, lock_wait)
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("PRAGMA foreign_keys=ON")
        # Otherwise the rollback data of a multi-row statement goes to a file.
        connection.execute("PRAGMA temp_store=MEMORY")

    def begin(connection: Connection) -> None:
        writes = connection.get_execution_options().get(_WRITES_OPTION, False)
        # A transaction that reads first and writes later cannot wait for the lock; IMMEDIATE can.
        execute_directly(connection, "BEGIN IMMEDIATE" if writes else "BEGIN")

    event.listen(engine, "connect", prepare)
    event.listen(engine, "begin", begin)
    return engine


@cache
def _get_empty_database() -> sqlite3.Connection:
    """Return a migrated database. Those in memory begin as a copy of it: migrating takes 30 times as long."""
    copy = sqlite3.connect(":memory:", check_same_thread=False)
    engine = _create_sqlite_engine(StoreLocation.in_memory(), 0)
    with engine.connect() as connection:
        with connection.begin():
            migrate(connection)
        _get_driver_connection(connection).backup(copy)
    engine.dispose()
    return copy


def _get_driver_connection(connection: Connection) -> sqlite3.Connection:
    found = connection.connection.driver_connection
    assert isinstance(found, sqlite3.Connection)
    return found


def _create_private_file(file: Path, anchor: Path) -> None:
    """Create the file readable by its owner only, because it holds tokens and arguments."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.close(os.open(file, os.O_CREAT | os.O_RDWR, 0o600))
    for own in (*(Path(f"{file}{end}") for end in ("", "-wal", "-shm")), anchor):
        make_private(own)


def make_private(file: Path) -> None:
    """Remove the file permissions of everyone except the owner, for example after a copy."""
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


def _switch_to_wal(connection: sqlite3.Connection, lock_wait: float) -> None:
    """Enable write-ahead logging. SQLite does not always wait for the lock it needs, so this retries."""
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


# Maps the new values of a row, by column name, to the columns to set.
ColumnChange = Callable[[Mapping[str, ColumnElement[Any]]], Mapping[str, ColumnElement[Any]]]


def insert_ignoring(connection: Connection, table: Table) -> sqlite.Insert | postgresql.Insert:
    """Return an INSERT that skips existing rows."""
    return _build_insert(connection.dialect.name, table).on_conflict_do_nothing()


def upsert(
    connection: Connection, table: Table, change: ColumnChange | None = None
) -> sqlite.Insert | postgresql.Insert:
    """Return an INSERT that updates an existing row to the new values, or as `change` says."""
    return build_upsert(connection.dialect.name, table, change)


def build_upsert(
    dialect: str, table: Table, change: ColumnChange | None = None
) -> sqlite.Insert | postgresql.Insert:
    """Like `upsert`, for a dialect name, so that the statement can be built once."""
    statement = _build_insert(dialect, table)
    keys = table.primary_key.columns.keys()
    new = {column.name: column for column in statement.excluded}
    changed = (
        {name: column for name, column in new.items() if name not in keys} if change is None else change(new)
    )
    return statement.on_conflict_do_update(index_elements=keys, set_=changed)


def _build_insert(dialect: str, table: Table) -> sqlite.Insert | postgresql.Insert:
    if dialect == "sqlite":
        return sqlite.insert(table)
    from sqlalchemy.dialects import postgresql  # imported only if needed

    return postgresql.insert(table)


def bisect_rows(
    connection: Connection,
    columns: tuple[Column[Any], Column[Any]],
    cutoff: object,
    low: int,
    high: int,
    *conditions: ColumnElement[bool],
) -> int:
    """Return the highest number after `low` whose row is older than `cutoff`, or `low`.

    `columns` are the number and the time of a row; rows are almost in order of time.
    """
    number, at = columns
    while low < high:
        middle = (low + high + 1) // 2
        query = select(number, at).where(number >= middle, *conditions).order_by(number).limit(1)
        found = connection.execute(query).one_or_none()
        if found is not None and found[1] < cutoff:
            low = max(middle, found[0])
        else:
            high = middle - 1
    return low

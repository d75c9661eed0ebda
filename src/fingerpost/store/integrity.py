"""Whether an SQLite file is whole and ours, before anything is written to it.

A short look at every start; what it cannot finish in time goes on beside the work.
"""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from threading import Event, Thread

from fingerpost.errors import StoreUnavailable
from fingerpost.store.faults import explain
from fingerpost.store.locations import StoreLocation
from fingerpost.store.schema import metadata

logger = logging.getLogger("fingerpost.store")

QUICK_CHECK_SECONDS = 0.15  # of every start; about 5 MiB
_STEPS_BETWEEN_CHECKS = 2000  # of SQLite's machine, between two looks at the clock
_RETRY_ERRORS = ("INTERRUPT", "BUSY", "LOCKED", "PROTOCOL")  # out of time, or another program is at work
_DISK_ERRORS = ("IOERR", "READONLY", "CANTOPEN", "PERM", "FULL", "NOMEM")
RESTORE_HINT = (
    "Restore it from a backup, or move the file away together with its -wal file and its anchor {anchor} "
    "to start afresh. `fingerpost audit verify` says how far a copy can be trusted."
)


def build_damaged_error(location: StoreLocation, reason: str) -> StoreUnavailable:
    """The error for a database that must not be used."""
    message = f"the database {location.label} is damaged: {reason}"
    return StoreUnavailable(message, hint=RESTORE_HINT.format(anchor=location.anchor))


class IntegrityCheck:
    """Looks through the whole file once. What it finds after `check_quickly` goes to `tell`, from another
    thread.
    """

    def __init__(self, location: StoreLocation, on_damage: Callable[[StoreUnavailable], None]) -> None:
        assert location.file is not None
        self._location = location
        self._file: Path = location.file
        self._tell = on_damage
        self._stop = Event()
        self._thread: Thread | None = None

    def check_quickly(self) -> None:
        """A short look. Raises `StoreUnavailable`, or what the system says of a file that cannot be used."""
        if self._file.stat().st_size == 0:
            return  # it is to be made
        until = time.monotonic() + QUICK_CHECK_SECONDS
        if self._run_check(lambda: time.monotonic() > until):
            return
        self._thread = Thread(target=self._run_rest, name="fingerpost-integrity", daemon=True)

    def continue_in_background(self) -> None:
        """See to the end what `check_quickly` could not, if anything."""
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
            self._tell(error)
        except sqlite3.Error as error:  # unreadable for now: the work itself says it
            logger.debug("the database was not looked through: %s", error)

    def _run_check(self, is_over: Callable[[], bool]) -> bool:
        """Whether it came to the end. Raises `StoreUnavailable` where something is wrong."""
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
            message = f"the database {label} was made by another program, or lost what says whose it is"
            hint = (
                "Name another file in store.url. If it was Fingerpost's: "
                f"{RESTORE_HINT[0].lower()}{RESTORE_HINT[1:]}"
            )
            raise StoreUnavailable(message, hint=hint.format(anchor=self._location.anchor))


def check_schema(connection: sqlite3.Connection, location: StoreLocation) -> None:
    """After migrating: is everything there, and nothing that acts by itself? Raises `StoreUnavailable`."""
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

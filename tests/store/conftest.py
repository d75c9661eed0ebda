"""Every test that takes `url` runs twice: on SQLite, and on a real PostgreSQL server."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import cast

import psycopg
import pytest

from fingerpost.store import Store
from tests.kit.stores import OpenStore, Postgres


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/store/fingerpost.db"


@pytest.fixture
def postgres_url(postgres: Postgres, request: pytest.FixtureRequest) -> Iterator[str]:
    """A database with the store's tables; an empty one for tests that fill it as an older version did."""
    url = postgres.new_database(empty="older_database" in request.fixturenames)
    yield url
    postgres.drop_database(url)


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

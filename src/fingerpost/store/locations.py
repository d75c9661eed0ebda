"""Where the database and the audit anchor are, from a URL or by default.

The anchor is never inside the database: it exists to contradict it.
"""

from __future__ import annotations

import hashlib
import re
import socket
from dataclasses import replace
from pathlib import Path

import platformdirs
from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from fingerpost.errors import ConfigError
from fingerpost.frozen import frozen
from fingerpost.redaction import scrub
from fingerpost.settings.checks import STORE_HINT, find_store_url_fault

DATABASE_FILE = "fingerpost.db"


@frozen
class StoreLocation:
    """One database. `label` names it in messages, without a password."""

    url: URL
    label: str
    anchor: Path
    file: Path | None = None  # of an SQLite database

    @property
    def identity(self) -> str:
        """The same for the same database at the same place, and another once it is moved or copied."""
        host = socket.gethostname() if self.file is not None else ""  # several hosts share a PostgreSQL
        where = self.file if self.file is not None else self.anchor.name
        return hashlib.sha256(f"{host}\n{where}".encode()).hexdigest()[:16]

    @property
    def secret(self) -> Path | None:
        """Where the installation's secret rests; None: in the database, which several hosts share."""
        return None if self.file is None else self.file.with_suffix(".secret")


def get_data_directory() -> Path:
    """The user's data directory for Fingerpost. It may not exist yet."""
    return platformdirs.user_data_path("fingerpost", appauthor=False)


def resolve_location(url: str | None = None, *, anchor: Path | None = None) -> StoreLocation:
    """The database `url` names, or the default one. Touches no disk."""
    location = (
        _build_sqlite_location(get_data_directory() / DATABASE_FILE) if url is None else _parse_url(url)
    )
    return location if anchor is None else replace(location, anchor=anchor)


def _parse_url(text: str) -> StoreLocation:
    if (reason := find_store_url_fault(text)) is not None:
        raise ConfigError(reason, hint=STORE_HINT)
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        message = "the store's URL cannot be read"  # without the URL: it may hold a password
        raise ConfigError(message, hint=STORE_HINT) from None
    return (
        _build_sqlite_location(_get_file(url))
        if url.get_backend_name() == "sqlite"
        else _build_postgresql_location(url)
    )


def _get_file(url: URL) -> Path:
    return Path(url.database or "").expanduser().absolute()


def _build_sqlite_location(file: Path) -> StoreLocation:
    return StoreLocation(
        url=URL.create("sqlite", database=str(file)),
        label=str(file),
        file=file,
        anchor=file.with_suffix(".audit.anchor"),
    )


def _build_postgresql_location(url: URL) -> StoreLocation:
    # Each host keeps its own anchor; the digest tells apart databases whose readable names look alike.
    where = f"{url.host or url.query.get('host', '')}:{url.port or 5432}/{url.database or ''}"
    readable = re.sub(r"[^A-Za-z0-9.-]+", "-", f"{url.host or 'local'}-{url.database or 'default'}")[:60]
    digest = hashlib.sha256(f"{where}?{sorted(url.query.items())}".encode()).hexdigest()[:8]
    return StoreLocation(
        url=url.set(drivername="postgresql+psycopg"),
        label=scrub(url.render_as_string(hide_password=True)),
        anchor=get_data_directory() / f"{readable}-{digest}.audit.anchor",
    )

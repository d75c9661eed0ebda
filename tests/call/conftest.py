"""Tests of calls that take `url` run twice, like those of the store: on SQLite and on PostgreSQL."""

from tests.store.conftest import postgres_url, sqlite_url, url

__all__ = ["postgres_url", "sqlite_url", "url"]

"""A real PostgreSQL server for the tests that need one."""

from tests.store.conftest import postgres_url

__all__ = ["postgres_url"]

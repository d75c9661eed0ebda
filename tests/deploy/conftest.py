"""PostgreSQL for several instances."""

from __future__ import annotations

from tests.store.conftest import postgres_url as postgres_url

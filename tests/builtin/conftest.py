"""Settings for the builtin servers."""

from __future__ import annotations

from pathlib import Path

import pytest

from fingerpost.settings import Settings, StoreSettings


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Nothing but a store, in a folder of the test's own."""
    return Settings(store=StoreSettings(url=f"sqlite:///{tmp_path}/store.db"))

"""Settings for the builtin servers."""

from __future__ import annotations

from pathlib import Path

import pytest

from fingerpost.settings import Settings, StoreSettings
from tests.kit.stores import place_empty_store


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Nothing but a store, in a folder of the test's own."""
    return Settings(store=StoreSettings(url=place_empty_store(tmp_path)))

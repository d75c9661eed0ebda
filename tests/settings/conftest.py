"""The surroundings every settings test works in."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit.settings_folders import Surroundings


@pytest.fixture
def here(tmp_path: Path) -> Surroundings:
    cwd, home = tmp_path / "project", tmp_path / "home"
    cwd.mkdir()
    home.mkdir()
    return Surroundings(cwd, home)

"""The surroundings every settings test works in."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit.settings_folders import SettingsFolders


@pytest.fixture
def folders(tmp_path: Path) -> SettingsFolders:
    cwd, home = tmp_path / "project", tmp_path / "home"
    cwd.mkdir()
    home.mkdir()
    return SettingsFolders(cwd, home)

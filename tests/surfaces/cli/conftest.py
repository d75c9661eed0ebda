"""A person at a terminal: a folder, a store of their own, and the real command."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit.command_line import CommandLine


@pytest.fixture
def person(tmp_path: Path) -> CommandLine:
    return CommandLine(tmp_path)

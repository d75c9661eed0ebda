"""A person with a folder, as for the other commands, and a small set to measure on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit.command_line import CommandLine
from tests.kit.evals import QUERIES, TOOLS, write_lines


@pytest.fixture
def person(tmp_path: Path) -> CommandLine:
    write_lines(tmp_path / "tools.jsonl", TOOLS)
    write_lines(tmp_path / "queries.jsonl", QUERIES)
    return CommandLine(tmp_path)

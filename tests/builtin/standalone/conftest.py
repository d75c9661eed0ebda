"""A person who runs our servers alone: in a folder with notes, with the real command."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.kit.command_line import CommandLine
from tests.kit.standalone import KEY, StandaloneServer


@pytest.fixture
def person(tmp_path: Path) -> CommandLine:
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "boiler.md").write_text("# Boiler\n\nThe pressure must stay above one bar.\n", encoding="utf-8")
    (tmp_path / "fingerpost.toml").write_text(
        '[builtin]\nenabled = ["knowledge"]\n[flags]\ndense_scores = false\n', encoding="utf-8"
    )
    return CommandLine(tmp_path)


@pytest.fixture
def address(person: CommandLine) -> Iterator[str]:
    """The knowledge base at an address, behind `KEY`."""
    file = person.writes("key.txt", f"{KEY}\n")
    with ExitStack() as stack:
        running = stack.enter_context(
            StandaloneServer(
                person, "builtin", "knowledge", "--http", "--port", "0", "--key-file", str(file), "--json"
            )
        )
        yield running.output["address"]

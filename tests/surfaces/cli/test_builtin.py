"""The requests of `make up` to our own servers, without a model, at the command."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.kit.command_line import CommandLine
from tests.requirements import proves

pytestmark = pytest.mark.process

EXAMPLES = Path(__file__).parents[3] / "examples"
WAITS = 4


@pytest.fixture
def visitor(person: CommandLine) -> CommandLine:
    """A user with a copy of the examples."""
    shutil.copytree(EXAMPLES / "workspace", person.home / "examples" / "workspace")
    shutil.copy(EXAMPLES / "own.toml", person.home / "fingerpost.toml")
    return person


@proves("U1", "U6", "B2")
def test_notes_and_files_are_found_and_read(visitor: CommandLine):
    output = visitor.runs("ask", "what does notes/retries.md say about writes?").stdout
    assert "From knowledge/read_kb_file" in output and "never repeated" in output
    found = visitor.runs("ask", "which files mention retry?").stdout
    assert "From workspace/search_files" in found and "notes/breakers.md:" in found


@proves("A9", "C6", "Q8", "U5")
def test_a_write_asks_then_writes_and_a_command_is_shown_until_it_is_switched_on(visitor: CommandLine):
    made = visitor.home / "examples" / "workspace" / "hello.txt"
    asked = visitor.runs("ask", 'create a file "hello.txt" with the content "Hello"', stdin="")
    assert asked.returncode == WAITS and not made.exists()
    [waiting] = visitor.reads("approvals")
    visitor.runs("approvals", "approve", waiting["pending_id"])
    assert "+Hello" in visitor.runs("ask", "--resume", waiting["pending_id"]).stdout
    assert made.read_text(encoding="utf-8") == "Hello"

    asked = visitor.runs("ask", "delete hello.txt", stdin="")
    assert asked.returncode == WAITS and "file_operations.delete" in asked.stdout + asked.stderr
    assert made.exists()

    shown = visitor.runs("ask", "run the tests").stdout
    assert "Would run: make test" in shown and "allow_execute = true" in shown
    on = {"FINGERPOST_TOOL_ROUTING__ALLOW_EXECUTE": "true"}
    assert visitor.runs("ask", "run the tests", extra=on, stdin="").returncode == WAITS

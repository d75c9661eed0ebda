"""How the tests of a project are run, from the files it holds."""

from __future__ import annotations

import re
from typing import Final

from fingerpost.builtin.kit import ToolRefused
from fingerpost.builtin.workspace.files.reading import read_bytes
from fingerpost.builtin.workspace.workplace import WorkspaceContext

_MAX_FILE_BYTES: Final = 256 * 1024  # bytes of a project file that are looked at

# The first that fits, with the most telling first: a file, what has to stand in it, and the command.
_TEST_COMMANDS: Final = (
    ("Makefile", re.compile(rb"^test\s*:", re.MULTILINE), "make test"),
    ("package.json", re.compile(rb'"test"\s*:\s*"(?!echo \\"Error: no test)'), "npm test"),
    ("pyproject.toml", re.compile(rb"pytest"), "python -m pytest"),
    ("pytest.ini", None, "python -m pytest"),
    ("tox.ini", None, "tox"),
    ("Cargo.toml", None, "cargo test"),
    ("go.mod", None, "go test ./..."),
    ("pyproject.toml", None, "python -m pytest"),
    ("setup.py", None, "python -m pytest"),
)


def find_test_command(workspace: WorkspaceContext) -> str:
    """The command. Raises `ToolRefused` where no file says how. Blocks: not for an event loop."""
    for name, sign, command in _TEST_COMMANDS:
        content = _read_project_file(workspace, name)
        if content is not None and (sign is None or sign.search(content)):
            return command
    message = "Nothing in the working directory says how its tests are run."
    raise ToolRefused(message, hint="Give the command to ai.execute, such as pytest -q.")


def _read_project_file(workspace: WorkspaceContext, name: str) -> bytes | None:
    try:
        with workspace.root_folder.open_entry(name) as place:
            return read_bytes(place, _MAX_FILE_BYTES).data
    except ToolRefused:  # it is not there, or not for us
        return None

"""How the tests of a project are run, from the files it holds."""

from __future__ import annotations

import re
from typing import Final

from fingerpost.builtin.kit import ToolRefused
from fingerpost.builtin.workspace.files.reading import read_bytes
from fingerpost.builtin.workspace.workplace import Workplace

_MOST: Final = 256 * 1024  # bytes of a project file that are looked at

# The first that fits, with the most telling first: a file, what has to stand in it, and the command.
_WAYS: Final = (
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


def test_command(work: Workplace) -> str:
    """The command. Raises `ToolRefused` where no file says how. Blocks: not for an event loop."""
    for name, sign, command in _WAYS:
        content = _content(work, name)
        if content is not None and (sign is None or sign.search(content)):
            return command
    message = "Nothing in the working directory says how its tests are run."
    raise ToolRefused(message, hint="Give the command to ai.execute, such as pytest -q.")


def _content(work: Workplace, name: str) -> bytes | None:
    try:
        with work.ground.at(name) as place:
            return read_bytes(place, _MOST).data
    except ToolRefused:  # it is not there, or not for us
        return None

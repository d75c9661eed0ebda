"""Which commands may run at all."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from fnmatch import fnmatchcase

from fingerpost.builtin.kit import ToolRefused


def check_allowed(words: Sequence[str], patterns: Sequence[str]) -> None:
    """Raises `ToolRefused` when there is a list and the command is not on it.

    A pattern of one word names a program, with whatever arguments; a longer one is compared with the
    whole line. The program counts as it was written: `pytest` is not `./pytest`.
    """
    line = shlex.join(words)
    if not patterns or any(_fits(words[0], line, pattern) for pattern in patterns):
        return
    message = f"`{line[:200]}` is not among the commands that may run."
    raise ToolRefused(message, hint=f"builtin.workspace.commands allows: {', '.join(patterns)[:500]}.")


def _fits(program: str, line: str, pattern: str) -> bool:
    return fnmatchcase(line if " " in pattern else program, pattern)

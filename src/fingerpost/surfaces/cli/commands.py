"""Commands that a person is told to run next: as printed, they work.

Whoever gave `--servers` or `--config` would be told that nothing is configured, were it
not repeated. The texts come from all over the house, which knows nothing of options; a
command stands in them between backticks.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import Final

import click

_COMMAND: Final = re.compile(r"`(fingerpost(?: [^`]*)?)`")
_TAKE_NO_FILES: Final = ("fingerpost import", "fingerpost completion")


def repeatable(text: str) -> str:
    """`text`, each command in it with the files that the one at work was given."""
    files = "".join(f" {word}" for word in _files())
    return _COMMAND.sub(lambda found: f"`{_with(found[1], files)}`", text) if files else text


def _with(command: str, files: str) -> str:
    knows_none = command.startswith(_TAKE_NO_FILES) or command.endswith("--help")
    return command if knows_none else f"{command}{files}"


def _files() -> Iterator[str]:
    context = click.get_current_context(silent=True)
    for name in ("config", "servers"):
        given = None if context is None else context.params.get(name)
        if given is not None:
            yield f"--{name} {shlex.quote(str(given))}"

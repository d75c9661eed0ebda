"""The help lists every command, with an example of each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from fingerpost.surfaces.cli.main import fingerpost
from tests.kit.tables import table
from tests.requirements import proves

DOCUMENT = Path(__file__).parents[3] / "docs" / "reference" / "cli.md"


def every(command: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
    """The command and all below it, by how one calls them."""
    yield path, command
    if isinstance(command, click.Group):
        with click.Context(command) as context:
            for name in command.list_commands(context):
                inner = command.get_command(context, name)
                assert inner is not None
                yield from every(inner, f"{path} {name}")


@proves("H19")
@table(("path", "command"), [pytest.param(*one, id=one[0]) for one in every(fingerpost, "fingerpost")])
def test_every_command_shows_an_example_of_itself(path: str, command: click.Command) -> None:
    shown = f"{command.help}\n{command.epilog or ''}"
    assert f"  {path}" in shown, shown


@proves("H19")
@table("name", fingerpost.list_commands(click.Context(fingerpost)))
def test_every_command_is_in_the_documentation(name: str) -> None:
    assert f"| `fingerpost {name}" in DOCUMENT.read_text(encoding="utf-8")

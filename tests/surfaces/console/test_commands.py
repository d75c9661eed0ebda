"""The commands that the console suggests exist, with all their options."""

from __future__ import annotations

import re
from collections.abc import Iterator

import click

from fingerpost.surfaces.cli.main import fingerpost
from fingerpost.surfaces.console.app import STATIC_FOLDER
from tests.kit.tables import table

# A command as far as the text goes on with it: until the quote, the tag or the line ends.
TOLD = re.compile(r"\bfingerpost (?P<words>[a-z-][^`\"'<(){}$,;\n]*)")


def files() -> Iterator[str]:
    for path in sorted(STATIC_FOLDER.rglob("*")):
        if path.suffix in {".js", ".html"} and path.parent.name != "vendor":
            yield path.read_text(encoding="utf-8")


TEXTS = list(files())
COMMANDS = sorted({found["words"].strip(" .") for text in TEXTS for found in TOLD.finditer(text)})


@table("text", COMMANDS)
def test_a_command_it_names_exists(text: str) -> None:
    command: click.Command = fingerpost
    context = click.Context(command)
    words = text.split()
    while isinstance(command, click.Group) and words and words[0].islower() and words[0].isalpha():
        found = command.get_command(context, words.pop(0))
        assert found is not None, text
        command = found
    options = {option for parameter in command.params for option in parameter.opts} | {"--help"}
    if mentioned := [word for word in words if word.startswith("--") and word != "--"]:
        assert set(mentioned) <= options, text


def test_it_names_commands_and_no_other_file_than_the_settings() -> None:
    assert {"servers login NAME", "servers add NAME -- COMMAND"} <= set(COMMANDS)
    named = {name for text in TEXTS for name in re.findall(r"\bfingerpost\.(?:json|toml|yaml)\b", text)}
    assert named <= {"fingerpost.toml"}

"""Colour is for terminals, unless `NO_COLOR` is set."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from tests.kit.command_line import CommandLine, tool
from tests.kit.terminal import Terminal
from tests.requirements import proves

pytestmark = pytest.mark.process

STYLE = re.compile(r"\x1b\[[0-9;]*m")

Look = Callable[..., str]  # what a terminal shows, with these variables set


def helps(person: CommandLine, **extra: str) -> str:
    with Terminal(person, "--help", **extra) as terminal:
        terminal.end()
    return terminal.shown


def fails(person: CommandLine, **extra: str) -> str:
    with Terminal(person, "tools", "--config", "none.toml", **extra) as terminal:
        assert terminal.end() == 2
    return terminal.shown


def lists(person: CommandLine, **extra: str) -> str:
    person.has("calendar", [tool("list_events", "List calendar events.")])
    with Terminal(person, "tools", **extra) as terminal:
        assert terminal.end() == 0
    return terminal.shown


def talks(person: CommandLine, **extra: str) -> str:
    """A conversation in which something fails."""
    person.has("calendar", [tool("list_events", "List calendar events.")])
    with Terminal(person, "chat", "--mode", "react", **extra) as terminal:
        terminal.types("hello")
        terminal.until("error")
        terminal.until("› ")  # pressed before, it would have no effect
        terminal.ends_input()
        terminal.end()
    return terminal.everything


@proves("H19")
@pytest.mark.parametrize("look", [helps, fails, lists])
def test_what_is_coloured_at_a_terminal_is_plain_with_no_color(person: CommandLine, look: Look) -> None:
    assert STYLE.search(look(person))
    assert STYLE.search(look(person, NO_COLOR=""))  # empty, it says nothing
    assert not STYLE.search(look(person, NO_COLOR="1"))


@proves("H19")
def test_a_conversation_is_plain_with_no_color(person: CommandLine) -> None:
    assert STYLE.search(talks(person))
    assert not STYLE.search(talks(person, NO_COLOR="1"))

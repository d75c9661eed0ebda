"""A command line as words. There is no shell: what only a shell understands is refused, not passed on."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from fingerpost.builtin.kit import ToolRefused

MAX_COMMAND_LENGTH: Final = 8192
_SHELL_OPERATORS: Final = frozenset("|&;<>()")
_EXPANDED_CHARACTERS: Final = frozenset("*?[$`")  # outside of quotes
_EXPANDED_IN_QUOTES: Final = frozenset("$`")
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_]\w*=")
_NO_SHELL_HINT: Final = (
    "Give one program with its arguments, quoted where they have special signs; `folder` says where it runs. "
    "run_elevated with `sh -c '…'` uses a shell, and asks a person."
)


@dataclass(slots=True)
class _CommandLineParser:
    words: list[str] = field(default_factory=list[str])
    word: list[str] = field(default_factory=list[str])
    begun: bool = False  # an empty word in quotes is one as well
    quote: str = ""

    def end_word(self) -> None:
        if self.begun:
            self.words.append("".join(self.word))
        self.word, self.begun = [], False

    def add(self, char: str) -> None:
        self.word.append(char)
        self.begun = True


def split_command(command: str) -> tuple[str, ...]:
    """The words of a command line, quotes resolved as a POSIX shell does. Raises `ToolRefused`."""
    if len(command) > MAX_COMMAND_LENGTH or "\0" in command:
        message = f"A command has at most {MAX_COMMAND_LENGTH} characters and no zero bytes."
        raise ToolRefused(message)
    reading, place = _CommandLineParser(), 0
    while place < len(command):
        place = _parse_next(reading, command, place)
    if reading.quote:
        message = f"The command ends inside of {reading.quote}."
        raise ToolRefused(message, hint="Close the quotes.")
    reading.end_word()
    if not reading.words:
        message = "The command is empty."
        raise ToolRefused(message, hint="Name a program, and its arguments.")
    if _ASSIGNMENT.match(reading.words[0]):
        message = f"{reading.words[0][:60]} sets a variable, which needs a shell, and none is used."
        raise ToolRefused(message, hint=_NO_SHELL_HINT)
    return tuple(reading.words)


def _parse_next(parser: _CommandLineParser, command: str, position: int) -> int:
    char = command[position]
    if char == "\\" and parser.quote != "'":
        return _parse_escape(parser, command, position)
    if parser.quote:
        if char == parser.quote:
            parser.quote = ""
        else:
            if parser.quote == '"' and char in _EXPANDED_IN_QUOTES:
                raise _build_shell_error(char)
            parser.add(char)
    elif char in "'\"":
        parser.quote, parser.begun = char, True
    elif char in " \t":
        parser.end_word()
    else:
        _check_character(parser, char)
        parser.add(char)
    return position + 1


def _parse_escape(parser: _CommandLineParser, command: str, position: int) -> int:
    following = command[position + 1 : position + 2]
    if not following:
        message = "The command ends with a backslash."
        raise ToolRefused(message, hint="Write \\\\ for a backslash of its own.")
    if parser.quote and following not in '$`"\\\n':
        parser.add("\\")
    if following != "\n":
        parser.add(following)
    return position + 2


def _check_character(parser: _CommandLineParser, char: str) -> None:
    if char in "\n\r":
        message = "The command has several lines."
        raise ToolRefused(message, hint=_NO_SHELL_HINT)
    if char in _SHELL_OPERATORS or char in _EXPANDED_CHARACTERS:
        raise _build_shell_error(char)
    if not parser.begun and char in "#~":
        raise _build_shell_error(char)


def _build_shell_error(char: str) -> ToolRefused:
    message = f"`{char}` means something to a shell only, and commands run without one."
    return ToolRefused(message, hint=_NO_SHELL_HINT)

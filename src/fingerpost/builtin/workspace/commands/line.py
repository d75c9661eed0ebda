"""A command line as words. There is no shell: what only a shell understands is refused, not passed on."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from fingerpost.builtin.kit import ToolRefused

LONGEST: Final = 8192
_OPERATORS: Final = frozenset("|&;<>()")
_EXPANDED: Final = frozenset("*?[$`")  # outside of quotes
_EXPANDED_IN_QUOTES: Final = frozenset("$`")
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_]\w*=")
_HINT: Final = (
    "Give one program with its arguments, quoted where they have special signs; `folder` says where it runs. "
    "run_elevated with `sh -c '…'` uses a shell, and asks a person."
)


@dataclass(slots=True)
class _Reading:
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


def words_of(command: str) -> tuple[str, ...]:
    """The words of a command line, quotes resolved as a POSIX shell does. Raises `ToolRefused`."""
    if len(command) > LONGEST or "\0" in command:
        message = f"A command has at most {LONGEST} characters and no zero bytes."
        raise ToolRefused(message)
    reading, place = _Reading(), 0
    while place < len(command):
        place = _step(reading, command, place)
    if reading.quote:
        message = f"The command ends inside of {reading.quote}."
        raise ToolRefused(message, hint="Close the quotes.")
    reading.end_word()
    if not reading.words:
        message = "The command is empty."
        raise ToolRefused(message, hint="Name a program, and its arguments.")
    if _ASSIGNMENT.match(reading.words[0]):
        message = f"{reading.words[0][:60]} sets a variable, which needs a shell, and none is used."
        raise ToolRefused(message, hint=_HINT)
    return tuple(reading.words)


def _step(reading: _Reading, command: str, place: int) -> int:
    char = command[place]
    if char == "\\" and reading.quote != "'":
        return _escaped(reading, command, place)
    if reading.quote:
        if char == reading.quote:
            reading.quote = ""
        else:
            if reading.quote == '"' and char in _EXPANDED_IN_QUOTES:
                raise _shell(char)
            reading.add(char)
    elif char in "'\"":
        reading.quote, reading.begun = char, True
    elif char in " \t":
        reading.end_word()
    else:
        _check_plain(reading, char)
        reading.add(char)
    return place + 1


def _escaped(reading: _Reading, command: str, place: int) -> int:
    following = command[place + 1 : place + 2]
    if not following:
        message = "The command ends with a backslash."
        raise ToolRefused(message, hint="Write \\\\ for a backslash of its own.")
    if reading.quote and following not in '$`"\\\n':
        reading.add("\\")
    if following != "\n":
        reading.add(following)
    return place + 2


def _check_plain(reading: _Reading, char: str) -> None:
    if char in "\n\r":
        message = "The command has several lines."
        raise ToolRefused(message, hint=_HINT)
    if char in _OPERATORS or char in _EXPANDED:
        raise _shell(char)
    if not reading.begun and char in "#~":
        raise _shell(char)


def _shell(char: str) -> ToolRefused:
    message = f"`{char}` means something to a shell only, and commands run without one."
    return ToolRefused(message, hint=_HINT)

"""What an examination of one place in a text can say, and what it is given to look at."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

from fingerpost.choose.guard.names import Names
from fingerpost.choose.guard.talk import announces_call, asks_how, introduces_data
from fingerpost.frozen import frozen

HELD_MOST: Final = 32_000  # characters held back, at most, before something is decided


class Mode(Protocol):
    """The inside of something hidden: says how much more of the text belongs to it."""

    def step(self, text: str, at: int, *, final: bool) -> tuple[int, bool]:
        """Up to where the text is hidden, and whether that is the end of it."""
        ...


@frozen(kw_only=False)
class Wait:
    """What comes next decides."""


@frozen(kw_only=False)
class Show:
    """Ordinary text up to here."""

    to: int
    blind: int = 0  # values up to there were looked at already
    blind_tags: int = 0  # tags that need an end have none up to there


@frozen(kw_only=False)
class Hide:
    """Tool syntax up to here, and as far as the mode says."""

    to: int
    syntax: str
    mode: Mode | None = None
    alone: bool = False  # a stray marker: not worth counting behind a block
    mute: bool = False  # somebody's turn, a result: no call is looked for in it


@frozen(kw_only=False)
class Pass:
    """The opening line of a code block: it and what follows it are shown as they are."""

    to: int
    fence: str


Verdict: TypeAlias = Wait | Show | Hide | Pass
WAIT: Final = Wait()


@dataclass(slots=True)
class Place:
    """One place in a text, as far as the text has come."""

    text: str
    at: int
    final: bool  # no more text will come
    line: str  # what was shown of this line before it
    before: str  # the end of what was shown before it
    names: Names
    request: str  # what the text answers
    about: bool  # that is tool syntax itself
    data: bool  # it asks for data or code
    behind: bool = False  # a block was hidden just before it
    blind_tags: int = 0  # tags that need an end have none before this

    @property
    def limit(self) -> int:
        """How far may be looked: the same however the text arrives."""
        return min(len(self.text), self.at + HELD_MOST)

    @property
    def closed(self) -> bool:
        """Whether waiting would show nothing more."""
        return self.final or len(self.text) - self.at >= HELD_MOST

    @property
    def takes_unknown(self) -> bool:
        """Whether what has the shape of a call is one even where no real tool is called so."""
        return not (self.about or self.data or introduces_data(self.before))

    @property
    def takes_lines(self) -> bool:
        """The same for lines that look like a session or a file: they also explain how something is done."""
        return self.takes_unknown and not asks_how(self.request)

    @property
    def expects_call(self) -> bool:
        """The same for program text: nothing stands before it, or a call is announced."""
        return self.takes_lines and (not self.before.strip() or announces_call(self.before))

    @property
    def begins_line(self) -> bool:
        return not self.line.strip(" \t>*-•")

    def last_two(self, sign: str) -> int:
        """Where the last two of a run of the same sign begin that is at least that long."""
        runs_on = re.compile(f"{re.escape(sign)}+").match(self.text, self.at)
        return (runs_on.end() if runs_on is not None else self.at + 2) - 2

    def ahead(self, start: int, count: int) -> tuple[str, bool]:
        """The text from `start`, `count` characters at most, and whether no more of it is to come."""
        piece = self.text[start : start + count]
        return piece, self.final or len(piece) == count

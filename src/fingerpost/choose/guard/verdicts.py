"""What an examination of one place in a text can say, and what it is given to look at."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

from fingerpost.choose.guard.names import WrittenToolNames
from fingerpost.choose.guard.talk import is_announcing_call, is_asking_how, is_introducing_data
from fingerpost.frozen import frozen

MAX_HELD_LENGTH: Final = 32_000  # characters held back, at most, before something is decided


class HiddenMode(Protocol):
    """The inside of something hidden: says how much more of the text belongs to it."""

    def step(self, text: str, at: int, *, final: bool) -> tuple[int, bool]:
        """Up to where the text is hidden, and whether that is the end of it."""
        ...


@frozen(kw_only=False)
class WaitForMore:
    """What comes next decides."""


@frozen(kw_only=False)
class ShowUntil:
    """Ordinary text up to here."""

    to: int
    values_checked_to: int = 0  # values up to there were looked at already
    tags_checked_to: int = 0  # tags that need an end have none up to there


@frozen(kw_only=False)
class HideUntil:
    """Tool syntax up to here, and as far as the mode says."""

    to: int
    syntax: str
    mode: HiddenMode | None = None
    is_stray: bool = False  # a stray marker: not worth counting behind a block
    has_no_calls: bool = False  # somebody's turn, a result: no call is looked for in it


@frozen(kw_only=False)
class ShowCodeBlock:
    """The opening line of a code block: it and what follows it are shown as they are."""

    to: int
    fence: str


ScanVerdict: TypeAlias = WaitForMore | ShowUntil | HideUntil | ShowCodeBlock
WAIT_FOR_MORE: Final = WaitForMore()


@dataclass(slots=True)
class ScanPosition:
    """One place in a text, as far as the text has come."""

    text: str
    at: int
    final: bool  # no more text will come
    line: str  # what was shown of this line before it
    before: str  # the end of what was shown before it
    names: WrittenToolNames
    request: str  # what the text answers
    is_about_syntax: bool  # that is tool syntax itself
    asks_for_data: bool  # it asks for data or code
    follows_hidden: bool = False  # a block was hidden just before it
    tags_checked_to: int = 0  # tags that need an end have none before this

    @property
    def limit(self) -> int:
        """How far may be looked: the same however the text arrives."""
        return min(len(self.text), self.at + MAX_HELD_LENGTH)

    @property
    def is_closed(self) -> bool:
        """Whether waiting would show nothing more."""
        return self.final or len(self.text) - self.at >= MAX_HELD_LENGTH

    @property
    def accepts_unknown_tools(self) -> bool:
        """Whether what has the shape of a call is one even where no real tool is called so."""
        return not (self.is_about_syntax or self.asks_for_data or is_introducing_data(self.before))

    @property
    def accepts_lines(self) -> bool:
        """The same for lines that look like a session or a file: they also explain how something is done."""
        return self.accepts_unknown_tools and not is_asking_how(self.request)

    @property
    def expects_call(self) -> bool:
        """The same for program text: nothing stands before it, or a call is announced."""
        return self.accepts_lines and (not self.before.strip() or is_announcing_call(self.before))

    @property
    def is_line_start(self) -> bool:
        return not self.line.strip(" \t>*-•")

    def find_last_two(self, sign: str) -> int:
        """Where the last two of a run of the same sign begin that is at least that long."""
        runs_on = re.compile(f"{re.escape(sign)}+").match(self.text, self.at)
        return (runs_on.end() if runs_on is not None else self.at + 2) - 2

    def look_ahead(self, start: int, count: int) -> tuple[str, bool]:
        """The text from `start`, `count` characters at most, and whether no more of it is to come."""
        piece = self.text[start : start + count]
        return piece, self.final or len(piece) == count

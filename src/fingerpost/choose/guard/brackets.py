"""Where a value in brackets ends, read piece by piece. Quotes are respected, kinds of brackets are not."""

from __future__ import annotations

import re
from typing import Final

_OUTSIDE_STRING: Final = re.compile(r"[\"'\[\](){}<]")
_PLAIN_BRACKETS: Final = re.compile(r"[\"'\[\](){}]")
_INSIDE_STRING: Final = {'"': re.compile(r'\\.|"', re.DOTALL), "'": re.compile(r"\\.|'", re.DOTALL)}
_OPENING_BRACKETS: Final = frozenset("[({")


class BracketReader:
    """One value on its way: `find_end` until it says where the value ends."""

    def __init__(self, *, markers: bool = True) -> None:
        self._outside = _OUTSIDE_STRING if markers else _PLAIN_BRACKETS
        self.at = 0  # how far the given text was read; the next text goes on there
        self.broken = False  # a marker came before the last bracket
        self._depth = 0
        self._quote = ""

    def find_end(self, text: str, start: int, *, final: bool = False) -> int | None:
        """The end of the value that begins at `start` or went on there, or None when it is not in sight."""
        self.at = start
        while True:
            pattern = _INSIDE_STRING[self._quote] if self._quote else self._outside
            found = pattern.search(text, self.at)
            if found is None:
                self._skip_rest(text, final=final)
                return None
            if found[0] == "<" and found.end() == len(text) and not final:
                self.at = found.start()
                return None
            if self._handle_sign(found, text):
                return self.at

    def _skip_rest(self, text: str, *, final: bool) -> None:
        # A backslash at the very end belongs to a character that has not come yet.
        waits = self._quote and text.endswith("\\") and not final
        self.at = max(self.at, len(text) - 1) if waits else len(text)

    def _handle_sign(self, found: re.Match[str], text: str) -> bool:
        sign = found[0]
        self.at = found.end()
        if self._quote:
            self._quote = "" if sign == self._quote else self._quote
        elif sign in "\"'":
            self._quote = sign
        elif sign == "<":
            self.broken = text[found.end() : found.end() + 1] in ("/", "|")
            self.at = found.start() if self.broken else found.end()
            return self.broken
        elif sign in _OPENING_BRACKETS:
            self._depth += 1
        else:
            self._depth -= 1
            return self._depth <= 0
        return False


def find_value_end(text: str, start: int, *, final: bool = False) -> int | None:
    """The end of the value in brackets that begins at `start`."""
    brackets = BracketReader()
    end = brackets.find_end(text, start, final=final)
    return None if brackets.broken else end

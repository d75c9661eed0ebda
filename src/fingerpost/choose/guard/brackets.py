"""Where a value in brackets ends, read piece by piece. Quotes are respected, kinds of brackets are not."""

from __future__ import annotations

import re
from typing import Final

_OUTSIDE: Final = re.compile(r"[\"'\[\](){}<]")
_PLAIN: Final = re.compile(r"[\"'\[\](){}]")
_INSIDE: Final = {'"': re.compile(r'\\.|"', re.DOTALL), "'": re.compile(r"\\.|'", re.DOTALL)}
_OPENING: Final = frozenset("[({")


class Brackets:
    """One value on its way: `read` until it says where the value ends."""

    def __init__(self, *, markers: bool = True) -> None:
        self._outside = _OUTSIDE if markers else _PLAIN
        self.at = 0  # how far the given text was read; the next text goes on there
        self.broken = False  # a marker came before the last bracket
        self._depth = 0
        self._quote = ""

    def read(self, text: str, start: int, *, final: bool = False) -> int | None:
        """The end of the value that begins at `start` or went on there, or None when it is not in sight."""
        self.at = start
        while True:
            pattern = _INSIDE[self._quote] if self._quote else self._outside
            found = pattern.search(text, self.at)
            if found is None:
                self._rest(text, final=final)
                return None
            if found[0] == "<" and found.end() == len(text) and not final:
                self.at = found.start()
                return None
            if self._take(found, text):
                return self.at

    def _rest(self, text: str, *, final: bool) -> None:
        # A backslash at the very end belongs to a character that has not come yet.
        waits = self._quote and text.endswith("\\") and not final
        self.at = max(self.at, len(text) - 1) if waits else len(text)

    def _take(self, found: re.Match[str], text: str) -> bool:
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
        elif sign in _OPENING:
            self._depth += 1
        else:
            self._depth -= 1
            return self._depth <= 0
        return False


def value_end(text: str, start: int, *, final: bool = False) -> int | None:
    """The end of the value in brackets that begins at `start`."""
    brackets = Brackets()
    end = brackets.read(text, start, final=final)
    return None if brackets.broken else end

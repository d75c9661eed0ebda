"""Which URI template an address was made from, as far as one can tell from outside.

Enough to know whose resource it is; the values are its server's business. Matched by
moving through all possibilities at once, so that no template and no address,
however contrived, takes long.
"""

from __future__ import annotations

import re
from typing import Final

from fingerpost.frozen import frozen

LONGEST: Final = 4096
_EXPRESSION = re.compile(r"\{([+#./;?&]?)[^{}]*\}")

# What the values of an expression cannot hold, by its operator (RFC 6570, levels 1 to 3).
_STOPS: Final = {"+": "", "#": "", "/": "?#", "?": "#", "&": "#", "": "/?#", ".": "/?#", ";": "/?#"}


@frozen(kw_only=False)
class Template:
    """A template, taken apart: text as it is, and `None` with what stops it for each expression."""

    text: str
    pieces: tuple[str | None, ...]
    stops: tuple[str, ...]
    literal: int  # characters that are always the same: the more, the more it says

    @classmethod
    def read(cls, text: str) -> Template:
        pieces: list[str | None] = []
        stops: list[str] = []
        position = 0
        for found in _EXPRESSION.finditer(text[:LONGEST]):
            for character in text[position : found.start()]:
                pieces.append(character)
                stops.append("")
            pieces.append(None)
            stops.append(_STOPS[found.group(1)])
            position = found.end()
        for character in text[position:LONGEST]:
            pieces.append(character)
            stops.append("")
        return cls(text, tuple(pieces), tuple(stops), sum(piece is not None for piece in pieces))

    def fits(self, uri: str) -> bool:
        """Whether this address can have been made from the template."""
        if len(uri) > LONGEST:
            return False
        states = self._skipping({0})
        for character in uri:
            states = self._skipping(self._after(character, states))
            if not states:
                return False
        return len(self.pieces) in states

    def _after(self, character: str, states: set[int]) -> set[int]:
        after: set[int] = set()
        for state in states:
            if state == len(self.pieces):
                continue
            piece = self.pieces[state]
            if piece is None and character not in self.stops[state]:
                after.add(state)  # the value goes on
            elif piece == character:
                after.add(state + 1)
        return after

    def _skipping(self, states: set[int]) -> set[int]:
        """These places, and those reached by ending a value: it may be empty."""
        reached = set(states)
        for state in states:
            while state < len(self.pieces) and self.pieces[state] is None:
                state += 1
                reached.add(state)
        return reached

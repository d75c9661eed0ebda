"""Which URI template an address was made from, as far as one can tell from outside.

Enough to know whose resource it is; the values are its server's business. An
address is walked once, with all places of the template that it can have come to
as the bits of one number, so that a contrived template costs no more than an
ordinary one. Templates of a size that nobody needs are not matched at all, and
of each server's no more are tried for one address than can be tried quickly.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, TypeVar

from fingerpost.frozen import frozen

T = TypeVar("T")

MAX_URI_LENGTH: Final = 4096  # characters of an address
MAX_TEMPLATE_LENGTH: Final = 2000
MAX_EXPRESSIONS: Final = 20
# Characters that may be looked at for one address and one server. A few hundred
# ordinary templates with the same beginning need no more.
MAX_MATCH_STEPS: Final = 50_000
_EXPRESSION = re.compile(r"\{([+#./;?&]?)[^{}]*\}")

# What the values of an expression cannot hold, by its operator (RFC 6570, levels 1 to 3).
# Of any two of these the shorter is part of the longer.
_STOP_CHARACTERS: Final = {"+": "", "#": "", "/": "?#", "?": "#", "&": "#", "": "/?#", ".": "/?#", ";": "/?#"}


@frozen(kw_only=False)
class UriTemplate:
    """A template, taken apart: texts as they are, and between each two of them a value."""

    text: str
    fixed: tuple[str, ...]
    stops: tuple[str, ...]  # what each value cannot hold
    literal: int  # characters that are always the same: the more, the more it says

    @classmethod
    def parse(cls, text: str) -> UriTemplate | None:
        """The template so written, or None for one that is too long or has too many expressions."""
        if len(text) > MAX_TEMPLATE_LENGTH:
            return None
        first, *rest = _EXPRESSION.split(text)
        if len(rest) > 2 * MAX_EXPRESSIONS:
            return None
        fixed, stops = [first], list[str]()
        for operator, following in zip(rest[::2], rest[1::2], strict=True):
            if stops and not fixed[-1]:
                # Two values with nothing between them: what may hold the more can be both.
                stops[-1] = min(stops[-1], _STOP_CHARACTERS[operator], key=len)
                fixed[-1] = following
            else:
                stops.append(_STOP_CHARACTERS[operator])
                fixed.append(following)
        return cls(text, tuple(fixed), tuple(stops), sum(map(len, fixed)))

    def may_match(self, uri: str) -> bool:
        """Whether it begins and ends as the template does: nearly always enough to say no."""
        return uri.startswith(self.fixed[0]) and uri.endswith(self.fixed[-1])

    def matches(self, uri: str) -> bool:
        """Whether this address can have been made from the template.

        Takes a step for each character of both. Every character and every value of the
        template is a place, and the place after the last means that all of it was passed.
        """
        if len(uri) > MAX_URI_LENGTH or not self.may_match(uri):
            return False
        characters, values, ended_by, end = self._build_masks()
        reached = 1
        for character in uri:
            reached |= (reached & values) << 1  # a value may be over here, or empty
            going_on = reached & values & ~ended_by.get(character, 0)
            reached = going_on | ((reached & characters.get(character, 0)) << 1)
            if not reached:
                return False
        reached |= (reached & values) << 1
        return bool(reached & end)

    def _build_masks(self) -> tuple[dict[str, int], int, dict[str, int], int]:
        """Where each character stands, where values stand, which of these a character ends, and the end."""
        characters: dict[str, int] = {}
        ended_by: dict[str, int] = {}
        values = 0
        place = 1
        for position, text in enumerate(self.fixed):
            if position > 0:
                values |= place
                for character in self.stops[position - 1]:
                    ended_by[character] = ended_by.get(character, 0) | place
                place <<= 1
            for character in text:
                characters[character] = characters.get(character, 0) | place
                place <<= 1
        return characters, values, ended_by, place


def find_first_match(uri: str, templates: Iterable[tuple[UriTemplate, str, T]]) -> T | None:
    """What belongs to the first template that the address fits; each with the server it is from.

    A server whose templates would take long is passed over once it had its share: nobody
    else waits for it, and nobody else's templates are left untried for it.
    """
    spent: dict[str, int] = {}
    for template, server, found in templates:
        if not template.may_match(uri):
            continue
        spent[server] = spent.get(server, 0) + len(uri) + len(template.text)
        if spent[server] <= MAX_MATCH_STEPS and template.matches(uri):
            return found
    return None

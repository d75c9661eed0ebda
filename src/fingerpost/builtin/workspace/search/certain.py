"""A text that whatever fits a pattern must contain: files without it need not be tried.

Careful rather than clever: where it cannot be told at a glance, there is none.
"""

from __future__ import annotations

import re
from typing import Final

_PLAIN_CHARACTERS: Final = re.compile(r"[A-Za-z0-9_ ]+")
# Alternatives, groups, inline flags and comments change the meaning of what stands beside them.
_AMBIGUOUS_SYNTAX: Final = re.compile(r"[|()#]")
_CLASS: Final = re.compile(r"\[\^?\]?(?:\\.|[^\]\\])*\]")
_ESCAPE: Final = re.compile(r"\\.", re.DOTALL)
_COUNT: Final = re.compile(r"\{[^{}]*\}")
_OPTIONAL: Final = frozenset("*?{")


def find_required_text(pattern: str) -> str:
    """The longest run of plain characters that is part of every fit; empty: none is certain."""
    if _AMBIGUOUS_SYNTAX.search(pattern) or not pattern.isascii():
        return ""
    plain = _COUNT.sub("{", _CLASS.sub("\0", _ESCAPE.sub("\0", pattern)))
    best = ""
    for match in _PLAIN_CHARACTERS.finditer(plain):
        run = match.group()
        if plain[match.end() : match.end() + 1] in _OPTIONAL:
            run = run[:-1]  # the last one may be missing
        if len(run) > len(best):
            best = run
    return best

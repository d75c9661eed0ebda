"""Regular expressions that are compiled when they are first used.

Compiling the 700 of this package took a seventh of a command, which uses a sixth of them.
"""

from __future__ import annotations

import re
from typing import cast

_ATTRIBUTES = (
    "search",
    "match",
    "fullmatch",
    "finditer",
    "findall",
    "sub",
    "subn",
    "split",
    "pattern",
    "flags",
    "groups",
    "groupindex",
)


def prepare_re(pattern: str, flags: int = 0) -> re.Pattern[str]:
    """Return what `re.compile` returns, except that functions of `re` do not take it as a pattern."""
    return cast("re.Pattern[str]", _Regex(pattern, flags))


class _Regex:
    """Has the attributes of its compiled pattern from when one of them is first read."""

    __slots__ = ("_given", *_ATTRIBUTES)

    def __init__(self, pattern: str, flags: int) -> None:
        self._given = (pattern, flags)

    def __getattr__(self, name: str) -> object:  # called for a slot that is not set
        if name not in _ATTRIBUTES:
            raise AttributeError(name, name=name, obj=self)
        compiled = re.compile(*self._given)
        for one in _ATTRIBUTES:
            setattr(self, one, getattr(compiled, one))
        return getattr(compiled, name)

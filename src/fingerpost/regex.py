"""Regular expressions that are compiled when they are first used.

Compiling the 700 of this package took a seventh of a command, which uses a sixth of them. A service compiles
the others while it warms up.
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
    """Return what `re.compile` returns, except that functions of `re` do not take it as a pattern.

    It is for patterns that live as long as the program.
    """
    prepared = _Regex(pattern, flags)
    _waiting.append(prepared)
    return cast("re.Pattern[str]", prepared)


def compile_prepared() -> None:
    """Compile all patterns that were not used so far."""
    while _waiting:
        _waiting.pop().compile()


class _Regex:
    """Has the attributes of its compiled pattern, each from when it is first read."""

    __slots__ = ("_compiled", "_given", *_ATTRIBUTES)

    def __init__(self, pattern: str, flags: int) -> None:
        self._given = (pattern, flags)
        self._compiled: re.Pattern[str] | None = None

    def __getattr__(self, name: str) -> object:  # called for a slot that is not set
        if name not in _ATTRIBUTES:
            raise AttributeError(name, name=name, obj=self)
        found: object = getattr(self.compile(), name)
        setattr(self, name, found)
        return found

    def compile(self) -> re.Pattern[str]:
        if self._compiled is None:
            self._compiled = re.compile(*self._given)
        return self._compiled


_waiting: list[_Regex] = []

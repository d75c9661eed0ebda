"""Which regular expressions of strangers we are willing to run, and on how much text.

Python's engine backtracks: `(a+)+$` on thirty characters takes minutes, and the
pattern is the server's choice while the text is the model's. So a pattern whose
repetitions are nested is never run, and any other is run only on as much text
as its number of repetitions allows. What is not run is not checked: the server
will check it itself.
"""

from __future__ import annotations

import re
from enum import IntEnum
from functools import lru_cache
from typing import Final

from fingerpost.frozen import frozen

LONGEST_PATTERN: Final = 500
LONGEST_TEXT: Final = 100_000
# Roughly the steps a match may take. Each open repetition multiplies by the length of the text.
MOST_STEPS: Final = 10_000_000
# `{1,8}` is cheap; `{1,100}` backtracks nearly like `+`.
_SMALL_REPEAT: Final = 8

_ESCAPE_OR_CLASS = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]", re.DOTALL)
_TOKEN = re.compile(
    r"(?P<opens>\()|(?P<closes>\))?(?P<quantifier>[*+]|\{\d+(?:,\d*)?\})|(?P<ends>\))|(?P<choice>\|)"
)


@frozen(kw_only=False)
class Pattern:
    """A compiled pattern and the longest text it is run on."""

    expression: re.Pattern[str]
    longest: int

    def refuses(self, text: str) -> bool:
        """Whether the text surely does not match."""
        return len(text) <= self.longest and self.expression.search(text) is None


@lru_cache(maxsize=1024)
def usable(source: str) -> Pattern | None:
    """The pattern, or None when it is not a pattern to Python or too costly to run at all."""
    if len(source) > LONGEST_PATTERN:
        return None
    repetitions = _repetitions(source)
    if repetitions is None:
        return None
    try:
        expression = re.compile(source)
    except (re.error, OverflowError, RecursionError):
        return None
    exponent = repetitions + (0 if source.startswith("^") else 1)
    longest = LONGEST_TEXT if exponent == 0 else int(MOST_STEPS ** (1 / exponent))
    return Pattern(expression, min(longest, LONGEST_TEXT))


class _Content(IntEnum):
    """What an open group holds so far: the more, the dearer its repetition."""

    PLAIN = 0
    CHOICE = 1
    REPETITION = 2


def _repetitions(source: str) -> int | None:
    """How many open repetitions stand side by side; None when one stands within another."""
    plain = _ESCAPE_OR_CLASS.sub("x", source)
    if "(?P=" in plain or re.search(r"\\[1-9]", source):
        return None  # a back-reference: its cost cannot be told by looking
    count = 0
    groups: list[_Content] = []
    for token in _TOKEN.finditer(plain):
        if token["opens"]:
            groups.append(_Content.PLAIN)
            continue
        inner = groups.pop() if groups and (token["closes"] or token["ends"]) else _Content.PLAIN
        times = _times(token["quantifier"])
        if _is_nested(inner, times):
            return None
        count += times > _SMALL_REPEAT
        held = max(inner, _Content.REPETITION if times > _SMALL_REPEAT else _Content.PLAIN)
        held = max(held, _Content.CHOICE if token["choice"] else _Content.PLAIN)
        groups[:] = [max(content, held) for content in groups]
    return count


def _is_nested(inner: _Content, times: float) -> bool:
    if inner is _Content.REPETITION:
        return times > 1
    return inner is _Content.CHOICE and times > _SMALL_REPEAT


def _times(quantifier: str | None) -> float:
    """How often a quantifier may repeat what stands before it."""
    if quantifier is None:
        return 1
    if quantifier in ("*", "+"):
        return float("inf")
    low, comma, high = quantifier[1:-1].partition(",")
    return float("inf") if comma and not high else int(high or low)

"""Tools that are called again and again because their answer changes with time.

A name is all there is to go by. The words only raise a limit, so a wrong guess costs a few repeated
calls, never a wrong answer.
"""

from __future__ import annotations

import re
from functools import lru_cache

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
# fmt: off
_POLLING_WORDS = frozenset({
    "status", "state", "progress", "poll", "wait", "watch", "check", "health", "ping", "job", "jobs", "queue",
})
# fmt: on


@lru_cache(maxsize=4096)
def is_polling_tool(name: str) -> bool:
    """Whether the tool asks how something is coming along."""
    return not _POLLING_WORDS.isdisjoint(_split_words(name))


def _split_words(name: str) -> set[str]:
    return {word.lower() for word in _WORD.findall(name)}

"""Names and descriptions as words.

`getUserById`, `get-user-by-id` and `get_user_by_id` are the same four words.
Only the beginning of a long text is read: what a tool is about stands there,
and the length is the server's choice.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

MAX_TEXT_LENGTH: Final = 4000

# Capitals before a word (`HTTPServer`), a word, capitals, a number, a word in another script.
_WORD = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+|[^\W\d_A-Za-z]+")


def parse_word_set(text: str) -> frozenset[str]:
    """The words of a written list."""
    return frozenset(text.split())


STOP_WORDS: Final = parse_word_set(
    """
    a about above after all allow allows also an and any are as at be been before being below
    between both but by can cannot could current data default describe description do does each
    either else etc example false following for from given has have here how id ids if in include
    including info information input into is it its itself just like list may more most must name
    named names need needs new no none not null object of off on once one only optional or other our
    out output over param parameter parameters per provide provided provides request required
    response result results return returned returns s same see set should so some specific specified
    string such supports than that the their them then there these they this those through to tool
    tools true type under up us use used user uses using value values via want was what when where
    whether which while who will with within without you your get gets fetch retrieve
    """
)


def split_words(text: str) -> tuple[str, ...]:
    """The words of a name or a text, in small letters, in order."""
    return _split_cached(text[:MAX_TEXT_LENGTH])


@lru_cache(maxsize=256)
def _split_cached(text: str) -> tuple[str, ...]:
    """Remembered for a moment, because one card asks several times about the same text."""
    return tuple(map(str.lower, _WORD.findall(text)))


@lru_cache(maxsize=4096)
def to_singular(word: str) -> str:
    """`files` → `file`, `queries` → `query`: enough to compare by, never shown."""
    if len(word) > 4 and word.endswith("ies"):
        return word[:-3] + "y"
    if len(word) > 4 and word.endswith(("ches", "shes", "sses", "xes")):
        return word[:-2]
    if len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")):
        return word[:-1]
    return word


def take_distinct(items: Iterable[str], limit: int) -> tuple[str, ...]:
    """The first `limit` different items, in order."""
    found: dict[str, None] = {}
    for item in items:
        found.setdefault(item)
        if len(found) >= limit:
            break
    return tuple(found)

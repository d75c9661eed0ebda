"""Where an answer comes from, and whether it says so."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from fingerpost.catalog.names import READ_RESULT
from fingerpost.records import Step

MOST_SOURCES: Final = 8
LONGEST_ANSWER: Final = 200_000
_TITLES: Final = {"en": ("Source", "Sources"), "he": ("מקור", "מקורות")}
_SEPARATOR = re.compile(r"[\W_]+")
# A name that is an everyday word ("time", "fetch") is a source only where it is spoken of as one.
_BESIDE: Final = (
    "tool", "server", "source", "sources", "according to", "כלי", "הכלי", "שרת", "השרת", "מקור", "לפי",
)  # fmt: skip


def sources_of(steps: Sequence[Step]) -> tuple[str, ...]:
    """The tools whose results an answer can rest on, each once, in order."""
    read = (step.tool for step in steps if step.success and step.tool != READ_RESULT)
    return tuple(dict.fromkeys(read))


def sources_line(steps: Sequence[Step], *, language: str = "en") -> str:
    """`Source: time/get_current_time`, in English or Hebrew; empty when no tool returned anything."""
    tools = sources_of(steps)
    if not tools:
        return ""
    one, many = _TITLES.get(language, _TITLES["en"])
    more = f" +{len(tools) - MOST_SOURCES}" if len(tools) > MOST_SOURCES else ""
    return f"{one if len(tools) == 1 else many}: {', '.join(tools[:MOST_SOURCES])}{more}"


def names_source(text: str, steps: Sequence[Step]) -> bool:
    """Whether the answer names a tool it rests on, however it is spelt."""
    said = f" {_plain(text[:LONGEST_ANSWER])} "
    return any(_is_named(tool, said) for tool in sources_of(steps))


def _is_named(tool: str, said: str) -> bool:
    server, _, name = tool.partition("/")
    whole, bare = _plain(tool), _plain(name or server)
    if f" {whole} " in said and " " in whole:
        return True
    if " " in bare and f" {bare} " in said:
        return True
    return any(
        f" {before} {word} " in said or f" {word} {before} " in said
        for word in {bare, _plain(server)} - {""}
        for before in _BESIDE
    )


def _plain(text: str) -> str:
    """Words alone, in small letters: `time/get_current_time` reads `time get current time`."""
    return _SEPARATOR.sub(" ", text.casefold()).strip()

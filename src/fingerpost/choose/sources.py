"""Where an answer comes from, and whether it says so."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from fingerpost.catalog.names import READ_RESULT
from fingerpost.records import Step

MAX_SOURCES: Final = 8
MAX_CHECKED_ANSWER_LENGTH: Final = 200_000
_SOURCE_TITLES: Final = {"en": ("Source", "Sources"), "he": ("מקור", "מקורות")}
_SOURCE_SEPARATOR = re.compile(r"[\W_]+")
# A name that is an everyday word ("time", "fetch") is a source only where it is spoken of as one.
_SOURCE_CONTEXT_WORDS: Final = (
    "tool", "server", "source", "sources", "according to", "כלי", "הכלי", "שרת", "השרת", "מקור", "לפי",
)  # fmt: skip


def list_sources(steps: Sequence[Step]) -> tuple[str, ...]:
    """The tools whose results an answer can rest on, each once, in order."""
    read = (step.tool for step in steps if step.success and step.tool != READ_RESULT)
    return tuple(dict.fromkeys(read))


def format_sources(steps: Sequence[Step], *, language: str = "en") -> str:
    """`Source: time/get_current_time`, in English or Hebrew; empty when no tool returned anything."""
    tools = list_sources(steps)
    if not tools:
        return ""
    one, many = _SOURCE_TITLES.get(language, _SOURCE_TITLES["en"])
    more = f" +{len(tools) - MAX_SOURCES}" if len(tools) > MAX_SOURCES else ""
    return f"{one if len(tools) == 1 else many}: {', '.join(tools[:MAX_SOURCES])}{more}"


def has_source_name(text: str, steps: Sequence[Step]) -> bool:
    """Whether the answer names a tool it rests on, however it is spelt."""
    said = f" {_normalize_words(text[:MAX_CHECKED_ANSWER_LENGTH])} "
    return any(_is_tool_named(tool, said) for tool in list_sources(steps))


def _is_tool_named(tool: str, text: str) -> bool:
    server, _, name = tool.partition("/")
    whole, bare = _normalize_words(tool), _normalize_words(name or server)
    if f" {whole} " in text and " " in whole:
        return True
    if " " in bare and f" {bare} " in text:
        return True
    return any(
        f" {before} {word} " in text or f" {word} {before} " in text
        for word in {bare, _normalize_words(server)} - {""}
        for before in _SOURCE_CONTEXT_WORDS
    )


def _normalize_words(text: str) -> str:
    """Words alone, in small letters: `time/get_current_time` reads `time get current time`."""
    return _SOURCE_SEPARATOR.sub(" ", text.casefold()).strip()

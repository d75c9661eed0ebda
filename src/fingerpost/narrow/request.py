"""What narrowing is asked: the person's words, and the circumstances that decide what may be found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Final

from fingerpost.frozen import frozen
from fingerpost.records import Effort, HiddenTool, Message, ServerChoice
from fingerpost.records.json import to_valid_text
from fingerpost.settings import Settings

# What a request is about stands at its beginning, what is wanted often at its very end;
# between them lies what was pasted in.
FIRST_CHARACTERS: Final = 4000
LAST_CHARACTERS: Final = 1000
_CUT_NOTE: Final = "\n…\n"


@frozen
class NarrowRequest:
    """One request to narrow the catalog for.

    `hidden` is what policy keeps from this caller: never found, never scored,
    named in explanations alone. `health` holds the servers that cannot be used
    now, each with the reason; a server not named there is well.
    """

    text: str
    history: tuple[Message, ...] = ()
    conversation: str | None = None
    caller: str | None = None
    profile: str | None = None
    allowed: frozenset[str] | None = None  # only these tools, by key; None: all
    hidden: Mapping[str, HiddenTool] = field(default_factory=dict[str, HiddenTool])
    servers: ServerChoice | None = None
    max_tools: int | None = None  # None: as the settings say
    health: Mapping[str, str] = field(default_factory=dict[str, str])
    used: tuple[str, ...] = ()  # tools this conversation has used, the latest last
    person: str | None = None  # whose habits count, and who may be told who said what; None: nobody, all
    settings: Settings | None = None  # as they hold for this request, where they differ from the usual
    effort: Effort | None = None  # a quick or a thorough answer is wanted
    about: str | None = None  # a tool (by key) to explain even if it came in far behind


def bound_text(text: str) -> str:
    """The request as it is read: valid text, the beginning and the end of one that is huge."""
    if len(text) > FIRST_CHARACTERS + LAST_CHARACTERS:
        text = text[:FIRST_CHARACTERS] + _CUT_NOTE + text[-LAST_CHARACTERS:]
    return to_valid_text(text).strip()


def get_earlier_turns(history: tuple[Message, ...], most: int = 2) -> tuple[str, ...]:
    """What the person said before, the latest first."""
    said = (bound_text(message.text) for message in reversed(history[-40:]) if message.role == "user")
    return tuple(text for text, _ in zip((text for text in said if text), range(most), strict=False))

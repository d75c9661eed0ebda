"""What the guard found in a model's text, and what is left of the text without it."""

from __future__ import annotations

from typing import Final

from fingerpost.frozen import frozen
from fingerpost.records import JsonObject

MAX_RAW_LENGTH: Final = 2_000  # characters of a find that are kept for a person to look at


@frozen
class FoundSyntax:
    """Tool syntax that stood in a text. With name and arguments it can be made a proper call."""

    syntax: str  # the family: "hermes", "llama", "react", …; "thought" for thinking aloud
    raw: str  # at most LONGEST_RAW characters of it
    name: str | None = None  # the key of the real tool it names; of one that is not ours, its name
    arguments: JsonObject | None = None  # as far as they could be read
    is_call: bool = True  # not a stray marker, an invented result or turn, or thinking aloud


@frozen
class CleanedText:
    """A text that may be shown, and what was taken out of it."""

    text: str
    removed: tuple[FoundSyntax, ...] = ()

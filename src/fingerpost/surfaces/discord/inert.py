"""Words of strangers as Discord may show them: no formatting, no hidden characters, nobody called."""

from __future__ import annotations

import json
import re
from typing import Final

from fingerpost.catalog import visible
from fingerpost.catalog.names import visible_json
from fingerpost.records import Json
from fingerpost.redaction import scrub, scrub_json

_MARKUP: Final = re.compile(r"([\\`*_~|<>\[\]()#@:\-])")


def plain(text: str, longest: int = 200) -> str:
    """One line in which nothing is formatted, linked or called."""
    said = visible(" ".join(scrub(text[: longest * 8]).split()))
    said = said if len(said) <= longest else said[: longest - 1].rstrip() + "…"
    return _MARKUP.sub(r"\\\1", said)


def written(value: Json, *, exact: bool = False) -> str:
    """A value as JSON with secrets masked, which stands in a block of code and cannot leave it.

    It is the same JSON as without us: what cannot be seen, and backticks, are written as JSON escapes.
    `exact`: nothing is masked, for the one person who decides about it.
    """
    shown = value if exact else scrub_json(value)
    text = json.dumps(shown, ensure_ascii=False, indent=2, default=str)
    lines = (visible_json(line) for line in text.split("\n"))
    return "\n".join(lines).replace("`", "\\u0060")

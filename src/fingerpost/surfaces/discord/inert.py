"""Words of strangers as Discord may show them: no formatting, no hidden characters, nobody called."""

from __future__ import annotations

import json
import re
from typing import Final

from fingerpost.catalog import escape_invisible_except
from fingerpost.catalog.names import escape_invisible_json
from fingerpost.records import Json
from fingerpost.redaction import scrub, scrub_json

_MARKUP_PATTERN: Final = re.compile(r"([\\`*_~|<>\[\]()#@:\-])")


def escape_line(text: str, limit: int = 200) -> str:
    """One line in which nothing is formatted, linked or called."""
    said = escape_invisible_except(" ".join(scrub(text[: limit * 8]).split()))
    said = said if len(said) <= limit else said[: limit - 1].rstrip() + "…"
    return _MARKUP_PATTERN.sub(r"\\\1", said)


def format_json_value(value: Json, *, exact: bool = False) -> str:
    """A value as JSON with secrets masked, which stands in a block of code and cannot leave it.

    It is the same JSON as without us: what cannot be seen, and backticks, are written as JSON escapes.
    `exact`: nothing is masked, for the one person who decides about it.
    """
    shown = value if exact else scrub_json(value)
    text = json.dumps(shown, ensure_ascii=False, indent=2, default=str)
    lines = (escape_invisible_json(line) for line in text.split("\n"))
    return "\n".join(lines).replace("`", "\\u0060")

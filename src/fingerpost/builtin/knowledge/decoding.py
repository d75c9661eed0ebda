"""Bytes of a file as text, whatever encoding it was saved in."""

from __future__ import annotations

import codecs
from typing import Final

_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_MAX_SAMPLE: Final = 8192


def decode_text(content: bytes) -> str | None:
    """The text with `\\n` as the end of each line; None where it is no text at all."""
    for mark, name in _MARKS:
        if content.startswith(mark):
            return _normalize_line_ends(content.decode(name, "replace").removeprefix("\ufeff"))
    if b"\0" in content[:_MAX_SAMPLE]:
        return None
    try:
        return _normalize_line_ends(content.decode("utf-8"))
    except UnicodeDecodeError:
        # Older files of the West; every byte means something there, so nothing is lost.
        return _normalize_line_ends(content.decode("cp1252", "replace"))


def _normalize_line_ends(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")

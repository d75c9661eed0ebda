"""Other ways to write the same text.

What a tool does with `..%2Fetc`, `／etc` or `Prod. ` is its own affair: one
server decodes, another trims, a third runs on a disk that ignores case. The
policy therefore looks at every reading a tool might plausibly take.
"""

from __future__ import annotations

import posixpath
import re
import unicodedata
from typing import Final
from urllib.parse import unquote

# Decoding `%252e` takes two rounds; more than three is nobody's mistake.
_MAX_DECODINGS: Final = 3

# Characters that look like the two separators; the full-width ones are folded anyway.
_SLASHES: Final = str.maketrans(dict.fromkeys("⁄∕⧸╱", "/") | dict.fromkeys("∖⧵⧹╲", "\\"))
_INVISIBLE: Final = frozenset({"Cc", "Cf"})
_DOTS: Final = re.compile(r"[. ]*\.[. ]*\.[. ]*")


def list_readings(text: str) -> tuple[str, ...]:
    """`text` as it stands, decoded, and in its simplest characters; no reading twice."""
    found = [text]
    for _ in range(_MAX_DECODINGS):
        decoded = unquote(found[-1])
        if decoded == found[-1]:
            break
        found.append(decoded)
    return tuple(dict.fromkeys([*found, *(_simplify(each) for each in found)]))


def _simplify(text: str) -> str:
    """Compatibility forms folded, look-alike separators made real, invisible characters gone."""
    if text.isascii() and text.isprintable():
        return text.strip()
    mapped = unicodedata.normalize("NFKC", text).translate(_SLASHES)
    return "".join(char for char in mapped if unicodedata.category(char) not in _INVISIBLE).strip()


def normalize_windows_path(path: str) -> str:
    """The path as Windows reads it: backslashes separate, dots and spaces at a name's end do not count."""
    return "/".join(_normalize_windows_segment(segment) for segment in path.replace("\\", "/").split("/"))


def _normalize_windows_segment(segment: str) -> str:
    if _DOTS.fullmatch(segment):
        return ".."
    return segment if segment in (".", "..") else segment.strip(" ").rstrip(". ")


def normalize_path(text: str) -> str:
    """The text with its `.`, `..` and doubled separators worked out, when it has separators at all."""
    if "/" not in text and "\\" not in text:
        return text
    plain = posixpath.normpath(normalize_windows_path(text))
    return plain[1:] if plain.startswith("//") else plain  # two slashes in front survive `normpath`


def has_parent_step(text: str) -> bool:
    """Whether a reading of `text` has a step upwards."""
    return any(".." in normalize_windows_path(reading).split("/") for reading in list_readings(text))

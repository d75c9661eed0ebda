"""JSON as people write it: with comments, trailing commas and a byte-order mark.

`plain_json` blanks what JSON does not know, character for character, so that
the standard parser's line numbers stay true. `json_lines` then notes on which
line each key stands, and which keys are given twice.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field

from fingerpost.frozen import frozen
from fingerpost.settings.problems import KeyPath

# Deeper than any setting; below it the line of the enclosing key is near enough.
_DEEPEST = 16

_PIECE = re.compile(
    r'"(?:[^"\\\r\n]|\\.)*"|//[^\r\n]*|/\*.*?\*/|[ \t\r\n]+|[{}\[\],:]|[^\s{}\[\],:"/]+|.', re.DOTALL
)
_NOT_NEWLINE = re.compile(r"[^\r\n]")


def plain_json(text: str) -> str:
    """`text` with comments and trailing commas replaced by spaces; every offset and line stays."""
    pieces = [match[0] for match in _PIECE.finditer(text)]
    comma: int | None = None  # a comma after a value, with nothing but space and comments since
    before = ""  # the last piece that means something
    for number, piece in enumerate(pieces):
        if _is_comment(piece):
            pieces[number] = _NOT_NEWLINE.sub(" ", piece)
            continue
        if not piece.strip():
            continue
        if piece in "}]" and comma is not None:
            pieces[comma] = " "
        comma = number if piece == "," and before not in {"", ",", ":", "[", "{"} else None
        before = piece
    return "".join(pieces)


def _is_comment(piece: str) -> bool:
    return piece.startswith("//") or (piece.startswith("/*") and len(piece) > len("/*"))


@frozen(kw_only=False)
class Repeated:
    """A key that one object holds twice: the standard parser keeps the last and says nothing."""

    path: KeyPath
    line: int
    first: int


@dataclass(slots=True)
class _Frame:
    """An object or array we are inside of, and the member we are at."""

    is_array: bool
    key: str | int | None
    seen: dict[str, int] = field(default_factory=dict[str, int])


def json_lines(text: str) -> tuple[dict[KeyPath, int], tuple[Repeated, ...]]:
    """Key path → line for every key and element of a valid plain JSON text, and the repeated keys."""
    found: dict[KeyPath, int] = {}
    repeated: list[Repeated] = []
    frames: list[_Frame] = []
    line = 1
    for match in _PIECE.finditer(text):
        piece = match[0]
        if piece in ("}", "]"):
            frames.pop()
        elif piece == ",":
            _next_member(frames[-1])
        elif piece.strip() and piece != ":":
            if frames and frames[-1].key is None:
                twice = _enter_key(frames, json.loads(piece), line)
                repeated += [twice] if twice else []
                _note(found, frames, line)
                continue
            if frames and frames[-1].is_array:
                _note(found, frames, line)
            if piece in ("{", "["):
                frames.append(_Frame(piece == "[", 0 if piece == "[" else None))
        line += piece.count("\n")
    return found, tuple(repeated)


def _next_member(frame: _Frame) -> None:
    frame.key = frame.key + 1 if isinstance(frame.key, int) else None


def _enter_key(frames: list[_Frame], key: str, line: int) -> Repeated | None:
    frame = frames[-1]
    frame.key = key
    first = frame.seen.get(key)
    frame.seen.setdefault(key, line)
    return None if first is None else Repeated(_path(frames), line, first)


def _note(found: dict[KeyPath, int], frames: list[_Frame], line: int) -> None:
    if len(frames) <= _DEEPEST:
        found[_path(frames)] = line


def _path(frames: list[_Frame]) -> KeyPath:
    return tuple(frame.key for frame in frames if frame.key is not None)

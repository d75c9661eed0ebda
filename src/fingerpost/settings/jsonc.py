"""JSON as people write it: with comments, trailing commas and a byte-order mark.

`to_plain_json` blanks what JSON does not know, character for character, so that
the standard parser's line numbers stay true. `find_json_lines` then notes on which
line each key stands, and which keys are given twice.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field

from fingerpost.frozen import frozen
from fingerpost.settings.problems import KeyPath

# Deeper than any setting; below it the line of the enclosing key is near enough.
_MAX_NESTING = 16

_PIECE = re.compile(
    r'"(?:[^"\\\r\n]|\\.)*"|//[^\r\n]*|/\*.*?\*/|[ \t\r\n]+|[{}\[\],:]|[^\s{}\[\],:"/]+|.', re.DOTALL
)
_NOT_NEWLINE = re.compile(r"[^\r\n]")


def to_plain_json(text: str) -> str:
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
class RepeatedKey:
    """A key that one object holds twice: the standard parser keeps the last and says nothing."""

    path: KeyPath
    line: int
    first: int


@dataclass(slots=True)
class _JsonFrame:
    """An object or array we are inside of, and the member we are at."""

    is_array: bool
    key: str | int | None
    seen: dict[str, int] = field(default_factory=dict[str, int])


def find_json_lines(text: str) -> tuple[dict[KeyPath, int], tuple[RepeatedKey, ...]]:
    """Key path → line for every key and element of a valid plain JSON text, and the repeated keys."""
    found: dict[KeyPath, int] = {}
    repeated: list[RepeatedKey] = []
    frames: list[_JsonFrame] = []
    line = 1
    for match in _PIECE.finditer(text):
        piece = match[0]
        if piece in ("}", "]"):
            frames.pop()
        elif piece == ",":
            _advance_member(frames[-1])
        elif piece.strip() and piece != ":":
            if frames and frames[-1].key is None:
                twice = _enter_key(frames, json.loads(piece), line)
                repeated += [twice] if twice else []
                _note_line(found, frames, line)
                continue
            if frames and frames[-1].is_array:
                _note_line(found, frames, line)
            if piece in ("{", "["):
                frames.append(_JsonFrame(piece == "[", 0 if piece == "[" else None))
        line += piece.count("\n")
    return found, tuple(repeated)


def _advance_member(frame: _JsonFrame) -> None:
    frame.key = frame.key + 1 if isinstance(frame.key, int) else None


def _enter_key(frames: list[_JsonFrame], key: str, line: int) -> RepeatedKey | None:
    frame = frames[-1]
    frame.key = key
    first = frame.seen.get(key)
    frame.seen.setdefault(key, line)
    return None if first is None else RepeatedKey(_get_path(frames), line, first)


def _note_line(found: dict[KeyPath, int], frames: list[_JsonFrame], line: int) -> None:
    if len(frames) <= _MAX_NESTING:
        found[_get_path(frames)] = line


def _get_path(frames: list[_JsonFrame]) -> KeyPath:
    return tuple(frame.key for frame in frames if frame.key is not None)

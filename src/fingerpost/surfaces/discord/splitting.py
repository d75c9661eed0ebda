"""A long text as several messages, each whole in itself.

A text is cut where a paragraph ends, else a line, else a word. A block of code that has to be cut is
closed at the end of one message and opened again in the next, with its language. As Discord reads it,
three backticks begin or end a block wherever they stand.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from typing import Final

from fingerpost.frozen import frozen

MESSAGE: Final = 2000  # characters Discord takes in one message
_LEAST: Final = 3  # a cut leaves at least one third of a message, or a lesser kind of cut is taken
_FENCE: Final = re.compile(r"```")
_LANGUAGE: Final = re.compile(r"[A-Za-z0-9_+.#-]{1,24}(?=\n)")
_CLOSING: Final = "\n```"
_JOINERS: Final = "\u200d\ufe0e\ufe0f"  # what holds a sign together that people see as one
_LONGEST_SIGN: Final = 16


@frozen(kw_only=False)
class _Fence:
    """One mark in the text; `end` is behind its language."""

    start: int
    end: int
    opens: bool
    language: str


def pieces(text: str, limit: int = MESSAGE) -> tuple[str, ...]:
    """The text as messages of at most `limit` characters, none of them empty."""
    text = text.replace("\r\n", "\n")
    fences = _fences(text)
    found: list[str] = []
    start = 0
    while start < len(text):
        end = _cut(text, start, limit, fences)
        piece = _whole(text, start, end, fences)
        if piece:
            found.append(piece)
        start = end
    return tuple(found)


def _fences(text: str) -> tuple[_Fence, ...]:
    found: list[_Fence] = []
    at = 0
    while mark := _FENCE.search(text, at):
        opens = not (found and found[-1].opens)
        language = _LANGUAGE.match(text, mark.end()) if opens else None
        at = mark.end() if language is None else language.end()
        found.append(_Fence(mark.start(), at, opens, "" if language is None else language[0]))
    return tuple(found)


def _open_at(fences: tuple[_Fence, ...], place: int) -> _Fence | None:
    """The mark whose block this place lies in."""
    before = bisect_right(fences, place, key=lambda fence: fence.end)
    return fences[before - 1] if before and fences[before - 1].opens else None


def _opening(fence: _Fence | None) -> str:
    return "" if fence is None else f"```{fence.language}\n"


def _cut(text: str, start: int, limit: int, fences: tuple[_Fence, ...]) -> int:
    """Where the message that begins at `start` ends."""
    room = limit - len(_opening(_open_at(fences, start))) - len(_CLOSING)
    if len(text) - start <= room:
        return len(text)
    end = start + room
    least = start + room // _LEAST
    for mark in ("\n\n", "\n", " "):
        at = text.rfind(mark, least, end)
        while at > least and mark == "\n\n" and _open_at(fences, at) is not None:
            at = text.rfind(mark, least, at)  # an empty line in code ends no paragraph
        if at > least:
            end = at + len(mark)
            break
    else:
        end = _between_signs(text, start, end)
    return _outside_marks(start, end, fences)


def _between_signs(text: str, start: int, end: int) -> int:
    """Not inside of what people see as one sign, as far as that is short."""
    for place in range(end, max(start + 1, end - _LONGEST_SIGN), -1):
        if text[place] not in _JOINERS and text[place - 1] not in _JOINERS and text[place].isprintable():
            return place
    return end


def _outside_marks(start: int, end: int, fences: tuple[_Fence, ...]) -> int:
    """A mark and its language stay together."""
    at = bisect_right(fences, end, key=lambda fence: fence.end)
    if at == len(fences) or fences[at].start >= end:
        return end
    return fences[at].start if fences[at].start > start else fences[at].end


def _whole(text: str, start: int, end: int, fences: tuple[_Fence, ...]) -> str:
    """This part with the marks that its block needs; a block that would be empty is left out."""
    before, after = _open_at(fences, start), _open_at(fences, end)
    if before is not None:
        first = fences[bisect_left(fences, start, key=lambda fence: fence.start) :][:1]
        if first and first[0].end <= end and not text[start : first[0].start].strip():
            before, start = None, first[0].end
    if after is not None and after.start >= start and not text[after.end : end].strip():
        after, end = None, after.start
    body = text[start:end].rstrip()
    body = body.lstrip() if before is None else body.strip("\n")
    if not body:
        return ""
    return f"{_opening(before)}{body}{'' if after is None else _CLOSING}"

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

MAX_MESSAGE_LENGTH: Final = 2000  # characters Discord takes in one message
_MIN_PIECE: Final = 3  # a cut leaves at least one third of a message, or a lesser kind of cut is taken
_FENCE_PATTERN: Final = re.compile(r"```")
_MAX_LANGUAGE: Final = re.compile(r"[A-Za-z0-9_+.#-]{1,24}(?=\n)")
_FENCE_END: Final = "\n```"
_JOINING_CHARACTERS: Final = "\u200d\ufe0e\ufe0f"  # what holds a sign together that people see as one
_MAX_GRAPHEME_LENGTH: Final = 16


@frozen(kw_only=False)
class _CodeFence:
    """One mark in the text; `end` is behind its language."""

    start: int
    end: int
    opens: bool
    language: str


def split_message(text: str, limit: int = MAX_MESSAGE_LENGTH) -> tuple[str, ...]:
    """The text as messages of at most `limit` characters, none of them empty."""
    text = text.replace("\r\n", "\n")
    fences = _find_fences(text)
    found: list[str] = []
    start = 0
    while start < len(text):
        end = _find_cut(text, start, limit, fences)
        piece = _build_piece(text, start, end, fences)
        if piece:
            found.append(piece)
        start = end
    return tuple(found)


def _find_fences(text: str) -> tuple[_CodeFence, ...]:
    found: list[_CodeFence] = []
    at = 0
    while mark := _FENCE_PATTERN.search(text, at):
        opens = not (found and found[-1].opens)
        language = _MAX_LANGUAGE.match(text, mark.end()) if opens else None
        at = mark.end() if language is None else language.end()
        found.append(_CodeFence(mark.start(), at, opens, "" if language is None else language[0]))
    return tuple(found)


def _find_open_fence(fences: tuple[_CodeFence, ...], position: int) -> _CodeFence | None:
    """The mark whose block this place lies in."""
    before = bisect_right(fences, position, key=lambda fence: fence.end)
    return fences[before - 1] if before and fences[before - 1].opens else None


def _format_opening(fence: _CodeFence | None) -> str:
    return "" if fence is None else f"```{fence.language}\n"


def _find_cut(text: str, start: int, limit: int, fences: tuple[_CodeFence, ...]) -> int:
    """Where the message that begins at `start` ends."""
    room = limit - len(_format_opening(_find_open_fence(fences, start))) - len(_FENCE_END)
    if len(text) - start <= room:
        return len(text)
    end = start + room
    least = start + room // _MIN_PIECE
    for mark in ("\n\n", "\n", " "):
        at = text.rfind(mark, least, end)
        while at > least and mark == "\n\n" and _find_open_fence(fences, at) is not None:
            at = text.rfind(mark, least, at)  # an empty line in code ends no paragraph
        if at > least:
            end = at + len(mark)
            break
    else:
        end = _avoid_graphemes(text, start, end)
    return _avoid_fence_marks(start, end, fences)


def _avoid_graphemes(text: str, start: int, end: int) -> int:
    """Not inside of what people see as one sign, as far as that is short."""
    for place in range(end, max(start + 1, end - _MAX_GRAPHEME_LENGTH), -1):
        if (
            text[place] not in _JOINING_CHARACTERS
            and text[place - 1] not in _JOINING_CHARACTERS
            and text[place].isprintable()
        ):
            return place
    return end


def _avoid_fence_marks(start: int, end: int, fences: tuple[_CodeFence, ...]) -> int:
    """A mark and its language stay together."""
    at = bisect_right(fences, end, key=lambda fence: fence.end)
    if at == len(fences) or fences[at].start >= end:
        return end
    return fences[at].start if fences[at].start > start else fences[at].end


def _build_piece(text: str, start: int, end: int, fences: tuple[_CodeFence, ...]) -> str:
    """This part with the marks that its block needs; a block that would be empty is left out."""
    before, after = _find_open_fence(fences, start), _find_open_fence(fences, end)
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
    return f"{_format_opening(before)}{body}{'' if after is None else _FENCE_END}"

"""Thoughts that come as text, with an end and no beginning.

The templates of many reasoning models write `<think>` themselves, so that the reply begins in
the middle of a thought and the answer stands behind `</think>`. Servers with a parser for that
put the thoughts elsewhere; others hand everything over as the answer. Where a model was seen to
do so, its text is held back until the thought is over.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from fingerpost.llm.base import ModelReply, OnText

_TAG: Final = re.compile(r"<(?P<end>/?)think(?:ing)?>", re.IGNORECASE)
_MAX_TAG_LENGTH: Final = len("</thinking>")
_FENCE: Final = "```"


def find_reasoning_end(text: str) -> re.Match[str] | None:
    """The end of thoughts that `text` begins with, if it does."""
    found = _TAG.search(text)
    if found is None or not found["end"]:
        return None
    at_an_edge = text[found.end() : found.end() + 1] in ("", "\n", "\r") or text[: found.start()].endswith(
        "\n"
    )
    is_shown = text.count(_FENCE, 0, found.start()) % 2 == 1
    return found if at_an_edge and not is_shown else None


def has_leading_reasoning(reply: ModelReply) -> bool:
    """Whether the reply begins with thoughts, and has something behind them."""
    found = None if reply.reasoning else find_reasoning_end(reply.text)
    return found is not None and bool(reply.text[found.end() :].strip() or reply.tool_calls)


def split_reasoning(reply: ModelReply) -> ModelReply:
    """The same reply with its thoughts in their own place."""
    found = find_reasoning_end(reply.text)
    if found is None or not has_leading_reasoning(reply):
        return reply
    thoughts, answer = reply.text[: found.start()].strip(), reply.text[found.end() :].strip()
    return replace(reply, text=answer, reasoning=thoughts)


class ReasoningFilter:
    """Passes on what comes behind the thoughts of a model that is known to begin with them."""

    def __init__(self, on_text: OnText) -> None:
        self._on_text = on_text
        self._held: list[str] | None = []
        self._tail = ""  # the end of what is held: a tag may come in pieces

    def __call__(self, piece: str) -> None:
        if self._held is None:
            self._on_text(piece)
            return
        self._held.append(piece)
        self._tail += piece
        found = _TAG.search(self._tail)
        if found is None or not self._tail[found.end() :].strip():  # what is behind it has not come yet
            cut = found.start() if found is not None else len(self._tail) - _MAX_TAG_LENGTH
            self._tail = self._tail[max(0, cut) :]
            return
        self._release()

    def end(self) -> None:
        """Nothing more will come."""
        if self._held is not None:
            self._release()

    def _release(self) -> None:
        """Of text that begins with no thoughts, nothing is kept back."""
        assert self._held is not None
        text, self._held = "".join(self._held), None
        found = find_reasoning_end(text)
        answer = text if found is None else text[found.end() :].lstrip()
        if answer := answer or text:
            self._on_text(answer)

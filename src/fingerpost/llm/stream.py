"""A streamed reply: chunk by chunk into one whole, text handed over as it comes.

A stream that ends without an end (neither a finish reason nor `[DONE]`) is an
error: half an answer that looks whole is worse than none.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import suppress
from typing import Any, Final, cast

import anyio

from fingerpost.llm.base import ModelReply, ModelUsage, OnText
from fingerpost.llm.drafts import CallDrafts, text_or_nothing
from fingerpost.llm.failures import Setback, broke_off, reported
from fingerpost.llm.fields import (
    entries,
    invalid,
    mapping,
    name_in,
    parsed,
    shown,
    text_in,
    thoughts_in,
    usage_of,
)
from fingerpost.llm.sse import EventReader
from fingerpost.records import as_valid_text

DONE: Final = "[DONE]"
_AFTERWARDS: Final = 0.2  # seconds for the connection to end properly, so that it can be used again
_NOTHING: Final = "a stream in which nothing was said"


class Cut(Exception):
    """The connection broke while a reply was on its way."""


async def assembled(
    pieces: AsyncIterator[bytes], *, model: str, limit: int, on_text: OnText | None
) -> ModelReply | Setback:
    """The reply in a stream of events, or what became of it. `pieces` raises `Cut` when it breaks."""
    reader, reply = EventReader(), Assembly(model, limit)
    hand = on_text or _nobody
    with suppress(Cut):  # whether the reply was there by then, the reply itself knows
        async for piece in pieces:
            for text in filter(None, reply.take(reader.feed(piece))):
                hand(text)
            if reply.ended:
                break
        for text in filter(None, (*reply.take(reader.finish()), reply.rest())):
            hand(text)
        with anyio.move_on_after(_AFTERWARDS):
            async for _ in pieces:
                pass
    return reply.whole()


def _nobody(_: str) -> None:
    """Nobody reads along."""


class Assembly:
    """What has come so far of one streamed reply, of at most `limit` characters."""

    def __init__(self, model: str, limit: int) -> None:
        self._model = model
        self._named = model
        self._limit = limit
        self._written = 0
        self._texts: list[str] = []
        self._half = ""  # of a character whose other half comes with the next piece
        self._refusals: list[str] = []
        self._thoughts: list[str] = []
        self._calls = CallDrafts(model)
        self._finish: str | None = None
        self._usage: ModelUsage | None = None
        self._setback: Setback | None = None
        self._spoke = False  # any choice at all
        self.ended = False  # nothing that follows belongs to the reply

    def take(self, events: list[str]) -> Iterator[str]:
        """Take these events in; gives the text in each."""
        for event in events:
            for chunk in self._chunks(event):
                if self.ended:
                    return
                if chunk is None:
                    self.ended = True
                else:
                    yield self._take(chunk)

    def rest(self) -> str:
        """Text that was held back in the hope of more."""
        half, self._half = as_valid_text(self._half), ""
        self._texts.append(half)
        return half

    def whole(self) -> ModelReply | Setback:
        """The reply, once the stream is over."""
        if self._setback is not None:
            return self._setback
        if not self.ended and self._finish is None:
            return broke_off(self._model)
        if not self._spoke:
            raise invalid(_NOTHING, self._model)
        return ModelReply(
            text="".join(self._texts),
            model=self._named,
            usage=self._usage,
            finish=self._finish,
            tool_calls=self._calls.whole(),
            refusal=as_valid_text("".join(self._refusals)),
            reasoning=as_valid_text("".join(self._thoughts)),
        )

    def _chunks(self, event: str) -> list[Mapping[str, Any] | None]:
        """The object in an event, None for the end.

        They may be several, one a line, from a server that forgets the empty line between them.
        """
        try:
            return [self._chunk(event)]
        except ValueError:
            pass
        try:
            return [self._chunk(line) for line in event.split("\n")]
        except ValueError:
            raise invalid(f"a piece that is not JSON: {shown(event)}", self._model) from None

    def _chunk(self, text: str) -> Mapping[str, Any] | None:
        if text.strip() == DONE:
            return None
        value = parsed(text)
        if not isinstance(value, Mapping):
            raise invalid(f"a piece that is not an object: {shown(text)}", self._model)
        return mapping(cast("object", value))

    def _take(self, chunk: Mapping[str, Any]) -> str:
        if chunk.get("error"):
            self._setback = reported(chunk["error"], self._model)
            self.ended = True
            return ""
        self._named = name_in(chunk, otherwise=self._named)
        self._usage = usage_of(chunk.get("usage")) or self._usage
        for choice in map(mapping, entries(chunk.get("choices"))):
            if choice.get("index", 0) == 0:
                return self._choice(choice)
        return ""

    def _choice(self, choice: Mapping[str, Any]) -> str:
        self._spoke = True
        self._finish = text_or_nothing(choice.get("finish_reason")) or self._finish
        delta = mapping(choice.get("delta"))
        if not delta and not self._written:  # all at once, from a server that only seems to stream
            delta = mapping(choice.get("message"))
        for call in map(mapping, entries(delta.get("tool_calls"))):
            self._count(self._calls.add(call))
        self._set_aside(self._refusals, text_in(delta.get("refusal")))
        self._set_aside(self._thoughts, thoughts_in(delta))
        return self._add(text_in(delta.get("content")))

    def _set_aside(self, place: list[str], written: str) -> None:
        """What is no part of the text: it is there with the whole."""
        self._count(len(written))
        place.append(written)

    def _add(self, written: str) -> str:
        """The text as far as it can be shown: some characters (U+10000 and up) may come in two halves."""
        self._count(len(written))
        text, self._half = self._half + written, ""
        if text and "\ud800" <= text[-1] <= "\udbff":
            text, self._half = text[:-1], text[-1]
        text = as_valid_text(text)
        self._texts.append(text)
        return text

    def _count(self, characters: int) -> None:
        self._written += characters
        if self._written > self._limit:
            raise invalid(f"more than {self._limit:,} characters", self._model)

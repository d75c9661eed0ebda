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
from fingerpost.llm.drafts import ToolCallAssembler, get_text_or_empty
from fingerpost.llm.failures import FailedAttempt, build_broken_off, build_reported
from fingerpost.llm.fields import (
    as_list,
    as_mapping,
    build_invalid_reply,
    format_excerpt,
    parse_json,
    read_model_name,
    read_raw_text,
    read_reasoning,
    read_usage,
)
from fingerpost.llm.sse import ModelEventParser
from fingerpost.records import to_valid_text

DONE_EVENT: Final = "[DONE]"
_AFTER_END_SECONDS: Final = 0.2  # seconds for the connection to end properly, so that it can be used again
_EMPTY_STREAM_MESSAGE: Final = "a stream in which nothing was said"


class StreamBroken(Exception):
    """The connection broke while a reply was on its way."""


async def assemble_reply(
    pieces: AsyncIterator[bytes], *, model: str, limit: int, on_text: OnText | None
) -> ModelReply | FailedAttempt:
    """The reply in a stream of events, or what became of it. `pieces` raises `StreamBroken` when it
    breaks.
    """
    reader, reply = ModelEventParser(), ReplyAssembler(model, limit)
    hand = on_text or _ignore_text
    with suppress(StreamBroken):  # whether the reply was there by then, the reply itself knows
        async for piece in pieces:
            for text in filter(None, reply.add_events(reader.parse(piece))):
                hand(text)
            if reply.ended:
                break
        for text in filter(None, (*reply.add_events(reader.finish()), reply.take_held_text())):
            hand(text)
        with anyio.move_on_after(_AFTER_END_SECONDS):
            async for _ in pieces:
                pass
    return reply.build_reply()


def _ignore_text(_: str) -> None:
    """Nobody reads along."""


class ReplyAssembler:
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
        self._calls = ToolCallAssembler(model)
        self._finish: str | None = None
        self._usage: ModelUsage | None = None
        self._setback: FailedAttempt | None = None
        self._spoke = False  # any choice at all
        self.ended = False  # nothing that follows belongs to the reply

    def add_events(self, events: list[str]) -> Iterator[str]:
        """Take these events in; gives the text in each."""
        for event in events:
            for chunk in self._parse_chunks(event):
                if self.ended:
                    return
                if chunk is None:
                    self.ended = True
                else:
                    yield self._add_chunk(chunk)

    def take_held_text(self) -> str:
        """Text that was held back in the hope of more."""
        half, self._half = to_valid_text(self._half), ""
        self._texts.append(half)
        return half

    def build_reply(self) -> ModelReply | FailedAttempt:
        """The reply, once the stream is over."""
        if self._setback is not None:
            return self._setback
        if not self.ended and self._finish is None:
            return build_broken_off(self._model)
        if not self._spoke:
            raise build_invalid_reply(_EMPTY_STREAM_MESSAGE, self._model)
        return ModelReply(
            text="".join(self._texts),
            model=self._named,
            usage=self._usage,
            finish=self._finish,
            tool_calls=self._calls.build_calls(),
            refusal=to_valid_text("".join(self._refusals)),
            reasoning=to_valid_text("".join(self._thoughts)),
        )

    def _parse_chunks(self, event: str) -> list[Mapping[str, Any] | None]:
        """The object in an event, None for the end.

        They may be several, one a line, from a server that forgets the empty line between them.
        """
        try:
            return [self._parse_chunk(event)]
        except ValueError:
            pass
        try:
            return [self._parse_chunk(line) for line in event.split("\n")]
        except ValueError:
            raise build_invalid_reply(
                f"a piece that is not JSON: {format_excerpt(event)}", self._model
            ) from None

    def _parse_chunk(self, text: str) -> Mapping[str, Any] | None:
        if text.strip() == DONE_EVENT:
            return None
        value = parse_json(text)
        if not isinstance(value, Mapping):
            raise build_invalid_reply(f"a piece that is not an object: {format_excerpt(text)}", self._model)
        return as_mapping(cast("object", value))

    def _add_chunk(self, chunk: Mapping[str, Any]) -> str:
        if chunk.get("error"):
            self._setback = build_reported(chunk["error"], self._model)
            self.ended = True
            return ""
        self._named = read_model_name(chunk, default=self._named)
        self._usage = read_usage(chunk.get("usage")) or self._usage
        for choice in map(as_mapping, as_list(chunk.get("choices"))):
            if choice.get("index", 0) == 0:
                return self._add_choice(choice)
        return ""

    def _add_choice(self, choice: Mapping[str, Any]) -> str:
        self._spoke = True
        self._finish = get_text_or_empty(choice.get("finish_reason")) or self._finish
        delta = as_mapping(choice.get("delta"))
        if not delta and not self._written:  # all at once, from a server that only seems to stream
            delta = as_mapping(choice.get("message"))
        for call in map(as_mapping, as_list(delta.get("tool_calls"))):
            self._count_characters(self._calls.add(call))
        self._add_hidden(self._refusals, read_raw_text(delta.get("refusal")))
        self._add_hidden(self._thoughts, read_reasoning(delta))
        return self._add_text(read_raw_text(delta.get("content")))

    def _add_hidden(self, parts: list[str], written: str) -> None:
        """What is no part of the text: it is there with the whole."""
        self._count_characters(len(written))
        parts.append(written)

    def _add_text(self, written: str) -> str:
        """The text as far as it can be shown: some characters (U+10000 and up) may come in two halves."""
        self._count_characters(len(written))
        text, self._half = self._half + written, ""
        if text and "\ud800" <= text[-1] <= "\udbff":
            text, self._half = text[:-1], text[-1]
        text = to_valid_text(text)
        self._texts.append(text)
        return text

    def _count_characters(self, characters: int) -> None:
        self._written += characters
        if self._written > self._limit:
            raise build_invalid_reply(f"more than {self._limit:,} characters", self._model)

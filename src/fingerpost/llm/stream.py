"""Sends a request, assembles the streamed reply from its events and forwards text as it arrives."""

from __future__ import annotations

import json
import re
import ssl
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, cast

import anyio

from fingerpost.frozen import frozen
from fingerpost.llm.base import ModelReply, ModelUsage, OnText
from fingerpost.llm.content import (
    MAX_REPLY_CALLS,
    as_list,
    as_mapping,
    build_invalid_reply_error,
    format_excerpt,
    parse_json,
    parse_object,
    read_calls,
    read_model_name,
    read_raw_text,
    read_reasoning,
    read_usage,
)
from fingerpost.llm.remote import (
    OPTION_PATTERNS,
    FailedAttempt,
    build_incomplete_failure,
    build_reported_failure,
    build_status_failure,
    build_unreachable_failure,
    is_event_stream,
)
from fingerpost.records import Json, JsonObject, find_json_problem, to_valid_text
from fingerpost.sse import SseEvent, SseParser

if TYPE_CHECKING:
    import httpx2


@dataclass(slots=True, kw_only=True)
class _ToolCallDraft:
    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list[str])
    extra: JsonObject = field(default_factory=dict[str, Json])  # such as Google's thought signature

    def add(self, delta: Mapping[str, Any]) -> int:
        """Add one piece and return the number of characters added."""
        function = as_mapping(delta.get("function"))
        self.id = get_text_or_empty(delta.get("id")) or self.id
        name = get_text_or_empty(function.get("name"))
        if name != self.name:  # some servers repeat the whole name in every piece
            self.name += name
        written = _to_argument_text(function.get("arguments"))
        self.arguments.append(written)
        self.extra = as_mapping(delta.get("extra_content")) or self.extra
        return len(name) + len(written)

    def build_call(self) -> JsonObject:
        arguments = to_valid_text("".join(self.arguments)) or "{}"
        function: JsonObject = {"name": to_valid_text(self.name), "arguments": arguments}
        extra = {"extra_content": self.extra} if self.extra else {}
        return {"id": to_valid_text(self.id), "type": "function", "function": function, **extra}


class ToolCallAssembler:
    """The calls of one streamed reply."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._drafts: list[_ToolCallDraft] = []
        self._drafts_by_index: dict[int, _ToolCallDraft] = {}  # the current call of each index

    def __len__(self) -> int:
        return len(self._drafts)

    def add(self, delta: Mapping[str, Any]) -> int:
        """Add one piece and return the number of characters added."""
        return self._find_or_add_draft(delta).add(delta)

    def build_calls(self) -> tuple[JsonObject, ...]:
        """Return the complete calls, in the order in which they started."""
        return read_calls([draft.build_call() for draft in self._drafts])

    def _find_or_add_draft(self, delta: Mapping[str, Any]) -> _ToolCallDraft:
        """Return the call that this piece belongs to. A new call is added if there is none.

        It is found by the index. For servers that omit it or use the same one for all calls, a new id starts
        a new call.
        """
        index = delta.get("index")
        place = index if isinstance(index, int) else 0
        known, named = self._drafts_by_index.get(place), get_text_or_empty(delta.get("id"))
        if known is not None and (not named or not known.id or named == known.id):
            return known
        if len(self._drafts) >= MAX_REPLY_CALLS:
            raise build_invalid_reply_error(f"more than {MAX_REPLY_CALLS} tool calls at once", self._model)
        draft = self._drafts_by_index[place] = _ToolCallDraft()
        self._drafts.append(draft)
        return draft


def _to_argument_text(arguments: object) -> str:
    """Return the arguments as text. Some servers send an object instead."""
    if isinstance(arguments, str):
        return arguments
    return json.dumps(arguments) if arguments and find_json_problem(arguments) is None else ""


def get_text_or_empty(value: object) -> str:
    return value if isinstance(value, str) else ""


class ModelEventParser:
    """The data of the events in a model's stream, as text."""

    def __init__(self) -> None:
        self._parser = SseParser(sys.maxsize, error_field=True)  # the response as a whole is limited

    def parse(self, piece: bytes) -> list[str]:
        """Return the events that end in this piece."""
        return _read_texts(self._parser.parse(piece))

    def finish(self) -> list[str]:
        """Return the last event, even if it was not ended by an empty line."""
        return _read_texts(self._parser.finish())


def _read_texts(events: list[SseEvent]) -> list[str]:
    """Return the texts of the events, without empty lines."""
    lines = ([line for line in event.data.split(b"\n") if line.strip()] for event in events)
    return [b"\n".join(kept).decode(errors="replace") for kept in lines if kept]


DONE_EVENT: Final = "[DONE]"
_EVENT_STARTS: Final = (b"data:", b"event:", b":")
_AFTER_END_SECONDS: Final = 0.2  # seconds for the connection to end properly, so that it can be reused
_EMPTY_STREAM_MESSAGE: Final = "an empty stream"


class StreamBroken(Exception):
    """The connection broke during a reply."""


@frozen
class HttpPost:
    """One request to a model's API."""

    address: str
    headers: Mapping[str, str]
    body: Mapping[str, Json]
    model: str  # for errors

    async def send(
        self,
        connection: httpx2.AsyncClient,
        reply: ReplyAssembler,
        on_text: OnText | None,
        read_whole: Callable[[bytes], ModelReply | FailedAttempt],
        *,
        options: Mapping[str, re.Pattern[str]] = OPTION_PATTERNS,
    ) -> ModelReply | FailedAttempt:
        """Send it and return the reply, or the failure. `options` find refused options in an error."""
        import httpx2

        headers = {"content-type": "application/json", **self.headers}
        content = json.dumps(self.body).encode()
        try:
            async with connection.stream("POST", self.address, content=content, headers=headers) as response:
                if response.is_success:
                    return await read_response(response, reply, on_text, read_whole)
                body = _parse_error_body(await response.aread())
                return build_status_failure(response, body, self.model, options)
        except StreamBroken:
            return build_incomplete_failure(self.model)
        except (httpx2.HTTPError, httpx2.StreamError, ssl.SSLError, anyio.EndOfStream) as error:
            return build_unreachable_failure(error, self.model)


def _parse_error_body(content: bytes) -> object:
    """Return the error of a response: an object, which Google may put in a list, or a text."""
    try:
        value = parse_json(content)
    except ValueError:
        return format_excerpt(content)
    return next(iter(as_list(value)), value)


async def read_response(
    response: httpx2.Response,
    reply: ReplyAssembler,
    on_text: OnText | None,
    read_whole: Callable[[bytes], ModelReply | FailedAttempt],
) -> ModelReply | FailedAttempt:
    """Return the reply of a successful response, or its failure. `read_whole` reads one without events.

    Raises `StreamBroken` if the connection breaks while there are no events yet.
    """
    forward = on_text or _ignore_text
    async with aclosing(_iterate_body(response)) as pieces:
        if is_event_stream(response):
            return await _assemble_reply(pieces, reply, forward)
        content = b"".join([piece async for piece in pieces])
    if content.lstrip().startswith(_EVENT_STARTS):
        return await _assemble_reply(_iterate_once(content), reply, forward)
    result = read_whole(content)
    if isinstance(result, ModelReply) and result.text:
        forward(result.text)
    return result


async def _assemble_reply(
    pieces: AsyncIterator[bytes], reply: ReplyAssembler, forward: OnText
) -> ModelReply | FailedAttempt:
    reader = ModelEventParser()
    with suppress(StreamBroken):  # `build_reply` determines whether the reply was complete
        async for piece in pieces:
            for text in filter(None, reply.add_events(reader.parse(piece))):
                forward(text)
            if reply.ended:
                break
        for text in filter(None, (*reply.add_events(reader.finish()), reply.take_held_text())):
            forward(text)
        with anyio.move_on_after(_AFTER_END_SECONDS):
            async for _ in pieces:
                pass
    return reply.build_reply()


async def _iterate_body(response: httpx2.Response) -> AsyncGenerator[bytes]:
    """Yield the body as it arrives. Any connection error is raised as `StreamBroken`."""
    import httpx2

    try:
        async with aclosing(response.aiter_bytes()) as pieces:
            async for piece in pieces:
                yield piece
    except (httpx2.HTTPError, httpx2.StreamError, ssl.SSLError, anyio.EndOfStream) as broken:
        raise StreamBroken(str(broken) or type(broken).__name__) from broken


async def _iterate_once(content: bytes) -> AsyncGenerator[bytes]:
    yield content


def _ignore_text(_: str) -> None:
    """Ignore the text."""


ReplyChunk: TypeAlias = Mapping[str, Any]  # in the chat-completions format


class ReplyTranslator(Protocol):
    """Translates the events of another API to chunks. None marks the end of the reply."""

    def translate(self, event: Mapping[str, Any]) -> Sequence[ReplyChunk | None]: ...


class ReplyAssembler:
    """The received part of one streamed reply, of at most `limit` characters."""

    def __init__(self, model: str, limit: int, translator: ReplyTranslator | None = None) -> None:
        self._model = model
        self._translator = translator
        self._reported_model = model
        self._limit = limit
        self._length = 0
        self._texts: list[str] = []
        self._half_character = ""  # the first half of a character; the other half arrives with the next piece
        self._refusals: list[str] = []
        self._thoughts: list[str] = []
        self._calls = ToolCallAssembler(model)
        self._finish: str | None = None
        self._usage: ModelUsage | None = None
        self._failure: FailedAttempt | None = None
        self._has_choice = False  # whether any choice was received
        self.ended = False  # whether the reply is complete

    def add_events(self, events: list[str]) -> Iterator[str]:
        """Add these events and yield the text of each."""
        for event in events:
            yield from self.add_chunks(self._parse_chunks(event))

    def add_chunks(self, chunks: Iterable[ReplyChunk | None]) -> Iterator[str]:
        """Add these chunks and yield the text of each. None marks the end."""
        for chunk in chunks:
            if self.ended:
                return
            if chunk is None:
                self.ended = True
            else:
                yield self._add_chunk(chunk)

    def take_held_text(self) -> str:
        """Return and clear text that was held because a character was incomplete."""
        half, self._half_character = to_valid_text(self._half_character), ""
        self._texts.append(half)
        return half

    def build_reply(self) -> ModelReply | FailedAttempt:
        """Return the reply after the end of the stream."""
        if self._failure is not None:
            return self._failure
        if not self.ended and self._finish is None:
            return build_incomplete_failure(self._model)
        if not self._has_choice:
            raise build_invalid_reply_error(_EMPTY_STREAM_MESSAGE, self._model)
        return ModelReply(
            text="".join(self._texts),
            model=self._reported_model,
            usage=self._usage,
            finish=self._finish,
            tool_calls=self._calls.build_calls(),
            refusal=to_valid_text("".join(self._refusals)),
            reasoning=to_valid_text("".join(self._thoughts)),
        )

    def _parse_chunks(self, event: str) -> Sequence[ReplyChunk | None]:
        """Return the objects of an event; None marks the end.

        There may be several, one per line, if a server omits the empty line between events.
        """
        if self._translator is not None:
            body = parse_object(event)  # anything else is a message of a proxy
            return [body] if body.get("error") else self._translator.translate(body)
        try:
            return [self._parse_chunk(event)]
        except ValueError:
            pass
        try:
            return [self._parse_chunk(line) for line in event.split("\n")]
        except ValueError:
            what = f"a piece that is not JSON: {format_excerpt(event)}"
            raise build_invalid_reply_error(what, self._model) from None

    def _parse_chunk(self, text: str) -> Mapping[str, Any] | None:
        if text.strip() == DONE_EVENT:
            return None
        value = parse_json(text)
        if not isinstance(value, Mapping):
            what = f"a piece that is not an object: {format_excerpt(text)}"
            raise build_invalid_reply_error(what, self._model)
        return as_mapping(cast("object", value))

    def _add_chunk(self, chunk: Mapping[str, Any]) -> str:
        if chunk.get("error"):
            self._failure = build_reported_failure(chunk["error"], self._model)
            self.ended = True
            return ""
        self._reported_model = read_model_name(chunk, default=self._reported_model)
        self._usage = read_usage(chunk.get("usage")) or self._usage
        for choice in map(as_mapping, as_list(chunk.get("choices"))):
            if choice.get("index", 0) == 0:
                return self._add_choice(choice)
        return ""

    def _add_choice(self, choice: Mapping[str, Any]) -> str:
        self._has_choice = True
        self._finish = get_text_or_empty(choice.get("finish_reason")) or self._finish
        delta = as_mapping(choice.get("delta"))
        # The whole message at once, from a server that does not really stream.
        if not delta and not self._length:
            delta = as_mapping(choice.get("message"))
        for call in map(as_mapping, as_list(delta.get("tool_calls"))):
            self._count_characters(self._calls.add(call))
        self._add_hidden(self._refusals, read_raw_text(delta.get("refusal")))
        self._add_hidden(self._thoughts, read_reasoning(delta))
        return self._add_text(read_raw_text(delta.get("content")))

    def _add_hidden(self, parts: list[str], written: str) -> None:
        """Add content that is not part of the streamed text."""
        self._count_characters(len(written))
        parts.append(written)

    def _add_text(self, written: str) -> str:
        """Return the text that can be shown. Characters from U+10000 on may arrive in two halves."""
        self._count_characters(len(written))
        text, self._half_character = self._half_character + written, ""
        if text and "\ud800" <= text[-1] <= "\udbff":
            text, self._half_character = text[:-1], text[-1]
        text = to_valid_text(text)
        self._texts.append(text)
        return text

    def _count_characters(self, characters: int) -> None:
        self._length += characters
        if self._length > self._limit:
            raise build_invalid_reply_error(f"more than {self._limit:,} characters", self._model)

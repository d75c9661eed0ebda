"""Answers as chat completions, whole or streamed, with the field `fingerpost` and its headers."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from typing import Any, Final

import anyio

from fingerpost.events import RequestNarrowed
from fingerpost.records import Json, JsonObject
from fingerpost.surfaces.http.asgi import (
    EVENT_STREAM_HEADERS,
    HEARTBEAT_S,
    EventStream,
    Header,
    HttpError,
    Send,
)
from fingerpost.surfaces.openai.errors import encode_json, format_error
from fingerpost.surfaces.openai.messages import ChatRequest
from fingerpost.surfaces.openai.requests import CompletionResult, get_unstreamed_text

MAX_HEADER_LENGTH: Final = 1000


def build_extension(result: CompletionResult) -> JsonObject:
    """Build the field `fingerpost`: the decisions made for this answer."""
    route = result.route
    shortlist = None if route.narrowing is None else route.narrowing.shortlist
    fields: dict[str, Json] = {
        "packet_id": route.packet_id,
        "outcome": route.outcome.value,
        "mode": route.mode.value,
        "tools_considered": 0 if shortlist is None else shortlist.considered,
        "tools_offered": list(route.packet.context.available_tools),
        "tools_used": list(get_used_tools(result)),
        "saved_tokens": count_saved_tokens(result),
        "sources": list(route.sources),
        "profile": route.packet.context.profile,
        "directives": list(route.directives),
        "milliseconds": round(result.milliseconds, 1),
        "model_milliseconds": round(result.model_milliseconds, 1),
    }
    if route.left_out:
        fields["shortened"] = {"messages_left_out": route.left_out}
    if result.approve_at is not None and route.pending is not None:
        fields["pending_id"] = route.pending.pending_id
        fields["approve_at"] = result.approve_at
    return fields


def get_used_tools(result: CompletionResult) -> tuple[str, ...]:
    """Return each called tool once, in order."""
    return tuple(dict.fromkeys(step.tool for step in result.route.packet.tool_routing.steps))


def count_saved_tokens(result: CompletionResult) -> int:
    """Return the tokens of all tool definitions minus those of the offered ones."""
    for part in result.parts:
        for event in part.events:
            if isinstance(event, RequestNarrowed):
                return event.saved_tokens or 0
    return 0


def build_id_headers(packet_id: str) -> tuple[Header, ...]:
    """Return the headers that identify the request."""
    value = packet_id.encode()
    return ((b"x-request-id", value), (b"x-fingerpost-packet", value))


def build_result_headers(result: CompletionResult) -> tuple[Header, ...]:
    """Return the headers that are known only at the end. Streams do not have them."""
    used = ", ".join(get_used_tools(result)).encode("ascii", "replace")[:MAX_HEADER_LENGTH]
    return (
        *build_id_headers(result.route.packet_id),
        (b"x-fingerpost-tools-used", used),
        (b"x-fingerpost-saved-tokens", str(count_saved_tokens(result)).encode()),
    )


FIRST_HEARTBEAT_S: Final = 10.0  # after this the response starts, even if it ends in an error
DONE_PAYLOAD: Final = b"[DONE]"


class LateEventStream(EventStream):
    """An event stream that sends its response head with the first event."""

    def __init__(self, send: Send, headers: tuple[Header, ...]) -> None:
        super().__init__(send)
        self._headers = headers
        self._writing = anyio.Lock(fast_acquire=True)  # one frame is sent for each piece of an answer
        self.opened = False

    def add_headers(self, headers: tuple[Header, ...]) -> None:
        """Add headers before the first event."""
        self._headers = (*self._headers, *headers)

    async def keep_alive(self) -> None:
        await anyio.sleep(FIRST_HEARTBEAT_S)
        while True:
            await self.send_comment()
            await anyio.sleep(HEARTBEAT_S)

    async def close(self) -> None:
        if self.opened:
            await self._send({"type": "http.response.body", "body": b""})

    async def _send_frame(self, frame: bytes) -> None:
        if not self.opened:
            self.opened = True
            headers = [*EVENT_STREAM_HEADERS, *self._headers]
            await self._send({"type": "http.response.start", "status": 200, "headers": headers})
        await super()._send_frame(frame)


def build_chat_completion(result: CompletionResult, request: ChatRequest, *, extension: bool) -> JsonObject:
    """Build a `chat.completion`."""
    message: dict[str, Json] = {"role": "assistant", "content": result.text, "refusal": None}
    if result.refusal:
        message["content"], message["refusal"] = None, result.refusal
    if result.reasoning:
        message["reasoning_content"] = result.reasoning
    if result.route.tool_calls:
        message["content"] = result.text or None
        message["tool_calls"] = list(result.route.tool_calls)
    body: dict[str, Json] = {
        "id": f"chatcmpl-{result.route.packet_id}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": request.model,
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": result.finish}],
        "usage": build_usage(result),
        "system_fingerprint": None,
    }
    if extension:
        body["fingerpost"] = build_extension(result)
    return body


def build_usage(result: CompletionResult) -> JsonObject:
    """Return the tokens of all models that were used."""
    total = result.prompt_tokens + result.completion_tokens
    return {
        "prompt_tokens": result.prompt_tokens,
        "completion_tokens": result.completion_tokens,
        "total_tokens": total,
    }


class AnswerStream(ABC):
    """Streams an answer while it is produced: an `AnswerListener` that also sends the end."""

    def __init__(self, stream: LateEventStream, request: ChatRequest, *, extension: bool) -> None:
        self._stream = stream
        self._request = request
        self._extension = extension
        self._packet_id = ""
        self._created = int(time.time())
        self._pieces: list[str] = []
        self._begun = False  # whether the first event was sent

    async def on_start(self, packet_id: str) -> None:
        self._packet_id = packet_id
        if not self._stream.opened:
            self._stream.add_headers(build_id_headers(packet_id))

    async def on_note(self, text: str) -> None:
        await self._stream.send_comment(text)

    @abstractmethod
    async def on_text(self, piece: str) -> None: ...

    async def finish(self, result: CompletionResult) -> None:
        """Send the rest of the answer and the final events."""
        if not self._packet_id:  # a resumed request already has an id
            await self.on_start(result.route.packet_id)
        await self._finish(result)

    @abstractmethod
    async def _finish(self, result: CompletionResult) -> None: ...

    @abstractmethod
    async def fail(self, error: HttpError) -> None:
        """Report an error inside the stream."""


class ChatStream(AnswerStream):
    """Streams chunks: the role, text, calls of the caller's tools, the finish reason, usage."""

    async def on_text(self, piece: str) -> None:
        self._pieces.append(piece)
        await self._send_delta({"content": piece})

    async def _finish(self, result: CompletionResult) -> None:
        if result.reasoning:  # only now is it known which turn was the answer
            await self._send_delta({"reasoning_content": result.reasoning})
        if rest := get_unstreamed_text(result.text, "".join(self._pieces)):
            await self.on_text(rest)
        if result.refusal:
            await self._send_delta({"refusal": result.refusal})
        if calls := result.route.tool_calls:
            await self._send_delta({"tool_calls": [{"index": at, **call} for at, call in enumerate(calls)]})
        last = self._build_chunk([_build_choice({}, result.finish)])
        if self._extension:
            last["fingerpost"] = build_extension(result)
        await self._send_role()
        await self._stream.send_event(encode_json(last))
        if self._request.include_usage:
            await self._stream.send_event(
                encode_json({**self._build_chunk([]), "usage": build_usage(result)})
            )
        await self._stream.send_event(DONE_PAYLOAD)

    async def fail(self, error: HttpError) -> None:
        await self._stream.send_event(encode_json(format_error(error)))

    async def _send_delta(self, delta: dict[str, Any]) -> None:
        await self._send_role()
        await self._stream.send_event(encode_json(self._build_chunk([_build_choice(delta, None)])))

    async def _send_role(self) -> None:
        if not self._begun:
            self._begun = True
            first = _build_choice({"role": "assistant", "content": "", "refusal": None}, None)
            await self._stream.send_event(encode_json(self._build_chunk([first])))

    def _build_chunk(self, choices: list[dict[str, Any]]) -> dict[str, Any]:
        chunk: dict[str, Any] = {
            "id": f"chatcmpl-{self._packet_id}",
            "object": "chat.completion.chunk",
            "created": self._created,
            "model": self._request.model,
            "choices": choices,
            "system_fingerprint": None,
        }
        if self._request.include_usage:
            chunk["usage"] = None
        return chunk


def _build_choice(delta: dict[str, Any], finish: str | None) -> dict[str, Any]:
    return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}

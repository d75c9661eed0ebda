"""The answer as a chat completion, whole or in pieces."""

from __future__ import annotations

import time
from typing import Any

from fingerpost.records import Json, JsonObject
from fingerpost.surfaces.completions.bodies import encode_json
from fingerpost.surfaces.completions.extension import build_extension, build_id_headers
from fingerpost.surfaces.completions.faults import format_error
from fingerpost.surfaces.completions.line import DONE_FRAME, LateEventStream
from fingerpost.surfaces.completions.reading import ChatRequest
from fingerpost.surfaces.completions.turns import CompletionResult, get_unstreamed_text
from fingerpost.surfaces.web.asgi import HttpError


def build_chat_completion(result: CompletionResult, request: ChatRequest, *, extension: bool) -> JsonObject:
    """A `chat.completion`."""
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
    """The tokens of every model that was asked on the way."""
    total = result.prompt_tokens + result.completion_tokens
    return {
        "prompt_tokens": result.prompt_tokens,
        "completion_tokens": result.completion_tokens,
        "total_tokens": total,
    }


class ChatStream:
    """Chunks: first the role, then text, calls of the caller's tools, the reason of the end, usage."""

    def __init__(self, stream: LateEventStream, request: ChatRequest, *, extension: bool) -> None:
        self._line = stream
        self._question = request
        self._extension = extension
        self._id = "chatcmpl-"
        self._created = int(time.time())
        self._said: list[str] = []
        self._introduced = False

    async def on_start(self, packet_id: str) -> None:
        self._id = f"chatcmpl-{packet_id}"
        if not self._line.opened:
            self._line.add_headers(build_id_headers(packet_id))

    async def on_text(self, piece: str) -> None:
        self._said.append(piece)
        await self._send_delta({"content": piece})

    async def on_note(self, text: str) -> None:
        await self._line.send_comment(text)

    async def finish(self, result: CompletionResult) -> None:
        """Everything that is left to say."""
        if self._id == "chatcmpl-":  # a request that was gone on with had its id before
            await self.on_start(result.route.packet_id)
        if result.reasoning:  # only now it is known which turn was the answer
            await self._send_delta({"reasoning_content": result.reasoning})
        if rest := get_unstreamed_text(result.text, "".join(self._said)):
            await self.on_text(rest)
        if result.refusal:
            await self._send_delta({"refusal": result.refusal})
        if calls := result.route.tool_calls:
            await self._send_delta({"tool_calls": [{"index": at, **call} for at, call in enumerate(calls)]})
        last = self._build_chunk([_build_choice({}, result.finish)])
        if self._extension:
            last["fingerpost"] = build_extension(result)
        await self._send_role()
        await self._line.send_event(encode_json(last))
        if self._question.include_usage:
            await self._line.send_event(encode_json({**self._build_chunk([]), "usage": build_usage(result)}))
        await self._line.send_event(DONE_FRAME)

    async def fail(self, error: HttpError) -> None:
        """The answer breaks off: the client is told in the stream."""
        await self._line.send_event(encode_json(format_error(error)))

    async def _send_delta(self, delta: dict[str, Any]) -> None:
        await self._send_role()
        await self._line.send_event(encode_json(self._build_chunk([_build_choice(delta, None)])))

    async def _send_role(self) -> None:
        if not self._introduced:
            self._introduced = True
            first = _build_choice({"role": "assistant", "content": "", "refusal": None}, None)
            await self._line.send_event(encode_json(self._build_chunk([first])))

    def _build_chunk(self, choices: list[dict[str, Any]]) -> dict[str, Any]:
        chunk: dict[str, Any] = {
            "id": self._id,
            "object": "chat.completion.chunk",
            "created": self._created,
            "model": self._question.model,
            "choices": choices,
            "system_fingerprint": None,
        }
        if self._question.include_usage:
            chunk["usage"] = None
        return chunk


def _build_choice(delta: dict[str, Any], finish: str | None) -> dict[str, Any]:
    return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}

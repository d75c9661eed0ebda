"""The answer as a chat completion, whole or in pieces."""

from __future__ import annotations

import time
from typing import Any

from fingerpost.records import Json, JsonObject
from fingerpost.surfaces.completions.bodies import encode
from fingerpost.surfaces.completions.extension import extension_of, id_headers
from fingerpost.surfaces.completions.faults import told
from fingerpost.surfaces.completions.line import DONE, Line
from fingerpost.surfaces.completions.reading import Question
from fingerpost.surfaces.completions.turns import Ended, rest_of
from fingerpost.surfaces.web.asgi import Fault


def whole(ended: Ended, question: Question, *, extension: bool) -> JsonObject:
    """A `chat.completion`."""
    message: dict[str, Json] = {"role": "assistant", "content": ended.text, "refusal": None}
    if ended.refusal:
        message["content"], message["refusal"] = None, ended.refusal
    if ended.reasoning:
        message["reasoning_content"] = ended.reasoning
    if ended.route.tool_calls:
        message["content"] = ended.text or None
        message["tool_calls"] = list(ended.route.tool_calls)
    body: dict[str, Json] = {
        "id": f"chatcmpl-{ended.route.packet_id}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": question.model,
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": ended.finish}],
        "usage": usage_of(ended),
        "system_fingerprint": None,
    }
    if extension:
        body["fingerpost"] = extension_of(ended)
    return body


def usage_of(ended: Ended) -> JsonObject:
    """The tokens of every model that was asked on the way."""
    total = ended.prompt_tokens + ended.completion_tokens
    return {
        "prompt_tokens": ended.prompt_tokens,
        "completion_tokens": ended.completion_tokens,
        "total_tokens": total,
    }


class ChatStream:
    """Chunks: first the role, then text, calls of the caller's tools, the reason of the end, usage."""

    def __init__(self, line: Line, question: Question, *, extension: bool) -> None:
        self._line = line
        self._question = question
        self._extension = extension
        self._id = "chatcmpl-"
        self._created = int(time.time())
        self._said: list[str] = []
        self._introduced = False

    async def began(self, packet_id: str) -> None:
        self._id = f"chatcmpl-{packet_id}"
        if not self._line.opened:
            self._line.add(id_headers(packet_id))

    async def text(self, piece: str) -> None:
        self._said.append(piece)
        await self._delta({"content": piece})

    async def note(self, words: str) -> None:
        await self._line.comment(words)

    async def finish(self, ended: Ended) -> None:
        """Everything that is left to say."""
        if self._id == "chatcmpl-":  # a request that was gone on with had its id before
            await self.began(ended.route.packet_id)
        if ended.reasoning:  # only now it is known which turn was the answer
            await self._delta({"reasoning_content": ended.reasoning})
        if rest := rest_of(ended.text, "".join(self._said)):
            await self.text(rest)
        if ended.refusal:
            await self._delta({"refusal": ended.refusal})
        if calls := ended.route.tool_calls:
            await self._delta({"tool_calls": [{"index": at, **call} for at, call in enumerate(calls)]})
        last = self._chunk([_choice({}, ended.finish)])
        if self._extension:
            last["fingerpost"] = extension_of(ended)
        await self._introduce()
        await self._line.data(encode(last))
        if self._question.include_usage:
            await self._line.data(encode({**self._chunk([]), "usage": usage_of(ended)}))
        await self._line.data(DONE)

    async def fail(self, fault: Fault) -> None:
        """The answer breaks off: the client is told in the stream."""
        await self._line.data(encode(told(fault)))

    async def _delta(self, delta: dict[str, Any]) -> None:
        await self._introduce()
        await self._line.data(encode(self._chunk([_choice(delta, None)])))

    async def _introduce(self) -> None:
        if not self._introduced:
            self._introduced = True
            first = _choice({"role": "assistant", "content": "", "refusal": None}, None)
            await self._line.data(encode(self._chunk([first])))

    def _chunk(self, choices: list[dict[str, Any]]) -> dict[str, Any]:
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


def _choice(delta: dict[str, Any], finish: str | None) -> dict[str, Any]:
    return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}

"""The answer as a response, whole or as events."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final, cast

from fingerpost.records import Json, JsonObject
from fingerpost.surfaces.completions.bodies import encode, fields_of
from fingerpost.surfaces.completions.extension import extension_of, id_headers
from fingerpost.surfaces.completions.faults import told
from fingerpost.surfaces.completions.line import Line
from fingerpost.surfaces.completions.reading import Question
from fingerpost.surfaces.completions.turns import Ended, rest_of
from fingerpost.surfaces.web.asgi import Fault

_DEFAULTS: Final[JsonObject] = {
    "error": None,
    "incomplete_details": None,
    "instructions": None,
    "max_output_tokens": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "previous_response_id": None,
    "reasoning": {"effort": None, "summary": None},
    "store": False,
    "temperature": None,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "tools": [],
    "top_p": None,
    "truncation": "disabled",
    "usage": None,
    "user": None,
}


def whole(ended: Ended, question: Question, *, extension: bool) -> JsonObject:
    """A `response`."""
    made = _response(ended.route.packet_id, int(time.time()), question)
    return _completed(made, ended, extension=extension)


def _response(packet_id: str, created: int, question: Question) -> dict[str, Any]:
    return {
        "id": f"resp_{packet_id}",
        "object": "response",
        "created_at": created,
        "status": "in_progress",
        "model": question.model,
        "output": [],
        **_DEFAULTS,
        **question.echo,
    }


def _completed(made: Mapping[str, Any], ended: Ended, *, extension: bool) -> dict[str, Any]:
    short = ended.finish in ("length", "content_filter")
    reason = "content_filter" if ended.finish == "content_filter" else "max_output_tokens"
    body: dict[str, Any] = {
        **made,
        "status": "incomplete" if short else "completed",
        "incomplete_details": {"reason": reason} if short else None,
        "output": _items(ended),
        "usage": {
            "input_tokens": ended.prompt_tokens,
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": ended.completion_tokens,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": ended.prompt_tokens + ended.completion_tokens,
        },
    }
    if extension:
        body["fingerpost"] = extension_of(ended)
    return body


def _items(ended: Ended) -> list[JsonObject]:
    """The text, where there is some, and the calls of the caller's own tools."""
    calls = [_call(call) for call in ended.route.tool_calls]
    if not ended.text and calls:
        return calls
    part = _refusal(ended.refusal) if ended.refusal else _text(ended.text)
    return [_message(ended.route.packet_id, part, "completed"), *calls]


def _message(packet_id: str, part: JsonObject | None, status: str) -> JsonObject:
    content: list[Json] = [] if part is None else [part]
    item_id = f"msg_{packet_id}"
    return {"type": "message", "id": item_id, "status": status, "role": "assistant", "content": content}


def _text(text: str) -> JsonObject:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _refusal(text: str) -> JsonObject:
    return {"type": "refusal", "refusal": text}


def _call(call: JsonObject, *, arguments: str | None = None, status: str = "completed") -> JsonObject:
    function = fields_of(call.get("function"))
    return {
        "type": "function_call",
        "id": f"fc_{call.get('id', '')}",
        "call_id": call.get("id", ""),
        "name": cast("Json", function.get("name", "")),
        "arguments": cast("Json", function.get("arguments", "{}")) if arguments is None else arguments,
        "status": status,
    }


class ResponseStream:
    """Events, each with its number: created, text piece by piece, calls, completed."""

    def __init__(self, line: Line, question: Question, *, extension: bool) -> None:
        self._line = line
        self._question = question
        self._extension = extension
        self._packet_id = ""
        self._created = int(time.time())
        self._said: list[str] = []
        self._number = 0
        self._introduced = False

    async def began(self, packet_id: str) -> None:
        self._packet_id = packet_id
        if not self._line.opened:
            self._line.add(id_headers(packet_id))

    async def text(self, piece: str) -> None:
        await self._introduce()
        if not self._said:
            await self._item("added", 0, _message(self._packet_id, None, "in_progress"))
            await self._part("added", _text(""))
        self._said.append(piece)
        await self._tell("response.output_text.delta", **self._at(), delta=piece, logprobs=[])

    async def note(self, words: str) -> None:
        await self._line.comment(words)

    async def finish(self, ended: Ended) -> None:
        """Everything that is left to say."""
        if not self._packet_id:  # a request that was gone on with had its id before
            await self.began(ended.route.packet_id)
        calls = ended.route.tool_calls
        rest = rest_of(ended.text, "".join(self._said))
        if ended.refusal and not self._said:
            await self._refuse(ended.refusal)
        elif rest or not (self._said or calls):
            await self.text(rest)
        await self._introduce()
        if self._said:
            await self._end_text(ended.text)
        for index, call in enumerate(calls, start=int(bool(self._said))):
            await self._tell_call(index, call)
        final = _completed(self._response(), ended, extension=self._extension)
        kind = "response.incomplete" if final["status"] == "incomplete" else "response.completed"
        await self._tell(kind, response=final)

    async def fail(self, fault: Fault) -> None:
        """The answer breaks off: the client is told in the stream."""
        error = fields_of(told(fault)["error"])
        named = {name: error.get(name) for name in ("code", "message", "param")}
        await self._tell("error", **named)

    async def _end_text(self, text: str) -> None:
        await self._tell("response.output_text.done", **self._at(), text=text, logprobs=[])
        await self._end_part(_text(text))

    async def _refuse(self, words: str) -> None:
        """A part of its own kind, at once: a refusal is short."""
        await self._introduce()
        await self._item("added", 0, _message(self._packet_id, None, "in_progress"))
        await self._part("added", _refusal(""))
        await self._tell("response.refusal.delta", **self._at(), delta=words)
        await self._tell("response.refusal.done", **self._at(), refusal=words)
        await self._end_part(_refusal(words))

    async def _end_part(self, part: JsonObject) -> None:
        await self._part("done", part)
        await self._item("done", 0, _message(self._packet_id, part, "completed"))

    async def _tell_call(self, index: int, call: JsonObject) -> None:
        begun, ended = _call(call, arguments="", status="in_progress"), _call(call)
        at = {"item_id": ended["id"], "output_index": index}
        await self._item("added", index, begun)
        await self._tell("response.function_call_arguments.delta", **at, delta=ended["arguments"])
        await self._tell(
            "response.function_call_arguments.done",
            **at,
            arguments=ended["arguments"],
            name=ended["name"],
        )
        await self._item("done", index, ended)

    def _at(self) -> dict[str, Any]:
        return {"item_id": f"msg_{self._packet_id}", "output_index": 0, "content_index": 0}

    def _response(self) -> dict[str, Any]:
        return _response(self._packet_id, self._created, self._question)

    async def _introduce(self) -> None:
        if not self._introduced:
            self._introduced = True
            await self._tell("response.created", response=self._response())
            await self._tell("response.in_progress", response=self._response())

    async def _item(self, what: str, index: int, item: JsonObject) -> None:
        await self._tell(f"response.output_item.{what}", output_index=index, item=item)

    async def _part(self, what: str, part: JsonObject) -> None:
        await self._tell(f"response.content_part.{what}", **self._at(), part=part)

    async def _tell(self, kind: str, **fields: Any) -> None:
        event = {"type": kind, "sequence_number": self._number, **fields}
        self._number += 1
        await self._line.data(encode(event), event=kind)
